package replication

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/liqod/liqod/kube/loop"
)

// RefusedRate means that the objects of a peer change too often, and are written later.
const RefusedRate = "answer-rate"

// Limits of the bytes that one peer makes this cluster write to its etcd, over all kinds. A
// peer is another organisation, and may change its objects as fast as it can. The burst is
// enough for some hundred answers, as a peer gives them while it creates many namespaces.
const (
	peerBytesPerMinute = 64 << 10
	peerBytesBurst     = 4 << 20
	// pulledCost is added to the size of a copy that other objects of this cluster follow,
	// such as the VirtualNode and the Node of a ResourceOffer.
	pulledCost = 8 << 10
	// leastWait keeps the objects that wait from being judged all the time.
	leastWait = time.Second
)

// afford returns nil if obj, which follows from an object of the peer, may be written now.
// Otherwise it returns when to look again: then the state of that time is written.
func (c *channel[T]) afford(obj T, more int) error {
	if c.cfg.budget == nil {
		return nil
	}
	body, err := json.Marshal(obj)
	if err != nil {
		return fmt.Errorf("measuring %s %s: %w", c.of.name, obj.GetName(), err)
	}
	n, now := min(len(body)+more, peerBytesBurst), c.cfg.Clock.Now()
	if c.cfg.budget.AllowN(now, n) {
		return nil
	}
	if c.cfg.Delayed != nil {
		c.cfg.Delayed(c.peer)
	}
	missing := float64(n) - c.cfg.budget.TokensAt(now)
	return loop.After(max(leastWait, time.Duration(missing/float64(c.cfg.budget.Limit())*float64(time.Second))))
}
