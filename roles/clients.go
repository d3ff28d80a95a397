package roles

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/informer"
	"github.com/liqod/liqod/kube/lease"
)

// clients reach one API server.
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
	// plain serve what every replica does; fenced only write while this replica leads.
	plain, fenced clients
	lease         *lease.Runner
	identity      string
	// head notices that the cluster's state went back.
	head *informer.Head
}

// newHome makes the clients of the process's own cluster and the lease of the role.
// Nothing is sent.
func newHome(env Env, namespace, leaseName string) (home, error) {
	base, err := client.Load(client.Options{Kubeconfig: env.Config.Kubeconfig, Getenv: os.Getenv})
	if err != nil {
		return home{}, err
	}
	settings := client.Settings{UserAgent: env.UserAgent, Observer: env.Requests("home"), Log: env.Log}
	h := home{identity: identity(), head: informer.NewHead(env.Clock)}
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

// identity names this process among its replicas: no other live one has it. In a pod it
// is the pod's name, so that a container that is started again is the same candidate and
// needs not wait for its own old lease.
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

// peer hardens the credentials of a peer for a leased role. Writes pass while the role's
// lease is held, and more, if there are any.
func (h home) peer(env Env, name string, config *rest.Config, inFlight int, more ...client.Gate) (clients, error) {
	return newClients(client.Harden(config, client.Settings{
		UserAgent: env.UserAgent, Observer: env.Requests(name), Gate: gates(append(more, h.lease.Fence())), MaxWrites: inFlight, Log: env.Log,
	}))
}

// gates lets a write pass that all of them let pass.
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
