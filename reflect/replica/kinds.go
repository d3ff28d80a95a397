package replica

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
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// object is what every replicated kind is.
type object[T any] interface {
	metav1.Object
	DeepCopy() T
	comparable
}

// writer is the part of a generated client that replication uses.
type writer[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// kind says how the objects of one kind are replicated. The functions that take no client
// are pure, and change their last argument, which is a copy.
type kind[T object[T]] struct {
	name string
	// ours reports whether a home object is this cluster's own wish, not a peer's.
	ours func(home T) bool
	// empty returns a new object.
	empty func() T
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
	// same reports whether two objects are equal in what these functions write.
	same func(a, b T) bool
	// wanted reports, by a live read, whether somebody will make the home object for a
	// peer again when it is gone.
	wanted func(ctx context.Context, c versioned.Interface, peer string) (bool, error)

	client   func(c versioned.Interface, namespace string) writer[T]
	informer func(f externalversions.SharedInformerFactory) cache.SharedIndexInformer
}

// namespaceMaps replicates NamespaceMaps.
func namespaceMaps(clusterID string) kind[*offloadingv1beta1.NamespaceMap] {
	type nm = *offloadingv1beta1.NamespaceMap
	return kind[nm]{
		name:  "NamespaceMap",
		ours:  func(home nm) bool { return home.Labels[offloadingv1beta1.ReplicatedLabel] != "true" },
		empty: func() nm { return &offloadingv1beta1.NamespaceMap{} },
		push: func(home, remote nm) {
			if remote.Labels == nil {
				remote.Labels = map[string]string{}
			}
			remote.Labels[offloadingv1beta1.ReplicatedLabel] = "true"
			remote.Labels[offloadingv1beta1.OriginIDLabel] = clusterID
			remote.Labels[corev1beta1.RemoteClusterIDLabel] = clusterID
			pushDesired(home, remote)
		},
		keep:   keepDesired,
		kept:   func(remote nm) bool { return remote.Annotations[offloadingv1beta1.KeptNamespacesAnnotation] != "" },
		pull:   pullNamespaceMap,
		fail:   failNamespaceMap,
		mend:   mendNamespaceMap,
		wanted: namespaceMapWanted,
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
		Conditions:         slices.Clone(remote.Status.Conditions),
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
		_, known := before.CurrentMapping[ns]
		switch {
		case asked && answer.RemoteNamespace == name:
		case asked || known:
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

// maxMessage bounds what is shown of a peer's error.
const maxMessage = 2048

func failNamespaceMap(message string, now time.Time, home *offloadingv1beta1.NamespaceMap) {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	home.Status.Conditions = slices.Clone(home.Status.Conditions)
	meta.SetStatusCondition(&home.Status.Conditions, metav1.Condition{
		Type: offloadingv1beta1.RemoteNamespaceReady, Status: metav1.ConditionFalse, Reason: offloadingv1beta1.ReasonReplicationFailed,
		Message: message, ObservedGeneration: home.Generation, LastTransitionTime: metav1.NewTime(now),
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
