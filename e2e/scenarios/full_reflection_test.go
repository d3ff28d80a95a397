package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const mirrored = "mirrored"

// fullReflection is what controllers of a real cluster do with reflected objects.
func fullReflection(t *testing.T, w *fullWorld) {
	w.offload(t, mirrored, offloadingv1beta1.NamespaceOffloadingSpec{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}}, Spec: testSpec(1, "serve")}
	kubetest.Create(t, w.rome.Client().CoreV1().Pods(mirrored), pod)
	within(t, time.Minute, "the pod is Ready", w.podReady(mirrored, pod.Name))
	inTurn(t, w, []part[*fullWorld]{{"forced node port", fullNodePort}, {"events", fullEvents}, {"skip list", fullSkipList}})
	require.NoError(t, w.rome.Client().CoreV1().Pods(mirrored).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
}

// fullNodePort: a Service whose node port is forced has it in milan, at each node.
func fullNodePort(t *testing.T, w *fullWorld) {
	const port = 30021
	home := w.rome.Client().CoreV1().Services(mirrored)
	local := nodePort("door", port)
	local.Annotations = map[string]string{offloadingv1beta1.ForceRemoteNodePortAnnotation: "true"}
	kubetest.Create(t, home, local)
	remote := getter(w.milan.Client().CoreV1().Services(mirrored+"-rome"), local.Name)
	there(t, "it has the node port of home", remote, hasNodePort(port))
	for _, n := range w.full.Nodes(w.milan.Cluster) {
		within(t, 30*time.Second, "the node port of "+n.Name+" answers", func(ctx context.Context) error {
			return second(w.rome.Exec(ctx, mirrored, "web", "get", fmt.Sprintf("http://%s:%d/", n.Machine.Address, port)))
		})
	}
	require.NoError(t, home.Delete(t.Context(), local.Name, metav1.DeleteOptions{}))
	away(t, "it is gone", remote)
}

// fullEvents: milan's EndpointSlice controller reports that its nodes have no zones, for a Service that prefers
// the zone of a client. An Ingress controller reports of an Ingress. Both events are at home.
func fullEvents(t *testing.T, w *fullWorld) {
	home, ingresses := w.rome.Client().CoreV1().Services(mirrored), w.rome.Client().NetworkingV1().Ingresses(mirrored)
	local := service("zonal")
	local.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	local = kubetest.Create(t, home, local)
	within(t, time.Minute, "what milan reports of the Service is told", w.told(local, "TopologyAwareHintsDisabled"))

	ingress := kubetest.Create(t, ingresses, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: local.Name, Port: networkingv1.ServiceBackendPort{Number: 80}}},
	}})
	remote := there(t, "the Ingress is in milan", getter(w.milan.Client().NetworkingV1().Ingresses(mirrored+"-rome"), ingress.Name), anyState[*networkingv1.Ingress])
	now := metav1.Now()
	kubetest.Create(t, w.milan.Client().CoreV1().Events(mirrored+"-rome"), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "web.synced"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: remote.Namespace, Name: remote.Name, UID: remote.UID},
		Reason:         "Sync", Message: "scheduled for sync", Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: "ingress-controller"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	within(t, time.Minute, "what milan reports of the Ingress is told", w.told(ingress, "Sync"))
	require.NoError(t, ingresses.Delete(t.Context(), ingress.Name, metav1.DeleteOptions{}))
	require.NoError(t, home.Delete(t.Context(), local.Name, metav1.DeleteOptions{}))
}

// told returns a condition. It holds when home has an event about an object of home, with the reason, from the provider.
func (w *world) told(obj metav1.Object, reason string) func(context.Context) error {
	return lab.Some(w.rome.Client().CoreV1().Events(obj.GetNamespace()), metav1.ListOptions{
		FieldSelector: "reason=" + reason + ",involvedObject.uid=" + string(obj.GetUID()),
	}, func(e *corev1.Event) bool { return strings.HasSuffix(e.Source.Component, remoteSuffix) })
}

// fullSkipList: a label and an object leave milan when they are to stay at home, and return afterwards.
func fullSkipList(t *testing.T, w *fullWorld) {
	home, remote := w.rome.Client().CoreV1().ConfigMaps(mirrored), w.milan.Client().CoreV1().ConfigMaps(mirrored+"-rome")
	cm := configMapOf("keyed")
	cm.Labels = map[string]string{"example.com/team": "a"}
	kubetest.Create(t, home, cm)
	labelled := func(want bool) func(*corev1.ConfigMap) bool {
		return func(cm *corev1.ConfigMap) bool { return (cm.Labels["example.com/team"] == "a") == want }
	}
	there(t, "the label is there", getter(remote, cm.Name), labelled(true))
	w.patchNode(t, `{"spec":{"offloadingPatch":{"labelsNotReflected":["example.com/team"]}}}`)
	there(t, "it leaves with the list of the VirtualNode", getter(remote, cm.Name), labelled(false))
	w.patchNode(t, `{"spec":{"offloadingPatch":null}}`)
	there(t, "it returns", getter(remote, cm.Name), labelled(true))

	skip := func(value string) {
		kubetest.Patch(t, home, cm.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, offloadingv1beta1.SkipReflectionAnnotation, value))
	}
	skip(`"true"`)
	away(t, "the object leaves", getter(remote, cm.Name))
	skip("null")
	there(t, "it returns", getter(remote, cm.Name), labelled(true))
	require.NoError(t, home.Delete(t.Context(), cm.Name, metav1.DeleteOptions{}))
}

// fullPage: the page shows both clusters and the pods of fullDeployment, as API servers with real nodes report them.
func fullPage(t *testing.T, w *fullWorld) {
	within(t, time.Minute, "the page of rome shows the pods in both clusters", w.dashboard(t, w.rome).shows(func(s *shownState) error {
		switch {
		case s.Cluster != "rome" || s.Health != "ok" || s.Trouble != "" || len(s.Unread) > 0:
			return fmt.Errorf("rome is not healthy, or not all of it was read")
		case len(s.Peers) != 1 || s.Peers[0].ID != "milan" || s.Peers[0].API != "ok" || s.Peers[0].Pods != 2 || len(s.Peers[0].Nodes) != 1 || len(s.Peers[0].Nodes[0].Bars) < 3:
			return fmt.Errorf("milan is not shown with its pods and its capacity")
		case len(s.Namespaces) != 1 || s.Namespaces[0].Name != "across":
			return fmt.Errorf("the namespace is not shown")
		}
		pods := map[string]int{}
		for _, place := range s.Namespaces[0].Places {
			pods[place.Name] = place.Pods
		}
		return lab.Wrong(nil, pods["rome"] != 2 || pods["milan"] != 2, "its pods are in %v", pods)
	}))
	within(t, time.Minute, "the page of milan shows the pods of rome", w.dashboard(t, w.milan).shows(func(s *shownState) error {
		return lab.Wrong(nil, len(s.Hosted) != 1 || s.Hosted[0].Peer != "rome" || s.Hosted[0].Namespace != "across-rome" || s.Hosted[0].Pods != 2, "across-rome is not shown with its pods")
	}))
}
