package kinds

import (
	"context"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/loop"
)

// opened is an offloaded namespace whose informers run.
type opened struct {
	local, remote string
	// synced reports whether all handlers have received their initial lists.
	synced func() bool
	stop   func()
}

// factory is an informer factory of any clientset.
type factory interface {
	StartWithContext(ctx context.Context)
	Shutdown()
}

// run starts the informers of the factories and calls ready when all handlers are synced.
func (o *opened) run(ctx context.Context, ready func(), handlers []cache.InformerSynced, factories ...factory) {
	o.synced = func() bool {
		return !slices.ContainsFunc(handlers, func(synced cache.InformerSynced) bool { return !synced() })
	}
	end := loop.Start(ctx, func(ctx context.Context) {
		for _, f := range factories {
			f.StartWithContext(ctx)
		}
		if cache.WaitForCacheSync(ctx.Done(), o.synced) {
			ready()
		}
	})
	o.stop = func() {
		end()
		for _, f := range factories {
			f.Shutdown()
		}
	}
}

// handled returns the HasSynced of a handler. Handlers can be added to any informer that has not
// been stopped. If one fails nevertheless, it never counts as synced.
func handled(reg cache.ResourceEventHandlerRegistration, err error) cache.InformerSynced {
	if err != nil {
		return func() bool { return false }
	}
	return reg.HasSynced
}
