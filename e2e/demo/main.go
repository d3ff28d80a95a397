// Command demo shows on this machine what liqod does: three real clusters, one using the
// others as nodes, and what stays when a control plane dies. Every step prints the
// kubectl line that shows the same. With the argument lab it starts clusters and nothing
// else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/liqod/liqod/e2e/lab"
)

const (
	exitFailed  = 1
	exitMissing = 2 // something that the demo needs is not on this machine
	exitSignal  = 128
)

// stopped is the cause of a context that a signal has ended.
type stopped struct{ signal syscall.Signal }

func (s stopped) Error() string { return "stopped by a signal: " + s.signal.String() }

// code is the exit code. Ctrl-C is how people end the demo: that is no failure.
func (s stopped) code() int {
	if s.signal == syscall.SIGINT {
		return 0
	}
	return exitSignal + int(s.signal)
}

const usage = `usage: make demo, or go run ./e2e/demo [--keep]
       go run ./e2e/demo lab [flags]

Starts three real clusters on this machine, rome, milan and turin, lets rome use the others as
nodes, and shows what can be seen of it. It needs root, and removes everything at its end.
With lab, it starts the clusters that the flags name, with real or simulated nodes, and
nothing in them; lab --help lists the flags.
`

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		received := <-signals
		// A second Ctrl-C ends the clean-up too; the next run then finishes it.
		signal.Stop(signals)
		if number, ok := received.(syscall.Signal); ok {
			cancel(stopped{number})
		}
	}()
	os.Exit(command(ctx, os.Args[1:]))
}

func command(ctx context.Context, args []string) int {
	if len(args) > 0 && args[0] == "lab" {
		return runLab(ctx, args[1:])
	}
	return run(ctx, args)
}

func run(ctx context.Context, args []string) int {
	keep, err := parse(args, os.Getenv("KEEP"), os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return exitMissing
	}
	if missing := lab.FullTierMissing(); len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "The demo runs real nodes on this machine. For that it lacks:")
		for _, m := range missing {
			fmt.Fprintln(os.Stderr, "  -", m)
		}
		fmt.Fprintln(os.Stderr, "As root, hack/deps.sh installs what comes with Debian and Ubuntu.")
		return exitMissing
	}
	path, err := pacePath()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return exitFailed
	}
	d := &demo{console: newConsole(os.Stdout), keep: keep, pace: newPace(path)}
	return d.exitCode(ctx, d.run(ctx), os.Stderr)
}

// exitCode says on stderr why the demo did not end well.
func (d *demo) exitCode(ctx context.Context, err error, stderr io.Writer) int {
	var signal stopped
	if errors.As(context.Cause(ctx), &signal) {
		err = nil // whatever was under way has failed because of it
	}
	if err = errors.Join(err, d.left); err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return exitFailed
	}
	if signal.signal != 0 {
		return signal.code()
	}
	return 0
}

func parse(args []string, env string, stderr io.Writer) (keep bool, err error) {
	if env != "" {
		if keep, err = strconv.ParseBool(env); err != nil {
			return false, fmt.Errorf("KEEP is %q: 1 and 0 are accepted", env)
		}
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.BoolVar(&keep, "keep", keep, "leave the clusters running until Ctrl-C; also KEEP=1")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() > 0 {
		return false, fmt.Errorf("argument %q is not understood: only --keep is", flags.Arg(0))
	}
	return keep, nil
}

// run tells the story and removes everything at its end.
func (d *demo) run(ctx context.Context) (err error) {
	d.begin = time.Now()
	d.banner()
	l, err := lab.New(ctx, lab.Options{
		Log: d.console.note,
		// Memory for time, as in the tests.
		PlaneEnv: []string{"GOGC=400"},
		Exited: func(p *lab.Process) {
			d.console.note("%s ended by itself: %v\n%s", p.Name, p.Err(), p.Tail(2000))
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		d.console.say("\nRemoving everything ...")
		begin := time.Now()
		if d.left = l.Close(); d.left == nil {
			d.console.say("Removed in %s.", rounded(time.Since(begin)))
		}
	}()
	d.lab = l
	err = d.story(ctx)
	if err != nil && ctx.Err() == nil {
		d.console.bad("\n%v", err)
		d.explain(ctx)
	}
	if err == nil {
		d.summary()
		err = d.pace.keep(d.steps)
	}
	if d.keep && ctx.Err() == nil {
		d.stay(ctx)
	}
	return err
}

func (d *demo) stay(ctx context.Context) {
	d.console.heading("The clusters stay until you press Ctrl-C")
	d.hints()
	if !slices.Contains(d.installed(), nil) {
		d.addMetrics(ctx)
	}
	d.console.say(`
Some things to try:
  kubectl --context rome -n shop scale deployment web --replicas=10
  kubectl --context rome -n shop rollout restart deployment web
  kubectl --context milan -n shop-rome delete pod --all      # they come back: rome asked for them
  kubectl --context rome top pods -n shop                    # once metrics-server has measured twice
  kubectl --context rome apply -f e2e/demo/more.yaml         # an autoscaler
  kubectl --context rome drain milan --ignore-daemonsets     # everything moves home
  liqod check --context rome
Files and logs of the clusters are in %s.`, d.lab.Dir())
	<-ctx.Done()
}

// addMetrics gives the clusters the metrics API, for kubectl top and autoscalers.
func (d *demo) addMetrics(ctx context.Context) {
	d.console.note("adding metrics-server to the clusters")
	group, adding := errgroup.WithContext(ctx)
	for _, s := range d.installed() {
		group.Go(func() error { return d.full.ApplyMetricsServer(adding, s.Cluster) })
	}
	// The rest works without it.
	if err := d.accompanied(ctx, "", func(context.Context) error { return group.Wait() }); err != nil && ctx.Err() == nil {
		d.console.bad("kubectl top and autoscalers will not work: %v", err)
	}
}
