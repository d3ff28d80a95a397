package link

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// renewal renews this cluster's heartbeat Lease in one peer, with one Revision of the
// credentials.
type renewal struct {
	revision string
	to       Clients
	due      chan struct{} // a receiver waits there unless it is at work
	running
}

// start starts the renewals in a peer, unless they run with these credentials.
func (h *Heartbeat) start(ctx context.Context, id string, e Endpoint) {
	h.mu.Lock()
	have := h.renewal[id]
	delete(h.quiet, id)
	h.mu.Unlock()
	if have != nil && have.revision == e.Revision {
		return
	}
	h.stop(id)
	r := &renewal{revision: e.Revision, to: e.Clients, due: make(chan struct{})}
	r.running = run(ctx, func(ctx context.Context) { h.renewAll(ctx, id, e, r.due) })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewal[id] = r
}

// stop stops the renewals in a peer, if there are any, and waits for them.
func (h *Heartbeat) stop(id string) { stopOne(&h.mu, h.renewal, id) }

// renewAll renews each time that it is due, until ctx is done. It logs when the result
// changes. It reads which cluster answers before the first renewal and after each failure,
// as another one may answer at the same address.
func (h *Heartbeat) renewAll(ctx context.Context, id string, e Endpoint, due <-chan struct{}) {
	log := h.cfg.Log.With(zap.String("peer", id))
	var notBefore time.Time
	var last error
	for known := false; ; known = last == nil {
		select {
		case <-ctx.Done():
			return
		case <-due:
		}
		if h.cfg.Clock.Now().Before(notBefore) {
			continue
		}
		err := h.renew(ctx, id, e.Clients, known)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && last != nil:
			log.Info("the peer's Lease is renewed again")
		case err != nil && (last == nil || unasked(err) != unasked(last)):
			log.Info("the peer's Lease is not renewed", zap.Bool("unasked", unasked(err)), zap.Error(err))
		}
		if last = err; unasked(err) {
			notBefore = h.cfg.Clock.Now().Add(unaskedDelay)
		}
	}
}

func (h *Heartbeat) renew(ctx context.Context, id string, to Clients, known bool) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Interval)
	defer cancel()
	if !known {
		if err := h.cfg.Identity(ctx, id, to.Kube); err != nil {
			return fmt.Errorf("reading which cluster answers: %w", err)
		}
	}
	now := metav1.NewMicroTime(h.cfg.Clock.Now())
	return patchLease(ctx, to.Beats, corev1beta1.TenantNamespace(h.cfg.ClusterID), corev1beta1.HeartbeatLease, store.Patch{"renewTime": &now})
}
