package replication

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// pushed says how the objects of a kind that this cluster asks a peer by are replicated:
// what is wanted flows to the peer, the answer flows back. The functions that take no
// client are pure, and change their last argument, which is a copy.
type pushed[T object[T]] struct {
	kind[T]
	// ours reports whether a home object is this cluster's own wish, not a peer's.
	ours func(home T) bool
	// push sets the wish of home in remote, less what is kept there.
	push func(home, remote T)
	// keep marks what remote asks for and home does not, so that push keeps it; kept reports
	// whether anything is. A home that does not exist is an empty one.
	keep func(home, remote T)
	kept func(remote T) bool
	// pull sets the answer of remote in home.
	pull func(remote, home T)
	// fail says in home why it is not replicated; mend takes that back.
	fail func(message string, now time.Time, home T)
	mend func(home T)
	// wanted reports, by a live read, whether somebody will make the home object for a
	// peer again when it is gone.
	wanted func(ctx context.Context, c versioned.Interface, peer string) (bool, error)
}

// namedAsPeer is the name of what there is one of for each provider.
func namedAsPeer(peer, name string) bool { return name == peer }

// ofOrigin selects the copies that a cluster has made.
func ofOrigin(clusterID string) string { return offloadingv1beta1.OriginIDLabel + "=" + clusterID }

// own reports whether an object is this cluster's, not the copy of a peer's.
func own(o metav1.Object) bool { return o.GetLabels()[offloadingv1beta1.ReplicatedLabel] != "true" }

// mark labels what is a copy of an object of a cluster.
func mark(o metav1.Object, origin string) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[offloadingv1beta1.ReplicatedLabel] = "true"
	labels[offloadingv1beta1.OriginIDLabel] = origin
	labels[corev1beta1.RemoteClusterIDLabel] = origin
	o.SetLabels(labels)
}

// namespaceMaps replicates NamespaceMaps.
func namespaceMaps(clusterID string) pushed[*offloadingv1beta1.NamespaceMap] {
	type nm = *offloadingv1beta1.NamespaceMap
	return pushed[nm]{
		kind: kind[nm]{
			name: "NamespaceMap", concerns: namedAsPeer, selector: ofOrigin(clusterID),
			empty: func() nm { return &offloadingv1beta1.NamespaceMap{} },
			same: func(a, b nm) bool {
				const kept = offloadingv1beta1.KeptNamespacesAnnotation
				return a.Annotations[kept] == b.Annotations[kept] && maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Status, b.Status)
			},
			client: func(c versioned.Interface, namespace string) writer[nm] {
				return c.OffloadingV1beta1().NamespaceMaps(namespace)
			},
			informer: func(f externalversions.SharedInformerFactory) cache.SharedIndexInformer {
				return f.Offloading().V1beta1().NamespaceMaps().Informer()
			},
		},
		ours: func(home nm) bool { return own(home) },
		push: func(home, remote nm) {
			mark(remote, clusterID)
			pushDesired(home, remote)
		},
		keep:   keepDesired,
		kept:   func(remote nm) bool { return remote.Annotations[offloadingv1beta1.KeptNamespacesAnnotation] != "" },
		pull:   pullNamespaceMap,
		fail:   failNamespaceMap,
		mend:   mendNamespaceMap,
		wanted: namespaceMapWanted,
	}
}

// pullNamespaceMap takes a provider's answer over. The provider is another
// organisation: an answer to what was not asked is not believed, so that it can neither
// make a namespace of ours be reflected nor fill our status.
func pullNamespaceMap(remote, home *offloadingv1beta1.NamespaceMap) {
	if remote.Status.ObservedGeneration == 0 {
		return // it has not answered yet: what it said before stands
	}
	before := home.Status
	home.Status = offloadingv1beta1.NamespaceMapStatus{
		ObservedGeneration: before.ObservedGeneration,
		Conditions:         acceptable(remote.Status.Conditions, before.ObservedGeneration),
	}
	// Generations count differently in the two clusters: an answer to the newest copy is
	// one to the newest wish if the copy is equal to it.
	if remote.Status.ObservedGeneration == remote.Generation && maps.Equal(desiredHere(remote), home.Spec.DesiredMapping) {
		home.Status.ObservedGeneration = home.Generation
	}
	for i := range home.Status.Conditions {
		home.Status.Conditions[i].ObservedGeneration = home.Status.ObservedGeneration
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
			// A twin that is no longer wanted under this name is on its way out.
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

// knownPhase reports whether the API has such a phase.
func knownPhase(phase offloadingv1beta1.MappingPhase) bool {
	switch phase {
	case offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingCreationLoopBackOff, offloadingv1beta1.MappingTerminating:
		return true
	default:
		return false
	}
}

// acceptable returns what the API takes of the conditions that a peer has written: one that
// it does not take would keep the whole status from being written.
func acceptable(peers []metav1.Condition, generation int64) (out []metav1.Condition) {
	for _, c := range peers {
		c.Message, c.ObservedGeneration = bounded(c.Message), generation
		if len(validation.ValidateCondition(c, nil)) == 0 {
			meta.SetStatusCondition(&out, c)
		}
	}
	return out
}

// maxMessage bounds what is shown of a peer's error.
const maxMessage = 2048

func bounded(message string) string {
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	return strings.ToValidUTF8(message, "")
}

func failNamespaceMap(message string, now time.Time, home *offloadingv1beta1.NamespaceMap) {
	home.Status.Conditions = slices.Clone(home.Status.Conditions)
	meta.SetStatusCondition(&home.Status.Conditions, metav1.Condition{
		Type: offloadingv1beta1.RemoteNamespaceReady, Status: metav1.ConditionFalse, Reason: offloadingv1beta1.ReasonReplicationFailed,
		Message: bounded(message), ObservedGeneration: home.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

func mendNamespaceMap(home *offloadingv1beta1.NamespaceMap) {
	home.Status.Conditions = slices.DeleteFunc(slices.Clone(home.Status.Conditions), func(c metav1.Condition) bool {
		return c.Type == offloadingv1beta1.RemoteNamespaceReady && c.Reason == offloadingv1beta1.ReasonReplicationFailed
	})
}

// namespaceMapWanted looks for NamespaceOffloadings that have selected the peer.
func namespaceMapWanted(ctx context.Context, c versioned.Interface, peer string) (bool, error) {
	list, err := c.OffloadingV1beta1().NamespaceOffloadings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("listing NamespaceOffloadings: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(o offloadingv1beta1.NamespaceOffloading) bool {
		return o.DeletionTimestamp == nil &&
			meta.IsStatusConditionTrue(o.Status.RemoteNamespacesConditions[peer], offloadingv1beta1.RemoteNamespaceOffloadingRequired)
	}), nil
}
