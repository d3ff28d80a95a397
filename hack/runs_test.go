package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRunsAreWritten: the tables have the results that the tests wrote, and no others.
func TestRunsAreWritten(t *testing.T) {
	t.Parallel()
	for _, table := range ranTables() {
		want := must(table.of(".."))
		have := must(os.ReadFile(filepath.Join("..", table.page)))
		require.True(t, bytes.Equal(want, have), "%s is out of date: go run ./hack runs", table.page)
	}
}

func TestRanTable(t *testing.T) {
	t.Parallel()
	networks, versions := ranTables()[0], ranTables()[1]
	root := t.TempDir()
	for _, dir := range []string{networks.folder, versions.folder, "docs"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	write := func(path, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
	write(networks.folder+"/a.json", `{"kubernetes": "v1.2.3", "plugin": "flannel", "proxy": "iptables", "families": "IPv4", "with": "addresses kept", "passed": true}`)
	write(networks.folder+"/b.json", `{"kubernetes": "v1.2.3", "plugin": "bridge", "proxy": "nftables", "families": "IPv6", "passed": false}`)
	require.ErrorContains(t, networks.write(root), "no such file")
	write(networks.page, "no table\n")
	require.ErrorContains(t, networks.write(root), "no place for the table")
	write(networks.page, "before\n"+networks.begin()+"old\n"+ranEnd+"after\n")
	require.NoError(t, networks.write(root))
	page := must(os.ReadFile(filepath.Join(root, networks.page)))
	require.Equal(t, "before\n"+networks.begin()+`
| plugin | kube-proxy | addresses of pods | Kubernetes | result |
|---|---|---|---|---|
| bridge | nftables | IPv6 | v1.2.3 | **failed** |
| flannel, addresses kept | iptables | IPv4 | v1.2.3 | passed |

`+ranEnd+"after\n", string(page))
	write(networks.folder+"/c.json", "{")
	require.ErrorContains(t, networks.write(root), "c.json")

	write(versions.folder+"/a.json", `{"consumer": "v1.2.3", "provider": "v1.4.5", "passed": true}`)
	write(versions.page, versions.begin()+ranEnd)
	require.NoError(t, versions.write(root))
	page = must(os.ReadFile(filepath.Join(root, versions.page)))
	require.Equal(t, versions.begin()+`
| consumer | provider | result |
|---|---|---|
| v1.2.3 | v1.4.5 | passed |

`+ranEnd, string(page))
}
