package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/reflect/forge"
)

// space is an offloaded namespace with its informers in both clusters, one per kind.
type space struct {
	local, remote string
	home, there   Factories
	// scope has the parts of Scope that are constant.
	scope Scope
	// swept is true when the reflected objects of kinds that are off have been deleted.
	swept atomic.Bool
	stop  func()
}

// spaces starts the informers of each mapped namespace and stops them when it is
// unmapped. Informers are per namespace because the rights are. After an unmapping the
// provider deletes the twin namespace, and with it the reflected objects.
type spaces struct {
	engine *Engine

	mu      sync.RWMutex
	byLocal map[string]*space
}

func (t *spaces) get(local string) *space {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byLocal[local]
}

func (t *spaces) locals() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.byLocal))
}

// set starts and stops informers until they match want, which maps local to remote
// namespaces. It does not wait for the initial lists.
func (t *spaces) set(ctx context.Context, want map[string]string) {
	var closing []*space
	t.mu.Lock()
	for local, have := range t.byLocal {
		if want[local] != have.remote {
			closing = append(closing, have)
			delete(t.byLocal, local)
		}
	}
	t.mu.Unlock()
	for _, c := range closing { // before a namespace is opened again with another twin
		for _, r := range t.engine.reflectors {
			r.close(c)
		}
		c.stop()
		t.engine.cfg.Log.Info("reflection of a namespace ended", zap.String("namespace", c.local), zap.String("remoteNamespace", c.remote))
	}
	for local, remote := range want {
		if t.get(local) == nil {
			t.open(ctx, local, remote)
		}
	}
}

func (t *spaces) open(ctx context.Context, local, remote string) {
	ctx, cancel := context.WithCancel(ctx)
	s := t.make(local, remote)
	var wg sync.WaitGroup
	s.stop = func() {
		cancel()
		wg.Wait()
		s.shutdown()
	}
	t.mu.Lock()
	t.byLocal[local] = s
	t.mu.Unlock()
	for _, r := range t.engine.reflectors {
		synced, err := r.open(s)
		if err != nil {
			// Handlers can be added to any informer that has not been stopped. If one fails
			// nevertheless, the kind is not reflected in this namespace.
			t.engine.cfg.Log.Error("a kind is not reflected", zap.String("loop", r.name()), zap.String("namespace", local), zap.Error(err))
			continue
		}
		wg.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), synced) {
				r.enqueue(local)
			}
		})
	}
	s.start(ctx)
	t.engine.sweepLater(local)
	t.engine.cfg.Log.Info("reflection of a namespace began", zap.String("namespace", local), zap.String("remoteNamespace", remote))
}

func (t *spaces) make(local, remote string) *space {
	cfg := t.engine.cfg
	// Only reflected objects are watched, to save memory. A collision with another object
	// shows as AlreadyExists.
	ours := func(o *metav1.ListOptions) { o.LabelSelector = t.engine.selector() }
	s := &space{
		local: local, remote: remote,
		home: Factories{
			Core:      informers.NewSharedInformerFactoryWithOptions(cfg.Home.Core, 0, informers.WithNamespace(local), informers.WithTransform(cfg.Transform)),
			Liqod:     externalversions.NewSharedInformerFactoryWithOptions(cfg.Home.Liqod, 0, externalversions.WithNamespace(local), externalversions.WithTransform(cfg.Transform)),
			Namespace: local,
		},
		there: Factories{
			Core: informers.NewSharedInformerFactoryWithOptions(cfg.Remote.Core, 0, informers.WithNamespace(remote),
				informers.WithTransform(cfg.Transform), informers.WithTweakListOptions(ours)),
			Liqod: externalversions.NewSharedInformerFactoryWithOptions(cfg.Remote.Liqod, 0, externalversions.WithNamespace(remote),
				externalversions.WithTransform(cfg.Transform), externalversions.WithTweakListOptions(ours)),
			Namespace: remote, Tweak: ours,
		},
	}
	s.scope = Scope{Home: s.home, ObjectOptions: forge.ObjectOptions{
		OriginClusterID: cfg.Origin, DestinationClusterID: cfg.Destination, RemoteNamespace: remote,
	}}
	return s
}

// start starts the informers. It passes a context, because with a channel each informer
// needs one more goroutine.
func (s *space) start(ctx context.Context) {
	for _, f := range []Factories{s.home, s.there} {
		f.Core.StartWithContext(ctx)
		f.Liqod.StartWithContext(ctx)
	}
}

func (s *space) shutdown() {
	for _, f := range []Factories{s.home, s.there} {
		f.Core.Shutdown()
		f.Liqod.Shutdown()
	}
}
