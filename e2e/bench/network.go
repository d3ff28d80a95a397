package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// networkOptions say how the network fabric is measured.
type networkOptions struct {
	pairs  int
	each   time.Duration
	memory int // MiB
	out    string
}

// networkPairs are the pairs without --pairs: network figures vary more than the others.
const networkPairs = 10

func (o *networkOptions) flags(flags *flag.FlagSet) {
	flags.DurationVar(&o.each, "network-for", 5*time.Second, "how long each load runs on each path")
	flags.IntVar(&o.memory, "network-memory", 230, "GOMEMLIMIT of each end of a tunnel, in MiB; 0: none. 230 leaves room in a container of 256 MiB")
	flags.StringVar(&o.out, "network-out", filepath.Join("bin", "bench-network.json"), "file for the figures of the network")
}

func (o *networkOptions) check() error {
	switch {
	case o.each < 100*time.Millisecond:
		return fmt.Errorf("--network-for is %s: at least 100ms is accepted", o.each)
	case o.memory < 0:
		return fmt.Errorf("--network-memory is %d: 0 or more is accepted", o.memory)
	}
	return nil
}

// measureNetwork measures two clusters of one node each beside a bare tunnel, in network
// namespaces, without API servers: the plans and their executor are those of the roles.
func measureNetwork(ctx context.Context, o networkOptions) (err error) {
	r := networkReport{Machine: thisMachine(), Begin: time.Now(), Each: o.each.Seconds(), MemoryLimit: o.memory}
	w, err := newNetwork(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for i := range o.pairs {
		logf("network: pair %d of %d", i+1, o.pairs)
		p, err := w.pair(ctx, i%2 == 1)
		if err != nil {
			return err
		}
		r.Pairs = append(r.Pairs, p)
	}
	r.Took = time.Since(r.Begin).Seconds()
	r.summarize()
	r.print(os.Stdout)
	return writeJSON(o.out, r)
}
