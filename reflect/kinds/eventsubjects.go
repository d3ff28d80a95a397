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
	"github.com/liqod/liqod/reflect/forge"
)

// Waiting reports whether pods wait to be worked on: other work comes after them.
func (p *Pods) Waiting() bool { return p.loop.Len() > 0 }

// Subject is the Subject of events about Pods and ShadowPods. It finds pods of this virtual
// node only, by the UID of the local pod that their labels carry; other pods of the same
// name are not ours.
func (p *Pods) Subject(_ context.Context, namespace string, remote corev1.ObjectReference) (corev1.ObjectReference, bool, error) {
	tw := p.twins.get(namespace)
	if tw == nil || !tw.synced() || !p.cfg.Pods.Informer().HasSynced() {
		return corev1.ObjectReference{}, false, errNotSynced
	}
	local, err := p.cfg.Pods.Lister().Pods(namespace).Get(remote.Name)
	if err != nil {
		return corev1.ObjectReference{}, false, nil // a lister's only error is that there is none
	}
	uid, known := p.localUID(local, tw, remote)
	if !known {
		return corev1.ObjectReference{}, false, ErrSubjectUnknown
	}
	return reference("v1", "Pod", local), uid == local.UID, nil
}

// localUID returns the UID at home of a remote pod, which may have gone a moment ago, or of
// a ShadowPod.
func (p *Pods) localUID(local *corev1.Pod, tw *twin, remote corev1.ObjectReference) (types.UID, bool) {
	var candidates []metav1.Object
	if remote.Kind == "Pod" {
		if pod, err := tw.pods.Get(remote.Name); err == nil {
			candidates = append(candidates, pod)
		}
		if pod := p.lastSeen(local.UID); pod != nil {
			candidates = append(candidates, pod)
		}
	} else if shadow, err := tw.shadows.Get(remote.Name); err == nil {
		candidates = append(candidates, shadow)
	}
	for _, c := range candidates {
		if c.GetUID() == remote.UID {
			return types.UID(c.GetLabels()[offloadingv1beta1.LocalPodUIDLabel]), true
		}
	}
	return "", false
}

func reference(apiVersion, kind string, home metav1.Object) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: home.GetNamespace(), Name: home.GetName(), UID: home.GetUID()}
}

// reflectedKind says where an object that an event is about is looked for.
type reflectedKind struct {
	remote, home schema.GroupVersionResource
	kind         string // at home
	// asked: remote is what asks for the object, and has another UID.
	asked bool
}

func sameKind(group, version, resource, kind string) reflectedKind {
	r := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	return reflectedKind{remote: r, home: r, kind: kind}
}

// shadowSlices: a peer may not read the provider's EndpointSlices.
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

// ObjectSubjects finds the objects that events of other kinds than pods are about, by live
// reads of their metadata: there are few such events, and no caches to look into that all
// kinds have.
type ObjectSubjects struct {
	// Home and Provider read metadata.
	Home, Provider metadata.Interface
	// Origin and Destination are the ids of the consumer and of the provider.
	Origin, Destination string
	// Reflects tells whether this process reflects such kinds to the provider; another one
	// brings their events home otherwise.
	Reflects func() bool
}

// Subject is the Subject of events about reflected objects: those with our labels in the
// provider, and of their name at home. What may not be read is not reflected.
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
