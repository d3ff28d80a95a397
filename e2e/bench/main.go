// Command bench measures on this machine what offloading costs: many pods through a
// virtual node, from their creation to their end, beside a program that does nothing but
// mirror them. That program is a command of the bench, mirror, which it starts as a process
// of its own. Both ways run in the same two clusters, one after the other, with liqod's
// settings as shipped. Then it counts the requests for reflected objects, measures the
// network fabric beside a bare WireGuard tunnel, in network namespaces without API servers,
// and how pods and endpoints follow an outage of the provider. With --only flood it measures
// how a consumer's pods start while another one floods the provider, with --only scale what
// 10,000 pods cost, and with --only peers what many providers cost. It prints tables and writes the figures as JSON.
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
	"strings"
	"syscall"
)

type options struct {
	podOptions
	reflection reflectionOptions
	network    networkOptions
	outage     outageOptions
	flood      floodOptions
	scale      scaleOptions
	peers      peerOptions

	only       string // the name of the part that is measured; empty: all that are not rare
	pairs      int    // 0: as many as the part wants
	out        string
	noPolicies bool // leaves the chart's admission policies out
}

// part is what --only names.
type part struct {
	name    string
	rare    bool // it is measured only when --only names it
	measure func(context.Context, options) error
}

func parts() []part {
	return []part{
		{"pods", false, measurePods}, {"reflection", false, measureReflection}, {"network", false, measureNetwork},
		{"outage", false, measureOutage}, {"flood", true, measureFlood}, {"scale", true, measureScale}, {"peers", true, measurePeers},
	}
}

// The commands of the bench that it starts itself, in processes of their own.
const (
	mirrorCommand   = "mirror"
	gatewayCommand  = "gateway"
	tunnelCommand   = "tunnel"
	receiverCommand = "receive"
	senderCommand   = "send"
)

func processes() map[string]func(ctx context.Context, args []string) error {
	return map[string]func(context.Context, []string) error{
		mirrorCommand: runMirror, gatewayCommand: runGateway, tunnelCommand: runTunnel, receiverCommand: runReceiver, senderCommand: runSender,
	}
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
	o, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	for _, p := range parts() {
		if o.only == p.name || o.only == "" && !p.rare {
			if err := p.measure(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	all := strings.Join(names, ", ")
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.only, "only", "", "what is measured: "+all+"; empty: all but flood, scale and peers")
	flags.IntVar(&o.pairs, "pairs", 0, fmt.Sprintf("timed rounds of each, in turns; 0: %d of pods, %d of the network", podPairs, networkPairs))
	flags.StringVar(&o.out, "out", filepath.Join("bin", "bench.json"), "file for the figures of pods, and with --only of outage or flood")
	flags.BoolVar(&o.noPolicies, "no-policies", false, "leave the chart's admission policies out, for a comparison (admissionPolicies.enabled=false)")
	of := []interface {
		flags(*flag.FlagSet)
		check() error
	}{&o.podOptions, &o.reflection, &o.network, &o.outage, &o.flood, &o.scale, &o.peers}
	for _, x := range of {
		x.flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("argument %q is not understood: use flags only", flags.Arg(0))
	case o.pairs < 0:
		return options{}, fmt.Errorf("--pairs is %d: 0 or more is accepted", o.pairs)
	case o.against != "" && o.only != "pods":
		return options{}, fmt.Errorf("--against is %q: only --only pods compares with a commit", o.against)
	case o.only != "" && !slices.Contains(names, o.only):
		return options{}, fmt.Errorf("--only is %q: %s or nothing is accepted", o.only, all)
	}
	var errs []error
	for _, x := range of {
		errs = append(errs, x.check())
	}
	return o, errors.Join(errs...)
}

// atLeast returns an error that names a flag whose value is less than the least.
func atLeast(name string, value, least int) error {
	if value < least {
		return fmt.Errorf("--%s is %d: at least %d is accepted", name, value, least)
	}
	return nil
}
