// Command copier is what the reflection of objects is measured beside: the least that
// keeps copies of the labelled objects of one namespace in another cluster. It knows
// nothing of policies, ownership, outages or other people's objects, and reflects
// EndpointSlices without asking anybody. It is left as it is, so that what is measured
// beside it stays comparable.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

type options struct {
	home, away                   string // kubeconfigs
	homeNamespace, awayNamespace string
	selector                     string
	workers                      int
}

func main() {
	var o options
	flag.StringVar(&o.home, "home", "", "kubeconfig of the cluster that has the objects")
	flag.StringVar(&o.away, "away", "", "kubeconfig of the cluster that gets copies")
	flag.StringVar(&o.homeNamespace, "home-namespace", "", "namespace of the objects")
	flag.StringVar(&o.awayNamespace, "away-namespace", "", "namespace of the copies")
	flag.StringVar(&o.selector, "selector", "app=bench", "labels of what is copied")
	flag.IntVar(&o.workers, "workers", 10, "objects of a kind that are worked on at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "copier:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	home, err := client(o.home)
	if err != nil {
		return err
	}
	away, err := client(o.away)
	if err != nil {
		return err
	}
	return copyAll(ctx, home, away, o)
}

// client speaks protobuf and is not limited.
func client(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	config.QPS, config.UserAgent = -1, "mirror"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	return kubernetes.NewForConfig(config)
}

// copyAll copies every kind until ctx ends.
func copyAll(ctx context.Context, home, away kubernetes.Interface, o options) error {
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
