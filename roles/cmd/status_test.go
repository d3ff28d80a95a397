package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/roles/cmd/report"
)

// withMilan adds the virtual node milan.
func (c *cluster) withMilan(t *testing.T, change func(*offloadingv1beta1.VirtualNode)) {
	t.Helper()
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}
	if change != nil {
		change(vn)
	}
	kubetest.Create(t, c.liqod.OffloadingV1beta1().VirtualNodes(vn.Namespace), vn)
	kubetest.Create(t, c.core.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{
		offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}}})
}

func (c *cluster) findings(t *testing.T) string {
	t.Helper()
	out := c.fails(t, ExitProblem, "", "status")
	return out
}

// TestStatusReadsPods: the pods of a namespace are read with all that explains them.
func TestStatusReadsPods(t *testing.T) {
	t.Parallel()
	c := newCluster(existing(func(o *offloadingv1beta1.NamespaceOffloading) { o.Status = standing() }))
	c.withMilan(t, nil)
	set := metav1.OwnerReference{Kind: "ReplicaSet", Name: "web-1", UID: "set", Controller: ptr.To(true)}
	here := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: []string{"nowhere"}},
			{Key: offloadingv1beta1.TypeLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{offloadingv1beta1.TypeVirtualNode}}}}}}}}
	c.add(t,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mount", UID: "mount"}, Spec: corev1.PodSpec{NodeName: "milan"}, Status: corev1.PodStatus{Phase: corev1.PodPending}},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: `configmap "settings" not found`,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "mount", UID: "mount"}},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "n"}, Type: corev1.EventTypeNormal, Reason: "Scheduled", Message: "assigned",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "mount", UID: "mount"}, LastTimestamp: metav1.Now()},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "left", UID: "left", OwnerReferences: []metav1.OwnerReference{set}}, Spec: corev1.PodSpec{Affinity: here},
			Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}},
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "set"}},
	)
	out := c.findings(t)
	require.Contains(t, out, `(FailedMount): configmap "settings" not found`)
	require.Contains(t, out, "pods of namespace shop: pod left waits for a node, with the affinity of an earlier NamespaceOffloading")
	require.Contains(t, out, "kubectl -n shop delete pod left")

	for _, action := range c.core.Actions() {
		require.NotEqual(t, "poddisruptionbudgets", action.GetResource().Resource, "no virtual node is being removed")
	}
}

// TestStatusRequests: a dashboard and scripts repeat status. A change of the number of its requests is one that somebody wants.
func TestStatusRequests(t *testing.T) {
	t.Parallel()
	c := installation(t, "milan")
	c.core.ClearActions()
	c.findings(t)
	require.Equal(t, 29, len(c.core.Actions())+len(c.liqod.Actions()))
}

// TestStatusReadsBudgets: they are read while a virtual node is being removed.
func TestStatusReadsBudgets(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.withMilan(t, func(vn *offloadingv1beta1.VirtualNode) {
		vn.DeletionTimestamp, vn.Finalizers = ptr.To(metav1.Now()), []string{"test"}
	})
	labels := map[string]string{"app": "web"}
	c.add(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: labels}, Spec: corev1.PodSpec{NodeName: "milan"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}})
	out := c.findings(t)
	require.Contains(t, out, "‼ milan, virtual node milan: it is being removed")
	require.Contains(t, out, "PodDisruptionBudget shop/web admits no eviction")
}

// TestStatusWithoutRights: a user without rights gets no empty lists, and one finding.
func TestStatusWithoutRights(t *testing.T) {
	t.Parallel()
	c := newCluster()
	refuse := func(action clienttesting.Action) (bool, runtime.Object, error) {
		err := apierrors.NewForbidden(action.GetResource().GroupResource(), "", nil)
		err.ErrStatus.Message = action.GetResource().Resource + ` is forbidden: User "nobody" cannot do this`
		return true, nil, err
	}
	for _, verb := range []string{"list", "get"} {
		c.core.PrependReactor(verb, "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetResource().Resource == "version" || action.GetResource().Resource == "resource" {
				return false, nil, nil // discovery
			}
			return refuse(action)
		})
		c.liqod.PrependReactor(verb, "*", refuse)
	}
	out, err := c.run(t, "status")
	require.NotZero(t, code(err))
	require.NotContains(t, out, "No peers")
	require.Equal(t, 1, strings.Count(out, "may not read"), out)
	require.Contains(t, out, `? rights: user "nobody" may not read Deployments of liqod, Leases`)
	require.Contains(t, out, "events,poddisruptionbudgets.policy,daemonsets.apps\n", "also what is read only once others can be")
	require.Contains(t, out, "kubectl -n liqod create role liqod-status --verb=get,list --resource=leases.coordination.k8s.io,configmaps\n")
	out, _ = c.run(t, "check")
	require.Contains(t, out, "MutatingWebhookConfigurations, ValidatingWebhookConfigurations")
}

// onlyIn lets the user of a cluster do nothing outside of a namespace.
func (c *cluster) onlyIn(namespace string) {
	refuse := func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource := action.GetResource().Resource
		if action.GetNamespace() == namespace || resource == "version" || resource == "namespaces" {
			return false, nil, nil
		}
		return forbidden(action)
	}
	c.core.PrependReactor("*", "*", refuse)
	c.liqod.PrependReactor("*", "*", refuse)
}

// TestStatusOfANamespace: its administrator needs rights to no other namespace.
func TestStatusOfANamespace(t *testing.T) {
	t.Parallel()
	c := paint(t).cluster(t)
	c.add(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "batch"}})
	c.onlyIn("shop")
	out := c.ran(t, "status", "-n", "shop")
	require.Contains(t, out, "Namespace shop of cluster (cluster id unknown): healthy\n")
	require.Contains(t, out, "milan: 9 pods, turin: 3 pods\n")
	require.Contains(t, out, "\nNo right to read Deployments of liqod, Leases, the configuration, ResourceOffers, VirtualNodes, Nodes.\n")
	require.NotContains(t, out, "batch")

	c.add(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.Now()}, Spec: corev1.PodSpec{NodeName: "milan"},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Reason: "PodRefused", Message: "privileged"}})
	out = c.fails(t, ExitProblem, "", "status", "-n", "shop")
	require.Contains(t, out, "milan, pods of namespace shop: 1 of 10 pods is refused (PodRefused); the first, web: privileged\n")

	c.add(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec:   corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes"}}}})
	out, _ = c.run(t, "status", "-n", "shop")
	require.Contains(t, out, "PersistentVolumeClaim data ", "the claims are read too")

	out = c.fails(t, ExitUnknown, "", "status", "-n", "batch")
	require.Contains(t, out, "? rights: no right to read NamespaceOffloadings of namespace batch\n")
	require.Contains(t, out, "? rights: no right to read Pods of namespace batch\n")
	require.NotContains(t, out, "not offloaded")
	_, err := c.run(t, "status", "-n", "nowhere")
	require.EqualError(t, err, "there is no namespace nowhere in this cluster")
	require.Equal(t, ExitUnknown, code(err))
	c.fails(t, ExitUsage, "", "status", "-n", "shop", "milan")
}

// TestStatusOfANamespaceByAnAdministrator: what an administrator may read places the pods, and the
// namespace of liqod is still that of the whole cluster.
func TestStatusOfANamespaceByAnAdministrator(t *testing.T) {
	t.Parallel()
	c := paint(t).cluster(t)
	c.add(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	out := c.ran(t, "status", "-n", "shop")
	require.Contains(t, out, "Namespace shop of cluster rome: healthy\n")
	require.NotContains(t, out, "No right")
	require.NotContains(t, out, "PEER")
	out = c.ran(t, "status", "-n", "liqod")
	require.Contains(t, out, "Cluster rome: healthy\n")
	c.add(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "liqod"}, Data: map[string]string{"config.yaml": "clusterID: rome\n"}})
	out, _ = c.run(t, "status", "-n", "shop")
	require.Contains(t, out, "Namespace shop of cluster rome: healthy\n", "a ConfigMap of the namespace does not make it that of liqod")
	c.add(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "empty"}})
	out = c.ran(t, "status", "-n", "empty")
	require.Equal(t, "Namespace empty of cluster rome: healthy\n\nThe namespace is not offloaded.\n", out)
}

// TestWatch: each state is printed once, an API server that goes away is a state, and ending the
// command is no failure.
func TestWatch(t *testing.T) {
	t.Parallel()
	c := newCluster(existing(func(o *offloadingv1beta1.NamespaceOffloading) { o.Status = standing() }))
	c.withMilan(t, nil)
	var mu sync.Mutex
	away := false
	commands := &commands{program: "liqod", every: time.Millisecond, connect: func(*connection) (*clients, error) {
		mu.Lock()
		defer mu.Unlock()
		if away {
			return nil, unknown(errors.New("the API server does not answer"))
		}
		return c.clients(), nil
	}}
	out := &output{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	in := &inquiry{conn: commands.newConnection(), timeout: time.Minute}
	go func() { done <- commands.watchStatus(ctx, in, nil, out) }()
	prints := func(text string, n int) func() bool {
		return func() bool { return strings.Count(out.String(), text) == n }
	}
	require.Eventually(t, prints("Cluster ", 1), time.Minute, time.Millisecond)
	c.add(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.Now()}, Spec: corev1.PodSpec{NodeName: "milan"},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Reason: "PodRefused", Message: "privileged"}})
	require.Eventually(t, prints("pod web is refused (PodRefused): privileged", 1), time.Minute, time.Millisecond)
	mu.Lock()
	away = true
	mu.Unlock()
	require.Eventually(t, prints("The state is unknown: the API server does not answer", 1), time.Minute, time.Millisecond)
	mu.Lock()
	away = false
	mu.Unlock()
	require.Eventually(t, prints("pod web is refused (PodRefused): privileged", 2), time.Minute, time.Millisecond)
	require.Equal(t, 3, strings.Count(out.String(), "Cluster "), "an unchanged state is printed once")
	require.Len(t, regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n(Cluster |The state is unknown)`).FindAllString(out.String(), -1), 4, "each has its time")
	cancel()
	require.NoError(t, <-done)
}

// TestCheckThatWaits: check --wait ends when everything is well, or when the time is over, with the
// state that it saw last.
func TestCheckThatWaits(t *testing.T) {
	t.Parallel()
	c := installation(t, "milan")
	out, err := c.run(t, "check", "--wait=5s")
	require.Equal(t, ExitProblem, code(err))
	require.EqualError(t, err, "not everything is well, timed out after 5s")
	require.True(t, strings.HasPrefix(out, "waiting: CRDs; role controller; role webhook"), out)
	require.Contains(t, out, "✘ role controller: ")
	require.Equal(t, 1, strings.Count(out, "waiting: "), "an unchanged state is printed once")

	looks := 0
	c = paint(t).cluster(t)
	c.core.PrependReactor("list", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		switch looks++; looks {
		case 1:
			return true, &admissionregistrationv1.MutatingWebhookConfigurationList{}, nil
		case 2:
			return true, nil, apierrors.NewInternalError(errors.New("etcd is away"))
		}
		return false, nil, nil
	})
	out = c.ran(t, "check", "--wait")
	require.True(t, strings.HasPrefix(out, "waiting: admission webhook\nwaiting: MutatingWebhookConfigurations\nInstallation\n"), out)
	require.True(t, strings.HasSuffix(out, "\n1 warning.\n"), out)
}

// TestWatchFailsAtOnce: an error of the first look ends the command.
func TestWatchFailsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := newCluster().run(t, "status", "--watch", "genoa")
	require.ErrorContains(t, err, `there is no peer "genoa"`)
	require.Equal(t, ExitUnknown, code(err))
}

// TestWatchedData: scripts get one document for each state.
func TestWatchedData(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ format, first, next string }{{asYAML, "---\n", "---\n"}, {asJSON, "", ""}, {"", "", "\n"}, {asWide, "", "\n"}} {
		require.Equal(t, tc.first, separator(tc.format, true), tc.format)
		require.Equal(t, tc.next, separator(tc.format, false), tc.format)
	}
}

// TestNoColoursInFiles: only terminals get colours.
func TestNoColoursInFiles(t *testing.T) {
	t.Parallel()
	c := newCluster()
	out, _ := c.run(t, "status", "-o", "wide")
	require.Contains(t, out, "✘ role controller")
	require.NotContains(t, out, "\x1b")
	var s report.Status
	data, _ := c.run(t, "status", "-o", "json")
	require.NoError(t, json.NewDecoder(strings.NewReader(data)).Decode(&s))
	require.False(t, onTerminal(io.Discard))
}

// TestTrustOfTheSetting: the trust in a peer is shown where it differs from the setting in the
// configuration, or from its default.
func TestTrustOfTheSetting(t *testing.T) {
	t.Parallel()
	for config, shown := range map[string]bool{"": false, "sharing: {trust: Strict}\n": false, "sharing: {trust: Organisation}\n": true} {
		c := installation(t, "milan")
		c.configure(t, config)
		c.add(t, &corev1beta1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "rome", Trust: corev1beta1.TrustStrict}})
		out, _ := c.run(t, "status")
		require.Equal(t, shown, strings.Contains(out, "Trust in rome: Strict"), "%q: %s", config, out)
	}
}

// TestRefusedPackets: the status of a peer has the packets that the hosts of the fabric have dropped.
func TestRefusedPackets(t *testing.T) {
	t.Parallel()
	c := installation(t, "milan")
	c.add(t, &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "rome"}})
	kubetest.Create(t, c.liqod.NetworkingV1beta1().Connections("liqo-tenant-rome"), &networkingv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: networkingv1beta1.ConnectionSpec{ClusterID: "rome"}})
	kubetest.Create(t, c.core.CoreV1().Events("liqo-tenant-rome"), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "rome.refused-1"}, Reason: networkingv1beta1.ReasonPacketsRefused, Count: 12})
	out, _ := c.run(t, "status", "-o", "json")
	var s report.Status
	require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&s))
	require.Equal(t, report.Refused{Packets: 12, Hosts: 1}, s.Peers[0].Refused)
}

// TestCheckOfAnOpenOverlay: the settings of the roles of the network are read from the
// configuration.
func TestCheckOfAnOpenOverlay(t *testing.T) {
	t.Parallel()
	c := installation(t, "milan")
	c.configure(t, "gateway: {anyOverlaySender: true}\nroute: {anyOverlaySender: true}\n")
	out := c.fails(t, ExitProblem, "", "check")
	require.Contains(t, out, "gateway.anyOverlaySender is true")
	require.Contains(t, out, "route.anyOverlaySender is true")
}
