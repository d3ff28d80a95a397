package scenarios

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// testCommandNodes makes faults of a second virtual node, which no other namespace uses.
func testCommandNodes(t *testing.T, w *world) {
	const namespace = "budgeted"
	w.mends(t, faultCase{
		name: "NoCapacity", cause: []string{"virtual node spare: it is Ready, but has no room for pods"}, fill: map[string]string{"CPU": "10", "MEMORY": "10Gi", "PODS": "10"},
		make: func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), longest)
			defer cancel()
			require.NoError(t, w.rome.AddVirtualNode(ctx, w.milan, site.PeerOptions{Node: "spare", Labels: map[string]string{"region": "south"},
				Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}))
		},
	})
	w.mends(t, w.hangingVKubelet("spare"))
	w.mends(t, faultCase{
		name: "DisruptionBudget", cause: []string{"virtual node spare: PodDisruptionBudget budgeted/web admits no eviction"},
		make: func(t *testing.T) {
			w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{ClusterSelector: region("south")})
			w.creates(t, namespace, nil)
			within(t, longest, "its pod runs", w.available("web", namespace, 1))
			budget(t, w.rome, namespace, 1, 0)
			require.NoError(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan).Delete(t.Context(), "spare", metav1.DeleteOptions{}))
		},
		then: func(t *testing.T) {
			vkubeletGoes(t, w.rome, longest, tenantOfMilan, "spare")
			w.namespaceDeleted(t, namespace)
		},
	})
}

// hangingVKubelet is a vkubelet whose pod runs, and whose process does nothing.
func (w *world) hangingVKubelet(node string) faultCase {
	selected := metav1.ListOptions{LabelSelector: offloadingv1beta1.VirtualNodeLabel + "=" + node}
	pods, before := w.rome.Client().CoreV1().Pods(tenantOfMilan), map[types.UID]bool{}
	return faultCase{
		name: "VKubeletHangs", cause: []string{"virtual node " + node + ": the Node is not Ready: "}, only: "delete pods",
		runbook: "LiqodVirtualNodeNotReady", command: "kubectl -n TENANT delete pods -l liqo.io/virtual-node=NODE",
		make: func(t *testing.T) {
			within(t, longest, "its Deployment has pods", func(ctx context.Context) error {
				list, err := pods.List(ctx, selected)
				for i := range list.Items {
					before[list.Items[i].UID] = true
				}
				return lab.Wrong(err, len(before) == 0, "there are none")
			})
			(*w.rome.VKubelet(node)).Kill()
		},
		then: func(t *testing.T) {
			within(t, longest, "other pods replace them", lab.Some(pods, selected, func(pod *corev1.Pod) bool { return !before[pod.UID] && pod.DeletionTimestamp == nil }))
			require.NoError(t, w.sites.Restart(w.rome.VKubelet(node)))
		},
	}
}

// mendsQuotas makes faults of the Quota that milan gives to rome. The namespaces of its pods stay.
func (w *world) mendsQuotas(t *testing.T) {
	t.Helper()
	quotas := w.milan.Liqod().OffloadingV1beta1().Quotas("liqo-tenant-rome")
	requests := func(cpu string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Mi")}
		}
	}
	kubetest.Create(t, quotas, &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: offloadingv1beta1.QuotaSpec{
		LimitsEnforcement: offloadingv1beta1.EnforcementSoft, Resources: defaultsOf("1", "1Gi", "100"),
	}})
	w.mends(t,
		faultCase{
			name: "QuotaUndeclared", cause: []string{"pods of namespace undeclared: ", "requires declared CPU and memory"}, make: w.deploys("undeclared", nil),
			editor: `s/resources: {}/resources: {requests: {cpu: 10m, memory: 1Mi}}/`,
		},
		faultCase{
			name: "QuotaTooSmall", cause: []string{"pods of namespace huge: ", "the pod alone is larger than the quota"}, make: w.deploys("huge", requests("5")),
			only: "edit", editor: `s/cpu: "5"/cpu: 10m/`,
		},
		faultCase{
			name: "QuotaExceeded", cause: []string{"pods of namespace full: ", "QuotaExceeded"}, only: "edit quotas", editor: `s/cpu: "1"/cpu: "4"/`,
			runbook: "LiqodQuotaWaiting", command: "kubectl -n TENANT edit quotas.offloading.liqo.io",
			make: func(t *testing.T) {
				w.faulty(t, "full")
				d := deployment("web", 2)
				requests("600m")(&d.Spec.Template.Spec)
				kubetest.Create(t, w.rome.Client().AppsV1().Deployments("full"), d)
			},
		})
	w.mends(t, faultCase{
		name: "QuotaCordoned", cause: []string{"pods of namespace closed: ", "QuotaCordoned"}, only: "edit quotas", editor: `s/cordoned: true/cordoned: false/`,
		make: func(t *testing.T) {
			kubetest.Patch(t, quotas, "q", types.MergePatchType, []byte(`{"spec":{"cordoned":true}}`))
			w.deploys("closed", requests("10m"))(t)
		},
	})
	require.NoError(t, quotas.Delete(t.Context(), "q", metav1.DeleteOptions{}))
}

func defaultsOf(cpu, memory, pods string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse(pods),
	}
}

// mendsOffer has a pod become larger in milan than the offer of 8 CPUs, whose Quota follows the offer.
func (w *world) mendsOffer(t *testing.T) {
	t.Helper()
	const namespace, twin = "lent", "lent-rome"
	pods := w.milan.Client().CoreV1().Pods(twin)
	w.mends(t, faultCase{
		name: "OfferTooSmall", cause: []string{"pods of namespace lent: ", "the pod alone is larger than the quota"},
		only: "apply", fill: map[string]string{"CPU": "4", "MEMORY": "1Gi", "PODS": "1"},
		make: func(t *testing.T) {
			w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
			kubetest.Create(t, w.milan.Client().CoreV1().LimitRanges(twin), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: corev1.LimitRangeSpec{
				Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}}},
			}})
			within(t, longest, "pods there request more", func(ctx context.Context) error {
				pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: podSpec("sim/web:1")}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil && pod.Spec.Containers[0].Resources.Requests.Cpu().Value() != 9 {
					err = fmt.Errorf("not yet")
				}
				return err
			})
			w.creates(t, namespace, nil)
		},
		then: func(t *testing.T) { within(t, longest, "the pod runs", w.available("web", namespace, 1)) },
	})
	require.NoError(t, w.rome.Client().AppsV1().Deployments(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	within(t, longest, "no pod is left", lab.Number(pods, metav1.ListOptions{}, 0))
}

// testCommandRoles stops roles, and starts their processes when the Deployment asks for them again.
func testCommandRoles(t *testing.T, w *world) {
	w.mends(t, w.scaledToZero("webhook", &w.rome.Webhook))
	if *all {
		stopped := w.scaledToZero("controller", &w.rome.Controller)
		stopped.runbook, stopped.command = "LiqodNoActiveController", "kubectl -n liqod scale deployment/liqod-controller --replicas=1"
		w.mends(t, stopped)
	}
}

func (w *world) scaledToZero(role string, process **lab.Process) faultCase {
	name, before := "liqod-"+role, int32(1)
	return faultCase{
		name: role + "ScaledToZero", cause: []string{"role " + role + ": it is scaled to zero"},
		make: func(t *testing.T) {
			d := kubetest.Get(t, w.rome.Client().AppsV1().Deployments("liqod"), name)
			before = *d.Spec.Replicas
			w.scale(t, "liqod", name, 0)
			(*process).Kill()
		},
		then: func(t *testing.T) {
			within(t, longest, "the Deployment asks for a replica", w.deploymentIs(name, func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 1 }))
			require.NoError(t, w.sites.Restart(process))
			w.scale(t, "liqod", name, before)
		},
	}
}

func (w *world) deploymentIs(name string, is func(*appsv1.Deployment) bool) func(context.Context) error {
	return lab.Is(w.rome.Client().AppsV1().Deployments("liqod"), name, is)
}

// mendsToken gives rome a token that milan does not know any more, and peers by what status says.
func (w *world) mendsToken(t *testing.T, args ...string) {
	t.Helper()
	token := w.token(t)
	w.revoke(t, token)
	w.mendsPeering(t, faultCase{
		name: "TokenRevoked", cause: []string{"identity: cluster milan refuses the token: "},
		runbook: "LiqodPeerNotAuthenticated", command: "liqod token create --for CLUSTER",
		make: func(t *testing.T) {
			require.NoError(t, w.says(w.rome, append([]string{"peer", "--token", token}, args...), 1, "get a new one (liqod token create)")(t.Context()))
		},
	})
}

// mendsNoProvider offloads a namespace while rome uses no provider, and peers by what status says.
func (w *world) mendsNoProvider(t *testing.T) {
	t.Helper()
	w.mendsPeering(t, faultCase{
		name: "NoProvider", cause: []string{"namespace shop: there is no virtual node: this cluster uses no provider"},
		make: func(t *testing.T) {
			require.NoError(t, w.says(w.rome, []string{"offload", "namespace", "shop", "--wait=false"}, 0)(t.Context()))
		},
	})
}

// mendsPeering makes a fault whose fix gives rome a virtual node of milan, and runs the vkubelet as its Deployment would.
func (w *world) mendsPeering(t *testing.T, fault faultCase) {
	t.Helper()
	vkubelet := make(chan error, 1)
	go func() { vkubelet <- w.rome.StartVKubelet(t.Context(), tenantOfMilan, "milan") }()
	w.mends(t, fault)
	require.NoError(t, <-vkubelet)
}
