package replication

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// pushed describes a kind whose objects are requests to a peer. The spec is copied to the
// peer and the status is copied back. Functions without a client are pure. They write to
// their last argument, which is a copy.
type pushed[T store.Applied[T]] struct {
	kind[T]
	// push copies the spec of home to remote and keeps the parts of remote that keep has
	// marked.
	push func(home, remote T)
	// keep marks what remote requests and home does not, so that push keeps it. For a missing
	// home object the caller passes an empty one.
	keep func(home, remote T)
	// pull copies the status of remote to home.
	pull func(remote, home T)
	// fail writes to the status of home why it is not replicated. Without a message, it removes
	// what it has written.
	fail func(message string, now time.Time, home T)
	// late: the home object is created only after virtual nodes, and so some time after its
	// namespace.
	late bool
	// wanted reports, by live reads, whether a controller of this cluster will create the
	// home object again after its deletion.
	wanted func(ctx context.Context, peer string) (bool, error)
}

// namedAsPeer is kind.concerns for kinds with one object per provider, which is named
// after the provider.
func namedAsPeer(peer, name string) bool { return name == peer }

// ofOrigin selects the copies that were written by the cluster with this id.
func ofOrigin(clusterID string) string { return offloadingv1beta1.OriginIDLabel + "=" + clusterID }

// own reports whether an object belongs to this cluster and is not the copy of a peer's
// object.
func own(o metav1.Object) bool { return o.GetLabels()[offloadingv1beta1.ReplicatedLabel] != "true" }

// mark sets the labels of a copy from the cluster origin.
func mark(o metav1.Object, origin string) {
	store.AddLabels(o, &metav1.ObjectMeta{Labels: map[string]string{
		offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: origin, corev1beta1.RemoteClusterIDLabel: origin,
	}})
}

// namespaceMaps describes the replication of NamespaceMaps. liqo is a client for this cluster.
func namespaceMaps(clusterID string, liqo versioned.Interface) pushed[*offloadingv1beta1.NamespaceMap] {
	type nm = *offloadingv1beta1.NamespaceMap
	return pushed[nm]{
		kind: kind[nm]{
			name: "NamespaceMap", concerns: namedAsPeer, selector: ofOrigin(clusterID),
			empty: func() nm { return &offloadingv1beta1.NamespaceMap{} },
			client: func(c versioned.Interface, namespace string) writer[nm] {
				return c.OffloadingV1beta1().NamespaceMaps(namespace)
			},
			informer: func(f externalversions.SharedInformerFactory) cache.SharedIndexInformer {
				return f.Offloading().V1beta1().NamespaceMaps().Informer()
			},
		},
		late: true,
		push: pushDesired,
		keep: keepDesired,
		pull: pullNamespaceMap,
		fail: func(message string, now time.Time, home nm) {
			failed(home, &home.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady, message, now)
		},
		wanted: func(ctx context.Context, peer string) (bool, error) { return namespaceMapWanted(ctx, liqo, peer) },
	}
}

// pullNamespaceMap copies the status of a NamespaceMap from the provider. The provider is
// another organisation and is not trusted: entries for namespaces that were not requested
// are dropped, so that it can neither cause the reflection of a namespace nor fill the
// status.
func pullNamespaceMap(remote, home *offloadingv1beta1.NamespaceMap) {
	if remote.Status.ObservedGeneration == 0 {
		return // the provider has not answered yet: its previous answer stays
	}
	before := home.Status
	same := maps.Equal(desiredHere(remote), home.Spec.DesiredMapping)
	generation := answeredGeneration(remote, home, remote.Status.ObservedGeneration, before.ObservedGeneration, same)
	home.Status = offloadingv1beta1.NamespaceMapStatus{
		ObservedGeneration: generation, Conditions: acceptable(remote.Status.Conditions, generation),
	}
	for ns, answer := range remote.Status.CurrentMapping {
		name, asked := home.Spec.DesiredMapping[ns]
		old, answered := before.CurrentMapping[ns]
		if !knownPhase(answer.Phase) {
			if !answered {
				continue
			}
			answer = old
		}
		answer.Message = bounded(answer.Message)
		switch {
		case asked && answer.RemoteNamespace == name:
		case asked || answered:
			// The twin of a previous name is being deleted.
			answer.Phase = offloadingv1beta1.MappingTerminating
		default:
			continue
		}
		if home.Status.CurrentMapping == nil {
			home.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{}
		}
		home.Status.CurrentMapping[ns] = answer
	}
}

// knownPhase reports whether the API defines the phase.
func knownPhase(phase offloadingv1beta1.MappingPhase) bool {
	return slices.Contains([]offloadingv1beta1.MappingPhase{
		offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingCreationLoopBackOff, offloadingv1beta1.MappingTerminating,
	}, phase)
}

// answeredGeneration returns the generation of written that the cluster with the object received has observed. The
// generations of the two objects are independent. If that cluster has observed the newest generation of its
// object, and that has the same spec, it has observed the newest generation of written. Otherwise the
// answer is the one before.
func answeredGeneration(received, written metav1.Object, answered, before int64, same bool) int64 {
	if same && answered == received.GetGeneration() {
		return written.GetGeneration()
	}
	return before
}

// acceptable returns the conditions of a peer that are valid in this cluster. One invalid
// condition would make the API server reject the whole status.
func acceptable(peers []metav1.Condition, generation int64) (out []metav1.Condition) {
	for _, c := range peers {
		if len(out) == maxConditions {
			break
		}
		c.Message, c.ObservedGeneration = bounded(c.Message), generation
		if len(validation.ValidateCondition(c, nil)) == 0 {
			store.SetCondition(&out, c)
		}
	}
	return out
}

// maxConditions is the number of a peer's conditions that are copied.
const maxConditions = 16

// maxMessage is the maximum length of a peer's message, in bytes.
const maxMessage = 2048

func bounded(message string) string { return store.Clip(message, maxMessage) }

// failed sets the condition that says why an object is not replicated. Without a message, it removes it.
func failed(home metav1.Object, have *[]metav1.Condition, kind, message string, now time.Time) {
	if message == "" {
		*have = slices.DeleteFunc(*have, func(c metav1.Condition) bool {
			return c.Type == kind && c.Reason == offloadingv1beta1.ReasonReplicationFailed
		})
		return
	}
	store.SetCondition(have, metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: offloadingv1beta1.ReasonReplicationFailed,
		Message: bounded(message), ObservedGeneration: home.GetGeneration(), LastTransitionTime: metav1.NewTime(now),
	})
}

// namespaceMapWanted reports whether a NamespaceOffloading selects the peer.
func namespaceMapWanted(ctx context.Context, c versioned.Interface, peer string) (bool, error) {
	all, err := store.Find[*offloadingv1beta1.NamespaceOffloading](ctx, "NamespaceOffloading", c.OffloadingV1beta1().NamespaceOffloadings(metav1.NamespaceAll), metav1.ListOptions{})
	return slices.ContainsFunc(all, func(o *offloadingv1beta1.NamespaceOffloading) bool {
		return o.DeletionTimestamp == nil &&
			meta.IsStatusConditionTrue(o.Status.RemoteNamespacesConditions[peer], offloadingv1beta1.RemoteNamespaceOffloadingRequired)
	}), err
}
