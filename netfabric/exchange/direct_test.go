package exchange

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// hubAndThird are the Connections to milan, a hub that says that 10.96.0.0/16 stands for the pods of oslo,
// and to oslo itself, which lets this cluster to the pods of milan's namespace shop.
func hubAndThird() (hub, third *networkingv1beta1.Connection) {
	hub = toMilan(func(s *networkingv1beta1.ConnectionSpec) {
		s.Remote = append(s.Remote, networkingv1beta1.Mapping{Own: "10.96.0.0/16", View: "10.85.0.0/16", Use: networkingv1beta1.RangeTransit})
		s.Behind = []networkingv1beta1.Third{{ClusterID: "oslo", Namespaces: []string{"apps", "shop"},
			Ranges: []networkingv1beta1.Mapping{{Own: "10.244.0.0/16", View: "10.96.0.0/16", Use: networkingv1beta1.RangePod}}}}
	})
	third = toMilan(func(s *networkingv1beta1.ConnectionSpec) {
		s.ClusterID = "oslo"
		for i, view := range []networkingv1beta1.CIDR{"10.86.0.0/16", "fd86::/56", "10.87.0.0/16"} {
			s.Remote[i].View = view
		}
		s.Admitted = []networkingv1beta1.Third{{ClusterID: "milan", Namespaces: []string{"shop"}}}
	})
	third.Namespace, third.Name = corev1beta1.TenantNamespace("oslo"), "oslo"
	third.Status.Value = networkingv1beta1.Connected
	return hub, third
}

// A pod in a third cluster is reached by the tunnel there only where both other clusters say the same: the
// hub what its range stands for, and the third cluster that it lets this one to that namespace.
func TestDirect(t *testing.T) {
	t.Parallel()
	type connection = networkingv1beta1.Connection
	for name, tc := range map[string]struct {
		edit      func(hub, third *connection)
		namespace string
		addr      string
		want      string
	}{
		"agreed":                          {want: "10.86.3.4"},
		"a namespace not admitted":        {namespace: "apps", want: "none"},
		"a namespace that is not named":   {namespace: "else", want: "none"},
		"a pod of the hub":                {addr: "10.244.3.4", want: "none"},
		"the tunnel is down":              {edit: func(_, third *connection) { third.Status.Value = networkingv1beta1.Connecting }, want: "none"},
		"the peering ends":                {edit: func(_, third *connection) { third.DeletionTimestamp = new(metav1.Now()) }, want: "none"},
		"the third admits for another":    {edit: func(_, third *connection) { third.Spec.Admitted[0].ClusterID = "rome" }, want: "none"},
		"the third admits nobody":         {edit: func(_, third *connection) { third.Spec.Admitted = nil }, want: "none"},
		"the hub names nobody":            {edit: func(hub, _ *connection) { hub.Spec.Behind = nil }, want: "none"},
		"the hub names another cluster":   {edit: func(hub, _ *connection) { hub.Spec.Behind[0].ClusterID = "turin" }, want: "none"},
		"a range that is not of its pods": {edit: func(hub, _ *connection) { hub.Spec.Behind[0].Ranges[0].Own = "10.70.0.0/16" }, want: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRemapRig(t, fake.NewSimpleClientset())
			hub, third := hubAndThird()
			if tc.edit != nil {
				tc.edit(hub, third)
			}
			require.NoError(t, r.cfg.Connections.Informer().GetIndexer().Replace([]any{hub, third}, ""))
			addr := netip.MustParseAddr(cmp.Or(tc.addr, "10.96.3.4"))
			require.Equal(t, tc.want, gives(r.Direct("milan", cmp.Or(tc.namespace, "shop"), addr)))
		})
	}
}

// Subscribers hear of the hub when the tunnel to the third cluster comes up and goes down.
func TestDirectIsReported(t *testing.T) {
	t.Parallel()
	hub, third := hubAndThird()
	third.Status.Value = networkingv1beta1.Connecting
	client := fake.NewSimpleClientset(hub, third)
	r := newRemapRig(t, client)
	var mu sync.Mutex
	var heard []string
	r.Subscribe(func(peer string) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, peer+" "+gives(r.Direct("milan", "shop", netip.MustParseAddr("10.96.3.4"))))
	})
	r.factory.Start(t.Context().Done())
	require.Eventually(t, r.HasSynced, time.Minute, 5*time.Millisecond)
	for _, step := range []struct {
		value networkingv1beta1.ConnectionValue
		want  string
	}{{networkingv1beta1.Connected, "milan 10.86.3.4"}, {networkingv1beta1.Connecting, "milan none"}} {
		mu.Lock()
		heard = nil
		mu.Unlock()
		next := third.DeepCopy()
		next.Status.Value = step.value
		kubetest.Update(t, client.NetworkingV1beta1().Connections(third.Namespace), next)
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(heard, step.want)
		}, time.Minute, 5*time.Millisecond, step.want)
	}
}
