package roles

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/admit"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/shadow/namespace"
	"github.com/liqod/liqod/shadow/virtualnode"
)

// Paths of the rules for what people write. docs/webhooks.md tells all of them.
const (
	validateNamespaceOffloadingPath = "/validate/namespaceoffloading"
	validateVirtualNodePath         = "/validate/virtualnode"
	validateForeignClusterPath      = "/validate/foreigncluster"
)

// written are the rules for what people write. They read the API server as they are
// asked, and keep nothing: such writes are rare.
type written struct {
	kube kubernetes.Interface
	liqo versioned.Interface

	clusterID, ownNamespace string
}

// rules returns the functions by their paths.
func (w written) rules() map[string]admit.Func {
	return map[string]admit.Func{
		validateNamespaceOffloadingPath: w.namespaceOffloading,
		validateVirtualNodePath:         w.virtualNode,
		validateForeignClusterPath:      w.foreignCluster,
	}
}

func (w written) namespaceOffloading(ctx context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	obj, old, bad := objects[offloadingv1beta1.NamespaceOffloading](req)
	if bad != nil {
		return *bad
	}
	ns, err := w.kube.CoreV1().Namespaces().Get(ctx, obj.Namespace, metav1.GetOptions{})
	if err != nil {
		return unjudged(err)
	}
	nodes, err := w.virtualNodes(ctx)
	if err != nil {
		return unjudged(err)
	}
	return verdict(namespace.Review{New: obj, Old: old, Namespace: ns, OwnNamespace: w.ownNamespace, ClusterID: w.clusterID, VirtualNodes: nodes}.Judge())
}

func (w written) virtualNode(ctx context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	obj, old, bad := objects[offloadingv1beta1.VirtualNode](req)
	if bad != nil {
		return *bad
	}
	all, err := w.virtualNodes(ctx)
	if err != nil {
		return unjudged(err)
	}
	namesakes := slices.DeleteFunc(all, func(vn *offloadingv1beta1.VirtualNode) bool {
		return vn.Name != obj.Name || vn.Namespace == obj.Namespace
	})
	node, err := w.kube.CoreV1().Nodes().Get(ctx, obj.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nil, nil
	}
	if err != nil {
		return unjudged(err)
	}
	_, err = w.liqo.SharingV1alpha1().ResourceOffers(obj.Namespace).Get(ctx, obj.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return unjudged(err)
	}
	return verdict(virtualnode.Review{New: obj, Old: old, Namesakes: namesakes, Node: node, Offer: err == nil}.Judge())
}

func (w written) foreignCluster(ctx context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	obj, old, bad := objects[corev1beta1.ForeignCluster](req)
	if bad != nil {
		return *bad
	}
	list, err := w.liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return unjudged(err)
	}
	var others []*corev1beta1.ForeignCluster
	for i := range list.Items {
		if list.Items[i].Name != obj.Name {
			others = append(others, &list.Items[i])
		}
	}
	return verdict(link.Review{New: obj, Old: old, Others: others, ClusterID: w.clusterID}.Judge())
}

func (w written) virtualNodes(ctx context.Context) ([]*offloadingv1beta1.VirtualNode, error) {
	list, err := w.liqo.OffloadingV1beta1().VirtualNodes(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []*offloadingv1beta1.VirtualNode
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// verdict makes an answer of a judgement.
func verdict(refused string, warnings []string) admit.Response {
	if refused != "" {
		return admit.Deny(refused)
	}
	return admit.Response{Allowed: true, Warnings: warnings}
}

// unjudged lets a request through whose rules could not be asked, as it would be without
// the webhook: role controller looks at everything again.
func unjudged(err error) admit.Response {
	return admit.Response{Allowed: true, Warnings: []string{fmt.Sprintf("the webhook of liqod could not judge this: %v; see its conditions for what liqod makes of it", err)}}
}

// objects reads the object that is written, and the one that it replaces, nil at a
// creation. What is being deleted, and what is not written, is let through unread: bad is
// then the answer, as it is for what cannot be read.
func objects[T any, P interface {
	*T
	metav1.Object
}](req *admissionv1.AdmissionRequest) (obj, old P, bad *admit.Response) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update || req.SubResource != "" {
		return nil, nil, &admit.Response{Allowed: true}
	}
	unreadable := func(err error) *admit.Response {
		return &admit.Response{Message: fmt.Sprintf("reading the %s: %v", req.Kind.Kind, err), Code: http.StatusBadRequest}
	}
	obj = new(T)
	if err := json.Unmarshal(req.Object.Raw, obj); err != nil {
		return nil, nil, unreadable(err)
	}
	if obj.GetDeletionTimestamp() != nil {
		return nil, nil, &admit.Response{Allowed: true}
	}
	if req.Operation == admissionv1.Create {
		return obj, nil, nil
	}
	old = new(T)
	if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
		return nil, nil, unreadable(err)
	}
	return obj, old, nil
}
