package exchange

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/ipam"
)

// errLost is what a client gets whose connection breaks.
var errLost = errors.New("connection lost")

// verdict is what becomes of a request.
type verdict int

const (
	pass   verdict = iota
	lose           // it is done, and the client does not learn so
	refuse         // it is not done
)

// player is an Allocator whose requests wait for a verdict each. It runs one sync at a time.
type player struct {
	*actor
	asks     chan struct{}
	verdicts chan verdict
	done     chan error
	running  bool
	free     bool // requests wait no more
}

func (m *drama) newPlayer() *player {
	p := &player{asks: make(chan struct{}), verdicts: make(chan verdict), done: make(chan error)}
	p.actor = m.r.actorWith(m.r.client(func(a clienttesting.Action) (bool, runtime.Object, error) {
		if p.free {
			return m.r.server.React(a)
		}
		p.asks <- struct{}{}
		switch <-p.verdicts {
		case refuse:
			return true, nil, errLost
		case lose:
			_, _, _ = m.r.server.React(a)
			return true, nil, errLost
		}
		return m.r.server.React(a)
	}))
	p.deliver() // nothing acts before its caches are synced
	return p
}

// begin starts a sync, which runs to its first request.
func (p *player) begin(w work) {
	p.running = true
	go func() { p.done <- w.sync(context.Background()) }()
	p.wait()
}

// grant lets one request pass, or not, and runs to the next.
func (p *player) grant(v verdict) {
	p.verdicts <- v
	p.wait()
}

func (p *player) wait() {
	select {
	case <-p.asks:
	case err := <-p.done:
		p.running = false
		if err != nil && !errors.Is(err, errLost) && !apierrors.IsConflict(err) {
			p.r.t.Errorf("a sync failed: %v", err)
		}
	}
}

// finish ends the sync that runs, with the same verdict for all that it asks for.
func (p *player) finish(v verdict) {
	for p.running {
		p.grant(v)
	}
}

// drama is a random order of what two Allocators, and users, do.
type drama struct {
	r       *rig
	rnd     *rand.Rand
	players []*player
	given   map[string]string // by UID: what a status has said
	deletes bool              // users delete the pool, too
	log     []string
}

func (m *drama) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *drama) step() {
	p := m.players[m.rnd.IntN(2)]
	switch n := m.rnd.IntN(100); {
	case n < 12:
		m.create()
	case n < 20:
		m.remove()
	case n < 40:
		resource := resources[m.rnd.IntN(len(resources))]
		m.note("deliver %s", resource)
		p.deliver(resource)
	case n < 42:
		m.note("kill")
		p.finish(refuse)
		m.players[slices.Index(m.players, p)] = m.newPlayer()
	case n < 44 && m.deletes && !m.players[0].running && !m.players[1].running:
		m.note("delete pool")
		_ = m.r.user.IPAMV1alpha1().AddressPools().Delete(context.Background(), ipamv1alpha1.PoolNetworks, metav1.DeleteOptions{})
	case p.running:
		v := pass
		if m.rnd.IntN(12) == 0 {
			v = verdict(1 + m.rnd.IntN(2))
		}
		m.note("verdict %d", v)
		p.grant(v)
	default:
		if keys := p.keys(); len(keys) > 0 {
			w := keys[m.rnd.IntN(len(keys))]
			m.note("sync %s", w.key)
			p.begin(w)
		}
	}
}

var (
	wantedCIDRs = []string{"10.244.0.0/16", "10.42.0.0/16", "10.80.0.0/16", "10.42.0.0/17", "fd42::/48", "2001:db8::/48", "10.244.0.0/15"}
	wantedIPs   = []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"}
)

func (m *drama) create() {
	name := fmt.Sprint("claim-", m.rnd.IntN(6))
	if m.rnd.IntN(3) == 0 {
		if m.r.getIP(name) == nil {
			m.note("create IP %s", name)
			m.r.ip(name, wantedIPs[m.rnd.IntN(len(wantedIPs))])
		}
		return
	}
	if m.r.getNetwork(name) == nil {
		var labels []string
		if m.rnd.IntN(5) == 0 {
			labels = append(labels, ipamv1alpha1.NotRemappedLabel)
		}
		m.note("create Network %s", name)
		m.r.network(name, wantedCIDRs[m.rnd.IntN(len(wantedCIDRs))], labels...)
	}
}

func (m *drama) remove() {
	name := fmt.Sprint("claim-", m.rnd.IntN(6))
	m.note("delete %s", name)
	if m.rnd.IntN(3) == 0 {
		_ = m.r.user.IPAMV1alpha1().IPs(tenant).Delete(context.Background(), name, metav1.DeleteOptions{})
		return
	}
	_ = m.r.user.IPAMV1alpha1().Networks(tenant).Delete(context.Background(), name, metav1.DeleteOptions{})
}

// all returns the claims of a kind that are not being deleted, as the API server has them.
func (m *drama) all(c *claims) (out []claim) {
	m.r.t.Helper()
	k := networkKind(m.r.user.IPAMV1alpha1())
	if c.pool.name == ipamv1alpha1.PoolIPs {
		k = ipKind(m.r.user.IPAMV1alpha1())
	}
	list, err := k.list(context.Background())
	require.NoError(m.r.t, err)
	for _, have := range list {
		if !have.deleted {
			out = append(out, have)
		}
	}
	return out
}

// record returns what the pool of a kind says.
func (m *drama) record(c *claims) ipam.Record {
	m.r.t.Helper()
	p := m.r.pool(c.pool.name)
	if p == nil {
		return ipam.Record{}
	}
	record, err := c.pool.decode(p.Spec.Allocations)
	require.NoError(m.r.t, err, "nothing is given twice")
	return record
}

// check is true at any time.
func (m *drama) check() {
	m.r.t.Helper()
	for _, c := range []*claims{m.players[0].networks, m.players[0].ips} {
		record := m.record(c)
		var said []claim
		for _, have := range m.all(c) {
			if !have.given.IsValid() {
				require.Empty(m.r.t, m.given[have.uid], "%s had something", have.key)
				continue
			}
			for _, other := range said {
				require.False(m.r.t, other.given.Overlaps(have.given), "%s and %s have %s and %s", other.key, have.key, other.given, have.given)
			}
			said = append(said, have)
			if before, ok := m.given[have.uid]; ok {
				require.Equal(m.r.t, before, have.given.String(), "%s keeps what it has", have.key)
			}
			m.given[have.uid] = have.given.String()
			if !m.deletes {
				a, ok := record.Of(have.uid)
				require.True(m.r.t, ok, "%s was told what is not recorded", have.key)
				require.Equal(m.r.t, have.given, a.Given)
			}
		}
	}
}

// finally: when all is delivered and nothing fails any more, everything is as it should be.
func (m *drama) finally() {
	m.r.t.Helper()
	for _, p := range m.players {
		p.finish(pass)
		p.free = true
	}
	for range 2 {
		for _, p := range m.players {
			p.settle()
			m.check()
		}
	}
	for _, p := range m.players {
		p.client.ClearActions()
		for _, k := range p.keys() {
			require.NoError(m.r.t, k.sync(context.Background()))
		}
		kubetest.RequireWrites(m.r.t, p.client)
	}
	for _, c := range []*claims{m.players[0].networks, m.players[0].ips} {
		record, have := m.record(c), m.all(c)
		owners := 0
		for _, one := range have {
			if one.given.IsValid() {
				owners++
				continue
			}
			_, _, err := must(c.pool.space("")).Take(record, one.request)
			var problem *ipam.Error
			require.True(m.r.t, errors.As(err, &problem), "%s could have something", one.key)
		}
		require.Equal(m.r.t, owners, record.Len(), "nothing is leaked")
		list, err := c.kind.list(context.Background())
		require.NoError(m.r.t, err)
		require.Len(m.r.t, list, len(have), "what is deleted is gone")
	}
}

func play(t *testing.T, seed uint64, deletes bool) {
	t.Helper()
	r := newRig(t)
	m := &drama{r: r, rnd: rand.New(rand.NewPCG(seed, 7)), given: map[string]string{}, deletes: deletes}
	m.players = []*player{m.newPlayer(), m.newPlayer()}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d: %q", seed, m.log)
		}
	}()
	for range 300 {
		m.step()
		m.check()
	}
	m.finally()
}

// TestTwoAllocators: two at once, with caches of any age, interrupted at any request: one dies between two writes, loses an
// answer, finds the record changed, or acts on a claim that is gone. Then somebody deletes the record now and then, too.
func TestTwoAllocators(t *testing.T) {
	t.Parallel()
	for _, deletes := range []bool{false, true} {
		t.Run(fmt.Sprintf("deletions %t", deletes), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(dramas()) {
				play(t, seed, deletes)
			}
		})
	}
}

func dramas() int {
	if testing.Short() {
		return 10
	}
	return 40
}
