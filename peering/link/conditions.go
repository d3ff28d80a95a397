package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	listers "github.com/liqod/liqod/api/generated/listers/core/v1beta1"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
)

// Errors of Identity.
var (
	// ErrReplaced says that another cluster answers where a peer was.
	ErrReplaced = errors.New("another cluster answers at the peer's address")
	// ErrSelf says that a peer is this cluster itself.
	ErrSelf = errors.New("a cluster is not peered with itself")
)

// recheckDelay is how soon a cluster is asked again who it is, after it was the wrong
// one or did not say.
const recheckDelay = 10 * time.Second

// ConditionsConfig configures Conditions.
type ConditionsConfig struct {
	// ClusterID is this cluster's id.
	ClusterID string

	// Liqo is a client of this cluster.
	Liqo versioned.Interface

	// Directory gives the ways to the peers; NewConditions subscribes to it.
	Directory *Directory

	// The informers are of this cluster and of all namespaces.
	ForeignClusters informers.ForeignClusterInformer
	VirtualNodes    offloadinginformers.VirtualNodeInformer
	Namespaces      coreinformers.NamespaceInformer

	// Window is how probes are judged; Interval and Timeout are how often a peer is
	// probed and for how long an answer is waited for.
	Window   health.Window
	Interval time.Duration
	Timeout  time.Duration

	Clock clock.PassiveClock
	Log   *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
}

// Conditions writes the status of ForeignClusters, only when it changes: it probes the
// API server of every peer that there are credentials for, and records who the peer is
// at the first contact.
type Conditions struct {
	loop       *loop.Loop
	cfg        ConditionsConfig
	clusters   listers.ForeignClusterLister
	nodes      offloadinglisters.VirtualNodeLister
	namespaces corelisters.NamespaceLister
	sources    map[string]Source // by type of condition; not written to once it runs

	mu      sync.Mutex
	probing map[string]*prober // by cluster id
}

// NewConditions registers with the informers and the directory, and starts nothing.
func NewConditions(cfg ConditionsConfig) (*Conditions, error) {
	c := &Conditions{
		cfg:        cfg,
		clusters:   cfg.ForeignClusters.Lister(),
		nodes:      cfg.VirtualNodes.Lister(),
		namespaces: cfg.Namespaces.Lister(),
		probing:    map[string]*prober{},
		sources:    map[string]Source{},
	}
	c.loop = loop.New(loop.Config{Name: "foreigncluster", Sync: c.sync, Log: cfg.Log, Observer: cfg.Observer})
	add := func(id string) { c.loop.Add(loop.Key{Name: id}) }
	cfg.Directory.Subscribe(add)
	cfg.Directory.onNone(add)
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		keys     func(any) []loop.Key
	}{
		{cfg.ForeignClusters.Informer(), c.clusterKeys},
		{cfg.Namespaces.Informer(), namespaceKey},
		{cfg.VirtualNodes.Informer(), func(obj any) []loop.Key {
			if vn, ok := obj.(*offloadingv1beta1.VirtualNode); ok {
				return []loop.Key{{Name: vn.Spec.ClusterID}}
			}
			return nil
		}},
	} {
		if _, err := c.loop.Watch(w.informer, w.keys); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Run probes and writes until ctx is done, and returns when all probes have ended. It
// may be called again.
func (c *Conditions) Run(ctx context.Context, workers int) error {
	err := c.loop.Run(ctx, workers)
	c.mu.Lock()
	ids := make([]string, 0, len(c.probing))
	for id := range c.probing {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	for _, id := range ids {
		c.stop(id)
	}
	return err
}

// clusterKeys returns the peer of a ForeignCluster, and those that are the same cluster.
func (c *Conditions) clusterKeys(obj any) []loop.Key {
	keys := clusterKey(obj)
	fc, ok := obj.(*corev1beta1.ForeignCluster)
	if !ok || fc.Status.ClusterUID == "" {
		return keys
	}
	all, err := c.clusters.List(labels.Everything())
	if err != nil {
		return keys
	}
	for _, other := range all {
		if other.Status.ClusterUID == fc.Status.ClusterUID && other.Spec.ClusterID != fc.Spec.ClusterID {
			keys = append(keys, loop.Key{Name: other.Spec.ClusterID})
		}
	}
	return keys
}

func (c *Conditions) sync(ctx context.Context, key loop.Key) error {
	id := key.Name
	fcs, ending, err := recordsOf(c.clusters, id)
	if err != nil {
		return err
	}
	f := facts{clusterID: id, ownID: c.cfg.ClusterID, now: c.cfg.Clock.Now()}
	f.user, f.problem = userOf(fcs, id)
	if len(fcs) == 0 {
		// A peering that ends waits for a peer that answers, and for no other.
		fcs = ending
	}
	if len(fcs) == 0 {
		c.stop(id)
		return nil
	}
	f.unread = !c.cfg.Directory.Judged(id) // before the endpoint, which may come in between
	f.endpoint, f.credentials = c.cfg.Directory.Endpoint(id)
	if f.credentials && f.endpoint.Problem == "" {
		p := c.probe(ctx, id, f.endpoint)
		f.state = p.prober.State()
		if f.state.Verdict == health.Up {
			f.uid, f.unknown = p.identify(ctx, c.cfg.Timeout)
		}
	} else {
		c.stop(id)
	}
	if err := c.gather(&f); err != nil {
		return err
	}
	for _, fc := range fcs {
		f.told = c.ask(fc)
		if err := c.report(ctx, fc, f); err != nil {
			return err
		}
	}
	replaced := fcs[0].Status.ClusterUID != "" && f.uid != "" && f.uid != fcs[0].Status.ClusterUID
	if replaced || f.unknown != nil {
		c.forgetIdentity(id)
		return loop.After(recheckDelay)
	}
	return nil
}

// gather reads the rest of the facts from the caches.
func (c *Conditions) gather(f *facts) error {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing VirtualNodes: %w", err)
	}
	for _, vn := range nodes {
		f.virtualNode = f.virtualNode || vn.Spec.ClusterID == f.clusterID
	}
	all, err := c.clusters.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing ForeignClusters: %w", err)
	}
	f.ownUID, f.namesakes = c.ownUID(), namesakes(all, f.clusterID, f.uid)
	ns, err := c.namespaces.Get(corev1beta1.TenantNamespace(f.clusterID))
	if err == nil {
		_, f.tenant = peerOf(ns)
		// Rights are not kept in a namespace that is on its way out.
		f.tenant = f.tenant && ns.DeletionTimestamp == nil
	}
	return nil
}

// ownUID returns the UID of this cluster's kube-system namespace; empty if it is not known.
func (c *Conditions) ownUID() types.UID {
	ns, err := c.namespaces.Get(metav1.NamespaceSystem)
	if err != nil {
		return ""
	}
	return ns.UID
}

// namesakes returns the ForeignClusters of other ids whose recorded cluster is the one of
// that UID.
func namesakes(all []*corev1beta1.ForeignCluster, id string, uid types.UID) (names []string) {
	for _, fc := range all {
		if uid != "" && fc.Status.ClusterUID == uid && fc.Spec.ClusterID != id && fc.DeletionTimestamp == nil {
			names = append(names, fc.Name)
		}
	}
	slices.Sort(names)
	return names
}

// report writes the status of a ForeignCluster if it has changed.
func (c *Conditions) report(ctx context.Context, fc *corev1beta1.ForeignCluster, f facts) error {
	status := f.status(fc)
	if equality.Semantic.DeepEqual(status, fc.Status) {
		return nil
	}
	next := fc.DeepCopy()
	next.Status = status
	_, err := c.cfg.Liqo.CoreV1beta1().ForeignClusters().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status of ForeignCluster %s: %w", fc.Name, err)
	}
	return nil
}

// Identity fails unless the cluster that clients reach is the recorded one, or, where none
// is recorded yet, another one than this. It asks the cluster each time.
func (c *Conditions) Identity(ctx context.Context, clusterID string, kube kubernetes.Interface) error {
	live, ending, err := recordsOf(c.clusters, clusterID)
	if err != nil {
		return err
	}
	if len(live) == 0 {
		live = ending
	}
	if clusterID == c.cfg.ClusterID {
		return ErrSelf
	}
	have, err := clusterUID(ctx, kube)
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		c.forgetIdentity(clusterID) // our rights there are gone: that is said, and what ends does not wait
		c.loop.Add(loop.Key{Name: clusterID})
	}
	if err != nil {
		return err
	}
	if have == c.ownUID() {
		return fmt.Errorf("%w: it is this cluster that answers at the address of %s", ErrSelf, clusterID)
	}
	for _, fc := range live {
		if want := fc.Status.ClusterUID; want != "" && have != want {
			return fmt.Errorf("%w: its kube-system namespace has UID %s, recorded is %s", ErrReplaced, have, want)
		}
	}
	return nil
}

func clusterUID(ctx context.Context, kube kubernetes.Interface) (types.UID, error) {
	ns, err := kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the UID of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return ns.UID, nil
}

// Readyz returns a check that asks an API server whether it is ready.
func Readyz(kube kubernetes.Interface) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		body, err := kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil {
			return err
		}
		if string(body) != "ok" {
			return fmt.Errorf("/readyz answers %.80q where ok is awaited", body)
		}
		return nil
	}
}
