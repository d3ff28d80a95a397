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
	"sync"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/plan"
)

const (
	// GatewayKey is the label, with value "true", of the Leases of gateways, and the
	// annotation that holds the Announcement.
	GatewayKey = "networking.liqo.io/gateway"
	// gatewayLeases begins the names of the Leases; the number of the gateway follows.
	gatewayLeases = "liqod-gateway-"
	// longestAnnouncement bounds the text that is read, in bytes.
	longestAnnouncement = 16 << 10
	// smallestUnderlayMTU leaves room for IPv6 packets within a tunnel.
	smallestUnderlayMTU = check.SmallestMTU6 + 80
)

// Announcement is what a gateway says of itself to its own cluster.
type Announcement struct {
	networkingv1beta1.Gateway `json:",inline"`
	// Addresses are those of the underlay: nodes send to one of them.
	Addresses []string `json:"addresses"`
	// MTU of the underlay at the gateway, in bytes; 0: it does not say.
	MTU int `json:"mtu,omitempty"`

	// Alive and Since are the reader's: whether the gateway holds and renews its Lease, and
	// since when that is so.
	Alive bool      `json:"-"`
	Since time.Time `json:"-"`
}

// replica checks what a gateway has announced.
func (a Announcement) replica() (plan.Replica, error) {
	out := plan.Replica{Name: a.Name, Number: int(a.Number)}
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

// readAnnouncement reads the Lease of a gateway. It is checked as any input: the rights to
// write Leases are not those to write the configuration of hosts.
func readAnnouncement(lease *coordinationv1.Lease) (Announcement, error) {
	text := lease.Annotations[GatewayKey]
	if len(text) > longestAnnouncement {
		return Announcement{}, fmt.Errorf("annotation %s has %d bytes: %d are accepted", GatewayKey, len(text), longestAnnouncement)
	}
	var a Announcement
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return Announcement{}, fmt.Errorf("annotation %s: %w", GatewayKey, err)
	}
	if number, ok := leaseNumber(lease.Name); !ok || int32(number) != a.Number {
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
	if a.MTU != 0 && (a.MTU < smallestUnderlayMTU || a.MTU > check.LargestMTU) {
		wrong.Add("mtu: %d is not accepted: 0, and %d to %d are", a.MTU, smallestUnderlayMTU, check.LargestMTU)
	}
	if len(wrong) > 0 {
		return Announcement{}, errors.New(wrong.String())
	}
	return a, nil
}

func leaseName(number int) string { return gatewayLeases + strconv.Itoa(number) }

// leaseNumber is the number of the gateway that a Lease is for.
func leaseNumber(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, gatewayLeases)
	number, err := strconv.Atoi(digits)
	return number, ok && err == nil && number >= 1 && number <= plan.MaxReplicas && leaseName(number) == name
}

// AnnounceConfig configures an Announcer.
type AnnounceConfig struct {
	// Client is of this cluster; Namespace is liqod's own.
	Client    coordinationv1client.LeasesGetter
	Namespace string
	// Name of this gateway. No other live one has it; one that is started again keeps it, and
	// with it its number.
	Name string
	// Standby has one number only: a gateway that does not get it stands by. Else the gateways
	// have a number each.
	Standby bool
	// PublicKey is the WireGuard public key of this gateway. A Lease with its announcement is
	// its own, from before it was started again under another name. With Standby it says
	// nothing: all gateways have the same key.
	PublicKey string
	// Duration, RetryPeriod are as in kube/lease.
	Duration, RetryPeriod time.Duration

	Clock clock.WithTicker
	Log   *zap.Logger
	// OnChange is called when the number has changed, or it stands by now. It returns at once.
	OnChange func()
}

// Announcer holds the Lease of this gateway: the one with the lowest number that is free or
// has expired, or was its own before. It waits for a Lease that may be its predecessor's
// until that expires or is renewed. It writes the Announcement there. It is safe for
// concurrent use.
type Announcer struct {
	cfg  AnnounceConfig
	news chan struct{}

	mu     sync.Mutex
	number int
	term   int  // counts how often it has got a number
	waits  bool // another gateway holds the only number
	held   bool // it has had a number
	say    *Announcement
	seen   map[string]sighting // of the Leases of others
}

// sighting is when a Lease was first seen as it is: the clocks of hosts differ, so its age
// is what has passed since then.
type sighting struct {
	version string
	at      time.Time
	renewed bool // its holder has lived since the first sighting
}

// NewAnnouncer starts nothing.
func NewAnnouncer(cfg AnnounceConfig) (*Announcer, error) {
	if wrong := validation.IsDNS1123Label(cfg.Name); len(wrong) > 0 {
		return nil, fmt.Errorf("the name of this gateway is %q: a DNS label is accepted; it is the name of the pod, or of the host", cfg.Name)
	}
	return &Announcer{cfg: cfg, news: make(chan struct{}, 1), seen: map[string]sighting{}}, nil
}

// Number returns the number of this gateway; false while it has none.
func (a *Announcer) Number() (int, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.number, a.number != 0
}

// StandsBy reports whether another gateway has the only number. While that is not known it
// does not.
func (a *Announcer) StandsBy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waits
}

// Term counts how often this gateway has got a number.
func (a *Announcer) Term() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.term
}

// has reports whether a number is that of this gateway: its Lease, if somebody has deleted it,
// is made again.
func (a *Announcer) has(number int) bool {
	have, ok := a.Number()
	return ok && have == number
}

// Announce replaces what is announced. Number and Name are the Announcer's to fill in.
func (a *Announcer) Announce(say Announcement) {
	a.mu.Lock()
	a.say = &say
	a.mu.Unlock()
	a.Look()
}

// Look has the Leases looked at now, and not after RetryPeriod.
func (a *Announcer) Look() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// Run gets and renews the Lease until ctx is done, and then gives it back. While the API
// server is away the number stays.
func (a *Announcer) Run(ctx context.Context) error {
	ticker := a.cfg.Clock.NewTicker(a.cfg.RetryPeriod)
	defer ticker.Stop()
	failed := false
	for {
		err := a.step(ctx)
		if ctx.Err() == nil && (err != nil) != failed {
			failed = err != nil
			if failed {
				a.cfg.Log.Warn("announcing this gateway failed; will retry", zap.Error(err))
			}
		}
		select {
		case <-ctx.Done():
			return a.release(context.WithoutCancel(ctx))
		case <-ticker.C():
		case <-a.news:
		}
	}
}

// step renews the Lease, or gets one.
func (a *Announcer) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Duration/2)
	defer cancel()
	if number, ok := a.Number(); ok {
		held, err := a.take(ctx, number, false)
		if held || err != nil {
			return err
		}
		a.cfg.Log.Warn("another gateway has the number of this one now", zap.Int("number", number))
	}
	// Its own first: a gateway that is started again stays what its peers know.
	for number := 1; number <= a.cfg.numbers(); number++ {
		if held, err := a.take(ctx, number, false); held || err != nil {
			return a.got(number, held, err)
		}
	}
	for number := 1; number <= a.cfg.numbers(); number++ {
		held, err := a.take(ctx, number, true)
		if errors.Is(err, errWait) {
			a.set(0)
			return nil
		}
		if held || err != nil {
			return a.got(number, held, err)
		}
	}
	a.set(0)
	if a.cfg.Standby {
		return nil
	}
	return fmt.Errorf("each of the %d Leases %sN in namespace %s is held by another gateway", plan.MaxReplicas, gatewayLeases, a.cfg.Namespace)
}

// numbers are how many there are to have.
func (c AnnounceConfig) numbers() int {
	if c.Standby {
		return 1
	}
	return plan.MaxReplicas
}

// errWait says that it is not known yet whether the holder of a Lease lives.
var errWait = errors.New("the holder may live or not")

func (a *Announcer) got(number int, held bool, err error) error {
	if held {
		a.set(number)
	}
	return err
}

func (a *Announcer) set(number int) {
	a.mu.Lock()
	waits := number == 0 && a.cfg.Standby
	changed := a.number != number || a.waits != waits
	if a.number == 0 && number != 0 {
		a.term, a.held = a.term+1, true
	}
	a.number, a.waits = number, waits
	a.mu.Unlock()
	switch {
	case !changed:
		return
	case waits:
		a.cfg.Log.Info("this gateway stands by: another one is active")
	default:
		a.cfg.Log.Info("this gateway has a number", zap.Int("number", number))
	}
	a.cfg.OnChange()
}

// take writes the Lease of a number, if this gateway holds it, or, with foreign, if nobody
// does. It reports whether this gateway holds it then. The error is errWait while nobody can
// tell whether another does.
func (a *Announcer) take(ctx context.Context, number int, foreign bool) (bool, error) {
	leases := a.cfg.Client.Leases(a.cfg.Namespace)
	have, err := leases.Get(ctx, leaseName(number), metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	switch {
	case missing && !foreign && !a.has(number):
		return false, nil
	case missing:
		have = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: a.cfg.Namespace, Name: leaseName(number)}}
	case err != nil:
		return false, fmt.Errorf("reading Lease %s/%s: %w", a.cfg.Namespace, leaseName(number), err)
	}
	held, mine := holder(have) == a.cfg.Name, a.mine(have)
	if !mine && !missing {
		if !foreign {
			return false, nil
		}
		if free, err := a.free(have); !free {
			return false, err
		}
	}
	next, err := a.lease(have, number, held)
	if err != nil {
		return false, err
	}
	if missing {
		_, err = leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		a.Look() // another gateway was faster, or somebody else wrote: the next step tells
		return held, nil
	}
	if err != nil {
		return false, fmt.Errorf("writing Lease %s/%s: %w", a.cfg.Namespace, leaseName(number), err)
	}
	return true, nil
}

// mine reports whether a Lease is this gateway's. By its key it is only when this process has
// had no number yet: two that run with one key would take the Lease from each other for ever.
func (a *Announcer) mine(lease *coordinationv1.Lease) bool {
	if holder(lease) == a.cfg.Name {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held || a.cfg.Standby || a.cfg.PublicKey == "" {
		return false
	}
	said, err := readAnnouncement(lease)
	return err == nil && said.PublicKey == a.cfg.PublicKey
}

// free reports whether nobody holds a Lease, or its holder has been silent for its duration.
// The error is errWait until the holder has either renewed it or been silent for that long:
// it may be the one before this gateway, which has crashed.
func (a *Announcer) free(lease *coordinationv1.Lease) (bool, error) {
	if holder(lease) == "" {
		return true, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.cfg.Clock.Now()
	s, known := a.seen[lease.Name]
	if !known || s.version != renewal(lease) {
		s = sighting{version: renewal(lease), at: now, renewed: known}
		a.seen[lease.Name] = s
	}
	switch {
	case now.Sub(s.at) > leaseDuration(lease):
		return true, nil
	case s.renewed:
		return false, nil
	}
	return false, errWait
}

// renewal names the last renewal of a Lease.
func renewal(lease *coordinationv1.Lease) string {
	if lease.Spec.RenewTime == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity + " " + lease.Spec.RenewTime.UTC().Format(time.RFC3339Nano)
}

func leaseDuration(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
}

// lease is what a Lease becomes.
func (a *Announcer) lease(have *coordinationv1.Lease, number int, held bool) (*coordinationv1.Lease, error) {
	next, now := have.DeepCopy(), metav1.NewMicroTime(a.cfg.Clock.Now())
	seconds := int32(max(a.cfg.Duration/time.Second, 1))
	if !held {
		next.Spec.AcquireTime = &now
		transitions := int32(1)
		if have.Spec.LeaseTransitions != nil {
			transitions += *have.Spec.LeaseTransitions
		}
		next.Spec.LeaseTransitions = &transitions
	}
	next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &a.cfg.Name, &seconds, &now
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Labels[GatewayKey] = "true"
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.say == nil { // what the one before has said stays: readers see that it is another's
		return next, nil
	}
	say := *a.say
	say.Name, say.Number = a.cfg.Name, int32(number)
	text, err := json.Marshal(say)
	if err != nil {
		return nil, fmt.Errorf("encoding the announcement: %w", err)
	}
	next.Annotations[GatewayKey] = string(text)
	return next, nil
}

// releaseTimeout bounds the attempt of a gateway that stops to give its Lease back.
const releaseTimeout = 5 * time.Second

// release clears the holder.
func (a *Announcer) release(ctx context.Context) error {
	number, ok := a.Number()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	leases := a.cfg.Client.Leases(a.cfg.Namespace)
	have, err := leases.Get(ctx, leaseName(number), metav1.GetOptions{})
	if err == nil && holder(have) == a.cfg.Name {
		next := have.DeepCopy()
		next.Spec.HolderIdentity = nil
		_, err = leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		a.cfg.Log.Warn("lease not given back; it will expire", zap.Int("number", number), zap.Error(err))
	}
	return nil
}

// byNumber sorts announcements.
func byNumber(list []Announcement) []Announcement {
	slices.SortFunc(list, func(x, y Announcement) int { return cmp.Compare(x.Number, y.Number) })
	return list
}
