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

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
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
	pods       int
	service    bool
	out        string
	profiles   string
	noEvents   bool
	noPolicies bool
}

func (o *scaleOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.pods, "scale-pods", scaleGoalPods, "pods of --only scale, all in one namespace")
	flags.BoolVar(&o.service, "scale-service", true, "with --only scale: a Service of all pods, while they run and are deleted")
	flags.StringVar(&o.out, "scale-out", filepath.Join("bin", "bench-scale.json"), "file for the figures of --only scale")
}

func (o *scaleOptions) check() error {
	if o.pods < 1 {
		return fmt.Errorf("--scale-pods is %d: at least 1 is accepted", o.pods)
	}
	return nil
}

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
func measureScale(ctx context.Context, o scaleOptions) (err error) {
	w, err := newWorld(ctx, worldOptions{pods: o.pods, profiles: o.profiles, noEvents: o.noEvents, noPolicies: o.noPolicies, twinLimits: o.limits()})
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
	before, err := w.restingInventory(ctx, settle)
	if err != nil {
		return err
	}
	l := load{pods: o.pods, name: "scale"}
	w.lab.Logf("creating %d pods", o.pods)
	if r.Create, err = w.create(ctx, w.offloading, l); err != nil {
		return fmt.Errorf("creating %d pods: %w", o.pods, err)
	}
	if err := w.whileRunning(ctx, o, r); err != nil {
		return err
	}
	w.lab.Logf("deleting %d pods", o.pods)
	if r.Delete, err = w.delete(ctx, w.offloading, l); err != nil {
		return fmt.Errorf("deleting %d pods: %w", o.pods, err)
	}
	if r.Peak, err = w.memoryOf(peakLine, everyProcess); err != nil {
		return err
	}
	r.Cleared, err = w.cleared(ctx, o, before)
	return err
}

// whileRunning makes the Service, and reads the memory when its endpoints are there.
func (w *world) whileRunning(ctx context.Context, o scaleOptions, r *scaled) (err error) {
	if o.service {
		if err := w.serveAll(ctx, o.pods); err != nil {
			return err
		}
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	if r.Running, err = w.memoryOf(residentLine, everyProcess); err != nil {
		return err
	}
	return w.keepHeaps(ctx, "scale")
}

// serveAll makes a Service of all pods and waits until each is a ready endpoint at home.
func (w *world) serveAll(ctx context.Context, pods int) error {
	ctx, cancel := context.WithTimeout(ctx, scalePatience)
	defer cancel()
	if err := w.serve(ctx); err != nil {
		return err
	}
	watch, err := w.watchReadiness(ctx)
	if err != nil {
		return err
	}
	defer watch.stop()
	return watch.wait(ctx, func() bool { return watch.readyEndpoints() == pods })
}

// cleared deletes the Service and returns after how many seconds both clusters had nothing
// that they did not have before.
func (w *world) cleared(ctx context.Context, o scaleOptions, before map[string]bool) (float64, error) {
	begin := time.Now()
	if o.service {
		if err := w.atRome.core.CoreV1().Services(w.offloading.home).Delete(ctx, "bench", metav1.DeleteOptions{}); err != nil {
			return 0, fmt.Errorf("deleting the Service: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, scalePatience)
	defer cancel()
	err := lab.Eventually(ctx, func(ctx context.Context) error {
		now, err := w.inventory(ctx)
		if err != nil {
			return err
		}
		return left(before, now)
	})
	return time.Since(begin).Seconds(), err
}

// leftNamed is how many objects are named of those that are left.
const leftNamed = 5

// left is an error that names what is there now and was not there before.
func left(before, now map[string]bool) error {
	var names []string
	for name := range now {
		if !before[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("%d objects are left: %s", len(names), strings.Join(names[:min(leftNamed, len(names))], ", "))
}

// inventoryKinds are the kinds that a pod, its Service and what they bring can leave. Events
// are not among them: their life is that of the cluster's setting.
func inventoryKinds() []schema.GroupVersionResource {
	core, slices, own := corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, offloadingv1beta1.SchemeGroupVersion
	return []schema.GroupVersionResource{
		core.WithResource("pods"), core.WithResource("services"), core.WithResource("endpoints"), core.WithResource("configmaps"), core.WithResource("secrets"),
		core.WithResource("serviceaccounts"), core.WithResource("persistentvolumeclaims"), slices.WithResource("endpointslices"),
		own.WithResource("shadowpods"), own.WithResource("shadowendpointslices"),
	}
}

// inventory has the names of what is in the namespaces of the pods, in both clusters.
func (w *world) inventory(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for _, place := range []struct {
		cluster, namespace string
		client             metadata.Interface
	}{{w.rome.Name, w.offloading.home, w.atRome.meta}, {w.milan.Name, w.offloading.away, w.atMilan.meta}} {
		for _, kind := range inventoryKinds() {
			list, err := place.client.Resource(kind).Namespace(place.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing the %s of %s: %w", kind.Resource, place.cluster, err)
			}
			for i := range list.Items {
				out[place.cluster+" "+kind.Resource+" "+place.namespace+"/"+list.Items[i].Name] = true
			}
		}
	}
	return out, nil
}

// restingInventory is the inventory when it has not changed for a while: what a namespace
// always has comes some time after the namespace.
func (w *world) restingInventory(ctx context.Context, rest time.Duration) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, scalePatience)
	defer cancel()
	before, err := w.inventory(ctx)
	for err == nil {
		if err := pause(ctx, rest); err != nil {
			return nil, fmt.Errorf("waiting until nothing changes in the namespaces of the pods: %w", err)
		}
		var now map[string]bool
		if now, err = w.inventory(ctx); maps.Equal(before, now) {
			break
		}
		before = now
	}
	return before, err
}

// keepHeaps keeps what the memory of the roles holds now, if profiles were asked for.
func (w *world) keepHeaps(ctx context.Context, name string) error {
	if w.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(w.profiles, 0o755); err != nil {
		return fmt.Errorf("making the directory of profiles: %w", err)
	}
	for role, p := range w.profiled() {
		text, err := fetch(ctx, p, "/debug/pprof/heap?gc=1")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(w.profiles, name+"-"+role+".heap"), text, 0o644); err != nil {
			return fmt.Errorf("writing a profile: %w", err)
		}
	}
	return nil
}

// print writes the figures for people.
func (r *scaled) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d pods in one namespace, simulated nodes; %d CPUs (%s), Linux %s, %s\n", r.Pods, r.Machine.CPUs, r.Machine.Model, r.Machine.Kernel, r.Machine.Go)
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
