package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// lentName is a namespace of milan's own that accepts paris.
const lentName = "lent"

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
	within(t, longest, original+" is "+string(phase), func(ctx context.Context) error {
		nm, err := p.liqod.OffloadingV1beta1().NamespaceMaps(tenantOfParis).Get(ctx, "milan", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := nm.Status.CurrentMapping[original]; s.Phase != phase || !strings.Contains(s.Message, says) {
			return fmt.Errorf("%s is %+v", original, s)
		}
		return nil
	})
}

// ask asks milan for a twin, as soon as milan lets paris ask.
func (p attacker) ask(t *testing.T, original, twin string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"spec":{"desiredMapping":{%q:%q}}}`, original, twin)
	within(t, longest, "paris asks for a twin of "+original, func(ctx context.Context) error {
		_, err := p.liqod.OffloadingV1beta1().NamespaceMaps(tenantOfParis).Patch(ctx, "milan", types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
}

func (w *world) annotateTwin(t *testing.T, name, key, value string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, value)
	_, err := w.milan.Client().CoreV1().Namespaces().Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
	require.NoError(t, err)
}

func claimOf(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("disk"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
}

// lent: a namespace of milan's own accepts paris. Paris gets pods there, and nothing of what
// the owner has, until the owner shares it.
func lent(t *testing.T, w *world) {
	p, ctx := asParis(t, w), t.Context()
	core := w.milan.Client().CoreV1()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lentName,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}, Annotations: map[string]string{offloadingv1beta1.AcceptTwinAnnotation: "paris"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.Secrets(lentName).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.PersistentVolumeClaims(lentName).Create(ctx, claimOf("ledger"), metav1.CreateOptions{})
	require.NoError(t, err)
	p.ask(t, lentName, lentName)
	p.mapped(t, lentName, offloadingv1beta1.MappingAccepted, "does not share its Secrets, PersistentVolumeClaims, Services")

	allForbidden(t, lentAttempts(p))
	for name, change := range lentUses() {
		t.Run(name, func(t *testing.T) { p.refusedInLent(t, name, change) })
	}
	t.Run("orphan", func(t *testing.T) { p.orphan(t) })

	w.annotateTwin(t, lentName, offloadingv1beta1.AcceptTwinSharesAnnotation, `"Secrets"`)
	within(t, longest, "the owner shares its Secrets", func(ctx context.Context) error {
		_, err := p.core.CoreV1().Secrets(lentName).Get(ctx, "password", metav1.GetOptions{})
		return err
	})
	w.annotateTwin(t, lentName, offloadingv1beta1.AcceptTwinSharesAnnotation, "null")
	within(t, longest, "the owner shares nothing any more", func(ctx context.Context) error {
		if _, err := p.core.CoreV1().Secrets(lentName).Get(ctx, "password", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("not forbidden: %w", err)
		}
		return nil
	})
}

func lentAttempts(p attacker) map[string]attempt {
	own := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{offloadingv1beta1.OriginLabel: "paris", offloadingv1beta1.DestinationLabel: "milan"}}
	}
	core := p.core.CoreV1()
	return map[string]attempt{
		"the owner's Secrets": func(ctx context.Context) error {
			_, err := core.Secrets(lentName).List(ctx, metav1.ListOptions{})
			return err
		},
		"the owner's Secret": func(ctx context.Context) error {
			_, err := core.Secrets(lentName).Get(ctx, "password", metav1.GetOptions{})
			return err
		},
		"a Service for the owner's pods": func(ctx context.Context) error {
			_, err := core.Services(lentName).Create(ctx, &corev1.Service{ObjectMeta: own("evil"), Spec: service("evil").Spec}, metav1.CreateOptions{})
			return err
		},
		"endpoints of the owner's Service": func(ctx context.Context) error {
			s := &offloadingv1beta1.ShadowEndpointSlice{ObjectMeta: own("evil")}
			s.Labels["kubernetes.io/service-name"] = "web"
			_, err := p.liqod.OffloadingV1beta1().ShadowEndpointSlices(lentName).Create(ctx, s, metav1.CreateOptions{})
			return err
		},
		"an Ingress for the owner's Service": func(ctx context.Context) error {
			_, err := p.core.NetworkingV1().Ingresses(lentName).Create(ctx, &networkingv1.Ingress{ObjectMeta: own("evil"), Spec: ingressOf("evil", "").Spec}, metav1.CreateOptions{})
			return err
		},
		"a clone of the owner's claim": func(ctx context.Context) error {
			c := claimOf("evil")
			c.ObjectMeta = own("evil")
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "ledger"}
			_, err := core.PersistentVolumeClaims(lentName).Create(ctx, c, metav1.CreateOptions{})
			return err
		},
		"exec": func(ctx context.Context) error {
			return core.RESTClient().Post().Namespace(lentName).Resource("pods").Name("x").SubResource("exec").Do(ctx).Error()
		},
	}
}

// lentUses are pods that use what the owner has.
func lentUses() map[string]func(*corev1.PodSpec) {
	volume := func(source corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
	}
	return map[string]func(*corev1.PodSpec){
		"secret-volume": volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password"}}),
		"secret-later":  volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "not-yet", Optional: ptr.To(true)}}),
		"secret-env": func(s *corev1.PodSpec) {
			s.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "password"}}}}
		},
		"pull-secret": func(s *corev1.PodSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "password"}} },
		"claim":       volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "ledger"}}),
	}
}

// inLent returns a ShadowPod of paris in the namespace.
func inLent(name string) *offloadingv1beta1.ShadowPod {
	s := shadowPod(name)
	s.Namespace, s.Labels[offloadingv1beta1.OriginLabel] = lentName, "paris"
	return s
}

func (p attacker) refusedInLent(t *testing.T, name string, change func(*corev1.PodSpec)) {
	s := inLent(name)
	change(&s.Spec.Pod)
	shadows := p.liqod.OffloadingV1beta1().ShadowPods(lentName)
	_, err := shadows.Create(t.Context(), s, metav1.CreateOptions{})
	require.NoError(t, err)
	within(t, longest, "the refusal shows", func(ctx context.Context) error {
		have, err := shadows.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(have.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
		if c == nil || c.Reason != offloadingv1beta1.ReasonPodRefused || !strings.Contains(c.Message, offloadingv1beta1.AcceptTwinSharesAnnotation) {
			return fmt.Errorf("conditions are %+v", have.Status.Conditions)
		}
		return nil
	})
	require.NoError(t, absent(p.milan.Client().CoreV1().Pods(lentName).Get(t.Context(), name, metav1.GetOptions{})))
}

// orphan: neither paris nor an administrator frees a pod of paris, which then a ReplicaSet of
// the owner could adopt.
func (p attacker) orphan(t *testing.T) {
	ctx, shadows := t.Context(), p.liqod.OffloadingV1beta1().ShadowPods(lentName)
	_, err := shadows.Create(ctx, inLent("freed"), metav1.CreateOptions{})
	require.NoError(t, err)
	pods := p.milan.Client().CoreV1().Pods(lentName)
	within(t, longest, "the pod is there", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "freed", metav1.GetOptions{})
		if err == nil && pod.Spec.ServiceAccountName != offloadingv1beta1.AcceptedAccount {
			err = fmt.Errorf("its account is %s", pod.Spec.ServiceAccountName)
		}
		return err
	})
	orphan := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}
	err = shadows.Delete(ctx, "freed", orphan)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "propagationPolicy Orphan")
	err = p.core.CoreV1().Pods(lentName).Delete(ctx, "freed", metav1.DeleteOptions{OrphanDependents: ptr.To(true)})
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	require.NoError(t, p.milan.Liqod().OffloadingV1beta1().ShadowPods(lentName).Delete(ctx, "freed", orphan))
	within(t, longest, "the pod goes nevertheless", func(ctx context.Context) error { return absent(pods.Get(ctx, "freed", metav1.GetOptions{})) })
}

// keptTwins: a twin of paris is kept for its volumes when the peering ends. Another cluster, which
// is peered as paris, gets it only from milan's administrator.
func keptTwins(t *testing.T, w *world) {
	const twin = "data-paris"
	ctx, core := t.Context(), w.milan.Client().CoreV1()
	require.NoError(t, w.milan.Apply(ctx, []byte(paris)))
	p := asParis(t, w)
	p.ask(t, "data", twin)
	p.mapped(t, "data", offloadingv1beta1.MappingAccepted, "")
	claim := claimOf("ledger")
	claim.Spec.VolumeName = "ledger" // as if bound
	_, err := core.PersistentVolumeClaims(twin).Create(ctx, claim, metav1.CreateOptions{})
	require.NoError(t, err)
	records := w.milan.Liqod().CoreV1beta1().ForeignClusters()
	require.NoError(t, records.Delete(ctx, "paris", metav1.DeleteOptions{}))
	require.NoError(t, core.Namespaces().Delete(ctx, tenantOfParis, metav1.DeleteOptions{})) // as unpeer does
	within(t, longest, "the peering is gone, and its twin kept", func(ctx context.Context) error {
		if err := absent(records.Get(ctx, "paris", metav1.GetOptions{})); err != nil {
			return err
		}
		if err := absent(core.Namespaces().Get(ctx, tenantOfParis, metav1.GetOptions{})); err != nil {
			return err
		}
		ns, err := core.Namespaces().Get(ctx, twin, metav1.GetOptions{})
		if err == nil && ns.Annotations[offloadingv1beta1.DataKeptAnnotation] == "" {
			err = fmt.Errorf("annotations are %v", ns.Annotations)
		}
		return err
	})

	require.NoError(t, w.milan.Apply(ctx, []byte(paris)))
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
	fc, err := records.Get(ctx, "paris", metav1.GetOptions{})
	require.NoError(t, err)
	w.annotateTwin(t, twin, offloadingv1beta1.ConsumerUIDAnnotation, fmt.Sprintf("%q", "paris/peering-"+string(fc.UID)))
	other.mapped(t, "data", offloadingv1beta1.MappingAccepted, "")
	have, err := other.core.CoreV1().PersistentVolumeClaims(twin).Get(ctx, "ledger", metav1.GetOptions{})
	require.NoError(t, err)
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
	_, err = core.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "by-people"}, Provisioner: "kubernetes.io/no-provisioner"}, metav1.CreateOptions{})
	require.NoError(t, err)
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
		_, err = shadows.Create(ctx, shadow, metav1.CreateOptions{})
		require.NoError(t, err)
		within(t, longest, "the refusal shows", func(ctx context.Context) error {
			have, err := shadows.Get(ctx, shadow.Name, metav1.GetOptions{})
			if err == nil && !strings.Contains(fmt.Sprint(have.Status.Conditions), "sharing.storageClasses") {
				err = fmt.Errorf("conditions are %+v", have.Status.Conditions)
			}
			return err
		})
		require.NoError(t, shadows.Delete(ctx, shadow.Name, metav1.DeleteOptions{}))
	}
}
