package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNetworksAreRun: the table of networks has the results that the tests wrote, and no others.
func TestNetworksAreRun(t *testing.T) {
	t.Parallel()
	want := must(networksOf(".."))
	have := must(os.ReadFile(filepath.Join("..", networksPage)))
	require.True(t, bytes.Equal(want, have), "%s is out of date: go run ./hack networks", networksPage)
}

func TestNetworksOf(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{networksPath, "docs"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	write := func(path, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
	write(networksPath+"/a.json", `{"kubernetes": "v1.2.3", "plugin": "flannel", "proxy": "iptables", "families": "IPv4", "with": "addresses kept", "passed": true}`)
	write(networksPath+"/b.json", `{"kubernetes": "v1.2.3", "plugin": "bridge", "proxy": "nftables", "families": "IPv6", "passed": false}`)
	require.ErrorContains(t, writeNetworks(root), "no such file")
	write(networksPage, "no table\n")
	require.ErrorContains(t, writeNetworks(root), "no place for the table")
	write(networksPage, "before\n"+networksHead+"old\n"+networksEnd+"after\n")
	require.NoError(t, writeNetworks(root))
	page := must(os.ReadFile(filepath.Join(root, networksPage)))
	require.Equal(t, "before\n"+networksHead+`
| plugin | kube-proxy | addresses of pods | Kubernetes | result |
|---|---|---|---|---|
| bridge | nftables | IPv6 | v1.2.3 | **failed** |
| flannel, addresses kept | iptables | IPv4 | v1.2.3 | passed |

`+networksEnd+"after\n", string(page))
	write(networksPath+"/c.json", "{")
	require.ErrorContains(t, writeNetworks(root), "c.json")
}
