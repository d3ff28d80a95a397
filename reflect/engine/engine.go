package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/forge"
)

// Config configures an Engine.
type Config struct {
	// Home reaches the consumer, for reading only. Remote reaches the provider.
	Home, Remote Clients
	// NamespaceMaps and VirtualNodes hold those of the tenant namespace.
	NamespaceMaps offloadinginformers.NamespaceMapInformer
	VirtualNodes  offloadinginformers.VirtualNodeInformer
	// TenantNamespace is the provider's; Origin and Destination are the ids of the
	// consumer and of the provider.
	TenantNamespace, Origin, Destination string
	// SkipLabels and SkipAnnotations are keys that stay in the consumer where no
	// VirtualNode's status says which.
	SkipLabels, SkipAnnotations []string
	// Kinds are reflected, but for those without workers.
	Kinds []Choice
	// Gate returns an error while the provider may not be acted upon: it is not known to
	// be the cluster that was peered with.
	Gate func() error
	// HomeLost returns when the consumer's state was last seen to have gone back, as by a
	// restored backup, zero for never. It may be nil.
	HomeLost func() time.Time
	// Transform is applied to what the caches hold.
	Transform cache.TransformFunc
	// Recorder takes the events about what is not reflected as it is.
	Recorder record.EventRecorder
	Clock    clock.PassiveClock
	Log      *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
}

// Engine reflects the objects of all offloaded namespaces to one provider. Run it once.
type Engine struct {
	cfg        Config
	reflectors []reflector
	off        []string
	sweeper    *loop.Loop
	spaces     *spaces
	hosted     *hosted

	opening sync.Mutex
}

// SweepLoop is the name of the loop that removes what is left of kinds that are off.
const SweepLoop = "reflect-off"

// LoopNames are the names of the loops of an Engine with these kinds.
func LoopNames(kinds []Choice) []string {
	names := []string{SweepLoop}
	for _, c := range kinds {
		names = append(names, LoopName(c.Kind.resource()))
	}
	return names
}

// New returns an Engine. It starts nothing.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg, hosted: newHosted(&cfg)}
	e.spaces = &spaces{engine: e, byLocal: map[string]*space{}}
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

// Run reflects until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), e.cfg.NamespaceMaps.Informer().HasSynced, e.cfg.VirtualNodes.Informer().HasSynced) {
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
	defer e.closeAll(ctx)
	defer e.hosted.factory.Shutdown()
	defer cancel()
	if err := e.hosted.run(ctx, e.podsChanged); err != nil {
		return fmt.Errorf("watching the pods of the provider in this cluster: %w", err)
	}
	remove, err := e.follow(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // an informer that has been stopped takes no handler
		}
		return err
	}
	defer remove()
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return err
	}
}

// follow opens and closes namespaces as the NamespaceMap says, and looks at everything
// again when what may be carried changes.
func (e *Engine) follow(ctx context.Context) (remove func(), err error) {
	maps, err := e.cfg.NamespaceMaps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { e.open(ctx) },
		UpdateFunc: func(any, any) { e.open(ctx) },
		DeleteFunc: func(any) { e.open(ctx) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching NamespaceMaps: %w", err)
	}
	vns, err := e.cfg.VirtualNodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { e.Resync() },
		DeleteFunc: func(any) { e.Resync() },
		UpdateFunc: func(before, after any) {
			b, a := before.(*offloadingv1beta1.VirtualNode), after.(*offloadingv1beta1.VirtualNode)
			if b.Generation != a.Generation || !equality.Semantic.DeepEqual(b.Status.NotReflected, a.Status.NotReflected) {
				e.Resync()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching VirtualNodes: %w", err)
	}
	return func() {
		// An informer that refuses to forget a handler has been stopped: nothing is left to undo.
		_ = e.cfg.NamespaceMaps.Informer().RemoveEventHandler(maps)
		_ = e.cfg.VirtualNodes.Informer().RemoveEventHandler(vns)
	}, nil
}

// podsChanged looks again at the kinds of a namespace that ask for the provider's pods.
func (e *Engine) podsChanged(namespace string) {
	if e.spaces.get(namespace) == nil {
		return
	}
	for _, r := range e.reflectors {
		if r.followsHosted() {
			r.enqueue(namespace)
		}
	}
}

// Resync looks at everything again, after Gate has opened.
func (e *Engine) Resync() {
	for _, r := range e.reflectors {
		r.enqueue(everywhere)
	}
	for _, local := range e.spaces.locals() {
		e.sweepLater(local)
	}
}

func (e *Engine) sweepLater(namespace string) {
	if len(e.off) > 0 {
		e.sweeper.Add(loop.Key{Name: namespace})
	}
}

func (e *Engine) open(ctx context.Context) {
	e.opening.Lock() // what was read last is applied last
	defer e.opening.Unlock()
	if ctx.Err() != nil {
		return
	}
	m, err := e.cfg.NamespaceMaps.Lister().NamespaceMaps(e.cfg.TenantNamespace).Get(e.cfg.Destination)
	if err != nil {
		m = nil // a lister's only error is that there is none
	}
	e.spaces.set(ctx, Mapped(m))
}

func (e *Engine) closeAll(ctx context.Context) {
	e.opening.Lock()
	defer e.opening.Unlock()
	e.spaces.set(ctx, nil)
}

// Mapped returns the twin of each namespace of which a map, which may be nil, says that
// it has one with our rights in it.
func Mapped(m *offloadingv1beta1.NamespaceMap) map[string]string {
	twins := map[string]string{}
	if m == nil {
		return twins
	}
	for local, desired := range m.Spec.DesiredMapping {
		// The answer may be to an older wish: the provider may be away.
		if s := m.Status.CurrentMapping[local]; s.Phase == offloadingv1beta1.MappingAccepted && s.RemoteNamespace == desired {
			twins[local] = desired
		}
	}
	return twins
}

func (e *Engine) selector() string {
	return labels.Set{offloadingv1beta1.OriginLabel: e.cfg.Origin, offloadingv1beta1.DestinationLabel: e.cfg.Destination}.String()
}

// scope returns what the descriptions are told now of a namespace. What any of the
// provider's virtual nodes keeps at home stays there, and the classes of all of them are
// offered, in the order of their names: so it makes no difference which vkubelet
// reflects. It is false when there is no VirtualNode.
func (e *Engine) scope(s *space, policy forge.Policy) (Scope, bool) {
	vns, err := e.cfg.VirtualNodes.Lister().VirtualNodes(e.cfg.TenantNamespace).List(labels.Everything())
	if err != nil || len(vns) == 0 {
		return Scope{}, false // a lister without a broken index does not fail
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

// skipped returns the keys that any of the virtual nodes keeps at home, sorted.
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

// NotReflected returns the keys of labels and annotations that stay in the consumer, as
// the controller has written them into the status of a VirtualNode, which may be nil; the
// usual ones until it has.
func NotReflected(vn *offloadingv1beta1.VirtualNode, usualLabels, usualAnnotations []string) (labels, annotations []string) {
	if vn == nil || vn.Status.NotReflected == nil {
		return usualLabels, usualAnnotations
	}
	return vn.Status.NotReflected.Labels, vn.Status.NotReflected.Annotations
}
