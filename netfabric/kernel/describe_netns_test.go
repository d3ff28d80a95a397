package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

const nothingToDescribe = "links: 0\naddresses: 0\nneighbours: 0\nforwarding entries: 0\nrules: 0\nroutes: 0\npeers of the tunnel: 0\ndropped packets: 0\n"

// A description has every object of the plan, in the notation of the plan, and no private key.
func TestNetnsDescribeNode(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.address(t, "lo", "192.168.0.10/32", "fd00:1::10/128")
	k, c := kernelAt(t, s.FD)
	var empty strings.Builder
	require.NoError(t, k.Describe(t.Context(), &empty, time.Now()))
	require.Equal(t, nothingToDescribe, empty.String())
	want, err := plan.Node(fixed())
	require.NoError(t, err)
	applied(t, k, c, want)
	described(t, k, want)
}

func TestNetnsDescribeGateway(t *testing.T) {
	t.Parallel()
	if !alone(t) {
		return
	}
	here(t)
	k, c := kernelAt(t, 0)
	want, err := plan.Gateway(fixed())
	require.NoError(t, err)
	applied(t, k, c, want)
	described(t, k, want)

	// Another process does not see the peers of a device in this one, and says so.
	if mode, _, err := k.Tunnel(); err == nil && mode == InProcess {
		var out strings.Builder
		require.NoError(t, New(Config{}).Describe(t.Context(), &out, time.Now()))
		require.Contains(t, out.String(), "(not known: liqod-wg is in the process of role gateway")
	}
}

func described(t *testing.T, k *Kernel, want plan.State) {
	t.Helper()
	var out strings.Builder
	require.NoError(t, k.Describe(t.Context(), &out, time.Now()))
	objects := slices.Concat(texts(want.Addrs), texts(want.Neighs), texts(want.FDB), texts(want.Rules), texts(want.Routes))
	require.NotEmpty(t, objects)
	for _, text := range objects {
		require.Contains(t, out.String(), "\n  "+text+"\n")
	}
	for _, l := range want.Links {
		require.Contains(t, out.String(), "\n  "+l.Name+" ")
	}
	for _, p := range want.Device.Peers {
		require.Contains(t, out.String(), "\n  "+p.Key+" (liqod-wg, ")
	}
	require.NotContains(t, out.String(), k.cfg.Key.Private())
}

func texts[T any](objects []T) (out []string) {
	for _, o := range objects {
		out = append(out, fmt.Sprint(o))
	}
	return out
}
