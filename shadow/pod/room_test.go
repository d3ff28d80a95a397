package pod

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// bounded gives the consumer a Quota of n CPUs, and has the quota count the pods.
func (r *rig) bounded(n string) {
	r.e.quota.Begin()
	r.limit(cpu(n))
	r.outside = true
	require.NoError(r.t, r.e.quota.Count(r.t.Context()))
	r.outside, r.reads = false, 0
}

// newBoundedRig is a rig whose consumer has a Quota of one CPU.
func newBoundedRig(t *testing.T, policy corev1.RestartPolicy, mods ...shadowMod) *rig {
	r := newRig(t, newShadow(policy, mods...))
	r.bounded("1")
	return r
}

// limit gives the consumer a Quota in place of the one that it has.
func (r *rig) limit(resources corev1.ResourceList, mods ...func(*offloadingv1beta1.Quota)) {
	q := &offloadingv1beta1.Quota{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(origin), Name: "q"},
		Spec:       offloadingv1beta1.QuotaSpec{Resources: resources},
	}
	for _, mod := range mods {
		mod(q)
	}
	r.quotas.put(q)
}

// taken adds another pod of the consumer that requests n CPUs.
func (r *rig) taken(n string) *corev1.Pod {
	pod := podOf(newShadow(always, requests(n)), uidOf("other"), func(p *corev1.Pod) { p.Name, p.ResourceVersion = "other", r.next() })
	r.e.quota.Seen(pod)
	return pod
}

func cpu(n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
}

func requests(n string) shadowMod {
	return func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.Containers[0].Resources.Requests = cpu(n) }
}

// wants asks for room for a young pod of the consumer, and gives the room back.
func (r *rig) wants(n string) string {
	s := newShadow(always, requests(n), func(s *offloadingv1beta1.ShadowPod) {
		s.Name, s.UID, s.CreationTimestamp = "young", "shadow-young", metav1.NewTime(testTime())
	})
	pod, err := forge(s, twin(), rules.Metadata{}, noHarden)
	require.NoError(r.t, err)
	v := r.e.quota.Reserve(s, pod)
	r.e.quota.Idle(loop.Key{Namespace: s.Namespace, Name: s.Name})
	return v.Reason
}

func (r *rig) used() string {
	for _, a := range r.e.Accounts() {
		if a.Consumer == origin {
			return a.Used.Cpu().String()
		}
	}
	return "0"
}

func TestGateWaitsAndGoesOn(t *testing.T) {
	r := newBoundedRig(t, always, requests("500m"))
	other := r.taken("600m")
	r.settle()
	require.Nil(t, r.pod())
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, r.enforced().Reason)
	require.Equal(t, "the pod of cluster rome waits: its quota has no room left (cpu: 500m requested, 1 allowed in all)", r.enforced().Message)
	require.Equal(t, []string{statusWrite}, r.writes)
	require.Zero(t, r.reads, "who waits asks nothing")
	for _, n := range []string{"601m", "900m"} {
		other.ResourceVersion, other.Spec.Containers[0].Resources.Requests = r.next(), cpu(n)
		r.e.quota.Seen(other)
		r.settle()
	}
	require.Equal(t, []string{statusWrite}, r.writes, "told once")

	r.e.quota.Gone(other, "")
	r.settle()
	require.NotNil(t, r.pod())
	require.Nil(t, r.enforced())
	require.Equal(t, []string{statusWrite, createWrite, statusWrite}, r.writes)
	require.Equal(t, "500m", r.used())
}

// TestGateGivesNothingThatWasNotOffered: a consumer that was offered CPU runs no pod with
// devices.
func TestGateGivesNothingThatWasNotOffered(t *testing.T) {
	r := newBoundedRig(t, always, func(s *offloadingv1beta1.ShadowPod) {
		s.Spec.Pod.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	})
	offered := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("9")}
	byOffer := func(q *offloadingv1beta1.Quota) {
		q.Labels = map[string]string{offloadingv1beta1.ManagedByLabel: sharingv1alpha1.ManagedByOffer}
	}
	r.limit(offered, byOffer)
	r.settle()
	require.Nil(t, r.pod())
	require.Equal(t, offloadingv1beta1.ReasonQuotaTooSmall, r.enforced().Reason)
	require.Contains(t, r.enforced().Message, "nvidia.com/gpu: 8 requested, and none was offered")

	offered["nvidia.com/gpu"] = resource.MustParse("8")
	r.limit(offered, byOffer)
	r.settle()
	require.NotNil(t, r.pod())
}

// TestAQuotaWakesWhatSelectsNodes: the labels of a Quota are accepted in the pods of its
// consumer, so a changed Quota has those judged again that were refused.
func TestAQuotaWakesWhatSelectsNodes(t *testing.T) {
	r := newRig(t, newShadow(always, selects(map[string]string{"pool": "shared"})))
	q := &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(origin)}}
	require.Empty(t, r.e.shadowsThatSelect(q), "nothing is refused")
	r.harden = func(*corev1.PodSpec) error { return errors.New("no") }
	r.settle()
	require.Equal(t, []loop.Key{r.key()}, r.e.shadowsThatSelect(q))
	q.Namespace = corev1beta1.TenantNamespace("oslo")
	require.Empty(t, r.e.shadowsThatSelect(q), "of another consumer")
}

// onNodes gives the consumer a Quota of 1 CPU that restricts its pods to the nodes of pool.
func (r *rig) onNodes(pool string) {
	r.limit(cpu("1"), func(q *offloadingv1beta1.Quota) { q.Spec.NodeSelector = map[string]string{"pool": pool} })
}

func selects(labels map[string]string) shadowMod {
	return func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.NodeSelector = labels }
}

// TestGatePlaces: the node constraints of a Quota are added to each new pod, whatever its
// spec says, without any extra request.
func TestGatePlaces(t *testing.T) {
	asks, want := map[string]string{"arch": "arm64"}, map[string]string{"arch": "arm64", "pool": "shared"}
	r := newBoundedRig(t, always, requests("500m"), selects(asks))
	r.onNodes("shared")
	r.settle()
	require.Equal(t, want, r.pod().Spec.NodeSelector)
	require.Equal(t, []string{createWrite}, r.writes)
	require.Equal(t, asks, r.shadow().Spec.Pod.NodeSelector, "the peer's object is left alone")

	// The Quota now selects other nodes. A running pod stays as it is, even when it grows.
	r.onNodes("other")
	r.settle()
	r.changeShadow(func(s *offloadingv1beta1.ShadowPod) { requests("700m")(s); s.Generation++ })
	r.settle()
	require.Equal(t, want, r.pod().Spec.NodeSelector)
	require.Nil(t, r.enforced())
	require.Equal(t, "700m", r.used())
}

// TestGateRefusesOtherNodes: a pod that selects nodes outside its Quota waits. It holds no
// other pod back, and starts once the Quota allows its nodes.
func TestGateRefusesOtherNodes(t *testing.T) {
	r := newBoundedRig(t, always, requests("500m"), selects(map[string]string{"pool": "own"}))
	r.onNodes("shared")
	r.settle()
	require.Nil(t, r.pod())
	require.Equal(t, offloadingv1beta1.ReasonQuotaNodeSelector, r.enforced().Reason)
	require.Equal(t, "the pod of cluster rome selects nodes that the cluster may not use: spec.nodeSelector selects nodes with pool=own; the quota allows nodes with pool=shared", r.enforced().Message)
	r.settle()
	require.Equal(t, []string{statusWrite}, r.writes, "told once")
	require.Empty(t, r.wants("1"), "nobody waits for it")
	r.onNodes("own")
	r.settle()
	require.Equal(t, map[string]string{"pool": "own"}, r.pod().Spec.NodeSelector)
	require.Nil(t, r.enforced())
}

func TestGateFreesWhatIsNotUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		act  func(*rig)
		want string
	}{
		"deleted while it waits": {func(r *rig) { r.taken("1"); r.settle(); r.deleteShadow(); r.settle() }, "1"},
		"refused by the server": {func(r *rig) {
			r.refuse[createWrite] = apierrors.NewForbidden(corev1.Resource("pods"), testName, errors.New("no"))
			r.settle()
		}, "0"},
		"answer lost, then deleted": {func(r *rig) {
			r.refuse[createWrite] = apierrors.NewTimeoutError("lost", 1)
			require.Error(r.t, r.e.sync(r.t.Context(), r.key()))
			require.Equal(r.t, "500m", r.used(), "it may be there")
			r.deleteShadow()
			r.clock.SetTime(r.clock.Now().Add(-time.Second)) // sent in the future, so its pod may exist
			r.e.cfg.Settle = 3 * time.Second
			r.refresh()
			require.Error(r.t, r.e.sync(r.t.Context(), r.key()), "later")
			require.Equal(r.t, "500m", r.used())
			r.clock.SetTime(r.clock.Now().Add(5 * time.Second))
			r.settle()
		}, "0"},
		"hardened away": {func(r *rig) {
			r.taken("1")
			r.settle()
			r.harden = func(*corev1.PodSpec) error { return errors.New("not accepted") }
			r.settle()
		}, "1"},
		"ended": {func(r *rig) { r.settle(); r.change(running, exited(0, time.Second)); r.settle() }, "0"},
		"lost and made again": {func(r *rig) {
			r.settle()
			r.change(running)
			r.settle()
			r.deletePod(0)
			r.settle()
			require.NotNil(r.t, r.pod())
		}, "500m"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newBoundedRig(t, always, requests("500m"))
			tc.act(r)
			require.Equal(t, tc.want, r.used())
			for _, a := range r.e.Accounts() {
				require.Zero(t, a.Waiting)
			}
		})
	}
}

// TestGateKeepsTheRoomOfALostPod: a younger pod does not get the room before the
// replacement is created.
func TestGateKeepsTheRoomOfALostPod(t *testing.T) {
	r := newBoundedRig(t, always, requests("500m"))
	r.taken("500m")
	r.settle()
	r.change(running)
	r.settle()
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, r.wants("100m"))
	r.deletePod(30)
	r.settle()
	r.change(exited(143, -5*time.Second))
	r.settle()
	require.Equal(t, "1", r.used(), "its end is no end")
	r.somebody(func() { _ = r.remove(metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}) })
	r.refresh()
	require.Equal(t, "1", r.used(), "gone: kept for its successor")
	r.settle()
	require.NotNil(t, r.pod())
	require.Equal(t, "1", r.used())
	// Under a smaller Quota, the replacement waits like any other pod.
	r.limit(cpu("900m"))
	r.change(running)
	r.settle()
	r.deletePod(0)
	r.settle()
	require.Nil(t, r.pod())
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, r.enforced().Reason)
}

// TestGateCountsNoPodThatAListHasReplaced: after an interrupted watch, the deletion of a
// pod and the creation of its namesake arrive as one update.
func TestGateCountsNoPodThatAListHasReplaced(t *testing.T) {
	r := newBoundedRig(t, always, requests("500m"))
	r.settle()
	before := r.pod()
	after := before.DeepCopy()
	after.UID, after.ResourceVersion = "another", r.next()
	r.e.podChanged(before, after)
	require.Equal(t, "500m", r.used())
	r.e.podChanged(after, after)
	require.Equal(t, "500m", r.used())
}

func TestGateForesees(t *testing.T) {
	for name, tc := range map[string]struct {
		shadow shadowMod
		setup  func(*rig)
		want   string
	}{
		"a LimitRange": {func(*offloadingv1beta1.ShadowPod) {}, func(r *rig) {
			require.NoError(r.t, r.e.cfg.LimitRanges.Informer().GetIndexer().Add(&corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "l"},
				Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: cpu("700m")}}},
			}))
		}, "700m"},
		"overhead": {func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.RuntimeClassName = new("kata"); requests("500m")(s) }, func(r *rig) {
			require.NoError(r.t, r.e.cfg.RuntimeClasses.Informer().GetIndexer().Add(&nodev1.RuntimeClass{
				ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: cpu("200m")},
			}))
		}, "700m"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newBoundedRig(t, always, tc.shadow)
			tc.setup(r)
			r.taken("301m")
			r.settle()
			require.Nil(t, r.pod())
			require.Contains(t, r.enforced().Message, "cpu: "+tc.want+" requested")
			require.Equal(t, []string{statusWrite}, r.writes, "the API server was not asked")
		})
	}
}

// sidecar adds a container, as an admission webhook does.
func sidecar(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{Requests: cpu("300m")}})
}

// TestGateTakesBackASurprise: a new pod that is larger than predicted and exceeds the quota
// is deleted before it runs, and waits. A pod that may have run stays.
func TestGateTakesBackASurprise(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{always, never} {
		r := newBoundedRig(t, policy, requests("500m"))
		r.mutate = sidecar
		other := r.taken("300m")
		r.settle()
		require.Nil(t, r.pod(), policy)
		require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, r.enforced().Reason)
		require.Contains(t, r.enforced().Message, "cpu: 800m requested")
		require.Empty(t, r.shadow().Status.Replaced, "nothing was lost")
		require.Empty(t, r.shadow().Status.Restarts)
		require.Equal(t, "300m", r.used())
		r.e.quota.Gone(other, "")
		r.settle()
		require.NotNil(t, r.pod())
		require.Equal(t, "800m", r.used())
	}
	r := newBoundedRig(t, always, requests("500m"))
	r.mutate = sidecar
	r.taken("300m")
	r.refuse[deleteWrite] = apierrors.NewConflict(corev1.Resource("pods"), testName, errors.New("changed"))
	r.settle()
	require.NotNil(t, r.pod())
	require.Equal(t, "1100m", r.used(), "it counts")
	require.Nil(t, r.enforced())
}

func TestGateResize(t *testing.T) {
	r := newBoundedRig(t, always, requests("500m"))
	other := r.taken("300m")
	r.settle()
	r.change(running)
	r.settle()
	first := len(r.writes)
	r.changeShadow(func(s *offloadingv1beta1.ShadowPod) { requests("800m")(s); s.Generation++ })
	r.settle()
	require.Equal(t, reasons.UpdateRefused, r.enforced().Reason)
	require.Contains(t, r.enforced().Message, "its quota has no room left (cpu: 800m requested, 1 allowed in all)")
	require.NotContains(t, r.writes[first:], resizeWrite)
	told := len(r.writes)
	r.settle()
	require.Len(t, r.writes, told, "who waits writes nothing")
	r.e.quota.Gone(other, "")
	r.settle()
	require.Contains(t, r.writes[first:], resizeWrite)
	require.Equal(t, resource.MustParse("800m"), r.pod().Spec.Containers[0].Resources.Requests[corev1.ResourceCPU])
	require.Nil(t, r.enforced())
	require.Equal(t, "800m", r.used())
	r.changeShadow(func(s *offloadingv1beta1.ShadowPod) { requests("100m")(s); s.Generation++ })
	r.settle()
	require.Equal(t, "100m", r.used())
}

func TestGateBeforeItKnows(t *testing.T) {
	r := newRig(t, newShadow(always, requests("500m")))
	r.e.quota.Begin()
	r.limit(cpu("1"))
	r.settle()
	require.Empty(t, r.writes, "nothing is done, and nothing is said yet")
	require.NoError(t, r.e.quota.Count(t.Context()))
	r.settle()
	require.Equal(t, []string{createWrite}, r.writes)

	unbounded := newRig(t, newShadow(always, requests("500m")))
	unbounded.e.quota.Begin()
	unbounded.settle()
	require.Equal(t, []string{createWrite}, unbounded.writes, "who has no Quota does not wait for that")
}
