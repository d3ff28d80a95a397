package scenarios

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// testCommandFaults makes faults that do not disturb each other, all at once: each in a namespace of its
// own, or of one object.
func testCommandFaults(t *testing.T, w *world) {
	waiting := w.faultsOfContainers()
	refused := w.faultsOfPods()
	others := w.faultsOfObjects()
	w.mends(t, append(append(waiting, refused...), others...)...)

	w.forgets(t)
	require.NoError(t, w.rome.Client().AppsV1().DaemonSets("default").Delete(t.Context(), "agent", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))

	// The first fix leaves a pod with the affinity of before.
	w.mends(t, faultCase{name: "Cordoned", cause: []string{"virtual node milan: it is Ready, but cordoned"},
		make: func(t *testing.T) { cordon(t, w.rome, true, "milan") },
	}, faultCase{name: "EarlierAffinity", cause: []string{"pods of namespace typo: ", "with the affinity of an earlier NamespaceOffloading"},
		then: func(t *testing.T) { within(t, longest, "the next pod runs", w.available("web", "typo", 1)) }})
	w.mendsQuotas(t)
	w.vanish(t, "typo", "settings", "password", "image", "privileged", "unowned", "large", "renamed", "undeclared", "huge", "full", "closed", "claimed")
	require.NoError(t, w.rome.Client().CoreV1().PersistentVolumes().Delete(t.Context(), "shelf", metav1.DeleteOptions{}))
	within(t, longest, "all is well", w.says(w.rome, []string{"status"}, 0, "Cluster rome: healthy"))
}

// faultsOfContainers are faults of containers that wait in the provider. The test does the kubelet's work
// where the simulated one does not look at the objects that a container needs.
func (w *world) faultsOfContainers() []faultCase {
	needs := func(namespace, kind string, from corev1.EnvFromSource) func(*testing.T) {
		return func(t *testing.T) {
			w.faulty(t, namespace)
			w.bare(t, namespace, "app", func(s *corev1.PodSpec) {
				s.Containers[0].Image, s.Containers[0].EnvFrom = "sim/missing:object", []corev1.EnvFromSource{from}
			})
			w.kubelet(t, namespace, `{"phase":"Pending","containerStatuses":[{"name":"c","image":"sim/missing:object","imageID":"","restartCount":0,"ready":false,"started":false,`+
				`"state":{"waiting":{"reason":"CreateContainerConfigError","message":"`+kind+` \"`+namespace+`\" not found"}}}]}`)
		}
	}
	starts := func(namespace string, arrives func(context.Context) error) func(*testing.T) {
		return func(t *testing.T) {
			within(t, longest, "the object comes to the provider", arrives)
			w.kubelet(t, namespace, `{"phase":"Running","conditions":[{"type":"Ready","status":"True"},{"type":"ContainersReady","status":"True"}],`+
				`"containerStatuses":[{"name":"c","image":"sim/missing:object","imageID":"x","restartCount":0,"ready":true,"started":true,"state":{"running":{}}}]}`)
			within(t, longest, "the pod is ready", w.podReady(namespace, "app"))
		}
	}
	core := w.milan.Client().CoreV1()
	return []faultCase{
		{
			name: "ConfigMap", cause: []string{"pods of namespace settings: ", `configmap "settings" not found`}, only: "create", fill: map[string]string{"KEY=VALUE": "color=blue"},
			runbook: "LiqodPodsPending", command: "kubectl -n NAMESPACE create configmap NAME --from-literal=KEY=VALUE",
			make: needs("settings", "configmap", corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}),
			then: starts("settings", lab.Exists(core.ConfigMaps("settings-rome"), "settings")),
		},
		{
			name: "Secret", cause: []string{"pods of namespace password: ", `secret "password" not found`}, only: "create", fill: map[string]string{"KEY=VALUE": "word=open"},
			make: needs("password", "secret", corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "password"}}}),
			then: starts("password", lab.Exists(core.Secrets("password-rome"), "password")),
		},
		{
			name: "Image", cause: []string{"pods of namespace image: ", `container c: Back-off pulling image "sim/missing:1"`}, editor: "s#sim/missing:1#sim/web:2#",
			runbook: "LiqodPodsPending", command: "kubectl -n NAMESPACE edit deployment NAME",
			make: w.deploys("image", func(s *corev1.PodSpec) { s.Containers[0].Image = "sim/missing:1" }),
		},
	}
}

// faultsOfPods are faults of pods that no node takes.
func (w *world) faultsOfPods() []faultCase {
	privileged := func(s *corev1.PodSpec) {
		s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	}
	return []faultCase{
		{
			name: "Selector", cause: []string{"namespace typo: ", "spec.clusterSelector (region in (nowhere)) matches none of the virtual nodes: milan (region=north)"},
			make: func(t *testing.T) {
				w.ask(t, "typo", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote, ClusterSelector: region("nowhere")})
				// A pod that is created before the controller has seen that runs at home.
				within(t, longest, "nothing is selected", w.offloadingIs("typo", offloadingv1beta1.PhaseNoClusterSelected))
				w.creates(t, "typo", nil)
			},
		},
		{
			name: "Privileged", cause: []string{"pods of namespace privileged: ", "PodRefused", "PodSecurity"}, editor: "s/privileged: true/privileged: false/",
			make: w.deploys("privileged", privileged),
		},
		{
			name: "PodWithoutOwner", cause: []string{"pods of namespace unowned: ", "PodRefused", "PodSecurity"}, editor: "s/privileged: true/privileged: false/", runbook: "LiqodPodsPending",
			command: "kubectl -n NAMESPACE get pod POD -o yaml >FILE && ${EDITOR:-vi} FILE && kubectl -n NAMESPACE replace --force -f FILE",
			make: func(t *testing.T) {
				w.faulty(t, "unowned")
				w.bare(t, "unowned", "app", privileged)
			},
		},
		{
			name: "NoRoom", cause: []string{"pods of namespace large: ", "Insufficient cpu"}, only: "edit", editor: "s/5k/10m/",
			runbook: "LiqodVirtualNodeFull", command: "kubectl -n NAMESPACE edit deployment NAME",
			make: w.deploys("large", func(s *corev1.PodSpec) {
				s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5000")}
			}),
		},
		{
			name: "ClaimNeedsOwnNode", cause: []string{"pods of namespace claimed: ", "ClaimNeedsOwnNode", `PersistentVolumeClaim data (class "shelf") has its volume on nodes of this cluster only`},
			make: w.claims("claimed"),
			then: func(t *testing.T) { within(t, longest, "it runs at home", w.available("web", "claimed", 1)) },
		},
	}
}

// claims is how the fault of a claim is made whose volume is not for virtual nodes, and does not say so.
func (w *world) claims(namespace string) func(*testing.T) {
	return func(t *testing.T) {
		w.faulty(t, namespace)
		c, class, size := w.rome.Client(), "shelf", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		kubetest.Create(t, c.StorageV1().StorageClasses(), &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		})
		kubetest.Create(t, c.CoreV1().PersistentVolumes(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "shelf"}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, StorageClassName: class, Capacity: size, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/shelf"}},
		}})
		kubetest.Create(t, c.CoreV1().PersistentVolumeClaims(namespace), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: size},
		}})
		w.creates(t, namespace, func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		})
	}
}

// faultsOfObjects are faults of single objects.
func (w *world) faultsOfObjects() []faultCase {
	return []faultCase{
		{
			name: "NameTaken", cause: []string{"namespace renamed: ", "renamed-rome exists already"}, only: "offload", fill: map[string]string{"NAME": "other"},
			runbook: "LiqodNamespaceNotMapped", command: "liqod unoffload namespace NAMESPACE",
			make: func(t *testing.T) {
				kubetest.Create(t, w.milan.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "renamed-rome"}})
				w.ask(t, "renamed", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote, ClusterSelector: region("north")})
			},
			then: func(t *testing.T) {
				kubetest.Get(t, w.milan.Client().CoreV1().Namespaces(), "other-rome")
				require.NoError(t, w.milan.Client().CoreV1().Namespaces().Delete(t.Context(), "renamed-rome", metav1.DeleteOptions{}))
			},
		},
		{
			name: "NoRights", as: []string{"--as", "nobody"}, cause: []string{"rights: ", `user "nobody" may not read`, "ForeignClusters"},
		},
		{
			name: "DaemonSet", quiet: true, cause: []string{"default/agent: its pods land on virtual nodes (milan)"},
			make: func(t *testing.T) {
				labels := map[string]string{"app": "agent"}
				spec := podSpec("sim/agent:1")
				spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
				kubetest.Create(t, w.rome.Client().AppsV1().DaemonSets("default"), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
				}})
			},
		},
		{
			name: "AddressRanges", at: w.milan, cause: []string{"addresses of the consumer: spec.addressRanges is empty"}, fill: map[string]string{"RANGE": w.rome.Options.PodCIDR},
			make: func(t *testing.T) {
				kubetest.Patch(t, w.milan.Liqod().CoreV1beta1().ForeignClusters(), "rome", types.MergePatchType, []byte(`{"spec":{"addressRanges":null}}`))
			},
		},
	}
}

// vanish deletes namespaces, and waits until all are gone.
func (w *world) vanish(t *testing.T, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		require.NoError(t, w.rome.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	}
	for _, namespace := range namespaces {
		within(t, longest, "namespace "+namespace+" is gone", w.homeGone(namespace))
	}
}

// forgets takes the rights back that a fix gave.
func (w *world) forgets(t *testing.T) {
	t.Helper()
	ctx, rbac := t.Context(), w.rome.Client().RbacV1()
	require.NoError(t, rbac.ClusterRoles().Delete(ctx, "liqod-status", metav1.DeleteOptions{}))
	require.NoError(t, rbac.ClusterRoleBindings().Delete(ctx, "liqod-status", metav1.DeleteOptions{}))
	require.NoError(t, rbac.Roles("liqod").Delete(ctx, "liqod-status", metav1.DeleteOptions{}))
	require.NoError(t, rbac.RoleBindings("liqod").Delete(ctx, "liqod-status", metav1.DeleteOptions{}))
}

// faulty offloads a namespace of a fault.
func (w *world) faulty(t *testing.T, namespace string) {
	t.Helper()
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{ClusterSelector: region("north")})
}

// deploys is how a fault of a Deployment is made.
func (w *world) deploys(namespace string, change func(*corev1.PodSpec)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		w.faulty(t, namespace)
		w.creates(t, namespace, change)
	}
}

func (w *world) creates(t *testing.T, namespace string, change func(*corev1.PodSpec)) {
	t.Helper()
	d := deployment("web", 1)
	if change != nil {
		change(&d.Spec.Template.Spec)
	}
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(namespace), d)
}

// kubelet writes the status of pod app in the twin of a namespace, after the simulated kubelet has.
func (w *world) kubelet(t *testing.T, namespace, status string) {
	t.Helper()
	pods := w.milan.Client().CoreV1().Pods(namespace + "-rome")
	within(t, longest, "the provider has the pod", lab.Is(pods, "app", func(pod *corev1.Pod) bool {
		return len(pod.Status.ContainerStatuses) > 0
	}))
	kubetest.Patch(t, pods, "app", types.StrategicMergePatchType, []byte(`{"status":`+status+`}`), "status")
}
