package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

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
		said, err := s.Exec(ctx, namespace, pods.Items[i].Name, "get", "http://localhost:8080/")
		if err != nil {
			return nil, err
		}
		var of tally
		if err := json.Unmarshal([]byte(said), &of); err != nil {
			return nil, err
		}
		out["of "+p.rome.Name+" in "+s.Name] = of
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
