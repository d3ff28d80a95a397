package main

import (
	"context"
	"errors"
	"flag"
	"sync"

	"k8s.io/client-go/kubernetes"
)

type copierOptions struct {
	home, away                   string // kubeconfigs
	homeNamespace, awayNamespace string
	selector                     string
	workers                      int
}

func parseCopier(args []string) (copierOptions, error) {
	var o copierOptions
	flags := flag.NewFlagSet(copierCommand, flag.ContinueOnError)
	flags.StringVar(&o.home, "home", "", "kubeconfig of the cluster that has the objects")
	flags.StringVar(&o.away, "away", "", "kubeconfig of the cluster that gets copies")
	flags.StringVar(&o.homeNamespace, "home-namespace", "", "namespace of the objects")
	flags.StringVar(&o.awayNamespace, "away-namespace", "", "namespace of the copies")
	flags.StringVar(&o.selector, "selector", "app=bench", "labels of what is copied")
	flags.IntVar(&o.workers, "workers", 10, "objects of a kind that are worked on at once")
	err := flags.Parse(args)
	return o, err
}

// runCopier is what the reflection of objects is measured beside: the least that
// keeps copies of the labelled objects of one namespace in another cluster. It knows
// nothing of policies, ownership, outages or other people's objects, and reflects
// EndpointSlices without asking anybody. It is left as it is, so that what is measured
// beside it stays comparable.
func runCopier(ctx context.Context, args []string) error {
	o, err := parseCopier(args)
	if err != nil {
		return err
	}
	home, err := mirrorClient(o.home)
	if err != nil {
		return err
	}
	away, err := mirrorClient(o.away)
	if err != nil {
		return err
	}
	return copyAll(ctx, home, away, o)
}

// copyAll copies every kind until ctx ends.
func copyAll(ctx context.Context, home, away kubernetes.Interface, o copierOptions) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, c := range copiers(home, away, o) {
		if err := c.start(ctx); err != nil {
			return err
		}
		wg.Go(func() { c.work(ctx, o.workers) })
	}
	<-ctx.Done()
	return nil
}

var errNotFilled = errors.New("the caches were not filled in time")
