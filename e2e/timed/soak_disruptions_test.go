package timed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	denyList, allowList = "DenyList", "AllowList"
	// leastBetween is the time between two disruptions: a vkubelet that starts waits for the
	// Lease of the one that was killed.
	leastBetween       = 8 * time.Second
	longestServerPause = 15 * time.Second
	stopGrace          = 40 * time.Second
)

// settings decide, beside the objects, which objects and labels are reflected.
type settings struct {
	// policies of the kinds, by name.
	policies map[string]string
	// skipped are keys of labels that are not reflected.
	skipped []string
}

// disruptor kills and pauses processes and changes settings, one after the other. set has the
// settings in effect.
type disruptor struct {
	w      *soakWorld
	kinds  []kind
	set    settings
	r      *rand.Rand
	counts map[string]int // by name of the disruption
}

func newDisruptor(w *soakWorld, all []kind) *disruptor {
	d := &disruptor{w: w, kinds: all, r: rand.New(rand.NewPCG(*seed, 3)), counts: map[string]int{}, set: settings{policies: map[string]string{}}}
	for _, k := range all {
		d.set.policies[k.name] = denyList
	}
	return d
}

// disruption kills, pauses or changes one thing.
type disruption struct {
	name string
	do   func(*disruptor, *testing.T)
}

// disruptions are those of so much time: two pauses of the provider's API server, one of the
// consumer's, and the others in turns.
func disruptions(length time.Duration) []disruption {
	turns := []disruption{
		{"vkubelet killed", (*disruptor).killVKubelet},
		{"labels skipped", (*disruptor).skipLabels},
		{"policies changed", (*disruptor).policies},
		{"provider's controller killed", func(d *disruptor, t *testing.T) { require.NoError(t, d.w.Sites.Restart(&d.w.Milan.Controller)) }},
		{"vkubelet killed", (*disruptor).killVKubelet},
	}
	n := max(6, int(length/max(leastBetween, length/40)))
	out := make([]disruption, n)
	for i := range out {
		out[i] = turns[i%len(turns)]
	}
	out[n/4] = disruption{"provider paused", func(d *disruptor, t *testing.T) { d.pause(t, d.w.Milan, length) }}
	out[n/2] = disruption{"consumer paused", func(d *disruptor, t *testing.T) { d.pause(t, d.w.Rome, length) }}
	out[3*n/4] = out[n/4]
	return out
}

// run spreads the disruptions over the time.
func (d *disruptor) run(t *testing.T, length time.Duration) {
	t.Helper()
	all, begin := disruptions(length), time.Now()
	for i, next := range all {
		waitUntil(t, begin.Add(length*time.Duration(i+1)/time.Duration(len(all)+1)))
		t.Logf("%s: %s", time.Since(begin).Round(time.Second), next.name)
		next.do(d, t)
		d.counts[next.name]++
	}
	waitUntil(t, begin.Add(length))
}

func waitUntil(t *testing.T, at time.Time) {
	t.Helper()
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		require.NoError(t, t.Context().Err())
	}
}

func (d *disruptor) killVKubelet(t *testing.T) {
	require.NoError(t, d.w.Sites.Restart(d.w.Rome.VKubelet(provider)))
}

// policies restarts the vkubelet, as a rollout does, with other policies.
func (d *disruptor) policies(t *testing.T) {
	for _, k := range d.kinds {
		if k.policy {
			d.set.policies[k.name] = one(d.r, denyList, denyList, allowList)
		}
	}
	p := d.w.Rome.VKubelet(provider)
	require.NoError(t, (*p).Stop(t.Context(), stopGrace))
	again := (*p).Options
	again.Args = slices.DeleteFunc(slices.Clone(again.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--reflection.") && strings.Contains(arg, ".type=")
	})
	for _, k := range d.kinds {
		if k.policy {
			again.Args = append(again.Args, fmt.Sprintf("--reflection.%s.type=%s", k.name, d.set.policies[k.name]))
		}
	}
	started, err := d.w.Sites.Lab.Process(again)
	require.NoError(t, err)
	*p = started
}

// skipLabels excludes a label from reflection, or includes it again.
func (d *disruptor) skipLabels(t *testing.T) {
	body := `{"spec":{"offloadingPatch":null}}`
	if len(d.set.skipped) == 0 {
		d.set.skipped = []string{homePrefix + "stays"}
		body = fmt.Sprintf(`{"spec":{"offloadingPatch":{"labelsNotReflected":[%q]}}}`, d.set.skipped[0])
	} else {
		d.set.skipped = nil
	}
	require.NoError(t, lab.Within(t.Context(), time.Minute, func(ctx context.Context) error {
		_, err := d.w.Rome.Liqod().OffloadingV1beta1().VirtualNodes(tenant).Patch(ctx, provider, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: user})
		return err
	}))
}

// pause pauses an API server for a while.
func (d *disruptor) pause(t *testing.T, s *site.Site, length time.Duration) {
	s.PauseAPIServer()
	waitUntil(t, time.Now().Add(min(longestServerPause, length/8)))
	s.ResumeAPIServer()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.WaitReady(ctx))
}
