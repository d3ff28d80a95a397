package virtualnode

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	clusterinformers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// nodePoll is the poll interval for the Node to appear in the cache, before the first
// heartbeat.
const nodePoll = 100 * time.Millisecond

// KeeperConfig is the input of NewKeeper. All fields are required except Observer.
type KeeperConfig struct {
	// Client writes to the cluster of the Node.
	Kube kubernetes.Interface
	// VirtualNodes and Nodes may contain other objects, too.
	VirtualNodes offloadinginformers.VirtualNodeInformer
	Nodes        coreinformers.NodeInformer
	// ForeignClusters have the state of the network to the provider.
	ForeignClusters clusterinformers.ForeignClusterInformer
	// Namespace and Name identify the VirtualNode. Name is also the name of the Node.
	Namespace string
	NodeSettings
	// LeaseDuration is the duration of the heartbeat Lease. The Lease is renewed every
	// quarter of it.
	LeaseDuration time.Duration
	// Identity names this replica as the holder of the Lease.
	Identity string
	Clock    clock.Clock
	Log      *zap.Logger
	Observer loop.Observer
}

// Keeper keeps one Node equal to what its VirtualNode and the provider's state require.
type Keeper struct {
	cfg  KeeperConfig
	loop *loop.Loop
	key  loop.Key

	mu     sync.Mutex
	remote Remote
}

// NewKeeper returns a Keeper and registers its event handlers on the informers. It starts
// nothing.
func NewKeeper(cfg KeeperConfig) *Keeper {
	k := &Keeper{
		cfg:    cfg,
		key:    loop.Key{Name: cfg.Name},
		remote: notContacted(),
	}
	own := func(namespace string) func(metav1.Object) []loop.Key {
		return func(obj metav1.Object) (keys []loop.Key) {
			if obj.GetName() == cfg.Name && obj.GetNamespace() == namespace {
				keys = []loop.Key{k.key}
			}
			return keys
		}
	}
	k.loop = loop.New(loop.Config{Name: "node", Sync: k.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.VirtualNodes.Informer(), own(cfg.Namespace)), loop.From(cfg.Nodes.Informer(), own("")), loop.From(cfg.ForeignClusters.Informer(), loop.Constant(k.key)),
	)
	return k
}

func notContacted() Remote {
	return Remote{Reason: reasons.RemoteNotContacted, Message: "the provider's API server has not answered yet"}
}

// SetRemote changes the provider's state and queues the Node if it differs. It is safe for
// concurrent use. update runs under a lock and must not block.
func (k *Keeper) SetRemote(update func(*Remote)) {
	k.mu.Lock()
	before := k.remote
	update(&k.remote)
	changed := !apiequality.Semantic.DeepEqual(before, k.remote)
	k.mu.Unlock()
	if changed {
		k.loop.Add(k.key)
	}
}

// Run keeps the Node and renews its Lease until ctx is done. It may be called again; each
// run starts without knowledge of the provider.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.SetRemote(func(r *Remote) { *r = notContacted() })
	heartbeat := lease.NewController(k.cfg.Clock, k.cfg.Kube, k.cfg.Identity, int32(k.cfg.LeaseDuration.Seconds()),
		nil, k.cfg.LeaseDuration/4, k.cfg.Name, corev1.NamespaceNodeLease, k.bindLease)
	defer loop.Start(ctx, func(ctx context.Context) {
		// The heartbeat of a missing Node would fail, and retry with a long delay.
		known := func(context.Context) (bool, error) { return k.bindLease(&coordinationv1.Lease{}) == nil, nil }
		if wait.PollUntilContextCancel(ctx, nodePoll, true, known) == nil {
			heartbeat.Run(ctx)
		}
	})()
	k.loop.Add(k.key)
	return k.loop.Run(ctx, 1)
}

// bindLease makes the Node the owner of the heartbeat Lease. Its error keeps the Lease of a
// foreign Node from being written.
func (k *Keeper) bindLease(l *coordinationv1.Lease) error {
	vn, err := k.cfg.VirtualNodes.Lister().VirtualNodes(k.cfg.Namespace).Get(k.cfg.Name)
	if err != nil {
		return fmt.Errorf("reading the VirtualNode: %w", err)
	}
	node, err := k.cfg.Nodes.Lister().Get(k.cfg.Name)
	if err != nil {
		return fmt.Errorf("reading the Node: %w", err)
	}
	if !Ours(node, vn) {
		return fmt.Errorf("node %s is not ours: its Lease is left alone", node.Name)
	}
	l.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
	}}
	return nil
}

func (k *Keeper) sync(ctx context.Context, _ loop.Key) error {
	vn := store.Known(k.cfg.VirtualNodes.Lister().VirtualNodes(k.cfg.Namespace).Get(k.cfg.Name))
	if vn == nil {
		return nil // being deleted by the controller, or not created yet
	}
	have := store.Known(k.cfg.Nodes.Lister().Get(k.cfg.Name))
	if have == nil {
		return k.create(ctx, vn)
	}
	if !Ours(have, vn) {
		k.cfg.Log.Warn("a Node of this name is not ours; it is left alone", zap.String("node", have.Name))
		return loop.After(10 * time.Second)
	}
	if have.DeletionTimestamp != nil {
		return nil
	}
	facts := k.facts(vn)
	want := WantNode(have, vn, facts)
	left, unknown := graceLeft(&want.Status, facts)
	if err := k.update(ctx, have, want); err != nil || !unknown {
		return err
	}
	return loop.After(left) // the end of the grace period is no event
}

func (k *Keeper) facts(vn *offloadingv1beta1.VirtualNode) NodeFacts {
	network := k.network(vn.Spec.ClusterID)
	k.mu.Lock()
	defer k.mu.Unlock()
	return NodeFacts{NodeSettings: k.cfg.NodeSettings, Remote: k.remote, Network: network, Now: metav1.NewTime(k.cfg.Clock.Now())}
}

// network returns what is known of the network to a provider; nil where it is not checked.
func (k *Keeper) network(provider string) *metav1.Condition {
	fc := store.Known(k.cfg.ForeignClusters.Lister().Get(provider))
	if fc == nil {
		return nil
	}
	return meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionNetwork)
}

// create creates the Node, unless its VirtualNode is being deleted. The status follows with
// the first update, after the Node appears in the cache.
func (k *Keeper) create(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	if vn.DeletionTimestamp != nil {
		return nil
	}
	_, err := k.cfg.Kube.CoreV1().Nodes().Create(ctx, WantNode(nil, vn, k.facts(vn)), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return loop.After(200 * time.Millisecond) // the cache is about to show it
	}
	if err != nil {
		return fmt.Errorf("creating the Node: %w", err)
	}
	k.cfg.Log.Info("node created", zap.String("node", vn.Name))
	return nil
}

func (k *Keeper) update(ctx context.Context, have, want *corev1.Node) error {
	status := want.Status
	want.Status = have.Status
	if !apiequality.Semantic.DeepEqual(have, want) {
		if err := k.patch(ctx, have, want); err != nil {
			return fmt.Errorf("updating the Node: %w", err)
		}
	}
	if apiequality.Semantic.DeepEqual(have.Status, status) {
		return nil
	}
	want = have.DeepCopy()
	want.Status = status
	if err := k.patch(ctx, have, want, "status"); err != nil {
		return fmt.Errorf("updating the Node's status: %w", err)
	}
	return nil
}

// patch sends the Node's UID, so that a new Node of the same name is never written. Except
// for the status, it also sends the resource version: the patch replaces the list of
// taints, and the node controller writes that list, too.
func (k *Keeper) patch(ctx context.Context, have, want *corev1.Node, subresources ...string) error {
	have, want = have.DeepCopy(), want.DeepCopy()
	have.UID, want.ResourceVersion = "", have.ResourceVersion
	if len(subresources) == 0 {
		have.ResourceVersion = ""
	}
	patch, err := store.StrategicPatch(have, want)
	if err != nil {
		return err
	}
	_, err = k.cfg.Kube.CoreV1().Nodes().Patch(ctx, have.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}
