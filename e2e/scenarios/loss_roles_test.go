package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

func allRoles() []string {
	return []string{"controller", "webhook", "ipam", "route", "gateway", "vkubelet"}
}

// workload returns the namespace and the name of the Deployment or DaemonSet of a role.
func (w lossWorld) workload(s *site.Site, role string) (namespace, name string) {
	if role == "vkubelet" {
		return corev1beta1.TenantNamespace(w.other(s).Name), "vk-" + w.other(s).Name
	}
	return site.Namespace, "liqod-" + role
}

// podsOf returns the pods of a role.
func (w lossWorld) podsOf(ctx context.Context, s *site.Site, role string) ([]corev1.Pod, error) {
	namespace, name := w.workload(s, role)
	pods, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !strings.HasPrefix(p.Name, name+"-") }), nil
}

// has says whether a cluster has a role: only consumers have vkubelets.
func (w lossWorld) has(s *site.Site, role string) bool {
	return role != "vkubelet" || slices.ContainsFunc(w.shops, func(p shop) bool { return p.rome == s })
}

// active returns the pod of a role that works: the holder of its Lease, or the gateway that the peer
// uses. Of role route it returns none.
func (w lossWorld) active(ctx context.Context, s *site.Site, role string) (string, error) {
	if role == "gateway" {
		list, err := w.other(s).Liqod().NetworkingV1beta1().Connections(corev1beta1.TenantNamespace(s.Name)).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 || len(list.Items[0].Status.Gateways) == 0 {
			return "", fmt.Errorf("no Connection of %s names a gateway (%w)", w.other(s).Name, err)
		}
		return list.Items[0].Status.Gateways[0].PeerGateway, nil
	}
	namespace, name := w.workload(s, role)
	lease, err := s.Client().CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// victims returns the pods of a role but for those that are left. The active one is among them, and
// its Deployment ends them first.
func (w lossWorld) victims(ctx context.Context, s *site.Site, role string, left int) ([]corev1.Pod, error) {
	pods, err := w.podsOf(ctx, s, role)
	if err != nil || left == 0 {
		return pods, err
	}
	first, err := w.active(ctx, s, role)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == first })
	if i < 0 || len(pods) <= left {
		return nil, fmt.Errorf("of %d pods of role %s in %s %q is active", len(pods), role, s.Name, first)
	}
	pods[0], pods[i] = pods[i], pods[0]
	for _, p := range pods[:len(pods)-left] {
		_, err := s.Client().CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"-1000"}}}`, corev1.PodDeletionCost), metav1.PatchOptions{})
		if err != nil {
			return nil, err
		}
	}
	return pods[:len(pods)-left], nil
}

// signal sends a signal to the process of a role in a pod.
func (w lossWorld) signal(ctx context.Context, s *site.Site, role string, p *corev1.Pod, signal syscall.Signal) error {
	node := w.full.Node(s.Cluster, p.Spec.NodeName)
	list, err := node.Processes(ctx, "--role="+role)
	if err != nil {
		return err
	}
	for _, process := range list {
		cgroups, err := node.Exec(ctx, "cat", "/proc/"+process+"/cgroup")
		if err != nil {
			return err
		}
		if strings.Contains(cgroups, string(p.UID)) {
			return node.Signal(ctx, signal, process)
		}
	}
	return fmt.Errorf("pod %s has no process of role %s", p.Name, role)
}

// lose lets pods of a role hang until some are left, has them deleted, and kills them: none says a last word, or
// releases a Lease. It returns a function that gives the cluster the role again.
func (w lossWorld) lose(t *testing.T, s *site.Site, role string, left int) (giveBack func()) {
	t.Helper()
	ctx := t.Context()
	pods := must(w.victims(ctx, s, role, left))(t)
	require.NotEmpty(t, pods, "pods of role %s in %s", role, s.Name)
	for _, p := range pods {
		require.NoError(t, w.signal(ctx, s, role, &p, syscall.SIGSTOP))
	}
	w.want(t, s, role, left)
	for _, p := range pods {
		within(t, longest, "pod "+p.Name+" in "+s.Name+" is deleted", func(ctx context.Context) error {
			have, err := s.Client().CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && have.DeletionTimestamp != nil {
				return nil
			}
			return fmt.Errorf("it is not (%v)", err)
		})
	}
	for _, p := range pods {
		if err := w.signal(ctx, s, role, &p, syscall.SIGKILL); err != nil {
			t.Logf("the kubelet was first: %v", err)
		}
	}
	return func() { w.want(t, s, role, left+len(pods)) }
}

// want changes the number of replicas of a role. Role route has none or all.
func (w lossWorld) want(t *testing.T, s *site.Site, role string, replicas int) {
	t.Helper()
	namespace, name := w.workload(s, role)
	switch role {
	case "vkubelet":
		kubetest.Patch(t, s.Liqod().OffloadingV1beta1().VirtualNodes(namespace), w.other(s).Name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"virtualKubelet":{"replicas":%d}}}`, replicas))
	case "route":
		selector := `{"lost":"yes"}`
		if replicas > 0 {
			selector = `{"lost":null}`
		}
		kubetest.Patch(t, s.Client().AppsV1().DaemonSets(namespace), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"template":{"spec":{"nodeSelector":%s}}}}`, selector))
	default:
		kubetest.Patch(t, s.Client().AppsV1().Deployments(namespace), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	}
}

// complete says whether a cluster has all replicas of a role, and they are ready.
func (w lossWorld) complete(ctx context.Context, s *site.Site, role string) error {
	namespace, name := w.workload(s, role)
	if !w.has(s, role) {
		return nil
	}
	var have, want int32
	switch role {
	case "route":
		d, err := s.Client().AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, want = d.Status.NumberReady, int32(len(w.full.Nodes(s.Cluster)))
	default:
		d, err := s.Client().AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, want = d.Status.ReadyReplicas, *d.Spec.Replicas
	}
	return lab.Wrong(nil, have != want || want == 0, "role %s of %s has %d of %d pods ready", role, s.Name, have, want)
}

const (
	providersEndpoints = "ready endpoints of the provider's pods"
	homesEndpoints     = "ready endpoints of home's pods"
	offloadedPods      = "Ready pods of Deployment there"
)

// shop is pods of a consumer, rome, in both clusters, with a customer in each: one sends requests
// to pods in milan, and one in milan sends requests to a pod in rome. In the shop of milan the
// two clusters are exchanged.
type shop struct{ networkWorld }

// open lets the shop's home use the provider, and starts pods and customers.
func (p shop) open(t *testing.T) {
	t.Helper()
	p.peer(t)
	p.offload(t, lossNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	home := p.rome.Client()
	for _, name := range []string{"here", "there"} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		}}
		kubetest.Create(t, home.CoreV1().Services(lossNamespace), service)
	}
	for _, d := range []*appsv1.Deployment{
		p.deployment("here", 1, "serve"), p.deployment("there", 2, "serve"),
		p.deployment("buyer-here", 1, "load", "http://there/readyz", customerPace), p.deployment("buyer-there", 1, "load", "http://here/readyz", customerPace),
	} {
		kubetest.Create(t, home.AppsV1().Deployments(lossNamespace), d)
		within(t, longest, d.Name+" is available", p.available(d.Name, lossNamespace, *d.Spec.Replicas))
	}
}

// deployment runs in the provider if its name ends with there, and else at home.
func (p shop) deployment(name string, replicas int32, args ...string) *appsv1.Deployment {
	d := deployment(name, replicas)
	d.Spec.Template.Spec = testSpec(1)
	d.Spec.Template.Spec.Containers[0].Args = args
	d.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)},
	}}
	if strings.HasSuffix(name, "there") {
		d.Spec.Template.Spec.RuntimeClassName = ptr.To("liqo")
	} else {
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: p.rome.Name + "-1"}
	}
	return d
}

// namespaces returns the shop's namespace of each cluster.
func (p shop) namespaces() map[*site.Site]string {
	return map[*site.Site]string{p.rome: lossNamespace, p.milan: lossNamespace + "-" + p.rome.Name}
}

// sales returns what became of the requests of the shop's customers since the last call.
func (p shop) sales(ctx context.Context) (map[string]tally, error) {
	out := map[string]tally{}
	for s, app := range map[*site.Site]string{p.rome: "buyer-here", p.milan: "buyer-there"} {
		namespace := p.namespaces()[s]
		pods, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return podReady(&p) == corev1.ConditionTrue && p.DeletionTimestamp == nil })
		if i < 0 {
			return nil, fmt.Errorf("no pod of %s is Ready in %s", app, s.Name)
		}
		if out["of "+p.rome.Name+" in "+s.Name], err = tallyOf(ctx, s, namespace, pods.Items[i].Name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// look adds what both clusters say of the shop's endpoints and pods.
func (p shop) look(ctx context.Context, out map[string]string) error {
	for s, of := range map[*site.Site][2]string{p.rome: {"there", providersEndpoints}, p.milan: {"here", homesEndpoints}} {
		list, err := s.Client().DiscoveryV1().EndpointSlices(p.namespaces()[s]).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + of[0]})
		if err != nil {
			return err
		}
		count := 0
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if ptr.Deref(e.Conditions.Ready, true) {
					count++
				}
			}
		}
		out[s.Name+": "+of[1]] = fmt.Sprint(count)
	}
	pods, err := p.rome.Client().CoreV1().Pods(lossNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=there"})
	if err != nil {
		return err
	}
	count := 0
	for _, pod := range pods.Items {
		if podReady(&pod) == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
			count++
		}
	}
	out[p.rome.Name+": "+offloadedPods] = fmt.Sprint(count)
	return nil
}

// ofShop says whether look counts endpoints or pods of a shop there.
func ofShop(what string) bool {
	return strings.HasSuffix(what, providersEndpoints) || strings.HasSuffix(what, homesEndpoints) || strings.HasSuffix(what, offloadedPods)
}
