// Command demo shows on this machine what liqod does: two real clusters, one using the
// other as a node, and what stays when a control plane dies. Every step prints the
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
	"strconv"
	"syscall"
	"time"

	"github.com/liqod/liqod/e2e/lab"
)

const (
	exitFailed      = 1
	exitMissing     = 2 // something that the demo needs is not on this machine
	exitInterrupted = 130
)

const usage = `usage: make demo, or go run ./e2e/demo [--keep]
       go run ./e2e/demo lab [flags]

Starts two real clusters on this machine, milan and rome, lets rome use milan as a
node, and shows what can be seen of it. It needs root, and removes everything at its end.
With lab, it starts the clusters that the flags name, with real or simulated nodes, and
nothing in them; lab --help lists the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second Ctrl-C ends the clean-up too; the next run then finishes it.
	context.AfterFunc(ctx, stop)
	code := command(ctx, os.Args[1:])
	stop()
	os.Exit(code)
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
	d := &demo{console: newConsole(os.Stdout), keep: keep}
	err = d.run(ctx)
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "demo: interrupted")
		return exitInterrupted
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return exitFailed
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
	l, err := lab.New(ctx, lab.Options{Log: d.console.note, Exited: func(p *lab.Process) {
		d.console.note("%s ended by itself: %v\n%s", p.Name, p.Err(), p.Tail(2000))
	}})
	if err != nil {
		return err
	}
	defer func() {
		d.console.say("\nRemoving everything ...")
		begin := time.Now()
		err = errors.Join(err, l.Close())
		d.console.say("Removed in %s.", rounded(time.Since(begin)))
	}()
	d.lab = l
	err = d.story(ctx)
	if err != nil && ctx.Err() == nil {
		d.console.bad("\n%v", err)
		d.explain(ctx)
	}
	if err == nil {
		d.summary()
	}
	if d.keep && ctx.Err() == nil {
		d.stay(ctx)
	}
	return err
}

func (d *demo) stay(ctx context.Context) {
	d.console.heading("The clusters stay until you press Ctrl-C")
	d.hints()
	d.console.say(`
Some things to try:
  kubectl --context rome -n shop scale deployment web --replicas=10
  kubectl --context rome -n shop rollout restart deployment web
  kubectl --context milan -n shop-rome delete pod --all      # they come back: rome asked for them
  kubectl --context rome drain milan --ignore-daemonsets     # everything moves home
  liqod check --context rome
Files and logs of the clusters are in %s.`, d.lab.Dir())
	<-ctx.Done()
}
