package scenarios

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// asParis returns an attacker with the credentials that paris holds in milan.
func asParis(t *testing.T, w *world) attacker {
	t.Helper()
	p := attacker{world: w}
	p.core, p.liqod = clients(t, holder{in: w.milan, namespace: tenantOfParis, account: "peer-1"}.config(t))
	return p
}

// mapped waits until milan answers an entry of paris's NamespaceMap in a phase.
func (p attacker) mapped(t *testing.T, original string, phase offloadingv1beta1.MappingPhase, says string) {
	t.Helper()
	within(t, longest, original+" is "+string(phase), lab.Is(p.liqod.OffloadingV1beta1().NamespaceMaps(tenantOfParis), "milan", func(nm *offloadingv1beta1.NamespaceMap) bool {
		s := nm.Status.CurrentMapping[original]
		return s.Phase == phase && strings.Contains(s.Message, says)
	}))
}

// ask asks milan for a twin, as soon as milan lets paris ask.
func (p attacker) ask(t *testing.T, original, twin string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"spec":{"desiredMapping":{%q:%q}}}`, original, twin)
	within(t, longest, "paris asks for a twin of "+original, lab.Patches(p.liqod.OffloadingV1beta1().NamespaceMaps(tenantOfParis), "milan", types.MergePatchType, body))
}

func (w *world) annotateTwin(t *testing.T, name, key, value string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, value)
	kubetest.Patch(t, w.milan.Client().CoreV1().Namespaces(), name, types.MergePatchType, body)
}

func claimOf(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("disk"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
}

// orphan: neither paris nor an administrator frees a pod of paris, which then a ReplicaSet of
// somebody else could adopt.
func orphan(t *testing.T, w *world) {
	const twin = "freed-paris"
	p, ctx := asParis(t, w), t.Context()
	p.ask(t, "freed", twin)
	p.mapped(t, "freed", offloadingv1beta1.MappingAccepted, "")
	shadow := shadowPod("freed")
	shadow.Namespace, shadow.Labels[offloadingv1beta1.OriginLabel] = twin, "paris"
	shadows := p.liqod.OffloadingV1beta1().ShadowPods(twin)
	kubetest.Create(t, shadows, shadow)
	pods := p.milan.Client().CoreV1().Pods(twin)
	within(t, longest, "the pod is there", lab.Exists(pods, "freed"))
	free := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}
	err := shadows.Delete(ctx, "freed", free)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "propagationPolicy Orphan")
	err = p.core.CoreV1().Pods(twin).Delete(ctx, "freed", metav1.DeleteOptions{OrphanDependents: ptr.To(true)})
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	require.NoError(t, p.milan.Liqod().OffloadingV1beta1().ShadowPods(twin).Delete(ctx, "freed", free))
	within(t, longest, "the pod goes nevertheless", isGone(pods, "freed"))
}

// keptTwins: a twin of paris is kept for its volumes when the peering ends. Another cluster, which
// is peered as paris, gets it only from milan's administrator.
func keptTwins(t *testing.T, w *world) {
	const twin = "data-paris"
	ctx, core := t.Context(), w.milan.Client().CoreV1()
	require.NoError(t, w.milan.Apply(ctx, []byte(anotherPeer("shop", twinOfParis))))
	p := asParis(t, w)
	p.ask(t, "data", twin)
	p.mapped(t, "data", offloadingv1beta1.MappingAccepted, "")
	claim := claimOf("ledger")
	claim.Spec.VolumeName = "ledger" // as if bound
	kubetest.Create(t, core.PersistentVolumeClaims(twin), claim)
	records := w.milan.Liqod().CoreV1beta1().ForeignClusters()
	require.NoError(t, records.Delete(ctx, "paris", metav1.DeleteOptions{}))
	require.NoError(t, core.Namespaces().Delete(ctx, tenantOfParis, metav1.DeleteOptions{})) // as unpeer does
	within(t, longest, "the peering is gone, and its twin kept", lab.Together(isGone(records, "paris"), isGone(core.Namespaces(), tenantOfParis), lab.Is(core.Namespaces(), twin, func(ns *corev1.Namespace) bool {
		return ns.Annotations[offloadingv1beta1.DataKeptAnnotation] != ""
	})))

	require.NoError(t, w.milan.Apply(ctx, []byte(anotherPeer("shop", twinOfParis))))
	other := asParis(t, w)
	other.ask(t, "data", twin)
	other.mapped(t, "data", offloadingv1beta1.MappingCreationLoopBackOff, "kubectl annotate namespace "+twin)
	for what, err := range map[string]error{
		"claims":  second(other.core.CoreV1().PersistentVolumeClaims(twin).List(ctx, metav1.ListOptions{})),
		"Secrets": second(other.core.CoreV1().Secrets(twin).List(ctx, metav1.ListOptions{})),
		"pods":    second(other.liqod.OffloadingV1beta1().ShadowPods(twin).List(ctx, metav1.ListOptions{})),
	} {
		require.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
	fc := kubetest.Get(t, records, "paris")
	w.annotateTwin(t, twin, offloadingv1beta1.ConsumerUIDAnnotation, fmt.Sprintf("%q", "paris/peering-"+string(fc.UID)))
	other.mapped(t, "data", offloadingv1beta1.MappingAccepted, "")
	have := kubetest.Get(t, other.core.CoreV1().PersistentVolumeClaims(twin), "ledger")
	require.Nil(t, have.DeletionTimestamp)
}

func second[T any](_ T, err error) error { return err }

// testMadeUpClass: a claim of the consumer, written past liqod, gets no volume that somebody
// has made by hand in the provider.
func testMadeUpClass(t *testing.T, w *world) {
	const twin = "disks-rome"
	ctx, core := t.Context(), w.milan.Client()
	template := claimOf("evil")
	_, err := core.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "of-the-bank"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: template.Spec.Resources.Requests, AccessModes: template.Spec.AccessModes, StorageClassName: "manual",
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/bank"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	kubetest.Create(t, core.StorageV1().StorageClasses(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "by-people"}, Provisioner: "kubernetes.io/no-provisioner"})
	peer, liqod := clients(t, holder{in: w.milan, namespace: tenantOfRome, account: "peer-1"}.config(t))
	for _, class := range []string{"manual", "by-people"} {
		claim := claimOf("evil")
		claim.Labels = map[string]string{offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.DestinationLabel: "elsewhere"}
		claim.Spec.StorageClassName = &class
		_, err = peer.CoreV1().PersistentVolumeClaims(twin).Create(ctx, claim, metav1.CreateOptions{})
		require.True(t, apierrors.IsForbidden(err), "%s: %v", class, err)
		require.ErrorContains(t, err, "sharing.storageClasses")

		shadow := shadowPod("evil-" + class)
		shadow.Namespace = twin
		shadow.Spec.Pod.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim.Spec}}}}}
		shadows := liqod.OffloadingV1beta1().ShadowPods(twin)
		kubetest.Create(t, shadows, shadow)
		within(t, longest, "the refusal shows", lab.Is(shadows, shadow.Name, func(have *offloadingv1beta1.ShadowPod) bool {
			return strings.Contains(fmt.Sprint(have.Status.Conditions), "sharing.storageClasses")
		}))
		require.NoError(t, shadows.Delete(ctx, shadow.Name, metav1.DeleteOptions{}))
	}
}
