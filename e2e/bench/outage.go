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
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// outagePatience is longer than any step of an outage takes.
const outagePatience = 3 * time.Minute

// leastAtOnce is how many pods are patched at once, as many as a vkubelet does.
const leastAtOnce = 20

// outageFile has the figures of an outage when pods are measured, too.
const outageFile = "bench-outage.json"

// serviceName is the Service of all pods.
const serviceName = "bench"

// outageOptions is what is measured of a provider's outage.
type outageOptions struct{ pods int }

func (o *outageOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.pods, "outage-pods", 3000, "pods that run in the provider when its API server stops")
}

func (o *outageOptions) check() error { return atLeast("outage-pods", o.pods, 1) }

// outageOut is the file for the figures.
func (o options) outageOut() string {
	if o.only == "" {
		return filepath.Join(filepath.Dir(o.out), outageFile) // that of the pods is the other one
	}
	return o.out
}

// outage is what home did when the provider's API server stopped, and when it went on.
type outage struct {
	Pods    int   `json:"pods"`
	Lost    swing `json:"lost"`
	Back    swing `json:"back"`
	Least   swing `json:"least"`       // as Lost, by a program that does nothing but patch the pods; without a verdict
	Changed int   `json:"changedPods"` // pods of the provider that are others than before
}

// swing is one of the two: the seconds since the virtual node's readiness changed.
type swing struct {
	// Verdict is the time from the fault, or its end, to the change of the virtual node.
	Verdict float64 `json:"verdictSeconds"`
	// Pods and Endpoints are the times from then to the last pod and the last endpoint.
	Pods      float64            `json:"podsSeconds"`
	Endpoints float64            `json:"endpointsSeconds"`
	CPU       map[string]float64 `json:"cpuSeconds"`
}

// measureOutage lets pods run in milan, pauses its API server, and resumes it.
func measureOutage(ctx context.Context, o options) (err error) {
	w, err := newWorld(ctx, worldOptions{pods: o.outage.pods, noPolicies: o.noPolicies})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	result := &outage{Pods: o.outage.pods}
	if err := w.breakMilan(ctx, o.outage, result); err != nil {
		return err
	}
	result.print(os.Stdout)
	return writeJSON(o.outageOut(), result)
}

func (w *world) breakMilan(ctx context.Context, o outageOptions, result *outage) error {
	if err := w.serve(ctx); err != nil {
		return err
	}
	w.lab.Logf("creating %d pods", o.pods)
	if _, err := w.create(ctx, w.offloading, load{pods: o.pods, name: "outage"}); err != nil {
		return err
	}
	before, err := w.remoteUIDs(ctx)
	if err != nil {
		return err
	}
	core, home := w.home, w.offloading.home
	r, err := follow(ctx, newView("readiness of the virtual node", objectsOf(core.CoreV1().Nodes()), readinessOf(w.offloading.node)),
		newView("ready pods", objectsOf(core.CoreV1().Pods(home)), ready), newView("ready endpoints", objectsOf(core.DiscoveryV1().EndpointSlices(home)), endpoints))
	if err != nil {
		return err
	}
	defer r.stop()
	if err := r.wait(ctx, nodeReady, o.pods, o.pods); err != nil {
		return err
	}
	w.lab.Logf("pausing the API server of milan")
	if result.Lost, err = w.turn(ctx, r, w.milan.PauseAPIServer, nodeNotReady, 0); err != nil {
		return err
	}
	w.lab.Logf("resuming the API server of milan")
	if result.Back, err = w.turn(ctx, r, w.milan.ResumeAPIServer, nodeReady, o.pods); err != nil {
		return err
	}
	after, err := w.remoteUIDs(ctx)
	if err != nil {
		return err
	}
	result.Changed = changed(before, after)
	w.lab.Logf("patching all pods, while the vkubelet is paused")
	vkubelet := *w.rome.VKubelet(w.offloading.node)
	vkubelet.Pause()
	defer vkubelet.Resume()
	result.Least, err = w.least(ctx, r, slices.Collect(maps.Keys(after)))
	return err
}

// least makes the pods not Ready as fast as home's API server can, and waits for their endpoints.
func (w *world) least(ctx context.Context, r *watcher, pods []string) (swing, error) {
	ctx, cancel := context.WithTimeout(ctx, outagePatience)
	defer cancel()
	before, err := w.usage()
	if err != nil {
		return swing{}, err
	}
	begin := time.Now()
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Bench","lastTransitionTime":%q}]}}`, begin.UTC().Format(time.RFC3339))
	group, patching := errgroup.WithContext(ctx)
	group.SetLimit(leastAtOnce)
	for _, name := range pods {
		group.Go(func() error {
			_, err := w.home.CoreV1().Pods(w.offloading.home).Patch(patching, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return swing{}, fmt.Errorf("patching the pods: %w", err)
	}
	if err := r.wait(ctx, anything, 0, 0); err != nil {
		return swing{}, err
	}
	now, err := w.usage()
	if err != nil {
		return swing{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return swing{Pods: r.views[1].last.Sub(begin).Seconds(), Endpoints: r.views[2].last.Sub(begin).Seconds(), CPU: since(before, now)}, nil
}

// serve makes a Service of all pods.
func (w *world) serve(ctx context.Context) error {
	_, err := w.home.CoreV1().Services(w.offloading.home).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "bench"},
			Ports:    []corev1.ServicePort{{Port: 8080}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the Service: %w", err)
	}
	return nil
}

// remoteUIDs are those of the pods in milan, by name.
func (w *world) remoteUIDs(ctx context.Context) (map[string]string, error) {
	list, err := w.away.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(w.offloading.away).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the pods in milan: %w", err)
	}
	out := map[string]string{}
	for _, pod := range list.Items {
		out[pod.Name] = string(pod.UID)
	}
	return out, nil
}

// changed counts the pods that are others, gone or new.
func changed(before, after map[string]string) (n int) {
	left := maps.Clone(after)
	for name, was := range before {
		if after[name] != was {
			n++
		}
		delete(left, name)
	}
	return n + len(left)
}

// turn does something to milan's API server, and waits until the virtual node, its pods
// and their endpoints have followed.
func (w *world) turn(ctx context.Context, r *watcher, do func(), node, ready int) (swing, error) {
	ctx, cancel := context.WithTimeout(ctx, outagePatience)
	defer cancel()
	begin := time.Now()
	do()
	if err := r.wait(ctx, node, anything, anything); err != nil {
		return swing{}, fmt.Errorf("waiting for the virtual node: %w", err)
	}
	before, err := w.usage()
	if err != nil {
		return swing{}, err
	}
	if err := r.wait(ctx, node, ready, ready); err != nil {
		return swing{}, err
	}
	now, err := w.usage()
	if err != nil {
		return swing{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := r.views[0].last
	out := swing{
		Verdict: verdict.Sub(begin).Seconds(), Pods: r.views[1].last.Sub(verdict).Seconds(), Endpoints: r.views[2].last.Sub(verdict).Seconds(),
		CPU: since(before, now),
	}
	w.lab.Logf("the virtual node changed after %.2f s, its last pod %.2f s and its last endpoint %.2f s after that", out.Verdict, out.Pods, out.Endpoints)
	return out, nil
}

func (o *outage) print(out io.Writer) {
	fmt.Fprintf(out, "\nAn outage of a provider's API server with %d pods; goals after the verdict: %.0f s; pods that are others afterwards: %d\n",
		o.Pods, outageGoal(o.Pods), o.Changed)
	rows := [][]string{{"", "VERDICT S", "LAST POD AFTER IT", "LAST ENDPOINT AFTER IT"}}
	for _, line := range []struct {
		name string
		swing
	}{{"lost", o.Lost}, {"back", o.Back}, {"lost, by a program that only patches", o.Least}} {
		rows = append(rows, []string{line.name, fmt.Sprintf("%.2f", line.Verdict), fmt.Sprintf("%.2f", line.Pods), fmt.Sprintf("%.2f", line.Endpoints)})
	}
	table(out, rows)
	fmt.Fprintf(out, "CPU, lost: %s\nCPU, back: %s\nCPU, only patched: %s\n", used(o.Lost.CPU), used(o.Back.CPU), used(o.Least.CPU))
}

// used says which processes have used how much CPU, leaving out those that have hardly used
// any.
func used(cpu map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(cpu)) {
		if cpu[name] >= 0.1 {
			parts = append(parts, fmt.Sprintf("%s %.2f s", name, cpu[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// outageGoal is how many seconds after the verdict all pods have followed.
func outageGoal(pods int) float64 {
	if pods <= 300 {
		return 1
	}
	return 8
}
