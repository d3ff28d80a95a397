package replication

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/liqod/liqod/kube/loop"
)

// RefusedRate means that the objects of a peer change too often, and are written later.
const RefusedRate = "answer-rate"

// Limits of the bytes that one peer makes this cluster write to its etcd, over all kinds. A
// peer is another organisation, and may change its objects as fast as it can. The burst is
// enough for some hundred answers, as a peer gives them when it starts again.
const (
	peerBytesPerMinute = 64 << 10
	peerBytesBurst     = 4 << 20
	// pulledCost is added to the size of a copy that other objects of this cluster follow,
	// such as the VirtualNode and the Node of a ResourceOffer.
	pulledCost = 8 << 10
	// leastWait keeps the objects that wait from being judged all the time.
	leastWait = time.Second
)

// Room for the answers to a change that this cluster itself makes, such as a further namespace of a
// NamespaceMap: so many of them, each with so many bytes, and with so many for each byte of the spec.
// Such answers are steady use, whatever the rate of the changes.
const (
	answersToChange = 3
	answerBytes     = 2 << 10
	answerForByte   = 6
	// mostChanges is the number of changes since the last sync of an object that are answered each.
	mostChanges = 64
)

// budget is what one peer may make this cluster write. It is safe for concurrent use.
type budget struct {
	flood *rate.Limiter

	mu          sync.Mutex
	generations map[string]int64 // of this cluster's objects, by kind and name
	due         int              // bytes for answers to changes of this cluster
}

func newBudget() *budget {
	return &budget{flood: rate.NewLimiter(rate.Limit(peerBytesPerMinute)/60, peerBytesBurst), generations: map[string]int64{}}
}

// ask makes room for the answers to changes of this cluster's object since the last call. size is
// that of its spec.
func (b *budget) ask(name string, generation int64, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.generations[name]
	b.generations[name] = generation
	if known && generation > last {
		changes := int(min(generation-last, mostChanges))
		b.due = min(b.due+changes*answersToChange*(answerBytes+answerForByte*size), peerBytesBurst)
	}
}

// take takes n bytes, at most peerBytesBurst. It returns how long they have to wait instead; 0 means
// that they are taken.
func (b *budget) take(n int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due >= n {
		b.due -= n
		return 0
	}
	if b.flood.AllowN(now, n) {
		return 0
	}
	missing := float64(n) - b.flood.TokensAt(now)
	return max(leastWait, time.Duration(missing/float64(b.flood.Limit())*float64(time.Second)))
}

// asks makes room for the answers to what this cluster has changed in home.
func (p *pair[T]) asks(home T) error {
	asked := p.kind.empty()
	p.push(home, asked)
	body, err := json.Marshal(asked)
	if err != nil {
		return fmt.Errorf("measuring %s %s: %w", p.of.name, home.GetName(), err)
	}
	p.cfg.budget.ask(p.of.name+" "+home.GetName(), home.GetGeneration(), len(body))
	return nil
}

// afford returns nil if obj, which follows from an object of the peer, may be written now.
// Otherwise it returns when to look again: then the state of that time is written.
func (c *channel[T]) afford(obj T, more int) error {
	body, err := json.Marshal(obj)
	if err != nil {
		return fmt.Errorf("measuring %s %s: %w", c.of.name, obj.GetName(), err)
	}
	wait := c.cfg.budget.take(min(len(body)+more, peerBytesBurst), c.cfg.Clock.Now())
	if wait == 0 {
		return nil
	}
	c.cfg.Delayed(c.peer)
	return loop.After(wait)
}
