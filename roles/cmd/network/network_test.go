package network

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/join"
)

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

func map4(own, view networkingv1beta1.CIDR, use networkingv1beta1.RangeUse) networkingv1beta1.Mapping {
	return networkingv1beta1.Mapping{Own: own, View: view, Use: use}
}

// clusterOf is rome with a node and the peer milan, in which it runs pods.
func clusterOf(t *testing.T, tunnel metav1.ConditionStatus) (Config, *fake.Clientset) {
	t.Helper()
	up := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	core := fake.NewClientset(
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: join.Controller}, Subjects: []rbacv1.Subject{{Namespace: "liqod"}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod"}, Data: map[string]string{"config.yaml": "clusterID: rome"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rome-1"}, Status: up},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, corev1beta1.RemoteClusterIDLabel: "milan"}}, Status: up},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "rome-1"}, Status: corev1.PodStatus{PodIP: "10.244.0.7"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.PodSpec{NodeName: "milan"}, Status: corev1.PodStatus{PodIP: "10.80.0.7"}},
	)
	connection := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace("milan"), Name: "milan"}}
	connection.Spec = networkingv1beta1.ConnectionSpec{
		ClusterID: "milan",
		Local:     []networkingv1beta1.Mapping{map4("10.244.0.0/16", "10.90.0.0/16", networkingv1beta1.RangePod), map4("10.70.0.0/16", "10.91.0.0/16", networkingv1beta1.RangeExternal)},
		Remote:    []networkingv1beta1.Mapping{map4("10.244.0.0/16", "10.80.0.0/16", networkingv1beta1.RangePod), map4("10.70.0.0/16", "10.81.0.0/16", networkingv1beta1.RangeExternal)},
		Gateways:  []networkingv1beta1.Gateway{{Name: "gw", Number: 1, PublicKey: "a"}},
	}
	connection.Status.Conditions = []metav1.Condition{{Type: networkingv1beta1.ConditionReady, Status: tunnel, Reason: "TunnelSilent"}}
	liqo := liqodfake.NewSimpleClientset(connection,
		&corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"}},
		&networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: connection.Namespace, Name: "rome"}, Spec: networkingv1beta1.ConfigurationSpec{Gateways: []networkingv1beta1.Gateway{{Name: "gw", Number: 1, PublicKey: "b"}}}},
	)
	made := 0
	core.PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made++
		action.(clienttesting.CreateAction).GetObject().(*corev1.Namespace).Name = fmt.Sprintf("%s%d", namePrefix, made)
		return false, nil, nil
	})
	liqo.PrependReactor("create", "namespaceoffloadings", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := action.(clienttesting.CreateAction).GetObject().(*offloadingv1beta1.NamespaceOffloading)
		o.Status.RemoteNamespacesConditions = map[string][]metav1.Condition{"milan": {{Type: offloadingv1beta1.RemoteNamespaceReady, Status: metav1.ConditionTrue}}}
		return false, nil, nil
	})
	core.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: map[string]string{"echo-0": "10.244.0.5", "there-0": "10.80.0.9", "here-0": "10.244.0.6", nearPod: "10.244.0.7"}[pod.Name]}
		return false, nil, nil
	})
	return Config{
		Kube: core, Liqo: liqo, Image: "liqod", Program: "liqod", Now: time.Now, Every: time.Second, Wait: 10 * time.Second,
		Say: func(string) error { return nil },
		// Every packet of the pod is answered.
		Logs: func(_ context.Context, pod *corev1.Pod) ([]byte, error) {
			report := Report{}
			for _, argument := range pod.Spec.Containers[0].Args {
				if targets, err := ParseTargets([]string{argument}); err == nil && targets[0].Kind != kindRoute {
					report.Ways = append(report.Ways, passed(targets[0].Name))
				}
			}
			text, err := json.Marshal(report)
			return append(text, '\n'), err
		},
	}, core
}

// arguments returns the arguments with which pods of a check were made.
func arguments(core *fake.Clientset) map[string]string {
	out := map[string]string{}
	for _, action := range core.Actions() {
		if create, ok := action.(clienttesting.CreateAction); ok && action.GetResource().Resource == "pods" {
			pod := create.GetObject().(*corev1.Pod)
			out[pod.Name] = strings.Join(pod.Spec.Containers[0].Args, " ")
		}
	}
	return out
}

// TestNodesAreNamed: the nodes that the command line names are checked, also if it names one twice.
func TestNodesAreNamed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nodes []string
		want  string
	}{
		"one":       {nodes: []string{"rome-1"}},
		"one twice": {nodes: []string{"rome-1", "rome-1"}},
		"another":   {[]string{"rome-1", "rome-9"}, "not every node of rome-1, rome-9 is a node of this cluster itself"},
		"a virtual": {[]string{"milan"}, "not every node of milan is a node of this cluster itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _ := clusterOf(t, metav1.ConditionTrue)
			cfg.Nodes = tc.nodes
			c := &checker{Config: cfg}
			err := c.read(t.Context())
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			require.Len(t, c.nodes, 1)
		})
	}
}

func namespaceLeft(t *testing.T, core *fake.Clientset) bool {
	t.Helper()
	list := kubetest.List(t, core.CoreV1().Namespaces())
	return len(list.Items) > 0
}

// TestPodsSendToTheRightAddresses: each pod is given the addresses as its own cluster sees them.
func TestPodsSendToTheRightAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, core := clusterOf(t, metav1.ConditionTrue)
		cfg.Pods = []string{"shop/web", "shop/db"}
		v := must(Run(t.Context(), cfg))
		require.False(t, namespaceLeft(t, core))
		have := arguments(core)
		for pod, want := range map[string][]string{
			"node-0":  {"route,milan,10.81.0.1", "--node"},
			"here-0":  {"ping,the gateway of this cluster,10.70.0.1", "ping,the gateway of milan,10.81.0.1", "pod,the pod in milan,10.80.0.9", "ping,pod shop/db,10.80.0.7", "--resolve " + resolved},
			"there-0": {"--serve", "ping,the gateway of its own cluster,10.70.0.1", "ping,the gateway of this cluster,10.91.0.1", "pod,the pod in this cluster,10.90.0.5", "ping,pod shop/web,10.90.0.7"},
		} {
			for _, text := range want {
				require.Contains(t, have[pod], text, pod)
			}
		}
		require.Contains(t, v.Text(), "✔ pod in milan > pod shop/web")
		require.Contains(t, v.Text(), "✔ pod on rome-1 > pod shop/db")
		cfg.Pods = []string{"shop/web", "shop/web"}
		require.ErrorContains(t, errOf(Run(t.Context(), cfg)), "run in one cluster")
		cfg.Pods, cfg.Peers = nil, []string{"turin"}
		require.EqualError(t, errOf(Run(t.Context(), cfg)), `there is no peer "turin": the only peer is milan`)
	})
}

// TestPeersDoNotLearnOfEachOther: each peer has a namespace of the check for itself, with a pod of this cluster that
// answers it, and the other pods of this cluster are in a namespace that no peer has.
func TestPeersDoNotLearnOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, core := clusterOf(t, metav1.ConditionTrue)
		milan := kubetest.Get(t, cfg.Liqo.NetworkingV1beta1().Connections(corev1beta1.TenantNamespace("milan")), "milan")
		turin := milan.DeepCopy()
		turin.Name, turin.Namespace = "turin", corev1beta1.TenantNamespace("turin")
		kubetest.Create(t, cfg.Liqo.NetworkingV1beta1().Connections(turin.Namespace), turin)
		kubetest.Create(t, cfg.Liqo.CoreV1beta1().ForeignClusters(), &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "turin"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "turin"}})
		node := kubetest.Get(t, core.CoreV1().Nodes(), "milan")
		node.Name, node.Labels[corev1beta1.RemoteClusterIDLabel] = "turin", "turin"
		require.NoError(t, core.Tracker().Add(node))
		_, err := Run(t.Context(), cfg)
		require.NoError(t, err)
		require.False(t, namespaceLeft(t, core))
		shared := map[string][]string{}
		for _, action := range cfg.Liqo.(*liqodfake.Clientset).Actions() {
			if create, ok := action.(clienttesting.CreateAction); ok && action.GetResource().Resource == "namespaceoffloadings" {
				term := create.GetObject().(*offloadingv1beta1.NamespaceOffloading).Spec.ClusterSelector.NodeSelectorTerms[0]
				shared[action.GetNamespace()] = term.MatchExpressions[0].Values
			}
		}
		require.Equal(t, map[string][]string{namePrefix + "2": {"milan"}, namePrefix + "3": {"turin"}}, shared)
		for _, action := range core.Actions() {
			if create, ok := action.(clienttesting.CreateAction); ok && action.GetResource().Resource == "pods" {
				name := create.GetObject().(*corev1.Pod).Name
				space := map[string]string{"there-0": "2", "echo-0": "2", "there-1": "3", "echo-1": "3"}[name]
				require.Equal(t, namePrefix+cmp.Or(space, "1"), action.GetNamespace(), name)
			}
		}
	})
}

// TestForgottenNamespaces: a check deletes the namespaces of earlier ones that were killed, and no other one with their label.
func TestForgottenNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, core := clusterOf(t, metav1.ConditionTrue)
		long, now := metav1.NewTime(time.Now().Add(-longestCheck-time.Second)), metav1.Now()
		mine, others := []metav1.ManagedFieldsEntry{{Manager: fieldManager}}, []metav1.ManagedFieldsEntry{{Manager: "kubectl-create"}}
		for _, meta := range []metav1.ObjectMeta{
			{Name: namePrefix + "killed", CreationTimestamp: long, ManagedFields: mine}, {Name: namePrefix + "at-work", CreationTimestamp: now, ManagedFields: mine},
			{Name: namePrefix + "precious", CreationTimestamp: long, ManagedFields: others}, {Name: "precious", CreationTimestamp: long, ManagedFields: mine},
		} {
			meta.Labels = map[string]string{checkLabel: "true"}
			require.NoError(t, core.Tracker().Add(&corev1.Namespace{ObjectMeta: meta}))
		}
		_, err := Run(t.Context(), cfg)
		require.NoError(t, err)
		list := kubetest.List(t, core.CoreV1().Namespaces())
		var left []string
		for i := range list.Items {
			left = append(left, list.Items[i].Name)
		}
		require.ElementsMatch(t, []string{namePrefix + "at-work", namePrefix + "precious", "precious"}, left)
	})
}

// TestTunnelDown: pods in the peer are not made, as their packets would show nothing, and keys are compared.
func TestTunnelDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, core := clusterOf(t, metav1.ConditionFalse)
		v := must(Run(t.Context(), cfg))
		require.NotContains(t, arguments(core), "there-0")
		require.Contains(t, v.Text(), "has another WireGuard key for gateway gw than cluster milan announces")
	})
}

// TestRouteOnHost: role route is missed on a node that has no pod of it, unless it is a service there.
func TestRouteOnHost(t *testing.T) {
	for label, missed := range map[string]bool{"": true, routeOnHost: false} {
		synctest.Test(t, func(t *testing.T) {
			cfg, core := clusterOf(t, metav1.ConditionTrue)
			node := kubetest.Get(t, core.CoreV1().Nodes(), "rome-1")
			node.Labels = map[string]string{routeLabel: label}
			kubetest.Update(t, core.CoreV1().Nodes(), node)
			require.NoError(t, core.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "liqod", Name: "liqod-route-x", Labels: map[string]string{"app.kubernetes.io/component": "route"}}, Spec: corev1.PodSpec{NodeName: "rome-2"}}))
			v := must(Run(t.Context(), cfg))
			require.Equal(t, missed, strings.Contains(v.Text(), "role route on node rome-1: does not run"), v.Text())
		})
	}
}

// TestInterrupted: at whichever request a command is interrupted, its namespace is deleted.
func TestInterrupted(t *testing.T) {
	for name, run := range map[string]func(context.Context, Config) error{
		"check": func(ctx context.Context, cfg Config) error { _, err := Run(ctx, cfg); return err },
		"perf":  func(ctx context.Context, cfg Config) error { _, err := Perf(ctx, cfg, time.Second); return err },
	} {
		t.Run(name, func(t *testing.T) {
			at := 1
			for ; !interruptedAt(t, at, run); at++ {
			}
			require.Greater(t, at, 10)
		})
	}
}

// interruptedAt interrupts a command at a request, and reports whether it has ended before.
func interruptedAt(t *testing.T, at int, run func(context.Context, Config) error) (ended bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg, core := clusterOf(t, metav1.ConditionTrue)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n, mu := 0, sync.Mutex{}
		core.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == at {
				cancel()
			}
			return false, nil, nil
		})
		_ = run(ctx, cfg)
		ended = ctx.Err() == nil
		require.False(t, namespaceLeft(t, core), "interrupted at request %d", at)
	})
	return ended
}

// TestProbe: a pod answers another one, which sees its address and the size of the way.
func TestProbe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	reported := &lines{whole: make(chan struct{})}
	go func() { served <- Probe(ctx, ProbeOptions{Serve: true, Out: reported}) }()
	<-reported.whole
	var out bytes.Buffer
	loopback := netip.MustParseAddr("127.0.0.1")
	require.NoError(t, Probe(t.Context(), ProbeOptions{Node: true, Out: &out, Targets: []Target{{kindPod, "pod", loopback}, {kindRoute, "milan", netip.MustParseAddr("127.0.0.2")}}}))
	var r Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	w, sent := r.way("pod")
	require.True(t, sent)
	require.Equal(t, []any{tries, tries, "127.0.0.1", ""}, []any{w.Sent, w.Answered, w.Source, w.Error})
	require.Equal(t, w.Says, w.Fits)
	require.GreaterOrEqual(t, w.Fits, 1280)
	require.NotNil(t, r.Host)
	require.Equal(t, []string{"127.0.0.1", "127.0.0.2"}, r.Host.Lost)
	cancel()
	require.NoError(t, <-served)
	for _, text := range []string{"", "ping,a", "tcp,a,1.2.3.4", "ping,a,x"} {
		require.Error(t, errOf(ParseTargets([]string{text})))
	}
}

// lines waits for the first line.
type lines struct{ whole chan struct{} }

func (l *lines) Write(b []byte) (int, error) {
	close(l.whole)
	return len(b), nil
}

// TestLargest: the largest packet that passes is found where a link drops larger ones without a word.
func TestLargest(t *testing.T) {
	for name, test := range map[string]struct{ link, announced, fits, says int }{
		"well":         {link: 1420, announced: 1420, fits: 1420, says: 1420},
		"a black hole": {link: 1300, announced: 1420, fits: 1300, says: 1420},
		"tiny":         {link: 500, announced: 1420, fits: 0, says: 1420},
	} {
		t.Run(name, func(t *testing.T) {
			fits, says := largest(&link{size: test.link, announced: test.announced, known: 1500})
			require.Equal(t, []int{test.fits, test.says}, []int{fits, says})
		})
	}
}

// link carries packets up to size. A host before it announces another size.
type link struct{ size, announced, known int }

func (l *link) ask(size int) (time.Duration, bool, error) {
	switch {
	case size > l.announced:
		l.known = l.announced
		return 0, true, context.DeadlineExceeded
	case size > l.size:
		return 0, false, context.DeadlineExceeded
	}
	return 0, false, nil
}
func (l *link) limit() int     { return l.known }
func (l *link) source() string { return "" }
func (l *link) close()         {}
