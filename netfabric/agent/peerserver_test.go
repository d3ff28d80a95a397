package agent

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
)

func TestPeerServers(t *testing.T) {
	t.Parallel()
	report := func(status metav1.ConditionStatus, reason string) *networkingv1beta1.Connection {
		return &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Status: networkingv1beta1.ConnectionStatus{
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}, {Type: "PeerAPIServer", Status: status, Reason: reason, Message: "told"}},
		}}
	}
	silent := report("True", "PeerReportsUp")
	silent.Status.Conditions = silent.Status.Conditions[:1]
	going := report("True", "PeerReportsUp")
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: time.Unix(1000, 0)}, []string{"test/hold"}
	for name, tc := range map[string]struct {
		off      bool
		enabled  *bool
		gateways *fixedGateways
		objects  []runtime.Object
		want     string // empty: there is no condition
	}{
		"no Connection":                 {},
		"nobody has passed one on":      {objects: []runtime.Object{silent}},
		"a Connection that goes":        {objects: []runtime.Object{going}},
		"up":                            {objects: []runtime.Object{report("True", "PeerReportsUp")}, want: "True PeerReportsUp told"},
		"down":                          {objects: []runtime.Object{report("False", "PeerReportsDown")}, want: "False PeerReportsDown told"},
		"the tunnel is down":            {objects: []runtime.Object{report("Unknown", "TunnelDown")}, want: "Unknown TunnelDown told"},
		"off in the cluster":            {off: true, objects: []runtime.Object{report("True", "PeerReportsUp")}},
		"off, and asked for":            {off: true, enabled: ptr.To(true), objects: []runtime.Object{report("True", "PeerReportsUp")}},
		"off for the peer":              {enabled: ptr.To(false), objects: []runtime.Object{report("True", "PeerReportsUp")}},
		"the reporter is dead":          {gateways: &fixedGateways{known: true}, objects: []runtime.Object{report("True", "PeerReportsUp")}, want: "Unknown NoGateway"},
		"the reporter of a bad is dead": {gateways: &fixedGateways{known: true}, objects: []runtime.Object{report("False", "PeerReportsDown")}, want: "Unknown NoGateway"},
		"gateways are not known so far": {gateways: &fixedGateways{}, objects: []runtime.Object{report("True", "PeerReportsUp")}, want: "True PeerReportsUp told"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.gateways == nil {
				tc.gateways = &fixedGateways{known: true, list: []networkingv1beta1.Gateway{{Name: "gw"}}}
			}
			factory := externalversions.NewSharedInformerFactory(fake.NewSimpleClientset(tc.objects...), 0)
			servers := NewPeerServers(standingOf(t, tc.gateways, tc.off, factory))
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			got := servers.Condition(&corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan", NetworkingEnabled: tc.enabled}})
			if tc.want == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Contains(t, string(got.Status)+" "+got.Reason+" "+got.Message, tc.want)
		})
	}
}

// TestPeerServersBefore: before the caches are filled, what was told stands; then a report
// that changes is told of.
func TestPeerServersBefore(t *testing.T) {
	t.Parallel()
	liqo := fake.NewSimpleClientset()
	factory := externalversions.NewSharedInformerFactory(liqo, 0)
	servers := NewPeerServers(standingOf(t, &fixedGateways{}, false, factory))
	fc := &corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"}}
	require.Nil(t, servers.Condition(fc))
	fc.Status.Conditions = []metav1.Condition{{Type: corev1beta1.ConditionAPIServer, Status: metav1.ConditionFalse, Reason: "PeerReportsDown"}}
	require.Equal(t, fc.Status.Conditions[0], *servers.Condition(fc))

	var told atomic.Bool
	servers.Subscribe(func(id string) {
		if id == "milan" {
			told.Store(true)
		}
	})
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	require.Nil(t, servers.Condition(fc))
	_, err := liqo.NetworkingV1beta1().Connections("liqo-tenant-milan").Create(t.Context(), &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, told.Load, time.Minute, 5*time.Millisecond)
}

// TestReportOfThePeer: a gateway passes on what the peer reports of its API server, as far
// as it hears it.
func TestReportOfThePeer(t *testing.T) {
	t.Parallel()
	c := linked("milan", 1, publicKeys(t, 1)[0])
	base := tunnelFacts{
		gateway: "gw-b", peer: &c.Spec.Gateways[0], living: []string{"gw-a", "gw-b"}, now: metav1.NewTime(noon),
		echo: EchoState{Verdict: health.Up, APIServer: health.Up, Reason: ReasonAnswered, Message: "it answers"},
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
