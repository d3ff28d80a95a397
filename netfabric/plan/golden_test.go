package plan

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/*.txt anew")

// planned are the states whose text is in testdata.
func planned(t *testing.T) map[string]State {
	t.Helper()
	out := map[string]State{}
	add := func(name string, build func(Input) (State, error), in Input, self string) {
		in.Self = self
		s, err := build(in)
		require.NoError(t, err)
		out[name] = s
	}
	cut := rome()
	cut.Via = ""
	add("node", Node, rome(), "rome-1")
	add("node-without-gateway", Node, cut, "rome-2")
	add("gateway", Gateway, rome(), "gw-a")
	add("gateway-of-milan", Gateway, milan(), "gw-b")
	return out
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, s := range planned(t) {
		path := filepath.Join("testdata", name+".txt")
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, []byte(s.String()), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		how := "go test ./netfabric/plan -run TestGolden -update writes " + path
		add, del := Diff(strings.Split(s.String(), "\n"), strings.Split(string(want), "\n"))
		require.Empty(t, add, how)
		require.Empty(t, del, how)
		require.True(t, string(want) == s.String(), how)
	}
}
