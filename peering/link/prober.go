package link

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
)

// prober probes one peer for as long as its credentials last.
type prober struct {
	revision string
	clients  Clients
	prober   *health.Prober
	cancel   context.CancelFunc
	done     chan struct{}

	mu   sync.Mutex
	uid  types.UID // of the cluster that answers since it last came up
	life int       // counts the times that uid was forgotten
}

// probe returns the running prober of a peer with the given credentials, and starts it
// where there is none.
func (c *Conditions) probe(ctx context.Context, id string, e Endpoint) *prober {
	c.mu.Lock()
	have := c.probing[id]
	c.mu.Unlock()
	if have != nil && have.revision == e.Revision {
		return have
	}
	c.stop(id)
	p := &prober{revision: e.Revision, clients: e.Clients, prober: health.NewProber(c.cfg.Window), done: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	c.mu.Lock()
	c.probing[id] = p
	c.mu.Unlock()
	go func() {
		defer close(p.done)
		p.prober.Run(ctx, c.cfg.Interval, c.cfg.Timeout, p.clients.Ready, func(health.State) {
			p.forget() // who comes up again may be somebody else
			c.loop.Add(loop.Key{Name: id})
		})
	}()
	return p
}

// stop ends the prober of a peer, if there is one, and waits for it.
func (c *Conditions) stop(id string) {
	c.mu.Lock()
	p := c.probing[id]
	delete(c.probing, id)
	c.mu.Unlock()
	if p != nil {
		p.cancel()
		<-p.done
	}
}

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

// identify returns who answers, asking once per time that the peer came up. It does not
// take longer than timeout: the verdicts of the probes wait behind it.
func (p *prober) identify(ctx context.Context, timeout time.Duration) (types.UID, error) {
	p.mu.Lock()
	uid, life := p.uid, p.life
	p.mu.Unlock()
	if uid != "" {
		return uid, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	uid, err := clusterUID(ctx, p.clients.Kube)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == life {
		p.uid = uid
	}
	return uid, nil
}
