package host

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// memoryKeys is a KeyStore in memory. A failure after an operation has done its work is an answer
// that was lost.
type memoryKeys struct {
	before, after func(op string) error // may be nil
	now           func() time.Time      // may be nil

	mu   sync.Mutex
	keys Keys
	made []kernel.Key
}

func (m *memoryKeys) do(op string, work func() error) error {
	if m.before != nil {
		if err := m.before(op); err != nil {
			return err
		}
	}
	m.mu.Lock()
	err := work()
	m.mu.Unlock()
	if err == nil && m.after != nil {
		err = m.after(op)
	}
	return err
}

func (m *memoryKeys) at() time.Time {
	if m.now == nil {
		return time.Time{}
	}
	return m.now()
}

func (m *memoryKeys) Read(context.Context) (out Keys, err error) {
	err = m.do("read", func() error { out = m.keys; return nil })
	return out, err
}

func (m *memoryKeys) Prepare(context.Context) error {
	return m.do("prepare", func() (err error) {
		if m.keys.Next != (kernel.Key{}) {
			return nil
		}
		m.keys.Next, err = kernel.GenerateKey()
		m.keys.NextMade, m.made = m.at(), append(m.made, m.keys.Next)
		return err
	})
}

func (m *memoryKeys) Promote(context.Context) error {
	return m.do("promote", func() error {
		if m.keys.Next != (kernel.Key{}) {
			m.keys = Keys{Key: m.keys.Next, Made: m.keys.NextMade}
		}
		return nil
	})
}

// rotating is a gateway with number 1, which has read its keys, and does not run.
func rotating(t *testing.T, a *apis, store KeyStore, clk clock.WithTicker, age time.Duration) *GatewayHost {
	t.Helper()
	one := announcer(t, a.kube, clk, "gw-a", 1)
	require.NoError(t, one.step(t.Context()))
	cfg := fakeGateway(a, one, store)
	cfg.KeyAge, cfg.Timing, cfg.Clock = age, testTiming, clk
	g := NewGateway(cfg)
	require.NoError(t, g.readKeys(t.Context()))
	g.echoes.idle = true // it has no peers
	return g
}

// askFor names the key to replace, as people do by liqod network rotate-keys.
func askFor(t *testing.T, a *apis, g *GatewayHost, public string) {
	t.Helper()
	body := []byte(`{"metadata":{"annotations":{"` + RotateKey + `":"` + public + `"}}}`)
	kubetest.Patch(t, a.kube.CoordinationV1().Leases(homeNamespace), LeaseName(1), types.MergePatchType, body)
	require.NoError(t, g.announcer.step(t.Context()))
}

// A key is replaced once, wherever the process of the gateway or its API server ends: before or
// after each operation.
func TestRotationEndsAnywhere(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		for dead := 0; dead < 12; dead++ {
			a := apisWith(t, *hostNode(nodeName, "192.0.2.11", "10.244.1.0/24"))
			key := newKey(t)
			store, n := &memoryKeys{keys: Keys{Key: key}}, 0
			end := func(string) error {
				if n++; n == dead {
					return errors.New("the end")
				}
				return nil
			}
			g := rotating(t, a, store, clock.RealClock{}, 0)
			store.before, store.after = end, end
			askFor(t, a, g, key.Public())
			for range 8 {
				if g.rotateStep(t.Context()) != nil && restart {
					g = rotating(t, a, store, clock.RealClock{}, 0)
				}
			}
			require.Len(t, store.made, 1, "the end at %d", dead)
			keys := g.rotation.keys.Get()
			require.Equal(t, store.made[0], keys.Key, "the end at %d", dead)
			require.Zero(t, keys.Next)
			g.takeKey()
			require.Equal(t, keys.Key, g.key)
		}
	}
}

// A key is replaced when it is too old, and waits for peers that would be lost, but not for ever.
func TestRotationByAge(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(noon)
	a := apisWith(t, *hostNode(nodeName, "192.0.2.11", "10.244.1.0/24"))
	key := newKey(t)
	store := &memoryKeys{keys: Keys{Key: key, Made: noon}, now: clk.Now}
	g := rotating(t, a, store, clk, 24*time.Hour)
	step := func() Keys {
		require.NoError(t, g.rotateStep(t.Context()))
		return g.rotation.keys.Get()
	}
	clk.Step(24*time.Hour - time.Second)
	require.Zero(t, step().Next)
	clk.Step(time.Second)
	g.echoes.idle = false
	next := step().Next
	require.NotZero(t, next)
	require.Equal(t, key, step().Key, "nothing is known of peers yet")

	peer := EchoPeer{Cluster: "milan", Gateway: "gw", Address: milanAddr, Key: publicKeys(t, 1)[0]}
	cfg := g.echoes.cfg
	echo := NewEcho(cfg)
	require.NoError(t, echo.Set([]EchoPeer{peer}))
	g.echoes.echo, g.echoes.byKey = echo, map[string]EchoPeer{peer.Key: peer}
	require.Equal(t, key, step().Key, "the peer has not accepted it")
	echo.targets[milanAddr].accepts = KeyHash(key.Public())
	require.Equal(t, key, step().Key, "it has accepted another one")
	waits, known := g.echoes.waiting(next.Public())
	require.True(t, known)
	require.Equal(t, []string{peer.String()}, waits)
	clk.Step(rotatePatience)
	require.Equal(t, next, step().Key, "it has had long enough")

	// Two that replace their keys at the same time take turns.
	echo.targets[milanAddr].accepts = KeyHash("next")
	for cluster, left := range map[string]int{"milan": 1, "venice": 0} {
		both := peer
		both.Cluster, both.Next = cluster, "theirs"
		require.NoError(t, echo.Set([]EchoPeer{both}))
		echo.targets[milanAddr].accepts = KeyHash("next")
		g.echoes.byKey = map[string]EchoPeer{both.Key: both, both.Next: both}
		waits, _ := g.echoes.waiting("next")
		require.Len(t, waits, left, cluster)
	}
}

// TestAPeerThatUsesTwoKeysInTurns: each turn costs a plan of the gateway, and no turn of another peer.
func TestAPeerThatUsesTwoKeysInTurns(t *testing.T) {
	t.Parallel()
	var r rotation
	with := func(id, key, next string) plan.Peer {
		return plan.Peer{ID: id, Gateways: []plan.Remote{{Number: 1, Key: key, Next: next}}}
	}
	r.watch([]plan.Peer{with("milan", "a", "b")})
	latest := map[string]kernel.Peer{"b": {Handshake: noon.Add(time.Second)}, "d": {Handshake: noon}}
	turns := 0
	for i := range 1000 {
		if r.turned(latest, noon.Add(time.Duration(i)*followEvery)) {
			turns++
		}
	}
	require.InDelta(t, turnsAtOnce+1000*followEvery/turnInterval, turns, 1)
	r.watch([]plan.Peer{with("milan", "a", "b"), with("oslo", "c", "d")})
	require.True(t, r.turned(latest, noon.Add(1000*followEvery)))
	r.watch([]plan.Peer{with("oslo", "d", "c")})
	require.False(t, r.turned(latest, noon.Add(time.Hour)), "the plan has followed")
}

// The tunnel between two gateways keeps its state through another key of either, and a request
// carries which next key is accepted.
func TestProbesGoOnWithAnotherKey(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(time.Minute)
		before, _ := a.StateOf(a.peer)
		require.Zero(t, before.Accepts)
		private, public := privateKey(t, 3)
		set := func(g *gateway, change func(*EchoPeer)) {
			g.mu.Lock()
			change(&g.peer)
			g.mu.Unlock()
			require.NoError(t, g.Set([]EchoPeer{g.peer}))
		}
		set(b, func(p *EchoPeer) { p.Next = public })
		later(time.Second)
		state, _ := a.StateOf(a.peer)
		require.Equal(t, KeyHash(public), state.Accepts)

		_, theirs := privateKey(t, milan.key)
		a.cfg.Keys = func(string) (ProbeKeys, error) { return NewProbeKeys(private, theirs) }
		set(a, func(p *EchoPeer) { p.Own = public })
		later(50 * time.Millisecond)
		set(b, func(p *EchoPeer) { p.Key, p.Next = p.Next, p.Key })
		later(time.Minute)
		for _, g := range []*gateway{a, b} {
			require.Equal(t, []string{"Up ProbesAnswered Up"}, g.verdicts())
			state, _ := g.StateOf(g.peer)
			require.Equal(t, health.Up, state.Verdict)
			require.NotZero(t, g.counted(g.cfg.Metrics.received, ProbeAnswer))
		}
	})
}
