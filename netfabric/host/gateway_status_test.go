package host

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/reasons"
)

// TestReportOfThePeer: a gateway passes on what the peer reports of its API server, as far
// as it hears it.
func TestReportOfThePeer(t *testing.T) {
	t.Parallel()
	c := linked("milan", 1, publicKeys(t, 1)[0])
	base := tunnelFacts{
		gateway: "gw-b", peer: &c.Spec.Gateways[0], living: []string{"gw-a", "gw-b"}, now: metav1.NewTime(noon),
		echo: EchoState{Verdict: health.Up, APIServer: health.Up, Reason: reasons.ProbesAnswered, Message: "it answers"},
	}
	told := func(s networkingv1beta1.ConnectionStatus) string {
		for _, c := range s.Conditions {
			if c.Type == networkingv1beta1.ConditionPeerAPIServer {
				return string(c.Status) + " " + c.Reason
			}
		}
		return ""
	}
	for name, tc := range map[string]struct {
		change func(*tunnelFacts)
		want   string
	}{
		"up":                    {func(*tunnelFacts) {}, "True PeerReportsUp"},
		"down":                  {func(f *tunnelFacts) { f.echo.APIServer = health.Down }, "False PeerReportsDown"},
		"not known there":       {func(f *tunnelFacts) { f.echo.APIServer = health.Unknown }, "Unknown PeerReportsNothing"},
		"the tunnel is down":    {func(f *tunnelFacts) { f.echo.Verdict = health.Down }, "Unknown TunnelDown"},
		"the tunnel is new":     {func(f *tunnelFacts) { f.echo.Verdict = health.Unknown }, "Unknown TunnelDown"},
		"the peer is refused":   {func(f *tunnelFacts) { f.refused = "it overlaps" }, "Unknown TunnelDown"},
		"no gateway":            {func(f *tunnelFacts) { f.peer, f.echo = nil, EchoState{} }, "Unknown TunnelDown"},
		"the gateway stops":     {func(f *tunnelFacts) { f.stopped = true }, "Unknown GatewayStopped"},
		"not all is as planned": {func(f *tunnelFacts) { f.applied = errors.New("no device") }, "True PeerReportsUp"},
	} {
		f := base
		tc.change(&f)
		status := f.status(c)
		require.Equal(t, tc.want, told(status), name)
		written := c.DeepCopy()
		written.Status = status
		f.now = metav1.NewTime(noon.Add(time.Hour))
		require.Equal(t, status, f.status(written), "%s: nothing is written while only time passes", name)
	}

	// Of two gateways that reach the peer the first passes its report on; a gateway that does
	// not reach it leaves the word to the other.
	c.Status = base.status(c)
	c.Status.Gateways = append(c.Status.Gateways, networkingv1beta1.GatewayStatus{Name: "gw-a", Value: networkingv1beta1.Connected})
	f := base
	f.echo.APIServer = health.Down
	require.Equal(t, "True PeerReportsUp", told(f.status(c)))
	f.echo.Verdict = health.Down
	require.Equal(t, "True PeerReportsUp", told(f.status(c)))
	f.gateway, f.echo.Verdict = "gw-a", health.Up
	require.Equal(t, "False PeerReportsDown", told(f.status(c)))
	f.gateway, f.living = "gw-b", []string{"gw-b"}
	require.Equal(t, "False PeerReportsDown", told(f.status(c)), "the other is dead")
}
