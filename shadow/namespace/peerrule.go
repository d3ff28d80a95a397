package namespace

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// ofPeer returns what a peer writes and its id, or the answer for what no peer writes, or what
// cannot be judged before the named objects are known.
func ofPeer[T any, P interface {
	*T
	metav1.Object
}](req *admissionv1.AdmissionRequest, objects string, known func() bool) (obj, old P, peer string, answer *serve.Decision) {
	obj, old, answer = serve.Objects[T, P](req)
	peer = corev1beta1.PeerOfUser(req.UserInfo.Username)
	switch {
	case answer != nil:
	case peer == "":
		answer = new(serve.Allow())
	case !known():
		answer = &serve.Decision{Message: "the webhook of liqod does not know the " + objects + " of this cluster yet: try again", Code: http.StatusServiceUnavailable}
	}
	return obj, old, peer, answer
}

// PeerServiceRule is the webhook's rule for Services that peers write. It must be called in
// the mutating phase, before the API server allocates addresses and ports: afterwards they
// look like those that the peer has chosen.
type PeerServiceRule struct {
	// Bounds returns those of a peer, by its ForeignCluster. Synced reports whether the
	// ForeignClusters are known; until then the rule refuses.
	Bounds func(peer string) rules.ServiceBounds
	Synced func() bool
}

// Decide refuses a Service outside of the bounds, and names the field: the peer may write the
// Service without it.
func (r PeerServiceRule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
	s, old, peer, answer := ofPeer[corev1.Service](req, "ForeignClusters", r.Synced)
	if answer != nil {
		return *answer
	}
	field, why := r.Bounds(peer).Refuse(s, old)
	return partly(why, field)
}

// PeerMetadataRule is the webhook's rule for labels and annotations of everything that peers
// reflect.
type PeerMetadataRule struct {
	// Metadata returns the rule for a peer, by its ForeignCluster. Synced reports whether the
	// ForeignClusters are known; until then the rule refuses.
	Metadata func(peer string) rules.Metadata
	Synced   func() bool
}

// Decide removes labels and annotations that peers may not set.
func (r PeerMetadataRule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
	obj, old, peer, answer := ofPeer[metav1.PartialObjectMetadata](req, "ForeignClusters", r.Synced)
	if answer != nil {
		return *answer
	}
	var before rules.Marks
	if old != nil {
		before = rules.Marks{Labels: old.Labels, Annotations: old.Annotations}
	}
	kept, leftOut := r.Metadata(peer).Keep(req.Kind.Kind, rules.Marks{Labels: obj.Labels, Annotations: obj.Annotations}, before)
	if len(leftOut) == 0 {
		return serve.Allow()
	}
	var patch []serve.Operation
	if !maps.Equal(kept.Annotations, obj.Annotations) {
		patch = append(patch, serve.Operation{Op: "replace", Path: "/metadata/annotations", Value: kept.Annotations})
	}
	if !maps.Equal(kept.Labels, obj.Labels) {
		patch = append(patch, serve.Operation{Op: "replace", Path: "/metadata/labels", Value: kept.Labels})
	}
	return serve.Allow(patch...)
}

// PeerIngressRule is the webhook's rule for Ingresses that peers write.
type PeerIngressRule struct {
	Bounds rules.IngressBounds
	// Ingresses has those of all namespaces. Synced reports whether it is filled; until then
	// the rule refuses.
	Ingresses networkinglisters.IngressLister
	Synced    func() bool
}

// Decide refuses an Ingress for a host that another one uses, or that is outside of the bounds, and names
// the hosts: the peer may write the Ingress without them.
func (r PeerIngressRule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
	ing, _, peer, answer := ofPeer[networkingv1.Ingress](req, "Ingresses", r.Synced)
	if answer != nil {
		return *answer
	}
	there := store.Listed(r.Ingresses.List(labels.Everything()))
	fields, why := r.Bounds.Refuse(ing, peer, there)
	return partly(why, fields...)
}

// partly returns the verdict on an object whose fields are refused.
func partly(why string, fields ...string) serve.Decision {
	verdict := serve.Verdict(why, nil)
	if !verdict.Allowed {
		verdict.Fields = fields
	}
	return verdict
}

// PeerClaimRule is the webhook's rule for PersistentVolumeClaims that peers create. A policy
// cannot ask which classes exist.
type PeerClaimRule struct {
	// Allowed has the storage classes that a claim may have.
	Allowed rules.Allowed
	// Synced reports whether the classes are known; until then the rule refuses.
	Synced func() bool
}

// Decide refuses a claim that would get a volume that is there already.
func (r PeerClaimRule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
	claim, _, _, answer := ofPeer[corev1.PersistentVolumeClaim](req, "StorageClasses", r.Synced)
	if answer != nil {
		return *answer
	}
	return serve.Verdict(r.Allowed.RefuseClaim(claim), nil)
}

// PeerSessionRule is the webhook's rule for exec, attach and port-forward by peers. RBAC gives
// a peer these rights for all pods of a namespace, and a policy does not see the pod.
type PeerSessionRule struct {
	// Pods is asked for the pod of each session: a cache may have an earlier pod of that name.
	Pods coreclient.PodsGetter
}

// Decide refuses a session with a pod that was not made for a ShadowPod. An error says that the API
// server could not be asked.
func (r PeerSessionRule) Decide(ctx context.Context, req *admissionv1.AdmissionRequest) (serve.Decision, error) {
	if corev1beta1.PeerOfUser(req.UserInfo.Username) == "" {
		return serve.Allow(), nil
	}
	pod, err := store.Live(ctx, "pod", r.Pods.Pods(req.Namespace), req.Name)
	if err != nil || pod == nil {
		return serve.Decision{Message: fmt.Sprintf("pod %s/%s does not exist", req.Namespace, req.Name), Code: http.StatusNotFound}, err
	}
	if pod.Labels[offloadingv1beta1.ManagedByLabel] == offloadingv1beta1.ManagedByShadowPod && pod.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation] != "" {
		return serve.Allow(), nil
	}
	return serve.Deny(fmt.Sprintf("pod %s/%s was not made for a ShadowPod: a peer may exec, attach and port-forward only to pods that its ShadowPods ask for, and no setting allows more", req.Namespace, req.Name)), nil
}
