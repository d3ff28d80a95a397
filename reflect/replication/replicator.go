// Package replication copies negotiation objects between this cluster's tenant namespace of a
// peer and the peer's tenant namespace of this cluster. The spec of a request is copied
// to the peer and its status is copied back. Only this cluster opens connections, so the
// peer does not need to reach it. While a peer is unreachable, nothing changes in this
// cluster.
package replication

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	networkinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/networking/v1beta1"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	sharinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// Peer is the connection to one peer.
type Peer struct {
	// Revision changes with the credentials of the connection, and with PullNetwork.
	Revision string
	// Liqo is a client for the peer's cluster.
	Liqo versioned.Interface
	// PullNetwork says that the Configuration of the peer is pulled, because the peer cannot
	// push it: it has no rights in this cluster.
	PullNetwork bool
	// Identity returns an error unless the cluster that answers is the recorded peer. It
	// is called before each write, because another cluster may have taken over the
	// address.
	Identity func(ctx context.Context) error
}

// Peers is the directory of connections.
type Peers interface {
	// Peer returns the connection to a peer, and false if there is none.
	Peer(clusterID string) (Peer, bool)
}

// Config is the configuration of a Replicator.
type Config struct {
	// ClusterID is the id of this cluster.
	ClusterID string
	// Kube and Liqo are clients for this cluster.
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// The informers are for all namespaces of this cluster.
	Maps           informers.NamespaceMapInformer
	Requests       sharinginformers.ResourceRequestInformer
	Offers         sharinginformers.ResourceOfferInformer
	Configurations networkinginformers.ConfigurationInformer
	// CapacityWanted reports, by a live read, whether this cluster wants capacity of a
	// peer. NetworkPublished reports whether it publishes a Configuration for a peer.
	CapacityWanted, NetworkPublished func(ctx context.Context, peer string) (bool, error)
	// Peers is the directory of connections. Its implementation must call Changed.
	Peers Peers
	loop.Env
	// Forget is called with the name of a peer's loop when that loop has ended.
	Forget func(loop string)
	// HomeLost returns the latest time at which this cluster's etcd was found restored
	// from a backup, zero for never.
	HomeLost func() time.Time
	// Delayed is called when an object of a peer changes so often that its state is written
	// later.
	Delayed func(peer string)

	// budget limits the bytes that one peer makes this cluster write.
	budget *budget
}

// Replicator replicates with every peer in the directory. Each peer and kind has a loop
// of its own.
type Replicator struct {
	manager *loop.Loop
	cfg     Config

	mu      sync.Mutex
	known   sets.Set[loop.Key] // peers that Changed was ever called for
	running map[string]*connection
	// budgets outlast the connections: a peer gets no new one by closing them.
	budgets map[string]*budget
}

// connection is the running replication with one peer.
type connection struct {
	revision string
	stop     func()
}

// New returns a Replicator. It starts no goroutines and sends no requests.
func New(cfg Config) *Replicator {
	r := &Replicator{cfg: cfg, known: sets.New[loop.Key](), running: map[string]*connection{}, budgets: map[string]*budget{}}
	r.manager = loop.New(loop.Config{Name: "replica", Sync: r.sync, Log: cfg.Log, Observer: cfg.Observer, Beside: r.peers})
	r.manager.Await(cfg.Maps.Informer().HasSynced, cfg.Requests.Informer().HasSynced,
		cfg.Offers.Informer().HasSynced, cfg.Configurations.Informer().HasSynced)
	return r
}

// Changed must be called when the connection to a peer may have appeared, changed or
// disappeared. It does not block. It is safe for concurrent use, also while Run is not
// running.
func (r *Replicator) Changed(clusterID string) {
	key := loop.Key{Name: clusterID}
	r.mu.Lock()
	r.known.Insert(key)
	r.mu.Unlock()
	r.manager.Wake(key)
}

func (r *Replicator) peers() []loop.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known.UnsortedList()
}

// Run replicates until ctx is done, and returns when every loop has returned. It may be
// called again afterwards.
func (r *Replicator) Run(ctx context.Context) error {
	err := r.manager.Run(ctx, 1)
	for id := range r.running {
		r.stop(id)
	}
	return err
}

// sync starts, restarts or stops the replication with one peer. The loop has one worker,
// so running needs no lock.
func (r *Replicator) sync(ctx context.Context, key loop.Key) error {
	id := key.Name
	peer, ok := r.cfg.Peers.Peer(id)
	have := r.running[id]
	if have != nil && ok && have.revision == peer.Revision {
		return nil
	}
	if have != nil {
		r.stop(id)
	}
	if !ok {
		return nil
	}
	cfg := r.cfg
	cfg.budget = r.budget(id)
	var work []func(context.Context)
	for _, f := range cfg.flows(id, peer) {
		if err := f.wire(); err != nil {
			return fmt.Errorf("preparing the replication with %s: %w", id, err)
		}
		work = append(work, f.run)
	}
	r.running[id] = &connection{peer.Revision, loop.Start(ctx, work...)}
	r.cfg.Log.Info("replication started", zap.String("peer", id))
	return nil
}

// budget returns the limit of a peer. Like running it is used by one worker only.
func (r *Replicator) budget(id string) *budget {
	if r.budgets[id] == nil {
		r.budgets[id] = newBudget()
	}
	return r.budgets[id]
}

func (r *Replicator) stop(id string) {
	r.running[id].stop()
	delete(r.running, id)
	r.cfg.Log.Info("replication stopped", zap.String("peer", id))
}

// flow replicates one kind with one peer.
type flow interface {
	wire() error
	run(ctx context.Context)
}

// flows returns a flow for each kind.
func (c *Config) flows(peer string, way Peer) []flow {
	own := c.Configurations.Informer()
	out := []flow{
		newPair(*c, namespaceMaps(c.ClusterID, c.Liqo), c.Maps.Informer(), peer, way),
		newPair(*c, resourceRequests(c.ClusterID, c.CapacityWanted), c.Requests.Informer(), peer, way),
		newPull(*c, resourceOffers(c.ClusterID, peer), c.Offers.Informer(), peer, way),
		newPair(*c, configurationsOut(c.ClusterID, c.NetworkPublished), own, peer, way),
	}
	if way.PullNetwork {
		held := func() bool {
			return store.Cached[configuration](own.GetStore(), cache.NewObjectName(corev1beta1.TenantNamespace(peer), peer)) != nil
		}
		out = append(out, newPull(*c, configurationsIn(c.ClusterID, held), own, peer, way))
	}
	return out
}

// remoteNamespace returns the tenant namespace of this cluster in the peer.
func (c *Config) remoteNamespace() string { return corev1beta1.TenantNamespace(c.ClusterID) }
