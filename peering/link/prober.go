package link

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
)

// prober probes the API server of one peer with one Revision of its credentials.
type prober struct {
	revision string
	clients  Clients
	prober   *health.Prober
	running

	mu   sync.Mutex
	uid  types.UID // UID of the peer since it last came up; empty: unknown
	life int       // number of times that uid was reset
	due  time.Time // when uid is to be read again
}

// probe returns the running prober of a peer with the given credentials, and starts it if
// necessary.
func (c *Conditions) probe(ctx context.Context, id string, e Endpoint) *prober {
	c.mu.Lock()
	have := c.probing[id]
	c.mu.Unlock()
	if have != nil && have.revision == e.Revision {
		return have
	}
	c.stop(id)
	p := &prober{revision: e.Revision, clients: e.Clients, prober: health.NewProber(c.cfg.Window)}
	p.running = run(ctx, func(ctx context.Context) {
		p.prober.Run(ctx, c.cfg.Interval, c.cfg.Timeout, c.timed(id, p.clients.Ready), func(health.State) {
			p.forget() // another cluster may answer at the same address
			c.loop.Add(loop.Key{Name: id})
		})
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing[id] = p
	return p
}

// timed reports the duration of each check to Probed. It leaves out checks that were ended
// early, because another one was answered before them.
func (c *Conditions) timed(id string, check func(context.Context) error) func(context.Context) error {
	if c.cfg.Probed == nil {
		return check
	}
	return func(ctx context.Context) error {
		start := c.cfg.Clock.Now()
		err := check(ctx)
		d := c.cfg.Clock.Since(start)
		// The prober ends a check without an answer after the last quarter of the timeout.
		if err == nil || ctx.Err() == nil || d >= c.cfg.Timeout*3/4 {
			c.cfg.Probed(id, d, err)
		}
		return err
	}
}

// stop stops the prober of a peer, if there is one, and waits for it.
func (c *Conditions) stop(id string) { stopOne(&c.mu, c.probing, id) }

func (c *Conditions) forgetIdentity(id string) {
	c.mu.Lock()
	p := c.probing[id]
	c.mu.Unlock()
	if p != nil {
		p.forget()
	}
}

func (p *prober) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uid = ""
	p.life++
}

// identify returns the UID of the peer's kube-system namespace. It reads it when the peer comes
// up, and each recheckDelay after that: a peer that has revoked the rights of this cluster goes
// on answering probes, which are all that finds out whether it answers. It returns within
// timeout, because the results of probes wait for it.
func (p *prober) identify(ctx context.Context, now time.Time, timeout time.Duration) (types.UID, error) {
	p.mu.Lock()
	known, life, due := p.uid, p.life, p.due
	p.mu.Unlock()
	if known != "" && now.Before(due) {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	uid, err := clusterUID(ctx, p.clients.Kube)
	if err != nil && (known == "" || revoked(err)) {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = now.Add(recheckDelay)
	if err != nil {
		return known, nil
	}
	if p.life == life {
		p.uid = uid
	}
	return uid, nil
}
