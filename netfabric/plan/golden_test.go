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
	cut := rome()
	cut.Via = ""
	return map[string]State{
		"node":                 planHost(t, Node, rome(), "rome-1"),
		"node-without-gateway": planHost(t, Node, cut, "rome-2"),
		"gateway":              planHost(t, Gateway, rome(), "gw-a"),
		"gateway-of-milan":     planHost(t, Gateway, milan(), "gw-b"),
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, s := range planned(t) {
		checkState(t, s)
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
