package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// Goals of one consumer with many providers: p99 of a change at home until each provider has it, against
// that with one provider; memory and CPU of a peer that idles.
const (
	peersGoalRatio  = 1.5
	peersGoalMillis = 989.0
	peersGoalMB     = 20.0
	peersGoalCore   = 0.1 // percent
)

// peersNamespace is the offloaded namespace, and changeName the object that changes in it. changeFormat
// has the number of providers and of the change.
const (
	peersNamespace = "peers"
	changeName     = "change"
	changeFormat   = "%d/%d"
)

const (
	// mostPeers is the number of providers that have names of the same length.
	mostPeers = 999
	// peeredAtOnce is how many providers are added at the same time.
	peeredAtOnce = 4
)

// peerOptions are of one consumer with many providers.
type peerOptions struct {
	most      int
	perSecond int
	last      time.Duration
	idle      time.Duration
	out       string
}

func (o *peerOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.most, "peers", 100, "providers of --only peers: names in one cluster")
	flags.IntVar(&o.perSecond, "peer-changes", 5, "changes at home in each second of --only peers")
	flags.DurationVar(&o.last, "peer-for", 30*time.Second, "how long --only peers changes an object with each number of providers")
	flags.DurationVar(&o.idle, "peer-idle", 60*time.Second, "how long --only peers lets the providers idle")
	flags.StringVar(&o.out, "peers-out", filepath.Join("bin", "bench-peers.json"), "file for the figures of --only peers")
}

func (o *peerOptions) check() error {
	errs := []error{atLeast("peers", o.most, 1), atLeast("peer-changes", o.perSecond, 1), atLeast("peer-for", int(o.last/time.Second), 1), atLeast("peer-idle", int(o.idle/time.Second), 1)}
	if o.most > mostPeers {
		errs = append(errs, fmt.Errorf("--peers is %d: at most %d is accepted", o.most, mostPeers))
	}
	return errors.Join(errs...)
}

// numbers are the numbers of providers that are measured.
func (o *peerOptions) numbers() []int {
	fewer := slices.DeleteFunc([]int{1, 10, 50, 100}, func(n int) bool { return n >= o.most })
	return append(fewer, o.most)
}

// withPeers is what a number of providers costs.
type withPeers struct {
	Peers int `json:"peers"`
	// From the answer to a change at home to its arrival in a provider, in milliseconds, of all
	// changes and providers.
	P50 float64 `json:"p50Milliseconds"`
	P99 float64 `json:"p99Milliseconds"`
	// VKubeletMB is the resident memory of a vkubelet that idles, without that of files, which all processes
	// of a program share; VKubeletCore its share of a core in percent, each the median of all.
	VKubeletMB   float64 `json:"vkubeletMB"`
	VKubeletCore float64 `json:"vkubeletCorePercent"`
	ControllerMB float64 `json:"controllerMB"`
	// Idle and Changing are the shares of a core of each process in percent, those of all vkubelets as one
	// sum: while nothing happens, and while the object changes.
	Idle     map[string]float64 `json:"idleCorePercent"`
	Changing map[string]float64 `json:"changingCorePercent"`
}

// peering is one consumer with many providers, which are one cluster.
type peering struct {
	Begin     time.Time   `json:"begin"`
	Machine   machine     `json:"machine"`
	PerSecond int         `json:"changesPerSecond"`
	Steps     []withPeers `json:"steps"`
}

// many is a consumer and its providers. Behind all providers is one cluster, mock, whose API server and
// controller serve the consumer under as many names as there are providers: see newMask.
type many struct {
	home, mock *site.Site
	uid        string               // of kube-system in mock
	away       kubernetes.Interface // client of mock
	providers  int

	mu    sync.Mutex
	masks []*http.Server
}

// measurePeers adds providers to a consumer, and measures what they cost while they idle and while an
// object changes at home.
func measurePeers(ctx context.Context, all options) (err error) {
	o := all.peers
	l, err := lab.New(ctx, lab.Options{Log: logf})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	m, err := newMany(ctx, l)
	if err != nil {
		return err
	}
	defer m.close()
	r := &peering{Begin: time.Now(), Machine: thisMachine(), PerSecond: o.perSecond}
	// A machine that has not the cores for a number of providers has told of fewer.
	defer func() {
		if len(r.Steps) > 0 {
			r.print(os.Stdout)
			err = errors.Join(err, writeJSON(o.out, r))
		}
	}()
	for _, n := range o.numbers() {
		l.Logf("%d providers", n)
		if err := m.grow(ctx, n); err != nil {
			return fmt.Errorf("adding providers, up to %d: %w", n, err)
		}
		l.Logf("%d providers idle, and get %d changes a second then", n, o.perSecond)
		step, err := m.measure(ctx, o)
		if err != nil {
			return fmt.Errorf("%d providers: %w", n, err)
		}
		r.Steps = append(r.Steps, step)
	}
	return nil
}

func newMany(ctx context.Context, l *lab.Lab) (*many, error) {
	sites, err := shipped(ctx, l)
	if err != nil {
		return nil, err
	}
	m := &many{}
	group, starting := errgroup.WithContext(ctx)
	for i, target := range []**site.Site{&m.home, &m.mock} {
		group.Go(func() error {
			c, err := l.Start(starting, lab.ClusterOptions{
				Name: []string{consumerID, mockID}[i], SimulatedNodes: 1, NodeGrace: nodeGrace,
				PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 110+i),
			})
			if err == nil {
				*target, err = sites.Install(starting, c)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	system, err := m.mock.Client().CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading which cluster is behind all providers: %w", err)
	}
	m.uid = string(system.UID)
	cheap := m.mock.Config()
	cheap.ContentType, cheap.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	if m.away, err = kubernetes.NewForConfig(cheap); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return m, nil
}

func (m *many) close() {
	for _, mask := range m.masks {
		_ = mask.Close() // the process ends anyway
	}
}

// grow adds providers until there are n, and waits until each has the object that changes.
func (m *many) grow(ctx context.Context, n int) error {
	group, adding := errgroup.WithContext(ctx)
	group.SetLimit(peeredAtOnce)
	for i := m.providers + 1; i <= n; i++ {
		group.Go(func() error { return m.peer(adding, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if m.providers == 0 {
		if err := m.offloadChange(ctx); err != nil {
			return err
		}
	}
	m.providers = n
	return lab.Eventually(ctx, func(ctx context.Context) error {
		have, err := m.away.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: changeName}))
		return lab.Wrong(err, len(have.Items) != n, "%d of %d providers have the object", len(have.Items), n)
	})
}

// peer adds provider i.
func (m *many) peer(ctx context.Context, i int) error {
	kubeconfig, err := m.mock.Admit(ctx, numbered(consumerID, i), "")
	if err != nil {
		return err
	}
	mask, masked, err := newMask(m.mock, m.uid, i, kubeconfig)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.masks = append(m.masks, mask)
	m.mu.Unlock()
	return m.home.PeerBy(ctx, numbered(mockID, i), masked)
}

// offloadChange offloads the namespace to all providers, and creates the object that changes in it.
func (m *many) offloadChange(ctx context.Context) error {
	if err := m.home.Offload(ctx, peersNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote}); err != nil {
		return err
	}
	change := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: changeName}, Data: map[string]string{"at": ""}}
	if _, err := m.home.Client().CoreV1().ConfigMaps(peersNamespace).Create(ctx, change, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the object that changes: %w", err)
	}
	return nil
}

func (m *many) measure(ctx context.Context, o peerOptions) (out withPeers, err error) {
	out.Peers = m.providers
	if err := pause(ctx, settle); err != nil {
		return out, err
	}
	idle, err := m.cores(func() error { return pause(ctx, o.idle) })
	if err != nil {
		return out, err
	}
	var memories, cores []float64
	for i := 1; i <= m.providers; i++ {
		name := numbered(mockID, i)
		mb, err := memoryOf((*m.home.VKubelet(name)).PID, ownLine)
		if err != nil {
			return out, err
		}
		memories, cores = append(memories, mb), append(cores, idle[name])
	}
	out.VKubeletMB, out.VKubeletCore = quantile(memories, 0.5), quantile(cores, 0.5)
	if out.ControllerMB, err = memoryOf(m.home.Controller.PID, ownLine); err != nil {
		return out, err
	}
	var took []float64
	changing, err := m.cores(func() (err error) {
		took, err = m.changes(ctx, o)
		return err
	})
	if err != nil {
		return out, err
	}
	out.P50, out.P99 = quantile(took, 0.5), quantile(took, 0.99)
	out.Idle, out.Changing = m.summed(idle), m.summed(changing)
	return out, nil
}

// processes have the ids of all that works, each vkubelet by the name of its provider.
func (m *many) processes() map[string]int {
	all := map[string]int{benchProcess: os.Getpid(), "home's controller": m.home.Controller.PID, "providers' controller": m.mock.Controller.PID}
	for _, component := range []string{lab.APIServer, lab.Etcd} {
		all["home's "+component] = m.home.Component(component).PID
		all["providers' "+component] = m.mock.Component(component).PID
	}
	for i := 1; i <= m.providers; i++ {
		name := numbered(mockID, i)
		all[name] = (*m.home.VKubelet(name)).PID
	}
	return all
}

// cores returns the share of a core that each process needs during work, in percent.
func (m *many) cores(work func() error) (map[string]float64, error) {
	begin := time.Now()
	before, err := readAll(m.processes(), cpuOf)
	if err != nil {
		return nil, err
	}
	if err := work(); err != nil {
		return nil, err
	}
	now, err := readAll(m.processes(), cpuOf)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(begin).Seconds()
	shares := since(before, now)
	for name, used := range shares {
		shares[name] = 100 * used / seconds
	}
	return shares, nil
}

// summed returns shares with one sum for all vkubelets.
func (m *many) summed(shares map[string]float64) map[string]float64 {
	out := maps.Clone(shares)
	for i := 1; i <= m.providers; i++ {
		name := numbered(mockID, i)
		out[allVKubelets] += out[name]
		delete(out, name)
	}
	return out
}

// allVKubelets is the name of the sum of all vkubelets.
const allVKubelets = "vkubelets"

// changes changes the object at home and returns how many milliseconds each change took to each provider.
func (m *many) changes(ctx context.Context, o peerOptions) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, o.last+phasePatience)
	defer cancel()
	a := newArrivals(m.providers, int(o.last.Seconds())*o.perSecond)
	group, ctx := errgroup.WithContext(ctx)
	for i := range a.seen {
		twin := peersNamespace + "-" + numbered(consumerID, i+1)
		// One watch for each: an API server ends a watch that it cannot send many events at once.
		watching, err := m.away.CoreV1().ConfigMaps(twin).Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: changeName}))
		if err != nil {
			return nil, fmt.Errorf("watching in %s: %w", twin, err)
		}
		defer watching.Stop()
		group.Go(func() error { return a.watch(ctx, i, watching) })
	}
	group.Go(func() error { return m.send(ctx, o.perSecond, a) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return a.took(), nil
}

// send changes the object at home.
func (m *many) send(ctx context.Context, perSecond int, a *arrivals) error {
	every := time.NewTicker(time.Second / time.Duration(perSecond))
	defer every.Stop()
	for at := 1; at < len(a.sent); at++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
		a.sent[at] = time.Now()
		_, err := m.home.Client().CoreV1().ConfigMaps(peersNamespace).Patch(ctx, changeName, types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"at":"`+changeFormat+`"}}`, m.providers, at), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("changing the object: %w", err)
		}
	}
	return nil
}

// arrivals are the times of changes, by the number of the change.
type arrivals struct {
	sent []time.Time
	seen [][]time.Time // of each provider
}

func newArrivals(providers, changes int) *arrivals {
	a := &arrivals{sent: make([]time.Time, changes+1)}
	for range providers {
		a.seen = append(a.seen, make([]time.Time, changes+1))
	}
	return a
}

// watch returns when a provider has the last change.
func (a *arrivals) watch(ctx context.Context, i int, watching watch.Interface) error {
	last := len(a.sent) - 1
	for a.seen[i][last].IsZero() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("provider %d has not got the last change: %w", i+1, ctx.Err())
		case event, ok := <-watching.ResultChan():
			if !ok {
				return fmt.Errorf("the watch of provider %d ended before the last change", i+1)
			}
			c, ok := event.Object.(*corev1.ConfigMap)
			if !ok {
				return fmt.Errorf("watching provider %d: %v", i+1, event.Object)
			}
			a.see(i, c, time.Now())
		}
	}
	return nil
}

// see takes an object of a provider. One without a change of these is from before.
func (a *arrivals) see(i int, c *corev1.ConfigMap, now time.Time) {
	var of, at int
	if _, err := fmt.Sscanf(c.Data["at"], changeFormat, &of, &at); err == nil && of == len(a.seen) && a.seen[i][at].IsZero() {
		a.seen[i][at] = now
	}
}

// took returns how many milliseconds each change took to each provider. A change that is overtaken by
// the next one counts as that one does.
func (a *arrivals) took() (all []float64) {
	last := len(a.sent) - 1
	for _, seen := range a.seen {
		for at := last; at > 0; at-- {
			if seen[at].IsZero() && at < last {
				seen[at] = seen[at+1]
			}
			all = append(all, float64(seen[at].Sub(a.sent[at]).Microseconds())/1000)
		}
	}
	return all
}

// print writes the figures for people.
func (r *peering) print(out io.Writer) {
	fmt.Fprintf(out, "\nOne consumer; its providers are names of one cluster, with one API server and one controller, on the same machine; %d changes a second at home; %s\n", r.PerSecond, r.Machine)
	rows := [][]string{{"PROVIDERS", "P50 MS", "P99 MS", "VKUBELET'S OWN MB", "VKUBELET % OF A CORE", "CONTROLLER'S OWN MB"}}
	shares := [][]string{{"% OF A CORE, IDLE / CHANGING"}}
	names := slices.Sorted(maps.Keys(r.Steps[0].Idle))
	for _, name := range names {
		shares = append(shares, []string{name})
	}
	for _, s := range r.Steps {
		rows = append(rows, []string{strconv.Itoa(s.Peers), fmt.Sprintf("%.0f", s.P50), fmt.Sprintf("%.0f", s.P99),
			fmt.Sprintf("%.1f", s.VKubeletMB), fmt.Sprintf("%.2f", s.VKubeletCore), fmt.Sprintf("%.1f", s.ControllerMB)})
		shares[0] = append(shares[0], strconv.Itoa(s.Peers))
		for i, name := range names {
			shares[i+1] = append(shares[i+1], fmt.Sprintf("%.1f / %.1f", s.Idle[name], s.Changing[name]))
		}
	}
	table(out, rows)
	fmt.Fprintln(out)
	table(out, shares)
	first, last := r.Steps[0], r.Steps[len(r.Steps)-1]
	fmt.Fprintf(out, "p99 with %d providers is %.2f times that with %d (goals: %.1f, and %.0f ms); an idle vkubelet needs %.1f MB of its own and %.2f %% of a core (goals: %.0f MB, %.1f %%)\n",
		last.Peers, last.P99/first.P99, first.Peers, peersGoalRatio, peersGoalMillis, last.VKubeletMB, last.VKubeletCore, peersGoalMB, peersGoalCore)
}
