package roles

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/lease"
	"github.com/liqod/liqod/kube/store"
)

// clients are the clients of one API server.
type clients struct {
	config *rest.Config
	kube   kubernetes.Interface
	liqo   versioned.Interface
}

func newClients(config *rest.Config) (clients, error) {
	kube, err := kubernetes.NewForConfig(client.Core(config))
	if err != nil {
		return clients{}, fmt.Errorf("making a client: %w", err)
	}
	liqo, err := versioned.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("making a client of liqod's kinds: %w", err)
	}
	return clients{config: config, kube: kube, liqo: liqo}, nil
}

// home are the clients of a role's own cluster.
type home struct {
	// plain are for the work of every replica. fenced write only while this replica leads.
	plain, fenced clients
	lease         *lease.Runner
	identity      string
	// head detects that the cluster's state went back.
	head *store.Head
}

// newHome returns the clients of the process's own cluster and the lease of the role. It
// sends no request.
func newHome(env Env, namespace, leaseName string) (home, error) {
	base, err := client.Load(client.Options{Kubeconfig: env.Config.Kubeconfig, Getenv: os.Getenv})
	if err != nil {
		return home{}, err
	}
	h := home{identity: identity(), head: store.NewHead(env.Clock)}
	settings := client.Settings{UserAgent: env.UserAgent, Observer: env.Requests("home"), Log: env.Log, WentBack: h.head.WentBack}
	if h.plain, err = newClients(client.Harden(base, settings)); err != nil {
		return home{}, err
	}
	h.lease, err = lease.New(lease.Config{
		Client: h.plain.kube.CoordinationV1(), Namespace: namespace, Name: leaseName, Identity: h.identity,
		Duration: env.Config.Lease.Duration, RenewDeadline: env.Config.Lease.RenewDeadline, RetryPeriod: env.Config.Lease.RetryPeriod,
		Log: env.Log, Clock: env.Clock, Saw: h.head.Saw,
	})
	if err != nil {
		return home{}, err
	}
	settings.Gate = h.lease.Fence()
	h.fenced, err = newClients(client.Harden(base, settings))
	return h, err
}

// identity returns the identity of this process in its lease, which no other live replica
// has. In a pod it is the pod's name: a restarted container then holds the lease at once,
// instead of waiting for its own lease to expire.
func identity() string {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}

// writesInFlight is the maximum number of concurrent writes to one peer.
const writesInFlight = 64

// toPeer returns the clients of a peer for a leased role. They write only while this replica
// holds the role's lease and the further gates allow it.
func (h home) toPeer(env Env, name string, config *rest.Config, more ...client.Gate) (clients, error) {
	config, err := client.Distrust(config, env.foreign(name))
	if err != nil {
		return clients{}, err
	}
	return newClients(client.Harden(config, client.Settings{
		UserAgent: env.UserAgent, Observer: env.Requests(name), Gate: gates(append(more, h.lease.Fence())), MaxWrites: writesInFlight, Log: env.Log,
	}))
}

// gates allows a write if each of them allows it.
type gates []client.Gate

// Allow implements client.Gate.
func (g gates) Allow() error {
	for _, gate := range g {
		if err := gate.Allow(); err != nil {
			return err
		}
	}
	return nil
}

// stripped returns a factory whose informers keep no managed fields.
func stripped(kube kubernetes.Interface, options ...informers.SharedInformerOption) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(kube, 0, append(options, informers.WithTransform(client.StripManagedFields))...)
}

// named restricts a factory to objects with this name.
func named(name string) informers.SharedInformerOption { return where(metav1.ObjectNameField, name) }

// where restricts a factory to objects in which a field has this value.
func where(field, value string) informers.SharedInformerOption {
	return selected(fields.OneTermEqualSelector(field, value))
}

// without restricts a factory to objects in which a field has another value.
func without(field, value string) informers.SharedInformerOption {
	return selected(fields.OneTermNotEqualSelector(field, value))
}

func selected(by fields.Selector) informers.SharedInformerOption {
	return informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = by.String() })
}

// labelled restricts a factory to objects that a label selector matches.
func labelled(selector string) informers.SharedInformerOption {
	return informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector })
}

// factory has the methods that both kinds of informer factories have.
type factory interface {
	Start(stop <-chan struct{})
	Shutdown()
}

// runFactories returns an actor that runs the informers of the factories.
func runFactories(factories ...factory) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, f := range factories {
			f.Start(ctx.Done())
		}
		<-ctx.Done()
		for _, f := range factories {
			f.Shutdown()
		}
		return nil
	}
}

// together runs all of them until each has returned; the first error ends the others.
func together(runs ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, run := range runs {
			group.Go(func() error { return run(ctx) })
		}
		return group.Wait()
	}
}
