// Package engine reflects the objects of offloaded namespaces to one provider: what a
// kind needs for that is a description with pure functions, and everything else (watches,
// queue, comparison, ownership, collisions, leftovers) is here, once.
package engine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/informer"
	"github.com/liqod/liqod/reflect/forge"
)

// Object is what an API server holds: a pointer to a typed object, nil for none.
type Object interface {
	comparable
	metav1.Object
	runtime.Object
}

// Clients reach one of the two clusters.
type Clients struct {
	// Kube reaches the Kubernetes kinds.
	Kube kubernetes.Interface
	// Liqo reaches our own kinds.
	Liqo versioned.Interface
}

// Factories make the watches of one namespace.
type Factories struct {
	Kube informers.SharedInformerFactory
	Liqo externalversions.SharedInformerFactory
	// Namespace is watched, but for what Tweak leaves out; it may be nil.
	Namespace string
	Tweak     func(*metav1.ListOptions)
}

// KubeInformer returns the informer of a Kubernetes kind, of which example is one: as
// those of Core, and cheap.
func KubeInformer[L runtime.Object](f Factories, example runtime.Object, client func(kubernetes.Interface) informer.Client[L]) cache.SharedIndexInformer {
	return f.Kube.InformerFor(example, func(c kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
		return informer.New(c, client(c), example, f.Tweak)
	})
}

// LiqoInformer does for our own kinds what CoreInformer does.
func LiqoInformer[L runtime.Object](f Factories, example runtime.Object, client func(versioned.Interface) informer.Client[L]) cache.SharedIndexInformer {
	return f.Liqo.InformerFor(example, func(c versioned.Interface, _ time.Duration) cache.SharedIndexInformer {
		return informer.New(c, client(c), example, f.Tweak)
	})
}

// Reader is the part of a typed client that confirms what a cache says.
type Reader[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// Writer is the part of a typed client that the engine writes with.
type Writer[T any] interface {
	Reader[T]
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Scope is what a description is told beside the object.
type Scope struct {
	forge.ObjectOptions
	// Policy of the kind.
	Policy forge.Policy
	// Home has the watches of the object's namespace. Only those that the description
	// names may be asked for.
	Home Factories
	// VirtualNode tells whether a Node is one of the provider's virtual nodes.
	VirtualNode func(node string) bool
	// Hosted tells whether an endpoint is a pod that the provider has offloaded here: where
	// two clusters share a namespace, both know it themselves.
	Hosted func(ref *corev1.ObjectReference) bool
	// IngressClasses and LoadBalancerClasses are those that the provider offers.
	IngressClasses, LoadBalancerClasses []forge.Class
}

// Kind describes how objects of type L, at home, become objects of type R in the
// provider. Its functions are pure, and called concurrently.
type Kind[L, R Object] struct {
	// Resource is its name in the settings, as configmap.
	Resource string

	// Local and Reader read it at home.
	Local  func(Factories) cache.SharedIndexInformer
	Reader func(c Clients, namespace string) Reader[L]
	// Remote, Writer and List reach it in the provider.
	Remote func(Factories) cache.SharedIndexInformer
	Writer func(c Clients, namespace string) Writer[R]
	List   func(ctx context.Context, c Clients, namespace string, opts metav1.ListOptions) (runtime.Object, error)

	// Forge returns what should stand in the provider, nil for nothing; a *forge.Refused is
	// shown to the user.
	Forge func(local L, s Scope) (R, error)
	// Foreign tells whether an object stands for one of another cluster, and is not carried
	// any further; nil: its label says so.
	Foreign func(local L, s Scope) bool
	// Merge returns have as wanted, without what others own. Equal to have: nothing to do.
	Merge func(have, want R) R
	// FollowsHosted says that Forge asks Scope.Hosted.
	FollowsHosted bool
	// Whole has an update send the whole object, which costs both sides less than a patch. It
	// is for types that get no more fields: a patch leaves alone those that a newer API server
	// knows, and we do not.
	Whole bool
	// Derived says that controllers at home make the objects, under names of their choice. One
	// that a restored consumer does not know has another in its place by now: it is kept in
	// the provider as long as this process lasts, and not marked.
	Derived bool
	// Replaces tells that have can only become as wanted by being made anew; nil: never.
	Replaces func(have, want R) bool
	// Chosen tells whether policy and annotations have an object reflected, and what the
	// user should be told about that; nil: the annotations decide.
	Chosen func(local L, s Scope) (yes bool, warning string)
	// Excluded confirms, by live reads at home, that Chosen says no, where that follows from
	// more than the object itself; nil: it does not.
	Excluded func(ctx context.Context, c Clients, local L, s Scope) (bool, error)
	// LocalName is the name at home of an object of that name in the provider; nil: the
	// same. RemoteName is its inverse.
	LocalName, RemoteName func(name string, s forge.ObjectOptions) string
	// Related are other objects at home that decide about objects of this kind, which
	// Indexers help to find.
	Related  []Related
	Indexers cache.Indexers
}

// Related is a watch at home whose objects concern those of a kind.
type Related struct {
	// Informer of the watch; it may be that of another kind.
	Informer func(Factories) cache.SharedIndexInformer
	// Keys returns the keys of the objects, among those of the kind, that one concerns. It
	// depends on nothing that can change in that one: it is asked about its last state only.
	Keys func(related any, local cache.Indexer) []string
}

// Setting is what can be set of a kind.
type Setting struct {
	// Policy says what is reflected of objects without annotations.
	Policy forge.Policy
	// Workers is the number of objects worked on at once. 0: the kind is off.
	Workers int
}

// Choice is a kind with its setting.
type Choice struct {
	Kind    Description
	Setting Setting
}

// Description is a Kind of any types.
type Description interface {
	resource() string
	reflector(e *Engine, setting Setting) reflector
	leftovers(ctx context.Context, c Clients, namespace string, opts metav1.ListOptions) ([]metav1.Object, error)
	remove(ctx context.Context, c Clients, obj metav1.Object) error
}

// reflector runs one kind.
type reflector interface {
	name() string
	// open registers for the watches of a namespace, which have not been started yet, and
	// returns what tells that they have shown everything once.
	open(s *space) (synced func() bool, err error)
	closeSpace(s *space)
	// followsHosted tells whether what is wanted depends on Scope.Hosted.
	followsHosted() bool
	// enqueue has everything looked at that is known of a local namespace.
	enqueue(namespace string)
	run(ctx context.Context) error
}

func (k Kind[L, R]) resource() string { return k.Resource }

func (k Kind[L, R]) localName(remote string, o forge.ObjectOptions) string {
	if k.LocalName == nil {
		return remote
	}
	return k.LocalName(remote, o)
}

func (k Kind[L, R]) remoteName(local string, o forge.ObjectOptions) string {
	if k.RemoteName == nil {
		return local
	}
	return k.RemoteName(local, o)
}

const everywhere = corev1.NamespaceAll
