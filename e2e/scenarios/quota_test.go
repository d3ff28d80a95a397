package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// quotaPatience is how long younger pods may pass a pod that waits. It is long enough for
// a busy machine to create two pods meanwhile.
const quotaPatience = 30 * time.Second

// TestQuota: milan gives rome and turin what their Quotas say, and no more. At the end the
// leading controller of milan is killed: what a leader before has done, or has under way,
// counts for the next.
func TestQuota(t *testing.T) {
	all := newSites(t, []string{"rome", "milan", "turin"}, nil, map[string]any{
		"controller": map[string]any{"quotaPatience": quotaPatience.String()},
		"lease":      map[string]any{"duration": "3s", "renewDeadline": "2s", "retryPeriod": "300ms"},
	})
	rome := &world{sites: all.sites, rome: all.list[0], milan: all.list[1]}
	turin := &world{sites: all.sites, rome: all.list[2], milan: all.list[1]}
	require.NoError(t, rome.rome.Peer(t.Context(), rome.milan, site.PeerOptions{}))
	require.NoError(t, turin.rome.Peer(t.Context(), turin.milan, site.PeerOptions{}))
	inTurn(t, rome, []part[*world]{
		{"Waits", testQuotaWaits}, {"Order", testQuotaOrder}, {"Refused", testQuotaRefused}, {"Resize", testQuotaResize}, {"Shrunk", testQuotaShrunk},
		{"LimitRange", testQuotaLimitRange}, {"Nodes", testQuotaNodes},
	})
	t.Run("Consumers", func(t *testing.T) { testQuotaConsumers(t, rome, turin) })
	pair := newReplicaPair(t, all.sites, rome.milan)
	t.Run("Unseen", func(t *testing.T) { testQuotaUnseen(t, rome, pair) })
	t.Run("UnderWay", func(t *testing.T) { testQuotaUnderWay(t, rome, pair) })
	t.Run("Burst", func(t *testing.T) { testQuotaBurst(t, []*site.Site{rome.rome, turin.rome}, rome.milan, pair) })
}

// quotaFixture is a fixture with a Quota for its consumer, which ends with the test.
type quotaFixture struct {
	*fixture
	tenant string
}

func (w *world) quotaFixture(t *testing.T, namespace string, spec offloadingv1beta1.QuotaSpec) *quotaFixture {
	t.Helper()
	a := &quotaFixture{fixture: w.fixture(t, namespace), tenant: "liqo-tenant-" + w.rome.Name}
	quotas := w.milan.Liqod().OffloadingV1beta1().Quotas(a.tenant)
	kubetest.Create(t, quotas, &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: spec})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		require.NoError(t, quotas.Delete(ctx, "q", metav1.DeleteOptions{}))
	})
	return a
}

// change patches the Quota's spec.
func (a *quotaFixture) change(t *testing.T, spec string) {
	t.Helper()
	kubetest.Patch(t, a.milan.Liqod().OffloadingV1beta1().Quotas(a.tenant), "q", types.MergePatchType, []byte(`{"spec":`+spec+`}`))
}

// coreful makes a pod that requests cpu; the simulator's annotations follow.
func coreful(name, cpu string, policy corev1.RestartPolicy, annotations ...string) *corev1.Pod {
	pod := bare(name, policy, annotations...)
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return pod
}

func (a *quotaFixture) runs(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		a.untilLocal(t, 20*time.Second, name, "runs", podRunning)
	}
}

// waits waits until a pod says why it does not begin, and looks that nothing of it is there.
func (a *quotaFixture) waits(t *testing.T, name, reason string, says ...string) *corev1.Pod {
	t.Helper()
	local := a.untilLocal(t, 20*time.Second, name, "says "+reason, func(p *corev1.Pod) bool { return p.Status.Reason == reason })
	require.Equal(t, corev1.PodPending, local.Status.Phase)
	for _, text := range says {
		require.Contains(t, local.Status.Message, text)
	}
	a.absent(t, a.milan, 2*time.Second, a.twin, name)
	return local
}

func cores(n string) offloadingv1beta1.QuotaSpec {
	return offloadingv1beta1.QuotaSpec{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}}
}

// testQuotaWaits: what fits exactly runs, the next pod waits and says so here, and goes on
// when one has ended, is deleted, or the Quota grows.
func testQuotaWaits(t *testing.T, w *world) {
	a := w.quotaFixture(t, "fit", cores("1"))
	a.create(t, coreful("a", "600m", corev1.RestartPolicyNever))
	a.create(t, coreful("b", "400m", corev1.RestartPolicyAlways))
	a.runs(t, "a", "b")
	a.create(t, coreful("c", "400m", corev1.RestartPolicyAlways))
	a.waits(t, "c", offloadingv1beta1.ReasonQuotaExceeded, "cpu: 400m requested, 1 allowed in all")
	a.create(t, coreful("d", "300m", corev1.RestartPolicyAlways))
	a.waits(t, "d", offloadingv1beta1.ReasonQuotaExceeded)
	within(t, quickly, "the controller measures it", measures(a.milan.Controller, `liqod_quota_used{consumer="rome",resource="cpu"} 1`,
		`liqod_quota_limit{consumer="rome",resource="cpu"} 1`, `liqod_quota_waiting{consumer="rome"} 2`))
	a.end(t, "a", "0")
	a.untilLocal(t, 10*time.Second, "a", "has ended", inPhase(corev1.PodSucceeded))
	a.untilLocal(t, 5*time.Second, "c", "goes on where a pod has ended", podRunning)
	require.Empty(t, a.local(t, "c").Status.Reason)
	a.waits(t, "d", offloadingv1beta1.ReasonQuotaExceeded)
	require.NoError(t, w.rome.Client().CoreV1().Pods(a.namespace).Delete(t.Context(), "b", metav1.DeleteOptions{}))
	a.untilLocal(t, 10*time.Second, "d", "goes on where a pod was deleted", podRunning)
	a.create(t, coreful("e", "500m", corev1.RestartPolicyAlways))
	a.waits(t, "e", offloadingv1beta1.ReasonQuotaExceeded)
	a.change(t, `{"resources":{"cpu":"2"}}`)
	a.untilLocal(t, 5*time.Second, "e", "goes on under a larger Quota", podRunning)

	// Other resources than those listed are not bounded; pods can be counted.
	a.change(t, `{"resources":{"cpu":"2","pods":"3"}}`)
	a.create(t, coreful("f", "1m", corev1.RestartPolicyAlways))
	a.waits(t, "f", offloadingv1beta1.ReasonQuotaExceeded, "pods: 1 requested, 3 allowed in all")
	a.change(t, `{"resources":{"cpu":"2","pods":"4"}}`)
	a.runs(t, "f")
	a.deleteAll(t)
}

// testQuotaOrder: who waits for much is passed by others for a while only.
func testQuotaOrder(t *testing.T, w *world) {
	a := w.quotaFixture(t, "order", cores("1"))
	a.create(t, coreful("first", "500m", corev1.RestartPolicyAlways))
	a.runs(t, "first")
	a.create(t, coreful("big", "800m", corev1.RestartPolicyAlways))
	a.waits(t, "big", offloadingv1beta1.ReasonQuotaExceeded)
	a.create(t, coreful("small", "100m", corev1.RestartPolicyAlways))
	a.runs(t, "small")
	within(t, 2*quotaPatience, "the patience with younger ones is over", func(context.Context) error {
		return lab.Wrong(nil, time.Since(a.local(t, "big").CreationTimestamp.Time) < quotaPatience+time.Second, "not yet")
	})
	a.create(t, coreful("late", "100m", corev1.RestartPolicyAlways))
	a.waits(t, "late", offloadingv1beta1.ReasonQuotaExceeded, "longer")
	require.NoError(t, w.rome.Client().CoreV1().Pods(a.namespace).Delete(t.Context(), "first", metav1.DeleteOptions{}))
	a.runs(t, "big", "late")
	a.deleteAll(t)
}

// testQuotaRefused: what cannot begin whoever else ends keeps nobody waiting. The webhook
// says so early; while it is away the controller does.
func testQuotaRefused(t *testing.T, w *world) {
	w.milan.Webhook.Kill()
	a := w.quotaFixture(t, "rules", offloadingv1beta1.QuotaSpec{
		LimitsEnforcement: offloadingv1beta1.EnforcementSoft, Resources: amounts("1", "1Gi"),
	})
	declared := func(name, cpu, limit string) *corev1.Pod {
		pod := bare(name, corev1.RestartPolicyAlways)
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts(cpu, "64Mi"), Limits: amounts(limit, "64Mi")}
		return pod
	}
	a.create(t, bare("silent", corev1.RestartPolicyAlways))
	a.waits(t, "silent", offloadingv1beta1.ReasonQuotaUndeclared, "Soft", "container c has no resources.requests.cpu")
	a.create(t, declared("burst", "100m", "200m"))
	a.create(t, declared("equal", "100m", "100m"))
	a.runs(t, "burst", "equal")
	a.change(t, `{"limitsEnforcement":"Hard"}`)
	a.create(t, declared("burst2", "100m", "200m"))
	a.waits(t, "burst2", offloadingv1beta1.ReasonQuotaUndeclared, "Hard", "which is not its request")
	a.create(t, declared("equal2", "100m", "100m"))
	a.runs(t, "equal2")
	require.True(t, podRunning(a.local(t, "burst")), "what runs goes on")
	a.create(t, declared("huge", "1001m", "1001m"))
	a.waits(t, "huge", offloadingv1beta1.ReasonQuotaTooSmall, "larger than the quota")
	require.NoError(t, w.sites.Restart(&w.milan.Webhook))
	_, peer := clients(t, holder{in: w.milan, namespace: a.tenant, account: "peer-1"}.config(t)) // a peer's ShadowPods are judged
	within(t, 20*time.Second, "the webhook refuses what is too large", func(ctx context.Context) error {
		s, err := w.milan.Liqod().OffloadingV1beta1().ShadowPods(a.twin).Get(ctx, "huge", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.ObjectMeta = metav1.ObjectMeta{Namespace: a.twin, Name: "early", Labels: s.Labels}
		_, err = peer.OffloadingV1beta1().ShadowPods(a.twin).Create(ctx, s, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "larger than the quota of cluster rome") {
			return fmt.Errorf("the answer is %w", errors.Join(errors.New("not that"), err))
		}
		return nil
	})
	a.create(t, declared("huge2", "1001m", "1001m"))
	a.waits(t, "huge2", offloadingv1beta1.ReasonQuotaTooSmall, "refuses the ShadowPod", "larger than the quota")

	a.change(t, `{"cordoned":true,"limitsEnforcement":"None"}`)
	a.waits(t, "burst2", offloadingv1beta1.ReasonQuotaCordoned)
	require.True(t, podRunning(a.local(t, "equal")))
	a.change(t, `{"cordoned":false}`)
	a.runs(t, "silent", "burst2")
	a.deleteAll(t)
}

// testQuotaResize: a pod grows in place where there is room, and only there.
func testQuotaResize(t *testing.T, w *world) {
	a := w.quotaFixture(t, "grow", cores("1"))
	a.create(t, coreful("web", "500m", corev1.RestartPolicyAlways))
	a.create(t, coreful("other", "300m", corev1.RestartPolicyNever))
	a.runs(t, "web", "other")
	resize := func(cpu string) {
		w.patchPod(t, w.rome, a.namespace, "web", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"`+cpu+`"}}}]}}`, "resize")
	}
	has := func(cpu string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool { return p.Spec.Containers[0].Resources.Requests.Cpu().String() == cpu }
	}
	resize("700m")
	a.untilRemote(t, 10*time.Second, "web", "has grown into what was left", has("700m"))
	resize("900m")
	local := a.untilLocal(t, 10*time.Second, "web", "cannot grow further", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodResizePending).Reason == corev1.PodReasonDeferred
	})
	require.Contains(t, podCondition(local, corev1.PodResizePending).Message, "no room left")
	require.True(t, podRunning(local), "it runs as it is")
	require.True(t, has("700m")(a.remote(t, "web")))
	a.end(t, "other", "0")
	a.untilRemote(t, 10*time.Second, "web", "grows by itself when there is room", has("900m"))
	resize("100m")
	a.untilRemote(t, 10*time.Second, "web", "shrinks", has("100m"))
	a.create(t, coreful("next", "900m", corev1.RestartPolicyAlways))
	a.runs(t, "next")
	a.deleteAll(t)
}

// testQuotaShrunk: a smaller Quota kills nothing, and a pod that has to be made again waits.
func testQuotaShrunk(t *testing.T, w *world) {
	a := w.quotaFixture(t, "shrunk", cores("1"))
	for _, name := range []string{"a", "b", "c", "d"} {
		a.create(t, coreful(name, "250m", corev1.RestartPolicyAlways))
	}
	a.runs(t, "a", "b", "c", "d")
	before := a.remotes(t, a.twin)
	a.change(t, `{"resources":{"cpu":"500m"}}`)
	a.create(t, coreful("e", "100m", corev1.RestartPolicyAlways))
	a.waits(t, "e", offloadingv1beta1.ReasonQuotaExceeded)
	require.Equal(t, before, a.remotes(t, a.twin), "nothing was done to what runs")
	// Lost in the provider: it may not come back before there is room.
	require.NoError(t, a.milan.Client().CoreV1().Pods(a.twin).Delete(t.Context(), "a", metav1.DeleteOptions{}))
	a.absent(t, a.milan, 10*time.Second, a.twin, "a")
	within(t, 10*time.Second, "its ShadowPod waits", lab.Is(a.milan.Liqod().OffloadingV1beta1().ShadowPods(a.twin), "a", func(s *offloadingv1beta1.ShadowPod) bool {
		return len(s.Status.Conditions) > 0 && s.Status.Conditions[0].Reason == offloadingv1beta1.ReasonQuotaExceeded
	}))
	a.change(t, `{"resources":{"cpu":"1100m"}}`)
	a.runs(t, "a", "e")
	// Lost under a Quota that is full: its room is its own.
	a.create(t, coreful("f", "250m", corev1.RestartPolicyAlways))
	a.waits(t, "f", offloadingv1beta1.ReasonQuotaExceeded)
	uid := a.remote(t, "b").UID
	require.NoError(t, a.milan.Client().CoreV1().Pods(a.twin).Delete(t.Context(), "b", metav1.DeleteOptions{}))
	a.replaced(t, "b", uid, 1)
	a.waits(t, "f", offloadingv1beta1.ReasonQuotaExceeded)
	a.deleteAll(t)
}

// testQuotaLimitRange: what the provider adds to pods counts, and costs no request more.
func testQuotaLimitRange(t *testing.T, w *world) {
	a := w.quotaFixture(t, "ranged", cores("1"))
	kubetest.Create(t, w.milan.Client().CoreV1().LimitRanges(a.twin), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400m")},
		}}},
	})
	for _, name := range []string{"a", "b"} {
		a.create(t, bare(name, corev1.RestartPolicyAlways))
	}
	a.runs(t, "a", "b")
	require.Equal(t, "400m", a.remote(t, "a").Spec.Containers[0].Resources.Requests.Cpu().String())
	a.create(t, bare("c", corev1.RestartPolicyAlways))
	a.waits(t, "c", offloadingv1beta1.ReasonQuotaExceeded, "cpu: 400m requested, 1 allowed in all")
	a.create(t, coreful("d", "200m", corev1.RestartPolicyAlways))
	a.runs(t, "d")
	a.deleteAll(t)
	records := must(w.milan.Audited(func(r lab.AuditRecord) bool {
		return r.ObjectRef.Namespace == a.twin && r.Resource() == "pods" && r.Verb == "create"
	}))(t)
	require.LessOrEqual(t, len(records), 5, "one for each pod, and at most two to learn about the namespace")
}

// testQuotaNodes: the provider says on which of its nodes pods run, whatever is asked for.
func testQuotaNodes(t *testing.T, w *world) {
	patch := func(text string) {
		kubetest.Patch(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan", types.MergePatchType, []byte(text))
	}
	label := func(node, value string) {
		kubetest.Patch(t, w.milan.Client().CoreV1().Nodes(), node, types.MergePatchType, []byte(`{"metadata":{"labels":{"pool":`+value+`}}}`))
	}
	label("milan-sim-1", `"own"`)
	label("milan-sim-2", `"shared"`)
	spec := cores("2")
	spec.NodeSelector = map[string]string{"pool": "shared"}
	a := w.quotaFixture(t, "nodes", spec)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		a.create(t, coreful(name, "100m", corev1.RestartPolicyAlways))
	}
	a.runs(t, names...)
	for _, name := range names {
		require.Equal(t, "milan-sim-2", a.remote(t, name).Spec.NodeName)
	}
	patch(`{"spec":{"offloadingPatch":{"nodeSelector":{"pool":"own"}}}}`)
	refused := func(p *corev1.Pod) bool {
		// The webhook says it, or, before it knows of the Quota, the controller.
		return p.Status.Reason == offloadingv1beta1.ReasonPodRefused || p.Status.Reason == offloadingv1beta1.ReasonQuotaNodeSelector
	}
	// The vkubelet hears of the patch in its own time, and what it has sent before runs.
	var e string
	var local *corev1.Pod
	for n := 0; local == nil || !refused(local); n++ {
		require.Less(t, n, 10, "the patch has no effect")
		e = fmt.Sprintf("e%d", n)
		a.create(t, coreful(e, "100m", corev1.RestartPolicyAlways))
		local = a.untilLocal(t, 20*time.Second, e, "says that it may not be there, or runs", func(p *corev1.Pod) bool { return refused(p) || podRunning(p) })
	}
	require.Contains(t, local.Status.Message, "spec.nodeSelector selects nodes with pool=own; the quota allows nodes with pool=shared")
	a.absent(t, a.milan, 2*time.Second, a.twin, e)
	a.change(t, `{"nodeSelector":{"pool":"own"}}`)
	a.untilLocal(t, 70*time.Second, e, "goes on where it may be", podRunning)
	require.Equal(t, "milan-sim-1", a.remote(t, e).Spec.NodeName)
	require.Equal(t, "milan-sim-2", a.remote(t, "a").Spec.NodeName, "what runs stays")
	patch(`{"spec":{"offloadingPatch":null}}`)
	a.deleteAll(t)
}

// testQuotaConsumers: one consumer's pods take nothing from another's.
func testQuotaConsumers(t *testing.T, rome, turin *world) {
	r, u := rome.quotaFixture(t, "shared", cores("500m")), turin.quotaFixture(t, "shared", cores("300m"))
	r.create(t, coreful("a", "500m", corev1.RestartPolicyAlways))
	r.runs(t, "a")
	u.create(t, coreful("a", "300m", corev1.RestartPolicyAlways))
	u.runs(t, "a")
	r.create(t, coreful("b", "1m", corev1.RestartPolicyAlways))
	u.create(t, coreful("b", "1m", corev1.RestartPolicyAlways))
	r.waits(t, "b", offloadingv1beta1.ReasonQuotaExceeded, "cluster rome")
	u.waits(t, "b", offloadingv1beta1.ReasonQuotaExceeded, "cluster turin")
	// In another namespace of the same consumer: the same quota.
	other := *r.fixture
	other.namespace, other.twin = "shared-2", "shared-2-rome"
	rome.offload(t, other.namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	other.create(t, coreful("b", "1m", corev1.RestartPolicyAlways))
	other.untilLocal(t, 10*time.Second, "b", "waits too", func(p *corev1.Pod) bool { return p.Status.Reason == offloadingv1beta1.ReasonQuotaExceeded })
	require.NoError(t, turin.rome.Client().CoreV1().Pods("shared").Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	u.runs(t, "b")
	r.waits(t, "b", offloadingv1beta1.ReasonQuotaExceeded)
	require.NoError(t, rome.rome.Client().CoreV1().Pods("shared-2").Delete(t.Context(), "b", metav1.DeleteOptions{}))
	r.deleteAll(t)
	u.deleteAll(t, "a")
}
