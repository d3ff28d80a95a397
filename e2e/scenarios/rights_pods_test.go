package scenarios

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// vault is a node of milan that its administrator keeps for something else.
const vault = "milan-sim-3"

// wished is a ShadowPod as a peer writes it by hand, and what must hold of its pod.
type wished struct {
	change func(*offloadingv1beta1.ShadowPod)
	check  func(*testing.T, *corev1.Pod)
}

func shadowPod(name string) *offloadingv1beta1.ShadowPod {
	return &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: twinOfRome, Labels: map[string]string{
			offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.DestinationLabel: "milan", offloadingv1beta1.LocalPodUIDLabel: "by-hand-" + name}},
		Spec: offloadingv1beta1.ShadowPodSpec{Pod: podSpec("sim/web:1")},
	}
}

func specOf(change func(*corev1.PodSpec)) func(*offloadingv1beta1.ShadowPod) {
	return func(s *offloadingv1beta1.ShadowPod) { change(&s.Spec.Pod) }
}

// nodesBy returns an affinity to nodes by one requirement.
func nodesBy(field bool, key string, op corev1.NodeSelectorOperator, values ...string) *corev1.Affinity {
	term := corev1.NodeSelectorTerm{}
	requirements := []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}
	if field {
		term.MatchFields = requirements
	} else {
		term.MatchExpressions = requirements
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}}
}

func elsewhere(t *testing.T, pod *corev1.Pod) { require.NotEqual(t, vault, pod.Spec.NodeName) }

// placed has one wish for each way to a node. Package rules tests all fields.
func placed() map[string]wished {
	tolerant := func(change func(*corev1.PodSpec)) func(*offloadingv1beta1.ShadowPod) {
		return specOf(func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}, {Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}
			change(s)
		})
	}
	return map[string]wished{
		"node-name": {tolerant(func(s *corev1.PodSpec) { s.NodeName = vault }), elsewhere},
		"node-field": {tolerant(func(s *corev1.PodSpec) {
			s.Affinity = nodesBy(true, metav1.ObjectNameField, corev1.NodeSelectorOpIn, vault)
		}), elsewhere},
		"scheduler": {specOf(func(s *corev1.PodSpec) { s.SchedulerName = "mine" }), func(t *testing.T, pod *corev1.Pod) {
			require.Equal(t, corev1.DefaultSchedulerName, pod.Spec.SchedulerName)
		}},
		"dedicated": {specOf(func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "pci"}, {Key: "dedicated", Operator: corev1.TolerationOpExists}}
		}), func(t *testing.T, pod *corev1.Pod) {
			for _, toleration := range pod.Spec.Tolerations {
				require.Contains(t, []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}, toleration.Key)
			}
		}},
	}
}

func privileged() map[string]wished {
	return map[string]wished{
		"service-account": {specOf(func(s *corev1.PodSpec) {
			s.ServiceAccountName, s.DeprecatedServiceAccount, s.AutomountServiceAccountToken = "admin", "admin", ptr.To(true)
			s.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "https://kubernetes.default.svc"}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "n", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
			}}}}}
		}), func(t *testing.T, pod *corev1.Pod) {
			require.Equal(t, "default", pod.Spec.ServiceAccountName)
			require.Equal(t, ptr.To(false), pod.Spec.AutomountServiceAccountToken)
			for _, v := range pod.Spec.Volumes {
				require.Len(t, v.Projected.Sources, 1)
				require.NotNil(t, v.Projected.Sources[0].DownwardAPI)
			}
		}},
		"ephemeral-containers": {specOf(func(s *corev1.PodSpec) {
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "sim/web:1"}}}
		}), func(t *testing.T, pod *corev1.Pod) {
			// They are added to the running pod, at any later moment; what they may do is judged then.
			for _, c := range pod.Spec.EphemeralContainers {
				require.Equal(t, "e", c.Name)
				require.Nil(t, c.SecurityContext)
			}
		}},
		"labels-that-lie": {func(s *offloadingv1beta1.ShadowPod) {
			s.Labels[offloadingv1beta1.ManagedByLabel] = "somebody"
			s.Labels[offloadingv1beta1.LocalPodUIDLabel] = "by-hand-scheduler"
		}, func(t *testing.T, pod *corev1.Pod) {
			require.Equal(t, "rome", pod.Labels[offloadingv1beta1.OriginLabel])
			require.Equal(t, offloadingv1beta1.ManagedByShadowPod, pod.Labels[offloadingv1beta1.ManagedByLabel])
			require.Len(t, pod.OwnerReferences, 1)
			require.Equal(t, pod.Namespace, pod.OwnerReferences[0].Name, "no controller adopts the pod")
		}},
		"mirror-pod": {func(s *offloadingv1beta1.ShadowPod) {
			s.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x", "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x", "kept": "yes"}
		}, func(t *testing.T, pod *corev1.Pod) {
			require.Equal(t, "yes", pod.Annotations["kept"])
			for key := range pod.Annotations {
				require.False(t, strings.HasPrefix(key, "kubernetes.io/config."), key)
			}
		}},
	}
}

// forced shows wishes that a peer may write and that its pods run without.
func forced(t *testing.T, p attacker) {
	require.NoError(t, p.milan.AddSimulatedNodes(t.Context(), 1))
	kubetest.Patch(t, p.milan.Client().CoreV1().Nodes(), vault, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	kubetest.Create(t, p.milan.Client().CoreV1().ServiceAccounts(twinOfRome), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "admin"}})
	within(t, 10*time.Second, "the vault is cordoned", lab.Is(p.milan.Client().CoreV1().Nodes(), vault, func(n *corev1.Node) bool {
		return len(n.Spec.Taints) > 0
	}))
	for _, cases := range []map[string]wished{placed(), privileged()} {
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				runsWithout(t, p, name, tc)
			})
		}
	}
}

func runsWithout(t *testing.T, p attacker, name string, tc wished) {
	shadow := shadowPod(name)
	tc.change(shadow)
	kubetest.Create(t, p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome), shadow)
	var pod *corev1.Pod
	within(t, 30*time.Second, "the pod runs, without what it may not have", lab.Is(p.core.CoreV1().Pods(twinOfRome), name, func(have *corev1.Pod) bool {
		pod = have
		return have.Status.Phase == corev1.PodRunning
	}))
	tc.check(t, pod)
	uid := pod.UID

	// The same wish as a change of a plain one's, once the pod runs.
	later := shadowPod(name + "-later")
	kubetest.Create(t, p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome), later)
	within(t, 30*time.Second, "the plain pod is there", lab.Exists(p.core.CoreV1().Pods(twinOfRome), later.Name))
	changed := kubetest.Get(t, p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome), later.Name)
	tc.change(changed)
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations["seen"] = "yes"
	kubetest.Update(t, p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome), changed)
	within(t, 30*time.Second, "the change has arrived, without what it may not have", lab.Is(p.core.CoreV1().Pods(twinOfRome), later.Name, func(have *corev1.Pod) bool {
		pod = have
		return have.Annotations["seen"] == "yes"
	}))
	tc.check(t, pod)
	first := kubetest.Get(t, p.core.CoreV1().Pods(twinOfRome), name)
	require.Equal(t, uid, first.UID)
}

// refused shows ShadowPods that can be written, and that no pod is made for.
func refused(t *testing.T, p attacker, specs map[string]refusedSpec) {
	cases := map[string]struct {
		change          func(*offloadingv1beta1.ShadowPod)
		reason, message string
	}{
		"origin": {func(s *offloadingv1beta1.ShadowPod) { s.Labels[offloadingv1beta1.OriginLabel] = "paris" }, "ForeignOrigin", "paris"},
	}
	for name, of := range specs {
		cases[name] = struct {
			change          func(*offloadingv1beta1.ShadowPod)
			reason, message string
		}{specOf(of.change), offloadingv1beta1.ReasonPodRefused, of.message}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shadow := shadowPod("refused-" + name)
			tc.change(shadow)
			kubetest.Create(t, p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome), shadow)
			within(t, 30*time.Second, "the refusal shows", lab.That(p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome), shadow.Name, func(s *offloadingv1beta1.ShadowPod) error {
				c := meta.FindStatusCondition(s.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
				return lab.Wrong(nil, c == nil || c.Status != metav1.ConditionFalse || c.Reason != tc.reason || !strings.Contains(c.Message, tc.message),
					"conditions are %+v, want reason %s and a message about %s", s.Status.Conditions, tc.reason, tc.message)
			}))
			_, err := p.core.CoreV1().Pods(twinOfRome).Get(t.Context(), shadow.Name, metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err), "there must be no pod: %v", err)
		})
	}
}

// refusedSpec is a spec that the provider refuses, and what its message tells of.
type refusedSpec struct {
	change  func(*corev1.PodSpec)
	message string
}

func refusedSpecs() map[string]refusedSpec {
	container := func(change func(*corev1.Container)) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { change(&s.Containers[0]) }
	}
	volume := func(source corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
	}
	security := func(c corev1.SecurityContext) func(*corev1.PodSpec) {
		return container(func(it *corev1.Container) { it.SecurityContext = &c })
	}
	return map[string]refusedSpec{
		"runtime-class": {func(s *corev1.PodSpec) { s.RuntimeClassName = ptr.To("liqo") }, "RuntimeClassRefused"},
		"resource-claims": {func(s *corev1.PodSpec) {
			s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("x")}}
		}, "ResourceClaimsRefused"},
		"certificate": {volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/x", KeyType: "ED25519", CredentialBundlePath: "c"}}}}}), "PodCertificateRefused"},
		"claim": {volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("inner"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}}}), "VolumeClaimRefused"},
		"nfs":        {volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "169.254.169.254", Path: "/"}}), "VolumeTypeRefused"},
		"inline-csi": {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io"}}), "controller.volumeTypes"},
		"probe-host": {container(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(10250)}}}
		}), "ProbeHostRefused"},
		"hook-host": {container(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}}
		}), "ProbeHostRefused"},
		"node-label": {func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"example.com/vault": "yes"} }, "NodeLabelRefused"},
		"node-label-affinity": {func(s *corev1.PodSpec) {
			s.Affinity = nodesBy(false, "example.com/instance-id", corev1.NodeSelectorOpIn, "i-1")
		}, "sharing.selectorLabels"},
		"host-path":    {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), "hostPath"},
		"privileged":   {security(corev1.SecurityContext{Privileged: ptr.To(true)}), "privileged"},
		"capabilities": {security(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}), "capabilities"},
		"proc-mount":   {security(corev1.SecurityContext{ProcMount: ptr.To(corev1.UnmaskedProcMount)}), "procMount"},
		"unconfined": {security(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}),
			"seccompProfile"},
		"host-port": {container(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}} }), "hostPort"},
		"sysctl": {func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}, "sysctl"},
	}
}
