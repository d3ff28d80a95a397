package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// lookupTimeout bounds the reads for one request.
const lookupTimeout = 5 * time.Second

// Lookup finds pods for the kubelet API. A pod is found by live reads: people ask seldom,
// and every replica answers without a cache of its own. All are listed from the active
// replica's cache: those who scrape ask it again and again. Every field is needed.
type Lookup struct {
	// Namespace and Name of the VirtualNode.
	Namespace, Name string
	// Kube reaches the home API server.
	Kube kubernetes.Interface
	// VirtualNodes and NamespaceMaps of the tenant namespace.
	VirtualNodes  offloadinglisters.VirtualNodeLister
	NamespaceMaps offloadinglisters.NamespaceMapLister
	// Provider returns what reaches the provider's API server at this moment.
	Provider func() (kubernetes.Interface, error)
	// Held lists the pods of the node; it returns nil in a standby, which holds none.
	Held func() corelisters.PodLister
}

// Get implements Pods.
func (l Lookup) Get(namespace, name string) (*corev1.Pod, string, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	pod, err := l.Kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, "", "", err
	}
	if pod.Spec.NodeName != l.Name {
		return nil, "", "", apierrors.NewNotFound(corev1.Resource("pods"), namespace+"/"+name)
	}
	twin, err := l.Twin(namespace)
	if err != nil {
		return nil, "", "", err
	}
	return pod, twin, name, l.confirm(ctx, pod, twin)
}

// Twin implements Pods. Its errors are not about a pod.
func (l Lookup) Twin(namespace string) (string, error) {
	vn, err := l.VirtualNodes.VirtualNodes(l.Namespace).Get(l.Name)
	if err != nil {
		return "", fmt.Errorf("reading the VirtualNode: %v", err)
	}
	m, err := l.NamespaceMaps.NamespaceMaps(l.Namespace).Get(vn.Spec.ClusterID)
	if err != nil {
		return "", fmt.Errorf("reading the NamespaceMap: %v", err)
	}
	s := m.Status.CurrentMapping[namespace]
	if s.Phase != offloadingv1beta1.MappingAccepted || s.RemoteNamespace != m.Spec.DesiredMapping[namespace] {
		return "", fmt.Errorf("namespace %s is not offloaded to cluster %s", namespace, vn.Spec.ClusterID)
	}
	return s.RemoteNamespace, nil
}

// confirm refuses a pod of the same name in the provider that is another's: a
// predecessor's that has not ended yet. While the provider does not answer, the error is the
// answer to the caller. It is never a NotFound of the API: what is not found there is not the pod
// of this node.
func (l Lookup) confirm(ctx context.Context, pod *corev1.Pod, twin string) error {
	provider, err := l.Provider()
	if err != nil {
		return fmt.Errorf("%v", err)
	}
	there, err := provider.CoreV1().Pods(twin).Get(ctx, pod.Name, metav1.GetOptions{})
	if outage(err) {
		return remoteError(err)
	}
	if err != nil {
		return fmt.Errorf("looking for the pod in the provider: %v", err)
	}
	if there.Labels[offloadingv1beta1.LocalPodUIDLabel] != string(pod.UID) {
		return errors.New("the pod is not in the provider yet: a predecessor of the same name has not ended")
	}
	return nil
}

// List implements Pods.
func (l Lookup) List() ([]*corev1.Pod, error) {
	if held := l.Held(); held != nil {
		return held.List(labels.Everything())
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	return store.Find[*corev1.Pod](ctx, "pod", l.Kube.CoreV1().Pods(corev1.NamespaceAll),
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", l.Name).String()})
}
