package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRemoteClass(t *testing.T) {
	t.Parallel()
	offer := []Class{{Name: "a"}, {Name: "b", Default: true}, {Name: "c", Default: true}}
	cases := map[string]struct {
		own     string
		offered []Class
		want    string
	}{
		"nothing offered":        {"a", nil, ""},
		"offered":                {"a", offer, "a"},
		"offered after others":   {"c", offer, "c"},
		"not offered":            {"x", offer, "b"},
		"none":                   {"", offer, "b"},
		"no default":             {"x", offer[:1], ""},
		"none, one without name": {"", []Class{{}}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, remoteClass(tc.own, tc.offered))
		})
	}
}
