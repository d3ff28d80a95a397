package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// outagePatience is longer than any step of an outage takes.
const outagePatience = 3 * time.Minute

// outageFile has the figures of an outage when pods are measured, too.
const outageFile = "bench-outage.json"

// outageOptions is what is measured of a provider's outage.
type outageOptions struct {
	pods  int
	audit bool
	out   string
	// noPolicies leaves the chart's admission policies out.
	noPolicies bool
}

func (o *outageOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.pods, "outage-pods", 3000, "pods that run in the provider when its API server stops")
	flags.BoolVar(&o.audit, "outage-audit", false, "count the requests too; the times are longer then")
}

func (o *outageOptions) check() error {
	if o.pods < 1 {
		return fmt.Errorf("--outage-pods is %d: at least 1 is accepted", o.pods)
	}
	return nil
}

// outage is what home did when the provider's API server stopped, and when it went on.
type outage struct {
	Pods     int           `json:"pods"`
	Lost     swing         `json:"lost"`
	Back     swing         `json:"back"`
	Changed  int           `json:"changedPods"` // pods of the provider that are others than before
	Requests []idleRequest `json:"requests,omitempty"`
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
func measureOutage(ctx context.Context, o outageOptions) (err error) {
	w, err := newWorld(ctx, worldOptions{pods: o.pods, audit: o.audit, noPolicies: o.noPolicies})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
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
	watch, err := w.watchReadiness(ctx)
	if err != nil {
		return err
	}
	defer watch.stop()
	if err := watch.wait(ctx, func() bool { return watch.readyPods() == o.pods && watch.readyEndpoints() == o.pods }); err != nil {
		return err
	}
	result := &outage{Pods: o.pods}
	within := window{begin: time.Now()}
	w.lab.Logf("pausing the API server of milan")
	if result.Lost, err = w.turn(ctx, watch, w.milan.PauseAPIServer, corev1.ConditionFalse, 0); err != nil {
		return err
	}
	w.lab.Logf("resuming the API server of milan")
	if result.Back, err = w.turn(ctx, watch, w.milan.ResumeAPIServer, corev1.ConditionTrue, o.pods); err != nil {
		return err
	}
	within.end = time.Now()
	after, err := w.remoteUIDs(ctx)
	if err != nil {
		return err
	}
	var changed restarted
	changed.compare(before, after)
	result.Changed = changed.Changed
	if o.audit {
		if result.Requests, err = w.homeRequests(within); err != nil {
			return err
		}
	}
	result.print(os.Stdout)
	return result.write(o.out)
}

// serve makes a Service of all pods.
func (w *world) serve(ctx context.Context) error {
	_, err := w.atRome.core.CoreV1().Services(w.offloading.home).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "bench"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the Service: %w", err)
	}
	return nil
}

// turn does something to milan's API server, and waits until the virtual node, its pods
// and their endpoints have followed.
func (w *world) turn(ctx context.Context, r *readinessWatch, do func(), want corev1.ConditionStatus, ready int) (swing, error) {
	ctx, cancel := context.WithTimeout(ctx, outagePatience)
	defer cancel()
	begin := time.Now()
	do()
	if err := r.wait(ctx, func() bool { return r.node == want }); err != nil {
		return swing{}, fmt.Errorf("waiting for the virtual node: %w", err)
	}
	verdict := r.nodeAt()
	used, err := w.usage()
	if err != nil {
		return swing{}, err
	}
	if err := r.wait(ctx, func() bool { return r.readyPods() == ready && r.readyEndpoints() == ready }); err != nil {
		return swing{}, err
	}
	pods, endpoints := r.lastChanges()
	now, err := w.usage()
	if err != nil {
		return swing{}, err
	}
	out := swing{
		Verdict: verdict.Sub(begin).Seconds(), Pods: pods.Sub(verdict).Seconds(), Endpoints: endpoints.Sub(verdict).Seconds(),
		CPU: now.since(used),
	}
	w.lab.Logf("the virtual node changed after %.2f s, its last pod %.2f s and its last endpoint %.2f s after that", out.Verdict, out.Pods, out.Endpoints)
	return out, nil
}

// homeRequests counts the requests to the API server of rome.
func (w *world) homeRequests(within window) (out []idleRequest, err error) {
	counts, err := w.requests(within)
	for key, n := range counts {
		if key.Cluster == w.rome.Name {
			out = append(out, idleRequest{key, n})
		}
	}
	slices.SortFunc(out, func(a, b idleRequest) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Who, b.Who))
	})
	return out, err
}

// readinessWatch follows the readiness of a virtual node, its pods and their endpoints.
type readinessWatch struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	news   chan struct{}

	mu                                 sync.Mutex
	node                               corev1.ConditionStatus
	pods                               map[string]bool // ready ones by name
	slices                             map[string]int  // ready endpoints by slice
	nodeChanged, podSeen, endpointSeen time.Time
	err                                error
}

func (w *world) watchReadiness(ctx context.Context) (*readinessWatch, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &readinessWatch{cancel: cancel, news: make(chan struct{}, 1), pods: map[string]bool{}, slices: map[string]int{}}
	core := w.atRome.core
	pods, nodes, slices := core.CoreV1().Pods(w.offloading.home), core.CoreV1().Nodes(), core.DiscoveryV1().EndpointSlices(w.offloading.home)
	for _, s := range []source{
		{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) }, nodes.Watch},
		{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) }, pods.Watch},
		{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return slices.List(ctx, o) }, slices.Watch},
	} {
		list, err := s.list(ctx, metav1.ListOptions{})
		if err != nil {
			r.stop()
			return nil, fmt.Errorf("listing what is there: %w", err)
		}
		see := func(object metav1.Object, deleted bool) { r.see(object, w.offloading.node, deleted, time.Now()) }
		eachOf(list, see)
		version, err := resourceVersion(list)
		if err != nil {
			r.stop()
			return nil, err
		}
		r.wg.Go(func() {
			if err := s.follow(ctx, version, see); err != nil {
				r.fail(err)
			}
		})
	}
	return r, nil
}

func eachOf(list runtime.Object, see func(metav1.Object, bool)) {
	switch l := list.(type) {
	case *corev1.NodeList:
		for i := range l.Items {
			see(&l.Items[i], false)
		}
	case *corev1.PodList:
		for i := range l.Items {
			see(&l.Items[i], false)
		}
	case *discoveryv1.EndpointSliceList:
		for i := range l.Items {
			see(&l.Items[i], false)
		}
	}
}

func (r *readinessWatch) see(object metav1.Object, node string, deleted bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Node:
		if status := nodeReadiness(o); o.Name == node && status != r.node {
			r.node, r.nodeChanged = status, now
		}
	case *corev1.Pod:
		if ready := !deleted && podReady(o); ready != r.pods[o.Name] {
			r.podSeen = now
			if r.pods[o.Name] = ready; !ready {
				delete(r.pods, o.Name)
			}
		}
	case *discoveryv1.EndpointSlice:
		if n := readyIn(o); n != r.slices[o.Name] {
			r.slices[o.Name], r.endpointSeen = n, now
		}
	}
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func nodeReadiness(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// readyIn counts the ready endpoints of a slice that the cluster itself has made.
func readyIn(s *discoveryv1.EndpointSlice) (n int) {
	for _, e := range s.Endpoints {
		if e.Conditions.Ready == nil || *e.Conditions.Ready {
			n++
		}
	}
	return n
}

func (r *readinessWatch) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// wait returns when over is true, which is called with the lock held.
func (r *readinessWatch) wait(ctx context.Context, over func() bool) error {
	for {
		r.mu.Lock()
		err, done := r.err, over()
		text := fmt.Sprintf("the virtual node is Ready=%s, ready pods: %d, ready endpoints: %d", r.node, r.readyPods(), r.readyEndpoints())
		r.mu.Unlock()
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting (%w): %s", ctx.Err(), text)
		case <-r.news:
		}
	}
}

// readyPods and readyEndpoints are called with the lock held.
func (r *readinessWatch) readyPods() int { return len(r.pods) }

func (r *readinessWatch) readyEndpoints() (n int) {
	for _, ready := range r.slices {
		n += ready
	}
	return n
}

func (r *readinessWatch) nodeAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodeChanged
}

func (r *readinessWatch) lastChanges() (pod, endpoint time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.podSeen, r.endpointSeen
}

func (r *readinessWatch) stop() {
	r.cancel()
	r.wg.Wait()
}

func (o *outage) print(out io.Writer) {
	fmt.Fprintf(out, "\nAn outage of a provider's API server with %d pods; goals after the verdict: %.0f s; pods that are others afterwards: %d\n",
		o.Pods, outageGoal(o.Pods), o.Changed)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tverdict\tlast pod after it\tlast endpoint after it")
	fmt.Fprintf(t, "lost\t%s\nback\t%s\n", o.Lost, o.Back)
	_ = t.Flush()
	fmt.Fprintf(out, "CPU, lost: %s\nCPU, back: %s\n", used(o.Lost.CPU), used(o.Back.CPU))
	for i, x := range o.Requests {
		if i < 30 {
			fmt.Fprintf(out, "%6d  %s %s %s\n", x.Count, x.Who, x.Verb, x.Resource)
		}
	}
}

// String is a row of the table.
func (t swing) String() string {
	return fmt.Sprintf("%.2f s\t%.2f s\t%.2f s", t.Verdict, t.Pods, t.Endpoints)
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

func (o *outage) write(path string) error {
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}
