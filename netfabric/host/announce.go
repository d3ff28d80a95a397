package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/lease"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/plan"
)

const (
	// GatewayKey is the label, with value "true", of the Leases of gateways, and the
	// annotation that holds the Announcement.
	GatewayKey = "networking.liqo.io/gateway"
	// RotateKey is the annotation by which people have a gateway replace its key: its value, on
	// the Lease, is the public key to replace.
	RotateKey = "networking.liqo.io/rotate-key"
	// gatewayLeases begins the names of the Leases; the number of the gateway follows.
	gatewayLeases = "liqod-gateway-"
	// longestAnnouncement bounds the text that is read, in bytes.
	longestAnnouncement = 16 << 10
	// smallestUnderlayMTU leaves room for IPv6 packets within a tunnel.
	smallestUnderlayMTU = plan.MinMTU6 + 80
)

// Announcement is what a gateway announces to its own cluster, in its Lease.
type Announcement struct {
	networkingv1beta1.Gateway `json:",inline"`
	// Addresses are those of the underlay: nodes send to one of them.
	Addresses []string `json:"addresses"`
	// NodeName of the node that the gateway runs on, whose address a CNI may put into its
	// packets; empty: none.
	NodeName string `json:"nodeName,omitempty"`
	// MTU of the underlay at the gateway, in bytes; 0: not known.
	MTU int `json:"mtu,omitempty"`
	// Waits are the gateways of peers that have not accepted NextPublicKey yet.
	Waits []string `json:"waits,omitempty"`

	// Alive and Since are set by the reader: whether the gateway holds and renews its Lease, and
	// since when.
	Alive bool      `json:"-"`
	Since time.Time `json:"-"`
}

// replica returns the gateway as the planner takes it, or the mistake in its addresses.
func (a Announcement) replica() (plan.Replica, error) {
	out := plan.Replica{Name: a.Name, Number: int(a.Number), Node: a.NodeName}
	for _, text := range a.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return out, fmt.Errorf("addresses: %.64q: an IP address is accepted", text)
		}
		addr = addr.Unmap()
		if slices.ContainsFunc(out.Addrs, func(have netip.Addr) bool { return have.Is4() == addr.Is4() }) {
			return out, fmt.Errorf("addresses: %s is the second of its family: one is accepted", addr)
		}
		out.Addrs = append(out.Addrs, addr)
	}
	return out, nil
}

// readAnnouncement returns the Announcement in a Lease. It is checked like any input: more
// identities may write Leases than may change the network of hosts.
func readAnnouncement(have *coordinationv1.Lease) (Announcement, error) {
	text := have.Annotations[GatewayKey]
	if len(text) > longestAnnouncement {
		return Announcement{}, fmt.Errorf("annotation %s has %d bytes: %d are accepted", GatewayKey, len(text), longestAnnouncement)
	}
	var a Announcement
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return Announcement{}, fmt.Errorf("annotation %s: %w", GatewayKey, err)
	}
	if number, ok := leaseNumber(have.Name); !ok || int32(number) != a.Number {
		return Announcement{}, fmt.Errorf("annotation %s has number %d: that of the Lease's name is accepted", GatewayKey, a.Number)
	}
	var wrong check.Problems
	check.Surroundings{}.CheckGateways("this cluster", []networkingv1beta1.Gateway{a.Gateway}, &wrong)
	if _, err := a.replica(); err != nil {
		wrong.Add("%s", err)
	}
	if len(a.Addresses) == 0 {
		wrong.Add("addresses: one of each family is accepted")
	}
	if a.MTU != 0 && (a.MTU < smallestUnderlayMTU || a.MTU > plan.MaxMTU) {
		wrong.Add("mtu: %d is not accepted: 0, and %d to %d are", a.MTU, smallestUnderlayMTU, plan.MaxMTU)
	}
	if len(wrong) > 0 {
		return Announcement{}, errors.New(wrong.String())
	}
	return a, nil
}

// LeaseName returns the name of the Lease of the gateway with a number.
func LeaseName(number int) string { return gatewayLeases + strconv.Itoa(number) }

// leaseNumber returns the number in the name of a gateway's Lease.
func leaseNumber(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, gatewayLeases)
	number, err := strconv.Atoi(digits)
	return number, ok && err == nil && number >= 1 && number <= plan.MaxReplicas && LeaseName(number) == name
}

// AnnounceConfig configures an Announcer.
type AnnounceConfig struct {
	// Client is of this cluster; Namespace is liqod's own.
	Client    coordinationv1client.LeasesGetter
	Namespace string
	// Name of this gateway. No other live gateway has it. A gateway that restarts keeps it.
	Name string
	// Number of this gateway, 1 to plan.MaxReplicas. Claim sets it.
	Number int
	// Gone reports whether the number of a gateway that no longer renews its Lease may be taken. It
	// has seen to it then that the next one has another key: both may run, and peers answer to
	// whichever has sent last with a key. It may be nil: then a number is free when its Lease has expired.
	Gone func(ctx context.Context, name string, number int) (bool, error)
	// Duration, RetryPeriod are as in kube/lease.
	Duration, RetryPeriod time.Duration

	Clock clock.WithTicker
	Log   *zap.Logger
}

// Announcer holds the Lease of this gateway's number, and writes the Announcement there. The
// gateway is active from then on, also while the API server is away. Another gateway that holds
// the Lease keeps it until it expires. An Announcer is safe for concurrent use.
type Announcer struct {
	cfg      AnnounceConfig
	news     loop.Signal
	silence  lease.Silence // of the other holder; for take only
	onActive func()        // set before Run

	active atomic.Bool
	say    atomic.Pointer[Announcement]
	rotate loop.Value[string] // the public key that people want replaced
}

// NewAnnouncer starts nothing.
func NewAnnouncer(cfg AnnounceConfig) (*Announcer, error) {
	if wrong := validation.IsDNS1123Label(cfg.Name); len(wrong) > 0 {
		return nil, fmt.Errorf("the name of this gateway is %q: a DNS label is accepted; it is the name of the pod, or of the host", cfg.Name)
	}
	return &Announcer{cfg: cfg, news: loop.NewSignal()}, nil
}

// Number returns the number of this gateway.
func (a *Announcer) Number() int { return a.cfg.Number }

// Active reports whether this gateway holds its number.
func (a *Announcer) Active() bool { return a.active.Load() }

// Rotate returns the public key that people want replaced; empty: none.
func (a *Announcer) Rotate() string { return a.rotate.Get() }

// Announce replaces the Announcement, except for its Number and Name.
func (a *Announcer) Announce(say Announcement) {
	a.say.Store(&say)
	a.Look()
}

// Look makes the Announcer read the Lease now, and not after RetryPeriod.
func (a *Announcer) Look() { a.news.Notify() }

// Run gets and renews the Lease until ctx is done, and then releases it. It ends with an error
// if another gateway has taken the Lease of an active one.
func (a *Announcer) Run(ctx context.Context) error {
	failed := false
	for range loop.Rounds(ctx, a.cfg.Clock, a.cfg.RetryPeriod, a.news) {
		was := a.Active()
		err := a.step(ctx)
		if was && !a.Active() {
			return err
		}
		if err != nil && !failed && ctx.Err() == nil {
			a.cfg.Log.Warn("announcing this gateway failed; will retry", zap.Error(err))
		}
		failed = err != nil
	}
	return a.release(context.WithoutCancel(ctx))
}

// step renews the Lease, or gets it if no other gateway holds it.
func (a *Announcer) step(ctx context.Context) error {
	holder, err := a.take(ctx)
	if err == nil && holder != "" {
		return fmt.Errorf("gateway %s holds Lease %s/%s: set another gateway.number for one of the two", holder, a.cfg.Namespace, LeaseName(a.cfg.Number))
	}
	return err
}

// take is step. It returns the gateway that holds the Lease, if this is another one.
func (a *Announcer) take(ctx context.Context) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Duration/2)
	defer cancel()
	leases := a.cfg.Client.Leases(a.cfg.Namespace)
	have, err := a.read(ctx)
	base := have
	switch {
	case err != nil:
		return "", err
	case have == nil:
		base = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: a.cfg.Namespace, Name: LeaseName(a.cfg.Number)}}
	case lease.Holder(have) != a.cfg.Name:
		free, err := a.free(ctx, leases, have)
		if err != nil {
			return "", err
		}
		if !free {
			a.set(false)
			return lease.Holder(have), nil
		}
	}
	a.rotate.Swap(base.Annotations[RotateKey])
	next, err := a.lease(base)
	if err != nil {
		return "", err
	}
	_, err = store.Write(ctx, "Lease", leases, "", have, next)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		a.Look() // another client wrote first: the next step reads who holds the Lease
		return "", nil
	case err != nil:
		return "", err
	}
	a.set(true)
	return "", nil
}

// set records whether this gateway is active.
func (a *Announcer) set(active bool) {
	switch {
	case a.active.Swap(active) == active:
	case active:
		a.cfg.Log.Info("this gateway is active", zap.Int("number", a.cfg.Number))
		if a.onActive != nil {
			a.onActive()
		}
	default:
		a.cfg.Log.Info("another gateway has the number of this one", zap.Int("number", a.cfg.Number))
	}
}

// free reports whether no gateway holds a Lease, or its holder has not renewed it in time and
// is gone.
func (a *Announcer) free(ctx context.Context, leases coordinationv1client.LeaseInterface, have *coordinationv1.Lease) (bool, error) {
	now, holder := a.cfg.Clock.Now(), lease.Holder(have)
	a.silence.Recall(ctx, leases, have, now)
	switch {
	case holder == "":
		return true, nil
	case a.silence.Left(now, lease.Duration(have, 0)) >= 0:
		return false, nil
	case a.cfg.Gone == nil:
		return true, nil
	}
	return a.cfg.Gone(ctx, holder, a.cfg.Number)
}

// lease returns the Lease with this gateway as its holder.
func (a *Announcer) lease(have *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	next := have.DeepCopy()
	lease.Hold(next, a.cfg.Name, a.cfg.Clock.Now(), a.cfg.Duration)
	metav1.SetMetaDataLabel(&next.ObjectMeta, GatewayKey, "true")
	said := a.say.Load()
	if said == nil { // the Announcement of the former holder stays: its name is not the holder's
		return next, nil
	}
	say := *said
	say.Name, say.Number = a.cfg.Name, int32(a.cfg.Number)
	text, err := json.Marshal(say)
	if err != nil {
		return nil, fmt.Errorf("encoding the announcement: %w", err)
	}
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, GatewayKey, string(text))
	return next, nil
}

// Claim waits until one of the numbers 1 to replicas is free, and returns the Announcer that
// holds it. A gateway that restarts gets the number that it had. look, which may be nil, has
// Claim try again at once. It returns nil when ctx is done before.
func Claim(ctx context.Context, cfg AnnounceConfig, replicas int, look <-chan struct{}) (*Announcer, error) {
	var all []*Announcer
	for number := 1; number <= replicas; number++ {
		cfg.Number = number
		a, err := NewAnnouncer(cfg)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	said := ""
	for range loop.Rounds(ctx, cfg.Clock, cfg.RetryPeriod, look) {
		a, err := claimOne(ctx, all)
		if a != nil {
			return a, nil
		}
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			cfg.Log.Warn("getting a number for this gateway failed; will retry", zap.Error(err))
		}
	}
	return nil, nil
}

// claimOne tries the number that this gateway had, and then the others in order. It returns nil
// if it gets none.
func claimOne(ctx context.Context, all []*Announcer) (*Announcer, error) {
	for _, a := range all {
		have, err := a.read(ctx)
		if err != nil {
			return nil, err // with another number, the one that it has would be lost
		}
		if have != nil && lease.Holder(have) == a.cfg.Name {
			all = []*Announcer{a}
			break
		}
	}
	var failed error
	for _, a := range all {
		if _, err := a.take(ctx); err != nil {
			failed = err
		}
		if a.Active() {
			return a, nil
		}
	}
	return nil, failed
}

// read returns the Lease, or nil.
func (a *Announcer) read(ctx context.Context) (*coordinationv1.Lease, error) {
	return store.Live(ctx, "Lease", a.cfg.Client.Leases(a.cfg.Namespace), LeaseName(a.cfg.Number))
}

// releaseTimeout bounds the attempt of a gateway that stops to release its Lease.
const releaseTimeout = 5 * time.Second

// release clears the holder of the Lease.
func (a *Announcer) release(ctx context.Context) error {
	if !a.Active() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	have, err := a.read(ctx)
	if err == nil && have != nil && lease.Holder(have) == a.cfg.Name {
		next := have.DeepCopy()
		lease.Hold(next, "", a.cfg.Clock.Now(), time.Second)
		_, err = store.Write(ctx, "Lease", a.cfg.Client.Leases(a.cfg.Namespace), "", have, next)
	}
	if err != nil {
		a.cfg.Log.Warn("lease not released; it will expire", zap.Int("number", a.cfg.Number), zap.Error(err))
	}
	return nil
}

// byNumber sorts announcements.
func byNumber(list []Announcement) []Announcement {
	slices.SortFunc(list, func(x, y Announcement) int { return cmp.Compare(x.Number, y.Number) })
	return list
}
