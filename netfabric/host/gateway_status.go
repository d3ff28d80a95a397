package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/plan"
	"github.com/liqod/liqod/reasons"
)

// tunnelFacts is what one gateway observes of the way to a peer.
type tunnelFacts struct {
	gateway   string // its own name
	wireGuard networkingv1beta1.WireGuard
	refused   string // why the Connection is left out; empty: it is not
	applied   error  // of the whole host
	peer      *networkingv1beta1.Gateway
	endpoint  string
	echo      EchoState
	stopped   bool     // it ends
	living    []string // names of the own gateways that are alive
	now       metav1.Time
}

// report writes the status of one Connection, where it has changed.
func (g *GatewayHost) report(ctx context.Context, key loop.Key) error {
	c := store.Cached[*networkingv1beta1.Connection](g.cfg.Sources.Connections.Informer().GetStore(), key)
	if c == nil {
		return nil
	}
	return g.write(ctx, c, false)
}

// farewell reports the tunnels of a gateway that stops as unknown. It tries once: without it the
// status is out of date until the next gateway writes it.
func (g *GatewayHost) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
	defer cancel()
	var err error
	for _, c := range store.All[*networkingv1beta1.Connection](g.cfg.Sources.Connections.Informer().GetStore()) {
		err = errors.Join(err, g.write(ctx, c, true))
	}
	if err != nil {
		g.log.Warn("the status of Connections is out of date", zap.Error(err))
	}
}

const farewellTimeout = 3 * time.Second

// write writes the status of a Connection, if it has changed. stopped: the gateway ends.
func (g *GatewayHost) write(ctx context.Context, c *networkingv1beta1.Connection, stopped bool) error {
	f, ok := g.facts(c)
	if !ok || c.DeletionTimestamp != nil {
		return nil // the loop of the host has not seen it yet
	}
	f.stopped = stopped
	next := f.status(c)
	if equality.Semantic.DeepEqual(next, c.Status) {
		return nil
	}
	patch, err := statusPatch(c, next)
	if err != nil {
		return err
	}
	_, err = store.Merge(ctx, "the status of Connection", g.cfg.Client.NetworkingV1beta1().Connections(c.Namespace), "", c, patch, "status")
	return store.IgnoreGone(err)
}

// facts gathers what is known for the status of a Connection; false while nothing is, because
// no attempt to apply a plan with it, as it is now, has ended.
func (g *GatewayHost) facts(c *networkingv1beta1.Connection) (tunnelFacts, bool) {
	v := g.view.Get()
	p, ok := v.planned[loop.Key{Namespace: c.Namespace, Name: c.Name}]
	if !ok || p.uid != c.UID || p.generation < c.Generation {
		return tunnelFacts{}, false
	}
	f := tunnelFacts{
		gateway: g.announcer.cfg.Name, wireGuard: v.wireGuard, refused: v.refused[c.Namespace+"/"+c.Name], applied: v.applied,
		now: metav1.NewTime(g.cfg.Clock.Now()), living: []string{g.announcer.cfg.Name},
	}
	for _, a := range g.cfg.Sources.Gateways.List() {
		if a.Alive {
			f.living = append(f.living, a.Name)
		}
	}
	use := v.use[c.Spec.ClusterID]
	i := slices.IndexFunc(c.Spec.Gateways, func(remote networkingv1beta1.Gateway) bool { return int(remote.Number) == use })
	if i < 0 || f.refused != "" {
		return f, true
	}
	f.peer = &c.Spec.Gateways[i]
	f.echo, _ = g.echoes.state(f.peer.PublicKey)
	j := slices.IndexFunc(v.device.Peers, func(t plan.Tunnel) bool { return t.Key == f.peer.PublicKey })
	if j >= 0 && v.device.Peers[j].Endpoint.IsValid() {
		f.endpoint = v.device.Peers[j].Endpoint.String()
	}
	return f, true
}

// statusPatch replaces the status. It names the version that it follows from: another
// gateway may have written its entry meanwhile.
func statusPatch(c *networkingv1beta1.Connection, next networkingv1beta1.ConnectionStatus) (store.Patch, error) {
	text, err := json.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("encoding a status: %w", err)
	}
	status := store.Patch{"latency": nil, "gateways": nil, "conditions": nil}
	if err := json.Unmarshal(text, &status); err != nil {
		return nil, fmt.Errorf("encoding a status: %w", err)
	}
	return store.Patch{"metadata": store.Patch{"resourceVersion": c.ResourceVersion}, "status": status}, nil
}

// status returns the desired status of the Connection.
func (f tunnelFacts) status(c *networkingv1beta1.Connection) networkingv1beta1.ConnectionStatus {
	next := *c.Status.DeepCopy()
	next.ObservedGeneration = c.Generation
	value, ready := f.judge()
	next.Gateways = slices.DeleteFunc(next.Gateways, func(s networkingv1beta1.GatewayStatus) bool {
		return s.Name == f.gateway || !slices.Contains(f.living, s.Name)
	})
	own := f.entry(c, value, ready.Message)
	next.Gateways = append(next.Gateways, own)
	slices.SortFunc(next.Gateways, func(a, b networkingv1beta1.GatewayStatus) int { return strings.Compare(a.Name, b.Name) })

	next.Value, next.Latency = value, own.Latency
	i := slices.IndexFunc(next.Gateways, func(s networkingv1beta1.GatewayStatus) bool { return s.Value == networkingv1beta1.Connected })
	if value != networkingv1beta1.Connected && i >= 0 {
		next.Value, next.Latency = networkingv1beta1.Connected, next.Gateways[i].Latency
		ready.Status, ready.Reason = metav1.ConditionTrue, reasons.ProbesAnswered
		ready.Message = fmt.Sprintf("gateway %s reaches the peer; gateway %s does not: %s", next.Gateways[i].Name, f.gateway, ready.Message)
	}
	ready.Type, ready.ObservedGeneration, ready.LastTransitionTime = networkingv1beta1.ConditionReady, c.Generation, f.now
	store.SetCondition(&next.Conditions, ready)
	if i < 0 || next.Gateways[i].Name == f.gateway { // else two gateways that hear different reports would overwrite each other
		server := f.peerServer()
		server.Type, server.ObservedGeneration, server.LastTransitionTime = networkingv1beta1.ConditionPeerAPIServer, c.Generation, f.now
		store.SetCondition(&next.Conditions, server)
	}
	return next
}

func is(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Status: status, Reason: reason, Message: message}
}

// peerServer is what the peer reports on its API server, as far as this gateway hears it.
func (f tunnelFacts) peerServer() metav1.Condition {
	switch {
	case f.stopped:
		return is(metav1.ConditionUnknown, networkingv1beta1.ReasonGatewayStopped, "the gateway has been stopped, so nobody hears what the peer reports")
	case f.refused != "" || f.echo.Verdict != health.Up:
		return is(metav1.ConditionUnknown, networkingv1beta1.ReasonTunnelDown, "no probe comes through the tunnel, so the peer reports nothing")
	case f.echo.APIServer == health.Up:
		return is(metav1.ConditionTrue, networkingv1beta1.ReasonPeerReportsUp, "the peer's gateway reports that its API server answers")
	case f.echo.APIServer == health.Down:
		return is(metav1.ConditionFalse, networkingv1beta1.ReasonPeerReportsDown, "the peer's gateway reports that its API server does not answer")
	}
	return is(metav1.ConditionUnknown, networkingv1beta1.ReasonPeerReportsNothing, "the peer's gateway does not say whether its API server answers")
}

// judge sums up how well this gateway reaches the peer.
func (f tunnelFacts) judge() (networkingv1beta1.ConnectionValue, metav1.Condition) {
	switch {
	case f.stopped:
		return networkingv1beta1.Connecting, is(metav1.ConditionUnknown, networkingv1beta1.ReasonGatewayStopped, "the gateway has been stopped, so nothing is known of the way")
	case f.refused != "":
		return networkingv1beta1.ConnectionError, is(metav1.ConditionFalse, networkingv1beta1.ReasonInvalid, "the gateway applies nothing of it: "+f.refused)
	case f.echo.Verdict == health.Up:
		return networkingv1beta1.Connected, is(metav1.ConditionTrue, f.echo.Reason, f.echo.Message)
	case f.applied != nil:
		return networkingv1beta1.ConnectionError, is(metav1.ConditionFalse, networkingv1beta1.ReasonNotApplied, "the gateway's host is not as planned: "+store.OneLine(f.applied))
	case f.peer == nil:
		return networkingv1beta1.Connecting, is(metav1.ConditionFalse, networkingv1beta1.ReasonNoGateway, "the peer has announced no gateway yet")
	case f.echo.Verdict == health.Down:
		return networkingv1beta1.Connecting, is(metav1.ConditionFalse, f.echo.Reason, f.echo.Message)
	case f.echo.Reason == "":
		return networkingv1beta1.Connecting, is(metav1.ConditionUnknown, reasons.ProbesNotAnswered, "the gateway has not begun to send probes")
	}
	return networkingv1beta1.Connecting, is(metav1.ConditionUnknown, f.echo.Reason, f.echo.Message)
}

// entry is that of this gateway.
func (f tunnelFacts) entry(c *networkingv1beta1.Connection, value networkingv1beta1.ConnectionValue, message string) networkingv1beta1.GatewayStatus {
	var have networkingv1beta1.GatewayStatus
	for _, s := range c.Status.Gateways {
		if s.Name == f.gateway {
			have = s
		}
	}
	next := networkingv1beta1.GatewayStatus{Name: f.gateway, Value: value, Endpoint: f.endpoint, WireGuard: f.wireGuard, Since: have.Since}
	if f.peer != nil {
		next.PeerGateway = f.peer.Name
	}
	changed := have.Since == nil || next.Value != have.Value || next.PeerGateway != have.PeerGateway || next.Endpoint != have.Endpoint
	if changed {
		next.Since = f.now.DeepCopy()
	}
	if value != networkingv1beta1.Connected {
		next.Message = store.ClipMessage(message)
		return next
	}
	next.Latency = have.Latency
	if have.Latency == nil || changed || f.now.Sub(have.Latency.Timestamp.Time) >= rttEvery && doubledSince(have.Latency.Value, f.echo.RTT) {
		next.Latency = &networkingv1beta1.Latency{Value: f.echo.RTT.Round(time.Microsecond).String(), Timestamp: f.now}
	}
	return next
}

// doubledSince reports whether a round trip time has doubled or halved since it was written.
func doubledSince(text string, now time.Duration) bool {
	before, err := time.ParseDuration(text)
	return err != nil || doubled(before, now)
}
