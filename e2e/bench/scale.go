package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// scalePatience is how long the clusters may take to follow, beside the phases: until the
// endpoints are there, and until nothing is left.
const scalePatience = 5 * time.Minute

// scaleGoalMB is the most memory that the vkubelet may need for scaleGoalPods pods.
const (
	scaleGoalMB   = 250.0
	scaleGoalPods = 10000
)

// scaleOptions are of one namespace with many pods.
type scaleOptions struct {
	pods    int
	service bool
	out     string
}

func (o *scaleOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.pods, "scale-pods", scaleGoalPods, "pods of --only scale, all in one namespace")
	flags.BoolVar(&o.service, "scale-service", true, "with --only scale: a Service of all pods, while they run and are deleted")
	flags.StringVar(&o.out, "scale-out", filepath.Join("bin", "bench-scale.json"), "file for the figures of --only scale")
}

func (o *scaleOptions) check() error { return atLeast("scale-pods", o.pods, 1) }

// limits are the counts of objects for the twin namespace: those of one with room for all
// pods. Other kinds are not counted, so that the ResourceQuota has the cost of its pods.
func (o *scaleOptions) limits() []string {
	room := strconv.Itoa(2 * o.pods)
	return []string{"pods=" + room, "count/pods=" + room, "count/shadowpods.offloading.liqo.io=" + room}
}

// scaled is what many pods cost.
type scaled struct {
	Begin   time.Time `json:"begin"`
	Machine machine   `json:"machine"`
	Guards  []guards  `json:"guards"`
	Pods    int       `json:"pods"`
	Service bool      `json:"service"`
	Limits  []string  `json:"twinLimits"`
	Create  phase     `json:"create"`
	Delete  phase     `json:"delete"`
	// Running is the resident memory while all pods run and nothing happens; Peak is the
	// highest until the last pod has gone.
	Running map[string]float64 `json:"runningMB"`
	Peak    map[string]float64 `json:"peakMB"`
	// Cleared are the seconds from the last pod's end until nothing was left.
	Cleared float64 `json:"clearedSeconds"`
}

// measureScale creates many pods in one namespace, deletes them, and looks for what is left.
func measureScale(ctx context.Context, all options) (err error) {
	o := all.scale
	w, err := newWorld(ctx, worldOptions{pods: o.pods, noPolicies: all.noPolicies, twinLimits: o.limits()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r := &scaled{Begin: time.Now(), Machine: thisMachine(), Guards: w.guards, Pods: o.pods, Service: o.service, Limits: o.limits()}
	if err := w.scale(ctx, o, r); err != nil {
		return err
	}
	r.print(os.Stdout)
	return writeJSON(o.out, r)
}

func (w *world) scale(ctx context.Context, o scaleOptions, r *scaled) error {
	var before [2][]string
	for i, s := range []*site.Site{w.rome, w.milan} {
		var err error
		if before[i], err = s.AtRest(ctx); err != nil {
			return err
		}
	}
	l := load{pods: o.pods, name: "scale"}
	w.lab.Logf("creating %d pods", o.pods)
	var err error
	if r.Create, err = w.create(ctx, w.offloading, l); err != nil {
		return err
	}
	if o.service {
		if err := w.serveAll(ctx, o.pods); err != nil {
			return err
		}
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	if r.Running, err = w.memory(residentLine); err != nil {
		return err
	}
	w.lab.Logf("deleting %d pods", o.pods)
	if r.Delete, err = w.delete(ctx, w.offloading, l); err != nil {
		return err
	}
	if r.Peak, err = w.memory(peakLine); err != nil {
		return err
	}
	r.Cleared, err = w.cleared(ctx, o, before)
	return err
}

// serveAll makes a Service of all pods and waits until each is a ready endpoint at home.
func (w *world) serveAll(ctx context.Context, pods int) error {
	ctx, cancel := context.WithTimeout(ctx, scalePatience)
	defer cancel()
	if err := w.serve(ctx); err != nil {
		return err
	}
	r, err := follow(ctx, newView("ready endpoints", objectsOf(w.home.DiscoveryV1().EndpointSlices(w.offloading.home)), endpoints))
	if err != nil {
		return err
	}
	defer r.stop()
	return r.wait(ctx, pods)
}

// cleared deletes the Service and returns after how many seconds both clusters had nothing
// that they did not have before.
func (w *world) cleared(ctx context.Context, o scaleOptions, before [2][]string) (float64, error) {
	begin := time.Now()
	if o.service {
		if err := w.home.CoreV1().Services(w.offloading.home).Delete(ctx, serviceName, metav1.DeleteOptions{}); err != nil {
			return 0, fmt.Errorf("deleting the Service: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, scalePatience)
	defer cancel()
	err := lab.Eventually(ctx, func(ctx context.Context) (err error) {
		for i, s := range []*site.Site{w.rome, w.milan} {
			now, err2 := s.Inventory(ctx)
			if err = errors.Join(err, err2); err2 == nil {
				err = errors.Join(err, site.Changes(before[i], now))
			}
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	// They are not in the inventory.
	r, err := follow(ctx, newView("EndpointSlices at home", objectsOf(w.home.DiscoveryV1().EndpointSlices(w.offloading.home)), one),
		newView("EndpointSlices away", w.inMilan(w.offloading, discoveryv1.SchemeGroupVersion.WithResource("endpointslices")), one))
	if err != nil {
		return 0, err
	}
	defer r.stop()
	err = r.wait(ctx, 0, 0)
	return time.Since(begin).Seconds(), err
}

// print writes the figures for people.
func (r *scaled) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d pods in one namespace, simulated nodes; %s\n", r.Pods, r.Machine)
	printGuards(out, r.Guards)
	fmt.Fprintf(out, "sharing.twinLimits is set to %s: the default has room for 5000 pods\n", strings.Join(r.Limits, ", "))
	if r.Service {
		fmt.Fprintln(out, "A Service has all pods as endpoints while they run and are deleted")
	}
	rows := [][]string{{"", "SECONDS", "PODS/S", "P50 MS", "P99 MS"}}
	for _, line := range []struct {
		name string
		p    phase
	}{{"creation", r.Create}, {"deletion", r.Delete}} {
		rows = append(rows, []string{line.name, fmt.Sprintf("%.1f", line.p.Seconds), fmt.Sprintf("%.0f", line.p.PodsPerSecond), fmt.Sprintf("%.0f", line.p.P50), fmt.Sprintf("%.0f", line.p.P99)})
	}
	table(out, rows)
	fmt.Fprintln(out, "\nCPU per pod, ms; memory, MB")
	table(out, r.processRows())
	fmt.Fprintf(out, "\nNothing was left in either cluster %.1f s after the last pod\n", r.Cleared)
	if r.Pods == scaleGoalPods {
		fmt.Fprintf(out, "Goal: the vkubelet needs at most %.0f MB; it has needed %.1f MB\n", scaleGoalMB, r.Peak["rome vkubelet"])
	}
}

// processRows have a line for each process.
func (r *scaled) processRows() [][]string {
	perPod := func(seconds float64) string { return fmt.Sprintf("%.2f", seconds*1000/float64(r.Pods)) }
	rows := [][]string{{"", "CREATION", "DELETION", "RUNNING", "PEAK"}}
	for _, name := range slices.Sorted(maps.Keys(r.Peak)) {
		rows = append(rows, []string{name, perPod(r.Create.CPU[name]), perPod(r.Delete.CPU[name]), fmt.Sprintf("%.1f", r.Running[name]), fmt.Sprintf("%.1f", r.Peak[name])})
	}
	return append(rows, []string{"all but the bench", perPod(r.Create.cpu()), perPod(r.Delete.cpu()), "", ""})
}
