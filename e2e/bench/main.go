// Command bench measures on this machine what offloading costs: many pods through a
// virtual node, from their creation to their end, beside a program that does nothing but
// mirror them; then many reflected objects, created, updated and deleted, beside one that
// does nothing but copy them. Both programs are commands of the bench, mirror and copier,
// which it starts as processes of their own. Both ways run in the same two clusters, one
// after the other, with liqod's settings as shipped. Last it measures the network fabric
// beside a bare WireGuard tunnel, in network namespaces without API servers, and how pods and
// endpoints follow an outage of the provider. With --only flood it measures how a consumer's
// pods start while another one floods the provider, and with --only scale what 10,000 pods
// cost. It prints tables and writes the figures as JSON.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

type options struct {
	pods, pairs, paced int
	// large and largePairs are of the second table.
	large, largePairs int
	idle              time.Duration
	out, profiles     string
	// noEvents leaves the provider's events there.
	noEvents bool
	// noPolicies leaves the chart's admission policies out.
	noPolicies bool
	// only is what is measured: pods, reflection, network, outage, flood, scale, or empty for
	// all but the last two.
	only    string
	objects objectOptions
	network networkOptions
	outage  outageOptions
	flood   floodOptions
	scale   scaleOptions
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second Ctrl-C ends the clean-up too; the next run of the lab then finishes it.
	context.AfterFunc(ctx, stop)
	err := command(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command measures, or is one of the processes that are measured.
func command(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if process, found := processes()[args[0]]; found {
			if err := process(ctx, args[1:]); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		}
	}
	opts, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	return runAll(ctx, opts)
}

func parse(args []string, usage io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.IntVar(&o.pods, "pods", 1000, "pods of each round")
	flags.IntVar(&o.pairs, "pairs", 5, fmt.Sprintf("timed rounds of each, in turns; of the network %d by default", networkPairs))
	flags.IntVar(&o.large, "large", 3000, "pods of each round of the second table; 0: no such table")
	flags.IntVar(&o.largePairs, "large-pairs", 5, "timed rounds of each for the second table")
	flags.IntVar(&o.paced, "paced", 150, "pods of the round with 5 pods a second; 0: no such round")
	flags.DurationVar(&o.idle, "idle", time.Minute, "how long idleness is measured")
	flags.StringVar(&o.out, "out", filepath.Join("bin", "bench.json"), "file for the figures")
	flags.StringVar(&o.profiles, "profiles", "", "directory for profiles of the roles; empty: none. They are taken in the untimed part")
	flags.StringVar(&o.only, "only", "", "pods, reflection, network, outage, flood or scale: what is measured; empty: all but flood and scale")
	flags.BoolVar(&o.noEvents, "no-events", false, "do not bring the provider's events home (reflection.event.workers=0)")
	flags.BoolVar(&o.noPolicies, "no-policies", false, "leave the chart's admission policies out, for a comparison (admissionPolicies.enabled=false)")
	o.objects.flags(flags)
	o.network.flags(flags)
	o.outage.flags(flags)
	o.flood.flags(flags)
	o.scale.flags(flags)
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o.objects.pairs, o.objects.idle, o.objects.noEvents = o.pairs, o.idle, o.noEvents
	o.scale.profiles, o.scale.noEvents = o.profiles, o.noEvents
	o.objects.noPolicies, o.outage.noPolicies, o.flood.noPolicies, o.scale.noPolicies = o.noPolicies, o.noPolicies, o.noPolicies, o.noPolicies
	o.outage.out, o.flood.out = o.out, o.out
	if o.only == "" {
		o.outage.out = filepath.Join(filepath.Dir(o.out), outageFile) // that of the pods is the other one
	}
	o.network.pairs = networkPairs
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "pairs" {
			o.network.pairs = o.pairs
		}
	})
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("argument %q is not understood: use flags only", flags.Arg(0))
	case o.pods < 1 || o.pairs < 1:
		return options{}, fmt.Errorf("--pods is %d and --pairs is %d: at least 1 is accepted", o.pods, o.pairs)
	case o.large < 0 || o.largePairs < 1:
		return options{}, fmt.Errorf("--large is %d and --large-pairs is %d: at least 0 and 1 are accepted", o.large, o.largePairs)
	case o.paced < 0:
		return options{}, fmt.Errorf("--paced is %d: 0 or more is accepted", o.paced)
	case o.idle < 0:
		return options{}, fmt.Errorf("--idle is %s: 0 or more is accepted", o.idle)
	case !slices.Contains([]string{"", onlyPods, onlyReflection, onlyNetwork, onlyOutage, onlyFlood, onlyScale}, o.only):
		return options{}, fmt.Errorf("--only is %q: %s, %s, %s, %s, %s, %s or nothing is accepted", o.only, onlyPods, onlyReflection, onlyNetwork, onlyOutage, onlyFlood, onlyScale)
	}
	return o, errors.Join(o.objects.check(), o.network.check(), o.outage.check(), o.flood.check(), o.scale.check())
}

// What --only accepts.
const (
	onlyPods       = "pods"
	onlyReflection = "reflection"
	onlyNetwork    = "network"
	onlyOutage     = "outage"
	onlyFlood      = "flood"
	onlyScale      = "scale"
)

// runAll measures what was asked for.
func runAll(ctx context.Context, o options) error {
	for _, part := range []struct {
		name    string
		asked   bool // it is measured only when --only names it
		measure func() error
	}{
		{onlyPods, false, func() error { return run(ctx, o) }},
		{onlyReflection, false, func() error { return measureObjects(ctx, o.objects) }},
		{onlyNetwork, false, func() error { return measureNetwork(ctx, o.network) }},
		{onlyOutage, false, func() error { return measureOutage(ctx, o.outage) }},
		{onlyFlood, true, func() error { return measureFlood(ctx, o.flood) }},
		{onlyScale, true, func() error { return measureScale(ctx, o.scale) }},
	} {
		if o.only != part.name && (o.only != "" || part.asked) {
			continue
		}
		if err := part.measure(); err != nil {
			return err
		}
	}
	return nil
}

// run makes the tables: of the pods that were asked for, and of many.
func run(ctx context.Context, o options) error {
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if o.large > 0 {
		more := o
		more.pods, more.pairs, more.paced = o.large, o.largePairs, 0
		if o.profiles != "" {
			more.profiles = filepath.Join(o.profiles, "large")
		}
		if r.Large, err = measure(ctx, more); err != nil {
			return err
		}
	}
	r.print(os.Stdout)
	return r.write(o.out)
}

// measure makes one table, in clusters without an audit log, and then counts in clusters
// with one.
func measure(ctx context.Context, o options) (*report, error) {
	r := &report{Pods: o.pods, Machine: thisMachine(), Begin: time.Now()}
	if err := timed(ctx, o, r); err != nil {
		return nil, err
	}
	if err := counted(ctx, o, r); err != nil {
		return nil, err
	}
	r.Took = time.Since(r.Begin).Seconds()
	r.summarize()
	return r, nil
}

// timed runs the pairs; who begins changes from one to the next.
func timed(ctx context.Context, o options, r *report) (err error) {
	w, err := newWorld(ctx, worldOptions{pods: max(o.pods, o.paced), noEvents: o.noEvents, noPolicies: o.noPolicies})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r.Guards = w.guards
	for i := range o.pairs {
		var p pair
		order := []*contestant{w.offloading, w.mirroring}
		into := []*round{&p.Offloading, &p.Mirror}
		if i%2 == 1 {
			order[0], order[1], into[0], into[1] = order[1], order[0], into[1], into[0]
		}
		for j, c := range order {
			w.lab.Logf("pair %d of %d: %s", i+1, o.pairs, c.name)
			if *into[j], err = w.round(ctx, c, load{pods: o.pods, name: fmt.Sprintf("pair-%d", i+1)}); err != nil {
				return err
			}
		}
		r.Pairs = append(r.Pairs, p)
	}
	if r.Peaks, err = w.peaks(); err != nil || o.paced == 0 {
		return err
	}
	r.Paced = &pair{}
	slow := load{pods: o.paced, every: time.Second / pacedRate, name: "paced"}
	w.lab.Logf("%d pods a second", pacedRate)
	if r.Paced.Offloading, err = w.round(ctx, w.offloading, slow); err != nil {
		return err
	}
	r.Paced.Mirror, err = w.round(ctx, w.mirroring, slow)
	return err
}

// counted counts requests; times are not looked at, but for those of the restart.
func counted(ctx context.Context, o options, r *report) (err error) {
	w, err := newWorld(ctx, worldOptions{pods: o.pods, audit: true, profiles: o.profiles, noEvents: o.noEvents, noPolicies: o.noPolicies})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	l := load{pods: o.pods, name: "counted"}
	w.lab.Logf("counting requests")
	mirror, err := w.count(ctx, w.mirroring, l, nil)
	if err != nil {
		return err
	}
	liqod, err := w.count(ctx, w.offloading, l, func(ctx context.Context) (err error) {
		if r.Idle, err = w.idle(ctx, o.pods, o.idle); err != nil {
			return err
		}
		r.Restart, err = w.restart(ctx, o.pods)
		return err
	})
	r.Requests = append(liqod, mirror...)
	return err
}
