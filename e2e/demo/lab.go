package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/liqod/liqod/e2e/lab"
)

const (
	tierSimulated = "simulated"
	tierFull      = "full"
)

type labOptions struct {
	clusters []string
	nodes    int
	tier     string
	audit    bool
}

// runLab starts clusters on this machine, says how to reach them, and removes them at
// Ctrl-C. It returns the exit code.
func runLab(ctx context.Context, args []string) int {
	opts, err := parseLab(args, os.Stderr)
	if err == nil {
		err = keepLab(ctx, opts, os.Stdout)
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return exitFailed
	}
	return 0
}

func parseLab(args []string, usage io.Writer) (labOptions, error) {
	opts := labOptions{}
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(usage)
	clusters := flags.String("clusters", "rome,milan", "names of the clusters, with commas between")
	flags.IntVar(&opts.nodes, "nodes", 1, "nodes in each cluster")
	flags.StringVar(&opts.tier, "tier", tierSimulated, "simulated: nodes and pods only pretend, no root needed; full: real nodes, needs root")
	flags.BoolVar(&opts.audit, "audit", false, "write the requests to the API servers to a log")
	if err := flags.Parse(args); err != nil {
		return labOptions{}, err
	}
	opts.clusters = strings.Split(*clusters, ",")
	switch {
	case flags.NArg() > 0:
		return labOptions{}, fmt.Errorf("argument %q is not understood: use flags only", flags.Arg(0))
	case opts.nodes < 0:
		return labOptions{}, fmt.Errorf("--nodes is %d: 0 or more is accepted", opts.nodes)
	case slices.Contains(opts.clusters, ""):
		return labOptions{}, fmt.Errorf("--clusters is %q: give names with commas between, such as rome,milan", *clusters)
	case opts.tier != tierSimulated && opts.tier != tierFull:
		return labOptions{}, fmt.Errorf("--tier is %q: %s and %s are accepted", opts.tier, tierSimulated, tierFull)
	}
	return opts, nil
}

// keepLab keeps the clusters until ctx ends.
func keepLab(ctx context.Context, opts labOptions, out io.Writer) (err error) {
	l, err := lab.New(ctx, lab.Options{Log: func(format string, args ...any) {
		fmt.Fprintf(out, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
	}})
	if err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(out, "removing everything ...")
		err = errors.Join(err, l.Close())
	}()
	clusters, err := start(ctx, l, opts)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	printClusters(out, l, clusters)
	<-ctx.Done()
	return nil
}

// start starts all clusters side by side, with ranges that do not overlap.
func start(ctx context.Context, l *lab.Lab, opts labOptions) ([]*lab.Cluster, error) {
	startOne, err := starter(ctx, l, opts)
	if err != nil {
		return nil, err
	}
	clusters, errs := make([]*lab.Cluster, len(opts.clusters)), make([]error, len(opts.clusters))
	var wg sync.WaitGroup
	for i, name := range opts.clusters {
		wg.Go(func() {
			clusters[i], errs[i] = startOne(lab.ClusterOptions{
				Name: name, Audit: opts.audit,
				PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 200+i),
			})
		})
	}
	wg.Wait()
	return clusters, errors.Join(errs...)
}

// starter returns what starts one cluster in the tier.
func starter(ctx context.Context, l *lab.Lab, opts labOptions) (func(lab.ClusterOptions) (*lab.Cluster, error), error) {
	if opts.tier == tierSimulated {
		return func(cluster lab.ClusterOptions) (*lab.Cluster, error) {
			cluster.SimulatedNodes = opts.nodes
			return l.Start(ctx, cluster)
		}, nil
	}
	full, err := lab.NewFull(ctx, l, lab.FullOptions{})
	if err != nil {
		return nil, err
	}
	return func(cluster lab.ClusterOptions) (*lab.Cluster, error) {
		c, err := full.Start(ctx, cluster, opts.nodes)
		if err != nil {
			return nil, err
		}
		return c, full.ApplyCoreDNS(ctx, c)
	}, nil
}

func printClusters(out io.Writer, l *lab.Lab, clusters []*lab.Cluster) {
	for _, c := range clusters {
		fmt.Fprintf(out, "\n%s: %s\n  export KUBECONFIG=%s\n", c.Name, c.APIServer, c.Kubeconfig)
	}
	fmt.Fprintf(out, "\nFiles and logs are in %s. Ctrl-C ends the clusters and removes everything.\n", l.Dir())
}
