package namespace

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/admit"
	"github.com/liqod/liqod/shadow/rules"
)

// PeerServiceRule is the webhook's rule for Services that peers write. It must be called in
// the mutating phase, before the API server allocates addresses and ports: afterwards they
// look like those that the peer has chosen.
type PeerServiceRule struct {
	Bounds rules.ServiceBounds
	// Annotations are those that peers may set.
	Annotations rules.Annotations
}

// Decide refuses a Service outside of the bounds, and removes annotations that peers may not
// set.
func (r PeerServiceRule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	s, old, answer := admit.Objects[corev1.Service](req)
	switch {
	case answer != nil:
		return *answer
	case corev1beta1.PeerOfUser(req.UserInfo.Username) == "":
		return admit.Allow()
	}
	if refused := r.Bounds.Refuse(s, old); refused != "" {
		return admit.Deny(refused)
	}
	return keepAnnotations(r.Annotations, s.Annotations, annotations(old))
}

// PeerAnnotationsRule is the webhook's rule for the annotations of Ingresses that peers
// write.
type PeerAnnotationsRule struct{ Annotations rules.Annotations }

// Decide removes annotations that peers may not set.
func (r PeerAnnotationsRule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	obj, old, answer := admit.Objects[metav1.PartialObjectMetadata](req)
	switch {
	case answer != nil:
		return *answer
	case corev1beta1.PeerOfUser(req.UserInfo.Username) == "":
		return admit.Allow()
	}
	return keepAnnotations(r.Annotations, obj.Annotations, annotations(old))
}

// keepAnnotations accepts an object without the annotations that peers may not set. old are
// those of the object that an update replaces.
func keepAnnotations(allowed rules.Annotations, given, old map[string]string) admit.Response {
	kept, leftOut := allowed.Keep(given, old)
	if len(leftOut) == 0 {
		return admit.Allow()
	}
	answer := admit.Allow(admit.Operation{Op: "replace", Path: "/metadata/annotations", Value: kept})
	answer.Warnings = []string{fmt.Sprintf("annotations left out: %s: this cluster accepts those of its setting %s from peers", rules.NamedKeys(leftOut), rules.AnnotationsSetting)}
	return answer
}

// PeerIngressRule is the webhook's rule for Ingresses that peers write.
type PeerIngressRule struct {
	Bounds rules.IngressBounds
	// Ingresses has those of all namespaces. Synced reports whether it is filled; until then
	// the rule refuses.
	Ingresses networkinglisters.IngressLister
	Synced    func() bool
}

// Decide refuses an Ingress for a host that another one uses, or that is outside of the bounds.
func (r PeerIngressRule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	ing, _, answer := admit.Objects[networkingv1.Ingress](req)
	peer := corev1beta1.PeerOfUser(req.UserInfo.Username)
	switch {
	case answer != nil:
		return *answer
	case peer == "":
		return admit.Allow()
	case !r.Synced():
		return admit.Response{Message: "the webhook of liqod does not know the Ingresses of this cluster yet: try again", Code: http.StatusServiceUnavailable}
	}
	there, err := r.Ingresses.List(labels.Everything())
	if err != nil {
		return admit.Response{Message: "listing Ingresses: " + err.Error(), Code: http.StatusServiceUnavailable}
	}
	return admit.Verdict(r.Bounds.Refuse(ing, peer, there), nil)
}

// annotations returns those of the object that an update replaces; nil for a creation.
func annotations[T any, P interface {
	*T
	metav1.Object
}](old P) map[string]string {
	if old == nil {
		return nil
	}
	return old.GetAnnotations()
}

// PeerClaimRule is the webhook's rule for PersistentVolumeClaims that peers create. A policy
// cannot ask which classes exist.
type PeerClaimRule struct {
	Bounds rules.ClaimBounds
	// Synced reports whether the classes are known; until then the rule refuses.
	Synced func() bool
}

// Decide refuses a claim that would get a volume that is there already.
func (r PeerClaimRule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	claim, _, answer := admit.Objects[corev1.PersistentVolumeClaim](req)
	switch {
	case answer != nil:
		return *answer
	case corev1beta1.PeerOfUser(req.UserInfo.Username) == "":
		return admit.Allow()
	case !r.Synced():
		return admit.Response{Message: "the webhook of liqod does not know the StorageClasses of this cluster yet: try again", Code: http.StatusServiceUnavailable}
	}
	return admit.Verdict(r.Bounds.Refuse(claim), nil)
}

// PeerSessionRule is the webhook's rule for exec, attach and port-forward by peers. RBAC gives
// a peer these rights for all pods of a namespace, and a policy does not see the pod.
type PeerSessionRule struct {
	// Pods is asked for the pod of each session: a cache may have an earlier pod of that name.
	Pods coreclient.PodsGetter
}

// Decide refuses a session with a pod that was not made for a ShadowPod.
func (r PeerSessionRule) Decide(ctx context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	if corev1beta1.PeerOfUser(req.UserInfo.Username) == "" {
		return admit.Allow()
	}
	pod, err := r.Pods.Pods(req.Namespace).Get(ctx, req.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return admit.Response{Message: fmt.Sprintf("pod %s/%s does not exist", req.Namespace, req.Name), Code: http.StatusNotFound}
	}
	if err != nil {
		return admit.Response{Message: fmt.Sprintf("reading pod %s/%s: %v", req.Namespace, req.Name, err), Code: http.StatusServiceUnavailable}
	}
	if pod.Labels[offloadingv1beta1.ManagedByLabel] == offloadingv1beta1.ManagedByShadowPod && pod.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation] != "" {
		return admit.Allow()
	}
	return admit.Deny(fmt.Sprintf("pod %s/%s was not made for a ShadowPod: a peer may exec, attach and port-forward only to pods that its ShadowPods ask for, and no setting allows more", req.Namespace, req.Name))
}
