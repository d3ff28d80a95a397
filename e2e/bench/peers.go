package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// peerOptions are of one consumer with many providers, each a control plane of its own.
type peerOptions struct {
	most      int
	perSecond int
	last      time.Duration
	idle      time.Duration
	out       string
}

func (o *peerOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.most, "peers", 10, "providers of --only peers; each needs about 500 MB")
	flags.IntVar(&o.perSecond, "peer-changes", 5, "changes at home in each second of --only peers")
	flags.DurationVar(&o.last, "peer-for", 30*time.Second, "how long --only peers changes an object with each number of providers")
	flags.DurationVar(&o.idle, "peer-idle", 60*time.Second, "how long --only peers lets the providers idle")
	flags.StringVar(&o.out, "peers-out", filepath.Join("bin", "bench-peers.json"), "file for the figures of --only peers")
}

func (o *peerOptions) check() error {
	return errors.Join(atLeast("peers", o.most, 1), atLeast("peer-changes", o.perSecond, 1), atLeast("peer-for", int(o.last/time.Second), 1), atLeast("peer-idle", int(o.idle/time.Second), 1))
}

// numbers are the numbers of providers that are measured.
func (o *peerOptions) numbers() []int {
	all := []int{1, (o.most + 1) / 2, o.most}
	return slices.Compact(all)
}

// withPeers is what a number of providers costs.
type withPeers struct {
	Peers int `json:"peers"`
	// From the answer to a change at home to its arrival in a provider, in milliseconds, of all
	// changes and providers.
	P50 float64 `json:"p50Milliseconds"`
	P99 float64 `json:"p99Milliseconds"`
	// VKubeletMB is the resident memory of a vkubelet that idles, without that of files, which all processes
	// of a program share; VKubeletCore its share of a core in percent, each the median of all. The others are those of the process for all peers.
	VKubeletMB     float64 `json:"vkubeletMB"`
	VKubeletCore   float64 `json:"vkubeletCorePercent"`
	ControllerMB   float64 `json:"controllerMB"`
	ControllerCore float64 `json:"controllerCorePercent"`
	APIServerCore  float64 `json:"apiServerCorePercent"`
}

// peering is one consumer with many providers.
type peering struct {
	Begin     time.Time   `json:"begin"`
	Machine   machine     `json:"machine"`
	PerSecond int         `json:"changesPerSecond"`
	Steps     []withPeers `json:"steps"`
}

// measurePeers adds providers to a consumer, and measures what they cost while they idle and while an
// object changes at home.
func measurePeers(ctx context.Context, all options) (err error) {
	o := all.peers
	w := &world{}
	if w.lab, err = lab.New(ctx, lab.Options{Log: logf}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	sites, err := shipped(ctx, w.lab)
	if err != nil {
		return err
	}
	if w.rome, err = peerSite(ctx, sites, 0); err != nil {
		return err
	}
	r := &peering{Begin: time.Now(), Machine: thisMachine(), PerSecond: o.perSecond}
	var providers []*site.Site
	for _, n := range o.numbers() {
		for len(providers) < n {
			s, err := peerSite(ctx, sites, len(providers)+1)
			if err != nil {
				return err
			}
			if err := w.rome.Peer(ctx, s, site.PeerOptions{}); err != nil {
				return err
			}
			if len(providers) == 0 {
				if err := w.offloadChange(ctx); err != nil {
					return err
				}
			}
			providers = append(providers, s)
		}
		step, err := w.withPeers(ctx, o, providers)
		if err != nil {
			return fmt.Errorf("%d providers: %w", n, err)
		}
		r.Steps = append(r.Steps, step)
	}
	r.print(os.Stdout)
	return writeJSON(o.out, r)
}

// offloadChange offloads the namespace to all providers, and creates the object that changes in it.
func (w *world) offloadChange(ctx context.Context) error {
	if err := w.rome.Offload(ctx, peersNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote}); err != nil {
		return err
	}
	change := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: changeName}, Data: map[string]string{"at": ""}}
	if _, err := w.rome.Client().CoreV1().ConfigMaps(peersNamespace).Create(ctx, change, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the object that changes: %w", err)
	}
	return nil
}

// peerSite starts cluster i: rome, or a provider.
func peerSite(ctx context.Context, sites *site.Sites, i int) (*site.Site, error) {
	name := "rome"
	if i > 0 {
		name = "p" + strconv.Itoa(i)
	}
	c, err := sites.Lab.Start(ctx, lab.ClusterOptions{
		Name: name, SimulatedNodes: 1, NodeGrace: nodeGrace, PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 200-i),
	})
	if err != nil {
		return nil, err
	}
	return sites.Install(ctx, c)
}

func (w *world) withPeers(ctx context.Context, o peerOptions, providers []*site.Site) (withPeers, error) {
	out := withPeers{Peers: len(providers)}
	w.lab.Logf("%d providers idle", len(providers))
	if err := pause(ctx, settle); err != nil {
		return out, err
	}
	if err := w.idle(ctx, o.idle, providers, &out); err != nil {
		return out, err
	}
	w.lab.Logf("%d providers get %d changes a second", len(providers), o.perSecond)
	took, err := w.changes(ctx, o, providers)
	out.P50, out.P99 = quantile(took, 0.5), quantile(took, 0.99)
	return out, err
}

// idle measures what the processes need while nothing happens.
func (w *world) idle(ctx context.Context, d time.Duration, providers []*site.Site, out *withPeers) error {
	pids := []int{w.rome.Controller.PID, w.rome.Component(lab.APIServer).PID}
	for _, s := range providers {
		pids = append(pids, (*w.rome.VKubelet(s.Name)).PID)
	}
	used := make([][2]float64, len(pids))
	for i := range 2 {
		for j, pid := range pids {
			seconds, err := cpuOf(pid)
			if err != nil {
				return err
			}
			used[j][i] = seconds
		}
		if i == 0 {
			if err := pause(ctx, d); err != nil {
				return err
			}
		}
	}
	var cores, memories []float64
	for j, pid := range pids {
		mb, err := memoryOf(pid, ownLine)
		if err != nil {
			return err
		}
		cores, memories = append(cores, 100*(used[j][1]-used[j][0])/d.Seconds()), append(memories, mb)
	}
	out.ControllerMB, out.ControllerCore, out.APIServerCore = memories[0], cores[0], cores[1]
	out.VKubeletMB, out.VKubeletCore = quantile(memories[2:], 0.5), quantile(cores[2:], 0.5)
	return nil
}

// changes changes the object at home and returns how many milliseconds each change took to each provider.
// A change that is overtaken by the next one counts as that one does.
func (w *world) changes(ctx context.Context, o peerOptions, providers []*site.Site) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, o.last+phasePatience)
	defer cancel()
	total := int(o.last.Seconds()) * o.perSecond
	sent := make([]time.Time, total+1) // by the number of the change
	seen := make([][]time.Time, len(providers))
	errs := make([]error, len(providers))
	var wg sync.WaitGroup
	for i, s := range providers {
		watching, err := s.Client().CoreV1().ConfigMaps(peersNamespace+"-rome").Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: changeName}))
		if err != nil {
			return nil, fmt.Errorf("watching in %s: %w", s.Name, err)
		}
		defer watching.Stop()
		seen[i] = make([]time.Time, total+1)
		wg.Go(func() {
			for event := range watching.ResultChan() {
				c, ok := event.Object.(*corev1.ConfigMap)
				if !ok {
					errs[i] = fmt.Errorf("watching in %s: %v", s.Name, event.Object)
					return
				}
				var of, at int
				// What does not read so is of no change of these.
				if _, err := fmt.Sscanf(c.Data["at"], changeFormat, &of, &at); err == nil && of == len(providers) {
					seen[i][at] = time.Now()
				}
				if of == len(providers) && at == total {
					return
				}
			}
			errs[i] = fmt.Errorf("the watch in %s ended before the last change", s.Name)
		})
	}
	if err := w.send(ctx, o.perSecond, len(providers), sent); err != nil {
		return nil, err
	}
	wg.Wait()
	var took []float64
	for i := range providers {
		for at := total; at > 0; at-- {
			if seen[i][at].IsZero() && at < total {
				seen[i][at] = seen[i][at+1]
			}
			took = append(took, float64(seen[i][at].Sub(sent[at]).Microseconds())/1000)
		}
	}
	return took, errors.Join(errs...)
}

// send changes the object at home as often as sent has places, but the first, and records when.
func (w *world) send(ctx context.Context, perSecond, providers int, sent []time.Time) error {
	every := time.NewTicker(time.Second / time.Duration(perSecond))
	defer every.Stop()
	for at := 1; at < len(sent); at++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
		sent[at] = time.Now()
		_, err := w.rome.Client().CoreV1().ConfigMaps(peersNamespace).Patch(ctx, changeName, types.MergePatchType, fmt.Appendf(nil, `{"data":{"at":"`+changeFormat+`"}}`, providers, at), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("changing the object: %w", err)
		}
	}
	return nil
}

// print writes the figures for people.
func (r *peering) print(out io.Writer) {
	fmt.Fprintf(out, "\nOne consumer, providers with control planes of their own on the same machine; %d changes a second at home; %s\n", r.PerSecond, r.Machine)
	rows := [][]string{{"PROVIDERS", "P50 MS", "P99 MS", "VKUBELET'S OWN MB", "VKUBELET % OF A CORE", "CONTROLLER'S OWN MB", "CONTROLLER %", "HOME'S API SERVER %"}}
	for _, s := range r.Steps {
		rows = append(rows, []string{
			strconv.Itoa(s.Peers), fmt.Sprintf("%.0f", s.P50), fmt.Sprintf("%.0f", s.P99), fmt.Sprintf("%.1f", s.VKubeletMB), fmt.Sprintf("%.2f", s.VKubeletCore),
			fmt.Sprintf("%.1f", s.ControllerMB), fmt.Sprintf("%.2f", s.ControllerCore), fmt.Sprintf("%.2f", s.APIServerCore),
		})
	}
	table(out, rows)
	first, last := r.Steps[0], r.Steps[len(r.Steps)-1]
	fmt.Fprintf(out, "p99 with %d providers is %.2f times that with %d (goals: %.1f, and %.0f ms); an idle vkubelet needs %.1f MB of its own and %.2f %% of a core (goals: %.0f MB, %.1f %%)\n",
		last.Peers, last.P99/first.P99, first.Peers, peersGoalRatio, peersGoalMillis, last.VKubeletMB, last.VKubeletCore, peersGoalMB, peersGoalCore)
}
