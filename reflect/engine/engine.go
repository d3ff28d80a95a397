package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

// Target is what all that is reflected to one provider has in common.
type Target struct {
	// Namespaces follows the NamespaceMap of the provider. VirtualNodes is an informer for the
	// tenant namespace.
	Namespaces   *Follower
	VirtualNodes offloadinginformers.VirtualNodeInformer
	// TenantNamespace is the tenant namespace of the provider in the consumer cluster.
	// Origin and Destination are the cluster ids of the consumer and the provider.
	TenantNamespace, Origin, Destination string
	// SkipLabels and SkipAnnotations are the keys that are not reflected as long as the
	// status of a VirtualNode does not list any. Those of its offloadingPatch come in addition.
	SkipLabels, SkipAnnotations []string
	// Gate returns an error while nothing may be written to the provider, because it is not
	// verified as the cluster that was peered with.
	Gate func() error
	// Verify checks by a request that the provider is that cluster. It is called before any
	// decision about a pod or a claim that follows from the absence of an object there.
	Verify func(context.Context) error
	// HomeLost returns the latest time at which the consumer's etcd was found restored
	// from a backup, zero for never.
	HomeLost func() time.Time
	// Transform is applied to objects before they enter a cache.
	Transform cache.TransformFunc
	// Recorder receives events about objects that are not reflected, or only in part.
	Recorder record.EventRecorder
	loop.Env
}

// Config is the configuration of an Engine.
type Config struct {
	Target
	// Home is the consumer cluster, which the Engine only reads. Remote is the provider
	// cluster.
	Home, Remote Clients
	// Kinds are the reflected kinds. Those with 0 workers are off.
	Kinds []Choice
	// Settled is called when a copy follows its object again, with the namespace and name of
	// the object; with the name "" when the objects of a kind in a namespace are known.
	Settled func(namespace, resource, name string)
}

// Engine reflects the objects of all offloaded namespaces to one provider. Run may be
// called once.
type Engine struct {
	cfg        Config
	reflectors []reflector
	off        []string
	sweeper    *loop.Loop
	spaces     *Spaces[*space]
	hosted     hosted
}

// SweepLoop is the name of the loop that deletes the reflected objects of kinds that are
// off.
const SweepLoop = "reflect-off"

// LoopNames returns the names of all loops of an Engine with these kinds.
func LoopNames(kinds []Choice) []string {
	names := []string{SweepLoop}
	for _, c := range kinds {
		names = append(names, LoopName(c.Kind.resource()))
	}
	return names
}

// New returns an Engine. It starts no goroutines and sends no requests.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg, hosted: newHosted(cfg.Home.Kube, cfg.Destination)}
	e.spaces = NewSpaces(e.open, e.close)
	for _, c := range cfg.Kinds {
		if c.Setting.Workers == 0 {
			e.off = append(e.off, c.Kind.resource())
			continue
		}
		e.reflectors = append(e.reflectors, c.Kind.reflector(e, c.Setting))
	}
	e.sweeper = loop.New(loop.Config{Name: SweepLoop, Sync: e.sweep, Log: cfg.Log, Observer: cfg.Observer})
	return e
}

// Run reflects until ctx is done, and returns when all its goroutines have returned. It
// returns an error if an event handler cannot be registered or a loop fails.
func (e *Engine) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), e.cfg.VirtualNodes.Informer().HasSynced) {
		return nil
	}
	e.cfg.Log.Info("reflection begins", zap.Strings("off", e.off))
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(e.reflectors)+1)
	for _, r := range e.reflectors {
		wg.Go(func() { errs <- r.run(ctx) })
	}
	wg.Go(func() { errs <- e.sweeper.Run(ctx, 1) })
	stop := func() {}
	defer func() { stop() }()
	synced, err := e.hosted.watch(e.EndpointsChanged)
	if err != nil {
		return err
	}
	wg.Go(func() { e.hosted.RunWithContext(ctx) })
	cache.WaitForCacheSync(ctx.Done(), synced)
	vns, err := store.AnyChange(e.cfg.VirtualNodes.Informer(), SameReflection, e.Resync).Add()
	if err != nil {
		if ctx.Err() != nil {
			return nil // an informer that has been stopped takes no handler
		}
		return err
	}
	// RemoveEventHandler fails only for a stopped informer, which calls no handlers.
	defer func() { _ = e.cfg.VirtualNodes.Informer().RemoveEventHandler(vns) }()
	stop = e.cfg.Namespaces.Follow(ctx, nil, e.spaces)
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return err
	}
}

// SameReflection reports whether two states of a VirtualNode mean the same for what is reflected: the skipped keys and
// the offered classes depend on it.
func SameReflection(before, after *offloadingv1beta1.VirtualNode) bool {
	return before.Generation == after.Generation && equality.Semantic.DeepEqual(before.Status.NotReflected, after.Status.NotReflected)
}

// EndpointsChanged enqueues the objects of a namespace that have endpoints: the place or the address of
// an endpoint has changed.
func (e *Engine) EndpointsChanged(namespace string) {
	if e.spaces.Get(namespace) == nil {
		return
	}
	for _, r := range e.reflectors {
		if r.hasEndpoints() {
			r.enqueue(namespace)
		}
	}
}

// Resync enqueues all objects. Callers use it after Gate has opened.
func (e *Engine) Resync() {
	for _, r := range e.reflectors {
		r.enqueue(everywhere)
	}
	for local := range e.spaces.Each(everywhere) {
		e.sweepLater(local)
	}
}

func (e *Engine) sweepLater(namespace string) {
	if len(e.off) > 0 {
		e.sweeper.Add(loop.Key{Name: namespace})
	}
}

// Selector selects the objects in the provider that this consumer has reflected.
func (t *Target) Selector() string {
	return labels.Set{offloadingv1beta1.OriginLabel: t.Origin, offloadingv1beta1.DestinationLabel: t.Destination}.String()
}

// Reflected reports whether an object in the provider was reflected by this consumer.
func (t *Target) Reflected(obj metav1.Object) bool {
	has := obj.GetLabels()
	return has[offloadingv1beta1.OriginLabel] == t.Origin && has[offloadingv1beta1.DestinationLabel] == t.Destination
}

// scope returns the current Scope of a namespace. The keys that any VirtualNode of the
// provider skips are skipped, and the classes of all its VirtualNodes are offered,
// ordered by the names of the VirtualNodes. The result is therefore the same in the
// vkubelet of each VirtualNode. scope returns false if there is no VirtualNode.
func (e *Engine) scope(s *space, policy forge.Policy) (Scope, bool) {
	vns, err := e.cfg.VirtualNodes.Lister().VirtualNodes(e.cfg.TenantNamespace).List(labels.Everything())
	if err != nil || len(vns) == 0 {
		return Scope{}, false // listing fails only for a broken index
	}
	slices.SortFunc(vns, func(a, b *offloadingv1beta1.VirtualNode) int { return strings.Compare(a.Name, b.Name) })
	scope := s.scope
	scope.Policy = policy
	scope.SkipLabels, scope.SkipAnnotations = skipped(vns, e.cfg.SkipLabels, e.cfg.SkipAnnotations)
	nodes := make(sets.Set[string], len(vns))
	scope.VirtualNode = nodes.Has
	scope.Hosted = e.hosted.has
	for _, vn := range vns {
		nodes.Insert(vn.Name)
		for _, c := range vn.Spec.IngressClasses {
			scope.IngressClasses = append(scope.IngressClasses, forge.Class{Name: c.IngressClassName, Default: c.Default})
		}
		for _, c := range vn.Spec.LoadBalancerClasses {
			scope.LoadBalancerClasses = append(scope.LoadBalancerClasses, forge.Class{Name: c.LoadBalancerClassName, Default: c.Default})
		}
	}
	return scope, true
}

// skipped returns the sorted keys that any of the VirtualNodes excludes from reflection.
func skipped(vns []*offloadingv1beta1.VirtualNode, usualLabels, usualAnnotations []string) (inLabels, inAnnotations []string) {
	for _, vn := range vns {
		l, a := NotReflected(vn, usualLabels, usualAnnotations)
		inLabels, inAnnotations = append(inLabels, l...), append(inAnnotations, a...)
		if p := vn.Spec.OffloadingPatch; p != nil {
			inLabels, inAnnotations = append(inLabels, p.LabelsNotReflected...), append(inAnnotations, p.AnnotationsNotReflected...)
		}
	}
	slices.Sort(inLabels)
	slices.Sort(inAnnotations)
	return slices.Compact(inLabels), slices.Compact(inAnnotations)
}

// NotReflected returns the keys of labels and annotations that are not reflected, which
// the controller writes to the status of the VirtualNode. It returns the usual ones if vn
// is nil or the controller has not written them yet.
func NotReflected(vn *offloadingv1beta1.VirtualNode, usualLabels, usualAnnotations []string) (labels, annotations []string) {
	if vn == nil || vn.Status.NotReflected == nil {
		return usualLabels, usualAnnotations
	}
	return vn.Status.NotReflected.Labels, vn.Status.NotReflected.Annotations
}

// space is an offloaded namespace with its informers in both clusters, one per kind.
type space struct {
	local, remote string
	home, there   Informers
	// scope has the parts of Scope that are constant.
	scope Scope
	// stores has the *stores of each kind, by resource.
	stores map[string]any
	// swept is true when the reflected objects of kinds that are off have been deleted.
	swept atomic.Bool
	stop  func()
}

// open starts the informers of an offloaded namespace. Informers are per namespace because the
// rights are. After the end of the offloading the provider deletes the twin namespace, and with
// it the reflected objects.
func (e *Engine) open(ctx context.Context, local, remote string) *space {
	s := e.newSpace(local, remote)
	var work []func(context.Context)
	for _, r := range e.reflectors {
		synced, err := r.open(s)
		if err != nil {
			// Handlers can be added to any informer that does not run yet. If one fails
			// nevertheless, the kind is not reflected in this namespace.
			e.cfg.Log.Error("a kind is not reflected", zap.String("loop", LoopName(r.resource())), zap.String("namespace", local), zap.Error(err))
			continue
		}
		work = append(work, func(ctx context.Context) {
			if cache.WaitForCacheSync(ctx.Done(), synced) {
				r.enqueue(local)
				e.cfg.Settled(local, r.resource(), "")
			}
		})
	}
	for _, in := range []Informers{s.home, s.there} {
		for _, i := range in.byType {
			work = append(work, i.RunWithContext)
		}
	}
	s.stop = loop.Start(ctx, work...)
	e.sweepLater(local)
	e.cfg.Log.Info("reflection of a namespace began", zap.String("namespace", local), zap.String("remoteNamespace", remote))
	return s
}

func (e *Engine) close(s *space) {
	s.stop()
	e.cfg.Log.Info("reflection of a namespace ended", zap.String("namespace", s.local), zap.String("remoteNamespace", s.remote))
}

func (e *Engine) newSpace(local, remote string) *space {
	in := func(c Clients, namespace, selector string) Informers {
		return Informers{Clients: c, Namespace: namespace, selector: selector, transform: e.cfg.Transform, byType: map[string]*store.Informer{}}
	}
	home := in(e.cfg.Home, local, "")
	return &space{
		local: local, remote: remote, home: home, stores: map[string]any{},
		// Only reflected objects are watched, to save memory. A collision with another object
		// shows as AlreadyExists.
		there: in(e.cfg.Remote, remote, e.cfg.Selector()),
		scope: Scope{Home: home, ObjectOptions: forge.ObjectOptions{
			OriginClusterID: e.cfg.Origin, DestinationClusterID: e.cfg.Destination, RemoteNamespace: remote,
		}},
	}
}
