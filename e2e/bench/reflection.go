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
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/liqod/liqod/e2e/lab"
)

// reflectionOptions say how many objects are reflected.
type reflectionOptions struct {
	each int
	out  string
}

func (o *reflectionOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.each, "objects", 1000, "reflected objects of each kind")
	flags.StringVar(&o.out, "reflection-out", filepath.Join("bin", "bench-reflection.json"), "file for the figures of reflection")
}

func (o *reflectionOptions) check() error {
	return lab.Wrong(nil, o.each < 1, "--objects is %d: at least 1 is accepted", o.each)
}

// reflection is what objects cost that are created, changed once and deleted at home.
type reflection struct {
	Begin   time.Time `json:"begin"`
	Machine machine   `json:"machine"`
	Guards  []guards  `json:"guards"`
	Kinds   []string  `json:"kinds"`
	Each    int       `json:"objectsOfEachKind"`
	// CPU has the seconds of each process for all three steps; an audit log is written meanwhile.
	CPU map[string]float64 `json:"cpuSeconds"`
	// PerObject are all requests of the roles, at both API servers.
	PerObject float64        `json:"requestsPerObject"`
	Requests  []requestCount `json:"requests"`
	Writes    []objectWrites `json:"writesPerChange"`
}

// objectWrites are the writes in the provider for one change of one object of a kind.
type objectWrites struct {
	Kind string `json:"kind"`
	// Create, Update and Delete are writes of the object itself, of the shadow for
	// EndpointSlices, by the roles of the consumer.
	Create float64 `json:"create"`
	Update float64 `json:"update"`
	Delete float64 `json:"delete"`
	// Real are those of the provider's controller: the EndpointSlices themselves.
	RealCreate float64 `json:"realCreate,omitempty"`
	RealUpdate float64 `json:"realUpdate,omitempty"`
	RealDelete float64 `json:"realDelete,omitempty"`
}

// measureReflection counts the requests for reflected objects.
func measureReflection(ctx context.Context, o options) (err error) {
	w, err := newWorld(ctx, worldOptions{pods: 1, audit: true, noPolicies: o.noPolicies})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r := &reflection{Begin: time.Now(), Machine: thisMachine(), Guards: w.guards, Each: o.reflection.each}
	if err := w.reflect(ctx, r); err != nil {
		return err
	}
	r.print(os.Stdout)
	return writeJSON(o.reflection.out, r)
}

func (w *world) reflect(ctx context.Context, r *reflection) error {
	home, err := dynamic.NewForConfig(w.rome.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := w.serve(ctx); err != nil {
		return err
	}
	before, err := w.usage()
	if err != nil {
		return err
	}
	counts := map[string]map[request]int{}
	for _, step := range []string{stepCreate, stepUpdate, stepDelete} {
		w.lab.Logf("%s of %d objects of each kind", step, r.Each)
		if counts[step], err = w.reflectStep(ctx, home, step, r.Each); err != nil {
			return fmt.Errorf("%s of %d objects of each kind: %w", step, r.Each, err)
		}
	}
	now, err := w.usage()
	if err != nil {
		return err
	}
	r.CPU = since(before, now)
	r.count(w.offloading, counts)
	return nil
}

// reflectStep waits until the provider has followed a change of each object, and counts
// the requests until then.
func (w *world) reflectStep(ctx context.Context, home dynamic.Interface, step string, each int) (map[request]int, error) {
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	within := window{begin: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, phasePatience)
	defer cancel()
	want := each // at the end of the step, of each kind
	written := func(o metav1.Object) int {
		if o.GetLabels()[stepLabel] == step {
			return 1
		}
		return 0
	}
	if step == stepDelete {
		want, written = 0, func(o metav1.Object) int { return len(o.GetLabels()[stepLabel]) }
	}
	var names []string
	var views []*view
	kinds := map[string]objectKind{}
	for _, k := range objectKinds() {
		kinds[k.name] = k
		views = append(views, newView(k.name, w.inMilan(w.offloading, k.resource), written))
		names = append(names, load{pods: each, name: k.name}.names()...)
	}
	r, err := follow(ctx, views...)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	_, err = sendAll(ctx, names, 0, func(ctx context.Context, name string) error {
		kind, _, _ := strings.Cut(name, "-")
		return kinds[kind].send(ctx, home, w.offloading.home, step, name)
	})
	if err != nil {
		return nil, err
	}
	if err := r.wait(ctx, slices.Repeat([]int{want}, len(views))...); err != nil {
		return nil, err
	}
	// What is still under way belongs to the step.
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	within.end = time.Now()
	return w.requests(within)
}

// count sums what the roles sent, and the writes in the provider for each kind.
func (r *reflection) count(c *contestant, counts map[string]map[request]int) {
	kinds := objectKinds()
	r.Requests = countsOf(c, counts)
	for i, x := range r.Requests {
		r.Requests[i].PerObject = float64(x.all()) / float64(r.Each*len(kinds))
		if isRole(x.Who) {
			r.PerObject += r.Requests[i].PerObject
		}
	}
	for _, k := range kinds {
		r.Kinds = append(r.Kinds, k.name)
		r.Writes = append(r.Writes, k.writes(r.Requests, float64(r.Each)))
	}
}

// writes sums the requests that change something in the provider, for one object.
func (k objectKind) writes(requests []requestCount, each float64) objectWrites {
	sum := objectWrites{Kind: k.name}
	for _, r := range requests {
		resource, _, _ := strings.Cut(r.Resource, "/")
		if r.Cluster != "milan" || !isRole(r.Who) || !(lab.AuditRecord{Verb: r.Verb}).Write() {
			continue
		}
		create, update, remove := float64(r.Create)/each, float64(r.Update)/each, float64(r.Delete)/each
		switch {
		case r.Who == "milan controller" && (resource == k.resource.Resource || resource == k.written):
			sum.RealCreate, sum.RealUpdate, sum.RealDelete = sum.RealCreate+create, sum.RealUpdate+update, sum.RealDelete+remove
		case r.Who != "milan controller" && resource == k.written:
			sum.Create, sum.Update, sum.Delete = sum.Create+create, sum.Update+update, sum.Delete+remove
		}
	}
	return sum
}

func (r *reflection) print(out io.Writer) {
	fmt.Fprintf(out, "\nReflection of %d objects of each kind (%s); %s\n", r.Each, strings.Join(r.Kinds, ", "), r.Machine)
	printGuards(out, r.Guards)
	rows := [][]string{{"WRITES FOR EACH", "CREATION", "UPDATE", "DELETION", "BY MILAN", "", ""}}
	for _, w := range r.Writes {
		row := []string{w.Kind}
		for _, n := range []float64{w.Create, w.Update, w.Delete, w.RealCreate, w.RealUpdate, w.RealDelete} {
			row = append(row, fmt.Sprintf("%.2f", n))
		}
		rows = append(rows, row)
	}
	table(out, rows)
	fmt.Fprintf(out, "\nRequests for each object, creation to end, at both API servers: %.2f\n", r.PerObject)
	table(out, requestRows(r.Requests, "liqod"))
	fmt.Fprintf(out, "\nCPU: %s\n", used(r.CPU))
}
