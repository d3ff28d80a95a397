// Package engine reflects the objects of offloaded namespaces to one provider. A kind is
// described by a Kind, a set of pure functions. Everything else is implemented here for
// all kinds: watches, queues, comparison with the actual object, ownership, name
// collisions, and the deletion of leftovers.
package engine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

// Object is a pointer to a typed Kubernetes object, or nil for none.
type Object interface {
	comparable
	metav1.Object
	runtime.Object
}

// Clients are the clients of one of the two clusters.
type Clients struct {
	// Kube is the client for the built-in kinds of Kubernetes.
	Kube kubernetes.Interface
	// Liqo is the client for the kinds of liqod.
	Liqo versioned.Interface
}

// Informers are the informers of one namespace in one cluster.
type Informers struct {
	Clients
	// Namespace is the watched namespace.
	Namespace string

	selector  string
	transform cache.TransformFunc
	byType    map[string]*store.Informer
}

// InformerOf returns the informer of a kind, of which example is an object. It is created if it
// does not exist. client is that of the namespace. An Informer of package
// kube/store needs less memory and fewer goroutines than one of client-go.
func InformerOf[L runtime.Object](in Informers, client store.Client[L], example runtime.Object) *store.Informer {
	kind := fmt.Sprintf("%T", example)
	if in.byType[kind] == nil {
		i := store.NewInformer(in.Kube, client, example, func(o *metav1.ListOptions) { o.LabelSelector = in.selector })
		i.Transform = in.transform
		in.byType[kind] = i
	}
	return in.byType[kind]
}

// Writer is the part of a typed client with which the engine writes.
type Writer[T any] interface {
	store.API[T]
	store.Writer[T]
	store.Patcher[T]
}

// Scope is the context of one object: a namespace, the provider and its VirtualNodes. The
// functions of a Kind receive it.
type Scope struct {
	forge.ObjectOptions
	// Policy decides about objects without reflection annotations.
	Policy forge.Policy
	// Home has the informers of the object's namespace in the consumer. A Kind may use
	// only those that its Local and Related name, because no others are started.
	Home Informers
	// VirtualNode reports whether a Node is one of the provider's virtual nodes.
	VirtualNode func(node string) bool
	// Hosted reports whether an endpoint is a pod that the provider has offloaded to this
	// cluster. If two clusters share a namespace, the provider has that endpoint already.
	Hosted func(ref *corev1.ObjectReference) bool
	// IngressClasses and LoadBalancerClasses are the classes that the provider offers.
	IngressClasses, LoadBalancerClasses []forge.Class
}

// Kind describes how objects of type L in the consumer (home) become objects of type R in
// the provider (remote). Its functions are pure, apart from those that receive clients or
// informers, and apart from reads of the caches in Scope.Home. All must be safe for
// concurrent use.
type Kind[L, R Object] struct {
	// Resource is the name of the kind in the settings, for example "configmap".
	Resource string

	// Local is the informer of the kind in the consumer, Reader its client.
	Local  func(Informers) *store.Informer
	Reader func(c Clients, namespace string) store.Getter[L]
	// Remote is the informer of the kind in the provider, Writer its client, and List
	// lists it; it lists a kind that is the same in both clusters in the consumer, too.
	Remote func(Informers) *store.Informer
	Writer func(c Clients, namespace string) Writer[R]
	List   func(ctx context.Context, c Clients, namespace string, opts metav1.ListOptions) (runtime.Object, error)

	// Forge returns the desired object in the provider, or nil for none. If it returns a
	// *forge.Refused, an event shows it to the user.
	Forge func(local L, s Scope) (R, error)
	// Foreign reports whether local was itself reflected from another cluster. Such
	// objects are not reflected further. nil: the origin label decides.
	Foreign func(local L, s Scope) bool
	// Merge returns a copy of have that is as wanted and keeps the fields of other
	// writers. If the result equals have, nothing is written.
	Merge func(have, want R) R
	// HasEndpoints is true if Forge returns endpoints. Their places and addresses depend on Scope.Hosted and
	// on objects that the Engine does not watch: see Engine.EndpointsChanged.
	HasEndpoints bool
	// Whole makes updates send the whole object, which costs both clusters less than a
	// patch. It is only safe for types whose API is complete: an update would remove
	// fields that a newer API server has and this process does not.
	Whole bool
	// Derived is true if controllers in the consumer create the objects under generated
	// names. After a restored backup they create new objects, so one that the consumer no
	// longer has is kept in the provider only until this process ends, and is not marked.
	Derived bool
	// Replaces reports whether have must be deleted and created again to become as wanted;
	// nil: never.
	Replaces func(have, want R) bool
	// Misleads reports whether have leads clients somewhere where the wanted state merged does not.
	// If the provider refuses the change, have is deleted there; nil: have stays as it is.
	Misleads func(have, merged R) bool
	// Rest returns want without fields that the provider refuses, or nil if it has none of them that it
	// can do without; nil: an object is refused as a whole.
	Rest func(want R, refused []string) R
	// Chosen decides, by policy and annotations, whether an object is reflected, and
	// returns a warning for the user or "". nil: ByAnnotations.
	Chosen func(local L, s Scope) (yes bool, warning string)
	// Excluded confirms by live reads in the consumer that an object is not reflected. It
	// is needed if Chosen depends on other objects; nil: Chosen depends on local only.
	Excluded func(ctx context.Context, c Clients, local L, s Scope) (bool, error)
	// LocalName returns the name in the consumer of an object with the given name in the
	// provider; nil: the same name. RemoteName is its inverse.
	LocalName, RemoteName func(name string, s forge.ObjectOptions) string
	// Related are other objects in the consumer that affect objects of this kind. Indexers
	// are added to the informer Local so that Related.Keys can find the affected objects.
	Related  []Related
	Indexers cache.Indexers
}

// Related describes objects in the consumer that affect objects of a Kind.
type Related struct {
	// Informer returns the informer of these objects; it may be of another kind.
	Informer func(Informers) *store.Informer
	// Keys returns the keys of the objects of the Kind that related affects. The keys must
	// not depend on anything that can change in related: Keys is called with its new state
	// only.
	Keys func(related any, local cache.Indexer) []string
}

// Setting is the configuration of a kind by the user.
type Setting struct {
	// Policy decides about objects without reflection annotations.
	Policy forge.Policy
	// Workers is the number of objects synced concurrently. 0 switches the kind off.
	Workers int
}

// Choice is a kind and its setting.
type Choice struct {
	Kind    Description
	Setting Setting
}

// Description is implemented by Kind for all types of objects.
type Description interface {
	resource() string
	reflector(e *Engine, setting Setting) reflector
	// sweep deletes the listed objects, and returns their number.
	sweep(ctx context.Context, c Clients, namespace string, opts metav1.ListOptions) (int, error)
}

// reflector runs one kind.
type reflector interface {
	resource() string
	// open registers handlers with the informers of a namespace, which are not started
	// yet. synced reports whether the handlers have received the initial lists.
	open(s *space) (synced func() bool, err error)
	// hasEndpoints returns Kind.HasEndpoints.
	hasEndpoints() bool
	// enqueue enqueues all objects of a local namespace, or of all namespaces if namespace
	// is everywhere.
	enqueue(namespace string)
	// behind and behindLive return, for the objects of the kind, what the methods of Engine
	// with these names return.
	behind(ctx context.Context, namespace string, n forge.Named, existed time.Time) (name string, is bool, err error)
	behindLive(ctx context.Context, s *space, n forge.Named, existed time.Time) (name string, is bool, err error)
	// refusals are the objects of the kind that Engine.Refused returns.
	refusals() []offloadingv1beta1.RefusedObject
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
