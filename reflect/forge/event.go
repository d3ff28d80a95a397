package forge

import (
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// remoteSuffix ends the component of an event that comes from a provider, for people.
const remoteSuffix = " (remote)"

// EventOptions say where an event of a provider goes. Events come home: they originate
// in the provider.
type EventOptions struct {
	// ProviderID is the id of the cluster that the event comes from.
	ProviderID string
	// ConsumerID is the id of this cluster.
	ConsumerID string
	// Object is the local object that the event is about, with its UID: of the kind and
	// name that EventSubject tells.
	Object corev1.ObjectReference
}

// EventSubject returns kind and name of the local object that an event in the provider is
// about, for the consumer with that id. It is not ok for objects that are not reflected,
// and for events that come from a cluster further on: these stay there.
func EventSubject(remote *corev1.Event, consumerID string) (kind, name string, ok bool) {
	if _, foreign := remote.Labels[offloadingv1beta1.OriginLabel]; foreign {
		return "", "", false
	}
	group, _, _ := strings.Cut(remote.InvolvedObject.APIVersion, "/")
	kind, ok = subjects[subject{group, remote.InvolvedObject.Kind}]
	name = remote.InvolvedObject.Name
	if kind == "ConfigMap" {
		name = LocalConfigMapName(name, consumerID)
	}
	return kind, name, ok
}

// subject is the group (the version, for the core group) and kind of an event's object.
type subject struct{ group, kind string }

// subjects are the kinds whose events come home (seed 004), and the local kinds that they
// stand for.
var subjects = map[subject]string{
	{"v1", "Pod"}:                    "Pod",
	{"v1", "Service"}:                "Service",
	{"v1", "ConfigMap"}:              "ConfigMap",
	{"v1", "Secret"}:                 "Secret",
	{"v1", "PersistentVolumeClaim"}:  "PersistentVolumeClaim",
	{"networking.k8s.io", "Ingress"}: "Ingress",

	{"discovery.k8s.io", "EndpointSlice"}:                "EndpointSlice",
	{offloadingv1beta1.GroupName, "ShadowPod"}:           "Pod",
	{offloadingv1beta1.GroupName, "ShadowEndpointSlice"}: "EndpointSlice",
}

// Event returns the local event for one of the provider's. Its name follows from the
// remote event, whose later occurrences therefore count in the same local one.
func Event(remote *corev1.Event, o EventOptions) *corev1.Event {
	out := remote.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{}
	out.ObjectMeta = metav1.ObjectMeta{
		Name: eventName(remote, o), Namespace: o.Object.Namespace,
		Labels: map[string]string{
			offloadingv1beta1.OriginLabel:      o.ProviderID,
			offloadingv1beta1.DestinationLabel: o.ConsumerID,
		},
	}
	out.InvolvedObject = o.Object
	out.InvolvedObject.FieldPath = remote.InvolvedObject.FieldPath
	// The name of a controller may not have a suffix like this; that of the component may.
	out.Source.Component = orElse(remote.Source.Component, remote.ReportingController) + remoteSuffix
	out.Related = nil
	return out
}

// eventName returns the name of the local event: unique among all clusters' events about
// the object.
func eventName(remote *corev1.Event, o EventOptions) string {
	h := fnv.New64a()
	// Writing to a hash never fails.
	_, _ = fmt.Fprintf(h, "%s/%s/%s", o.ProviderID, remote.Namespace, remote.UID)
	suffix := fmt.Sprintf(".%016x", h.Sum64())
	name := o.Object.Name[:min(len(o.Object.Name), validation.DNS1123SubdomainMaxLength-len(suffix))]
	return strings.TrimRight(name, "-.") + suffix
}

// MergeEvent returns have made as wanted.
func MergeEvent(have, want *corev1.Event) *corev1.Event {
	out := want.DeepCopy()
	out.TypeMeta = have.TypeMeta
	out.ObjectMeta = *have.ObjectMeta.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	// The object may have been written since; that alone says nothing new.
	out.InvolvedObject.ResourceVersion = have.InvolvedObject.ResourceVersion
	return out
}
