package kinds

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// opened is an offloaded namespace whose informers run.
type opened struct {
	local, remote string
	// synced reports whether all handlers have received their initial lists.
	synced func() bool
	stop   func()
}

// run starts the informers and calls ready when all handlers are synced.
func (o *opened) run(ctx context.Context, ready func(), handlers []loop.Source, informers ...*store.Informer) {
	// Handlers can be added to any informer that does not run yet. If one fails nevertheless, they never
	// count as synced.
	o.synced, _ = loop.Register(handlers...)
	tasks := []func(context.Context){func(ctx context.Context) {
		if cache.WaitForCacheSync(ctx.Done(), o.synced) {
			ready()
		}
	}}
	for _, i := range informers {
		tasks = append(tasks, i.RunWithContext)
	}
	o.stop = loop.Start(ctx, tasks...)
}

// selected returns the objects of a namespace that a selector chooses, and their informer. client is that of the
// namespace, and belongs to clientset.
func selected[T engine.Object, L runtime.Object](kind string, example T, clientset any, client interface {
	store.Client[L]
	store.API[T]
}, selector string, transform cache.TransformFunc, c clock.PassiveClock,
) (*store.Store[T], *store.Informer) {
	informer := store.NewInformer[L](clientset, client, example, func(o *metav1.ListOptions) { o.LabelSelector = selector })
	informer.Transform = transform
	return store.New(kind, informer, c, func(string) store.API[T] { return client }), informer
}

// OfNode is what the components of one virtual node have in common.
type OfNode struct {
	engine.Target
	// Node is the name of the virtual node.
	Node string
}

// virtualNode returns the VirtualNode, or nil.
func (o OfNode) virtualNode() *offloadingv1beta1.VirtualNode {
	return store.Known(o.VirtualNodes.Lister().VirtualNodes(o.TenantNamespace).Get(o.Node))
}

// objectOptions returns the options for the objects of a twin namespace. vn may be nil.
func (o OfNode) objectOptions(vn *offloadingv1beta1.VirtualNode, remote string) forge.ObjectOptions {
	out := forge.ObjectOptions{OriginClusterID: o.Origin, DestinationClusterID: o.Destination, RemoteNamespace: remote}
	out.SkipLabels, out.SkipAnnotations = engine.NotReflected(vn, o.SkipLabels, o.SkipAnnotations)
	if vn != nil {
		out.Patch = vn.Spec.OffloadingPatch
	}
	return out
}
