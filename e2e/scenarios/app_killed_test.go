package scenarios

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// late is the name of what is created after a kill.
	late = "late"
	// enoughRequests in a row have to succeed after a kill: a second's of each customer.
	enoughRequests = 10
)

// storeKilled kills all processes of one role after the other, in both clusters at once, while
// customers of both clusters buy. The kubelet starts the containers again, the role gets Ready,
// requests succeed, and the role does its work: for a new IP, or for a new pod, which needs all
// other roles. No pod of the store is created or started again.
func storeKilled(t *testing.T, w storeWorld) {
	before := map[*site.Site]map[string]string{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		before[s] = must(containers(t.Context(), s, storeNamespace))(t)
	}
	for _, role := range []string{"controller", "vkubelet", "webhook", "ipam", "route", "gateway"} {
		t.Run(role, func(t *testing.T) {
			w.kill(t, role)
			w.requestsSucceed(t)
			if role == "ipam" {
				storeNewIP(t, w)
			} else {
				storeNewPod(t, w)
			}
			for s, pods := range before {
				w.same(t, s, storeNamespace, pods)
			}
		})
	}
}

// kill kills all processes of a role in both clusters, and waits until each of its pods is
// Ready with one restart more. Only rome has a vkubelet.
func (w storeWorld) kill(t *testing.T, role string) {
	t.Helper()
	namespace, selector, sites := site.Namespace, "app.kubernetes.io/component="+role, []*site.Site{w.rome, w.milan}
	if role == "vkubelet" {
		namespace, selector, sites = tenantOfMilan, offloadingv1beta1.VirtualNodeLabel+"=milan", sites[:1]
	}
	before := map[*site.Site]map[string]int32{}
	for _, s := range sites {
		pods := must(restartsOfReady(t.Context(), s, namespace, selector))(t)
		require.NotEmpty(t, pods)
		before[s] = pods
	}
	for _, s := range sites {
		for _, node := range w.full.Nodes(s.Cluster) {
			processes := must(node.Processes(t.Context(), "--role="+role))(t)
			require.NoError(t, node.Signal(t.Context(), syscall.SIGKILL, processes...))
		}
	}
	for s, pods := range before {
		within(t, longest, role+" of "+s.Name+" is Ready again", func(ctx context.Context) error {
			have, err := restartsOfReady(ctx, s, namespace, selector)
			if err != nil {
				return err
			}
			for name, restarts := range pods {
				if have[name] != restarts+1 {
					return fmt.Errorf("pod %s has restarted %d times, not once more than %d times", name, have[name], restarts)
				}
			}
			return nil
		})
	}
}

// restartsOfReady are the restart counts of pods by name; it is an error if one is not Ready.
func restartsOfReady(ctx context.Context, s *site.Site, namespace, selector string) (map[string]int32, error) {
	list, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	out := map[string]int32{}
	for _, p := range list.Items {
		if podReady(&p) != corev1.ConditionTrue {
			return nil, fmt.Errorf("pod %s is not Ready: %+v", p.Name, p.Status)
		}
		out[p.Name] = p.Status.ContainerStatuses[0].RestartCount
	}
	return out, nil
}

// requestsSucceed waits until enough new requests of the customers of each cluster have succeeded
// in a row. Each request passes through Services of both clusters.
func (w storeWorld) requestsSucceed(t *testing.T) {
	t.Helper()
	for _, cluster := range []string{"rome", "milan"} {
		customer, inRow := w.pod(t, "customers", cluster).Name, -1
		within(t, longest, "requests of customers in "+cluster+" succeed", func(ctx context.Context) error {
			have, err := w.tally(ctx, customer)
			if err != nil {
				return err
			}
			if have.Failed > 0 {
				t.Logf("of customers in %s %d of %d requests have failed: %v", cluster, have.Failed, have.Requests, have.Failures)
			}
			if inRow < 0 || have.Failed > 0 { // the first tally has the requests before and during the kill
				inRow = 0
			} else {
				inRow += have.Requests
			}
			return lab.Wrong(nil, inRow < enoughRequests, "%d requests in a row have succeeded", inRow)
		})
	}
}

// storeNewIP: role ipam of each cluster allocates an address.
func storeNewIP(t *testing.T, w storeWorld) {
	for _, s := range []*site.Site{w.rome, w.milan} {
		ips := s.Liqod().IPAMV1alpha1().IPs(storeNamespace)
		kubetest.Create(t, ips, &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Name: late}, Spec: ipamv1alpha1.IPSpec{IP: "192.0.2.1"}})
		there(t, "IP "+late+" of "+s.Name+" has an address", getter(ips, late), func(ip *ipamv1alpha1.IP) bool { return ip.Status.IP != "" })
		require.NoError(t, ips.Delete(t.Context(), late, metav1.DeleteOptions{}))
	}
}

// storeNewPod: the webhook lets a new pod run in milan, and the vkubelet and milan's controller
// run it there. By role route and the gateways it reaches a Service whose pods run in rome, and
// a pod in rome reaches its Service. After its deletion nothing of it is left in milan.
func storeNewPod(t *testing.T, w storeWorld) {
	labels := map[string]string{late: "yes"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: late, Labels: labels}, Spec: testSpec(1, "serve")}
	pod.Spec.NodeSelector = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: late}, Spec: corev1.ServiceSpec{
		Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}}
	home := w.rome.Client().CoreV1()
	kubetest.Create(t, home.Services(storeNamespace), service)
	kubetest.Create(t, home.Pods(storeNamespace), pod)
	within(t, longest, "the pod runs in milan", w.podReady(storeNamespace, late))
	for from, url := range map[string]string{late: "http://catalog", w.pod(t, "catalog", "rome").Name: "http://" + late + "/readyz"} {
		within(t, time.Minute, from+" reaches "+url, func(ctx context.Context) error { return second(w.rome.Exec(ctx, storeNamespace, from, "get", url)) })
	}
	w.kubectl(t, "delete", "pod,service", late)
	within(t, time.Minute, "nothing of it is left in milan", func(ctx context.Context) error {
		pods, err := containers(ctx, w.milan, storeNamespace)
		return lab.Wrong(err, pods[late] != "", "pod %s is there: %s", late, pods[late])
	})
}
