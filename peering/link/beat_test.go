package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/health"
)

func TestBeat(t *testing.T) {
	t.Parallel()
	const interval = 2 * time.Second
	type step struct {
		at   time.Duration // since the beginning
		what string        // renewed, silent: read without a change, unread
		want string        // the verdict after it; "!" before it: it has just changed
	}
	for name, steps := range map[string][]step{
		"the first renewal":       {{time.Second, "renewed", "!Up"}, {3 * time.Second, "renewed", "Up"}},
		"none in three intervals": {{3 * time.Second, "silent", "Unknown"}, {5999 * time.Millisecond, "silent", "Unknown"}, {6 * time.Second, "silent", "!Down"}, {9 * time.Second, "silent", "Down"}},
		"two are missed":          {{0, "renewed", "!Up"}, {5 * time.Second, "silent", "Up"}, {5900 * time.Millisecond, "renewed", "Up"}, {11 * time.Second, "silent", "Up"}},
		"three are missed":        {{0, "renewed", "!Up"}, {6 * time.Second, "silent", "!Down"}},
		"one is no return": {{6 * time.Second, "silent", "!Down"}, {7 * time.Second, "renewed", "Down"}, {13 * time.Second, "renewed", "Down"},
			{20 * time.Second, "renewed", "Down"}},
		"two in a row are": {{6 * time.Second, "silent", "!Down"}, {time.Minute, "renewed", "Down"}, {62 * time.Second, "renewed", "!Up"},
			{64 * time.Second, "renewed", "Up"}, {70 * time.Second, "silent", "!Down"}, {71 * time.Second, "renewed", "Down"}},
		"nobody can renew while this API server is away": {{0, "renewed", "!Up"}, {3 * time.Second, "unread", "Up"}, {time.Minute, "unread", "Up"},
			{65 * time.Second, "silent", "Up"}, {66 * time.Second, "silent", "!Down"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			b := &beat{version: "0", since: begin}
			for i, s := range steps {
				now, changed := begin.Add(s.at), false
				switch s.what {
				case "renewed":
					version := s.at.String() + " "
					changed = b.seen(version, now, interval)
					require.False(t, b.seen(version, now, interval), "the same version is no renewal")
				case "silent":
					changed = b.silent(now, interval)
				case "unread":
					b.unread(now)
				}
				got := b.verdict.String()
				if changed {
					got = "!" + got
				}
				require.Equal(t, s.want, got, "step %d", i)
				_, reads := b.due(interval)
				require.Equal(t, b.verdict != health.Down, reads)
			}
		})
	}
}
