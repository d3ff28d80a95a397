package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// rechecks is the number of probes between two reads of the provider's identity while the gate
// is open. A provider that has revoked the rights of this cluster goes on answering probes.
const rechecks = 10

// errClosed is the state of the gate before the first check.
var errClosed = errors.New("the provider has not been checked yet")

// ProviderState is the state of the provider's API server.
type ProviderState struct {
	// Ready is nil before the first result.
	Ready *bool
	// Reason (in CamelCase) and Message explain Ready.
	Reason, Message string
	// Version is the provider's version; zero before the first contact.
	Version version.Info
	// Silent says that the provider's controller does not run. It is empty while that runs,
	// and where it is not known.
	Silent string
}

// CheckConfig is the input of NewCheck. All fields are required.
type CheckConfig struct {
	// Provider is a client of the API server to check.
	Provider kubernetes.Interface
	// Namespace is this cluster's tenant namespace in the provider.
	Namespace string
	// RecordedUID returns the recorded UID of the provider's kube-system namespace, or ""
	// if none is recorded.
	RecordedUID func(context.Context) (types.UID, error)
	// Window says how the results of probes are judged. Interval is the time between two
	// probes, and Timeout the time limit of one probe.
	Window            health.Window
	Interval, Timeout time.Duration
	// OnState is called with each new state, never concurrently.
	OnState func(ProviderState)
	loop.Env
}

// Check probes a provider's API server and keeps a gate. The gate is open while the API
// server answers and is the cluster of the peering. While it is closed, nothing may be
// written to the provider, and nothing may be concluded from the absence of an object
// there.
type Check struct {
	cfg    CheckConfig
	prober *health.Prober

	// again requests another check of the provider's identity.
	again loop.Signal
	// refused says that the last read of the identity was refused. vouch is what was seen of
	// the ControllerLease. Only judge uses them.
	refused bool
	vouch   beat

	mu   sync.Mutex
	gate error
	uid  types.UID
	uses map[*use]struct{}

	silent loop.Value[string] // what Silent returns
	opened loop.Listeners[struct{}]
}

// use is work that ends when the gate closes.
type use struct{ cancel context.CancelFunc }

// NewCheck returns a Check with a closed gate. It starts nothing.
func NewCheck(cfg CheckConfig) *Check {
	return &Check{cfg: cfg, prober: health.NewProber(cfg.Window), gate: errClosed, again: loop.NewSignal(), uses: map[*use]struct{}{}}
}

// OnOpen registers f, which is called each time that the gate opens, and that Silent changes. It
// must be called before Run. f must not block.
func (c *Check) OnOpen(f func()) { c.opened.Subscribe(func(struct{}) { f() }) }

// Gate returns nil while the gate is open, and otherwise the reason. It is safe for
// concurrent use.
func (c *Check) Gate() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gate
}

// While returns a copy of ctx that ends when the gate closes: no request waits longer for a
// provider than the verdict on it takes. The caller calls done after the work. While is safe for
// concurrent use.
func (c *Check) While(ctx context.Context) (open context.Context, done context.CancelFunc) {
	open, cancel := context.WithCancel(ctx)
	u := &use{cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gate != nil {
		cancel()
		return open, cancel
	}
	c.uses[u] = struct{}{}
	return open, func() {
		c.mu.Lock()
		delete(c.uses, u)
		c.mu.Unlock()
		cancel()
	}
}

// Run probes until ctx is done, and closes the gate when it returns.
func (c *Check) Run(ctx context.Context) {
	turned := loop.NewSignal()
	stop := loop.Start(ctx, func(ctx context.Context) { c.judge(ctx, turned) })
	c.prober.Run(ctx, c.cfg.Interval, c.cfg.Timeout, Readyz(c.cfg.Provider), func(health.State) { turned.Notify() })
	stop()
	c.set(errClosed)
}

// explained adds what the answer 401 to a probe means. An API server whose etcd is away gives
// it, too, as it cannot look up tokens then.
func explained(err error) error {
	if apierrors.IsUnauthorized(err) {
		return fmt.Errorf("it refuses the credentials of this cluster (they were revoked, have expired, or cannot be checked there): %w", err)
	}
	return err
}

// revoked reports whether an API server refuses to let this cluster read which one it is. It
// does so once it has revoked the rights of this cluster.
func revoked(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// judge sets the state and the gate each time that the verdict has turned. When the provider comes
// up, it reads the provider's identity, retries until it succeeds, and then reads it from time to time.
func (c *Check) judge(ctx context.Context, turned <-chan struct{}) {
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-turned:
			retry = nil
			if v := c.prober.State(); v.Verdict != health.Up {
				c.set(fmt.Errorf("the provider's API server is down: %s", v.Reason))
				c.tell(ProviderState{Ready: new(bool), Reason: reasons.RemoteAPIServerNotReady, Message: v.Reason})
				continue
			}
		case <-retry:
		case <-c.again:
			if c.prober.State().Verdict != health.Up {
				continue
			}
		}
		retry = time.After(c.identify(ctx))
	}
}

// identify opens the gate if the provider is the cluster of the peering, and closes it if the
// provider is another one, or lets this cluster do nothing any more. It returns when to read
// the identity again.
func (c *Check) identify(ctx context.Context) time.Duration {
	// The results of probes wait for this, so its time is limited.
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	open := c.Gate() == nil
	var info version.Info
	var err error
	if !open {
		info, err = c.version(ctx)
	}
	if err == nil {
		err = c.compare(ctx)
	}
	before := c.refused
	c.refused = revoked(err)
	var replaced *replacedError
	switch {
	case errors.As(err, &replaced):
		c.set(err)
		c.tell(ProviderState{Ready: new(bool), Reason: corev1beta1.ReasonClusterReplaced, Message: err.Error(), Version: info})
		return c.cfg.Interval // the record may be corrected
	case open && err != nil && !(before && c.refused):
		// One refusal may be of an API server that has just started; whether it answers is
		// what the probes find out.
		return c.cfg.Interval
	case c.refused:
		c.set(err)
		c.tell(ProviderState{Ready: new(bool), Reason: corev1beta1.ReasonRightsRevoked, Message: "the provider gives this cluster no rights: it has ended the peering, or revoked the identity: " + stable(err)})
		return c.cfg.Interval
	case err != nil:
		c.set(err)
		c.cfg.Log.Debug("the provider's identity is not known", zap.Error(err))
		c.tell(ProviderState{Ready: new(bool), Reason: reasons.RemoteIdentityUnknown, Message: err.Error()})
		return c.cfg.Interval
	}
	if !open {
		c.vouch.unread(c.cfg.Clock.Now()) // its controller was away as its API server was
		c.set(nil)
	}
	if changed := c.listen(ctx); changed || !open {
		c.tell(ProviderState{Ready: new(true), Reason: reasons.KubeletReady, Message: "the provider's API server answers", Version: info, Silent: c.Silent()})
		c.opened.Tell(struct{}{})
	}
	if c.Silent() != "" {
		return c.cfg.Interval // pods wait for the return of its controller
	}
	return rechecks * c.cfg.Interval
}

// Silent says that the provider's controller, which creates pods, does not run; "" while it runs,
// and where nothing is known of it. It is safe for concurrent use.
func (c *Check) Silent() string { return c.silent.Get() }

// listen reads the Lease that the provider's controller renews. It reports whether Silent has
// changed. A provider whose controller has written no Lease yet is not judged.
func (c *Check) listen(ctx context.Context) (changed bool) {
	lease, err := c.cfg.Provider.CoordinationV1().Leases(c.cfg.Namespace).Get(ctx, corev1beta1.ControllerLease, metav1.GetOptions{})
	now := c.cfg.Clock.Now()
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		c.vouch = beat{}
	case err != nil:
		c.vouch.unread(now)
	case lease.ResourceVersion != c.vouch.version:
		// One renewal is enough: a controller has made it just now.
		c.vouch = beat{version: lease.ResourceVersion, since: now, verdict: health.Up}
	default:
		c.vouch.silent(now, vouchEvery)
	}
	silent := ""
	if c.vouch.verdict == health.Down {
		silent = fmt.Sprintf("no controller of the provider has renewed Lease %s/%s there for %s: new pods wait, and those that run go on",
			c.cfg.Namespace, corev1beta1.ControllerLease, missedBeats*vouchEvery)
	}
	return c.silent.Swap(silent) != silent
}

// tell reports a state. Its texts may quote the provider.
func (c *Check) tell(s ProviderState) {
	s.Message, s.Version = store.ClipMessage(s.Message), bounded(s.Version)
	c.cfg.OnState(s)
}

// longestVersion is the limit of the texts of a version, in bytes.
const longestVersion = 63

// bounded returns the parts of a provider's version that this cluster uses, for the status
// and the labels of the virtual node. A platform that cannot be the value of a label is
// left out.
func bounded(v version.Info) version.Info {
	out := version.Info{GitVersion: strings.ToValidUTF8(v.GitVersion[:min(len(v.GitVersion), longestVersion)], "")}
	os, arch, ok := strings.Cut(v.Platform, "/")
	if ok && len(validation.IsDNS1123Label(os)) == 0 && len(validation.IsDNS1123Label(arch)) == 0 {
		out.Platform = v.Platform
	}
	return out
}

type replacedError struct{ want, have types.UID }

func (e *replacedError) Error() string {
	return fmt.Sprintf("another cluster answers at the provider's address: its kube-system namespace has UID %s, not %s; nothing is written to it", e.have, e.want)
}

func (c *Check) version(ctx context.Context) (info version.Info, err error) {
	body, err := c.cfg.Provider.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return info, fmt.Errorf("asking the provider for its version: %w", err)
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return info, fmt.Errorf("reading the provider's version: %w", err)
	}
	return info, nil
}

// Verify checks live whether the provider is the cluster of the peering. Callers use it
// before they act on the absence of an object there. It is safe for concurrent use.
func (c *Check) Verify(ctx context.Context) error {
	err := c.compare(ctx)
	var replaced *replacedError
	if errors.As(err, &replaced) || revoked(err) {
		c.again.Notify() // let judge update the state, too
	}
	return err
}

// compare reads the provider's UID, and closes the gate if it is another cluster.
func (c *Check) compare(ctx context.Context) error {
	want, err := c.cfg.RecordedUID(ctx)
	if err != nil {
		return fmt.Errorf("reading the recorded identity of the provider: %w", err)
	}
	ns, err := c.cfg.Provider.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("asking the provider for its identity: %w", err)
	}
	if want == "" {
		want = c.seen(ns.UID)
	}
	if want != ns.UID {
		err := &replacedError{want, ns.UID}
		c.set(err)
		return err
	}
	return nil
}

// seen returns the first UID that was read, which counts as long as none is recorded.
func (c *Check) seen(uid types.UID) types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uid == "" {
		c.uid = uid
	}
	return c.uid
}

func (c *Check) set(gate error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = gate
	if gate == nil {
		return
	}
	for u := range c.uses {
		u.cancel()
	}
	clear(c.uses)
}

// perPeer is what runs for peers, with one Revision of the credentials for each if they matter. Its
// zero value is ready to use. It is safe for concurrent use, but for one peer there is one caller at
// a time of keep and stop.
type perPeer[T any] struct {
	mu  sync.Mutex
	all map[string]started[T] // by cluster id, or by tenant namespace
}

type started[T any] struct {
	is       T
	revision string
	stop     func()
}

// running returns what runs, by the ids that keep has got.
func (p *perPeer[T]) running() map[string]started[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.all)
}

// keep returns what runs for a peer with a Revision. If that is nothing, it stops what runs with
// another one, and starts next.
func (p *perPeer[T]) keep(ctx context.Context, id, revision string, next T, run func(context.Context)) T {
	if have, ok := p.running()[id]; ok && have.revision == revision {
		return have.is
	}
	p.stop(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]started[T]{}
	}
	p.all[id] = started[T]{next, revision, loop.Start(ctx, run)}
	return next
}

// stop stops what runs for a peer, if there is anything, and waits for it.
func (p *perPeer[T]) stop(id string) {
	p.mu.Lock()
	one, ok := p.all[id]
	delete(p.all, id)
	p.mu.Unlock()
	if ok {
		one.stop()
	}
}

func (p *perPeer[T]) stopAll() {
	for id := range p.running() {
		p.stop(id)
	}
}

// prober probes the API server of one peer with one Revision of its credentials.
type prober struct {
	clients Clients
	prober  *health.Prober

	mu   sync.Mutex
	uid  types.UID // UID of the peer since it last came up; empty: unknown
	life int       // number of times that uid was reset
	due  time.Time // when uid is to be read again
}

// probe returns the running prober of a peer with the given credentials, and starts it if
// necessary.
func (c *Conditions) probe(ctx context.Context, id string, e Endpoint) *prober {
	next := &prober{clients: e.Clients, prober: health.NewProber(c.cfg.Window)}
	return c.probing.keep(ctx, id, e.Revision, next, func(ctx context.Context) {
		next.prober.Run(ctx, c.cfg.Interval, c.cfg.Timeout, c.timed(id, next.clients.Ready), func(health.State) {
			next.forget() // another cluster may answer at the same address
			c.loop.Add(loop.Key{Name: id})
		})
	})
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

func (c *Conditions) forgetIdentity(id string) {
	if p, ok := c.probing.running()[id]; ok {
		p.is.forget()
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
