package kinds

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

// Waiting reports whether pods wait in the queue. Other work has a lower priority.
func (p *Pods) Waiting() bool { return p.loop.Len() > 0 }

// Subject is the Subject for events about Pods and ShadowPods. It finds only pods of this
// virtual node, by the label with the UID of the local pod.
func (p *Pods) Subject(_ context.Context, namespace string, remote corev1.ObjectReference) (corev1.ObjectReference, bool, error) {
	tw := p.twins.Get(namespace)
	if tw == nil || !tw.synced() || !p.cfg.Pods.Informer().HasSynced() {
		return corev1.ObjectReference{}, false, errNotSynced
	}
	local, err := p.cfg.Pods.Lister().Pods(namespace).Get(remote.Name)
	if err != nil {
		return corev1.ObjectReference{}, false, nil // a lister returns no other error than NotFound
	}
	uid, known := p.localUID(local, tw, remote)
	if !known {
		return corev1.ObjectReference{}, false, ErrSubjectUnknown
	}
	return reference("v1", "Pod", local), uid == local.UID, nil
}

// localUID returns the UID of the local pod of a remote pod or ShadowPod. The remote pod
// may have been deleted a moment ago.
func (p *Pods) localUID(local *corev1.Pod, tw *twin, remote corev1.ObjectReference) (types.UID, bool) {
	if remote.Kind != "Pod" {
		return localUIDOf(tw.shadows.Cached(tw.key(remote.Name)), remote.UID)
	}
	if uid, known := localUIDOf(tw.pods.Cached(tw.key(remote.Name)), remote.UID); known {
		return uid, true
	}
	return localUIDOf(p.memo(local.UID).last, remote.UID)
}

// localUIDOf returns the UID of the local pod of an object, which may be nil, if the object has this UID.
func localUIDOf[T store.Object](there T, uid types.UID) (types.UID, bool) {
	var none T
	if there == none || there.GetUID() != uid {
		return "", false
	}
	return localUID(there), true
}

func reference(apiVersion, kind string, home metav1.Object) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: home.GetNamespace(), Name: home.GetName(), UID: home.GetUID()}
}

// reflectedKind describes where to find the object that an event is about.
type reflectedKind struct {
	remote, home schema.GroupVersionResource
	kind         string // of the local object
	// asked is true if remote is the ShadowEndpointSlice from which the object was
	// created. It has another UID than the object.
	asked bool
}

func sameKind(group, version, resource, kind string) reflectedKind {
	r := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	return reflectedKind{remote: r, home: r, kind: kind}
}

// shadowSlices returns the kind for EndpointSlices. A peer has no right to read the
// provider's EndpointSlices, so the ShadowEndpointSlice is read instead.
func shadowSlices(asked bool) reflectedKind {
	r := sameKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
	r.remote, r.asked = offloadingv1beta1.SchemeGroupVersion.WithResource("shadowendpointslices"), asked
	return r
}

var reflectedKinds = map[string]reflectedKind{
	"Service":               sameKind("", "v1", "services", "Service"),
	"ConfigMap":             sameKind("", "v1", "configmaps", "ConfigMap"),
	"Secret":                sameKind("", "v1", "secrets", "Secret"),
	"PersistentVolumeClaim": sameKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
	"Ingress":               sameKind("networking.k8s.io", "v1", "ingresses", "Ingress"),
	"EndpointSlice":         shadowSlices(true),
	"ShadowEndpointSlice":   shadowSlices(false),
}

// ObjectSubjects finds the objects of events about other kinds than pods by live reads of
// their metadata. Such events are rare, and not all of these kinds have caches.
type ObjectSubjects struct {
	// Home and Provider are metadata clients.
	Home, Provider metadata.Interface
	// Origin and Destination are the cluster ids of the consumer and the provider.
	Origin, Destination string
	// Reflects reports whether this process reflects these kinds to the provider.
	// Otherwise another process writes their events.
	Reflects func() bool
}

// Subject is the Subject for events about other kinds than pods. The remote object must
// have the labels of this reflection, and a local object of its name must exist. An
// object that must not be read counts as not reflected.
func (o ObjectSubjects) Subject(ctx context.Context, namespace string, remote corev1.ObjectReference) (corev1.ObjectReference, bool, error) {
	none := corev1.ObjectReference{}
	k, ok := reflectedKinds[remote.Kind]
	if !ok {
		return none, false, nil
	}
	if !o.Reflects() {
		return none, false, ErrSubjectOfAnother
	}
	there, err := o.Provider.Resource(k.remote).Namespace(remote.Namespace).Get(ctx, remote.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return none, false, nil
	case err != nil:
		return none, false, fmt.Errorf("reading the %s that the event is about: %w", remote.Kind, err)
	}
	labels := there.GetLabels()
	if labels[offloadingv1beta1.OriginLabel] != o.Origin || labels[offloadingv1beta1.DestinationLabel] != o.Destination ||
		(!k.asked && remote.UID != there.GetUID()) {
		return none, false, nil
	}
	name := remote.Name
	if remote.Kind == "ConfigMap" {
		name = forge.LocalConfigMapName(name, o.Origin)
	}
	home, err := o.Home.Resource(k.home).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return none, false, nil
	case err != nil:
		return none, false, fmt.Errorf("reading the %s at home: %w", k.kind, err)
	}
	return reference(k.home.GroupVersion().String(), k.kind, home), true, nil
}
