package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// Errors of Conditions.Identity.
var (
	// ErrReplaced means that another cluster answers at the address of a peer.
	ErrReplaced = errors.New("another cluster answers at the peer's address")
	// ErrSelf means that the peer is this cluster itself.
	ErrSelf = errors.New("a cluster cannot be a peer of itself")
)

// recheckDelay is the delay before a peer's identity is read again.
const recheckDelay = 10 * time.Second

// ConditionsConfig is the input of NewConditions. All fields are required except Probed.
type ConditionsConfig struct {
	Base

	// Directory has the clients for the peers. NewConditions subscribes to it.
	Directory *Directory

	// VirtualNodes watches this cluster in all namespaces.
	VirtualNodes offloadinginformers.VirtualNodeInformer

	// Window says how the results of probes are judged. Interval is the time between two
	// probes of a peer, and Timeout the time limit of one probe.
	Window   health.Window
	Interval time.Duration
	Timeout  time.Duration
	// Probed may be nil. It is called after each probe of a peer, with the time until the
	// answer, or until the error. It must not block.
	Probed func(clusterID string, d time.Duration, err error)
}

// Conditions writes the status of ForeignClusters when it changes. It probes the API server
// of every peer that there are credentials for, and records the peer's identity, the UID of
// its kube-system namespace, at the first contact.
type Conditions struct {
	loop    *loop.Loop
	cfg     ConditionsConfig
	sources map[string][]Source // by type of condition; read-only once Run is called

	probing perPeer[*prober]

	dwell sync.Map // by cluster id: what dwellOf returns
}

// NewConditions returns a Conditions and registers its event handlers on the informers and
// the directory. It starts nothing.
func NewConditions(cfg ConditionsConfig) *Conditions {
	c := &Conditions{
		cfg:     cfg,
		sources: map[string][]Source{},
	}
	c.loop = loop.New(loop.Config{Name: "foreigncluster", Sync: c.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.ForeignClusters.Informer(), c.clusterKeys),
		loop.From(cfg.Namespaces.Informer(), TenantKey),
		loop.From(cfg.VirtualNodes.Informer(), func(vn *offloadingv1beta1.VirtualNode) []loop.Key { return []loop.Key{{Name: vn.Spec.ClusterID}} }),
	)
	add := func(id string) { c.loop.Add(loop.Key{Name: id}) }
	cfg.Directory.Subscribe(add)
	cfg.Directory.onNone(add)
	return c
}

// Run blocks until ctx is done and all workers and probes have stopped. It may be called
// again after that.
func (c *Conditions) Run(ctx context.Context, workers int) error {
	err := c.loop.Run(ctx, workers)
	c.probing.stopAll()
	return err
}

// clusterKeys returns the key of a ForeignCluster's peer, and of the peers recorded with
// the same cluster UID.
func (c *Conditions) clusterKeys(fc *corev1beta1.ForeignCluster) []loop.Key {
	keys := ClusterKey(fc)
	for _, other := range store.Listed(c.cfg.ForeignClusters.Lister().List(labels.Everything())) {
		if fc.Status.ClusterUID != "" && other.Status.ClusterUID == fc.Status.ClusterUID && other.Spec.ClusterID != fc.Spec.ClusterID {
			keys = append(keys, loop.Key{Name: other.Spec.ClusterID})
		}
	}
	return keys
}

func (c *Conditions) sync(ctx context.Context, key loop.Key) error {
	id := key.Name
	// One that is being deleted counts: the end of a peering depends on whether the peer
	// answers and is still the same cluster.
	fc := store.Known(c.cfg.ForeignClusters.Lister().Get(id))
	if fc == nil {
		c.probing.stop(id)
		c.dwell.Delete(id)
		return nil
	}
	var held time.Duration
	f := facts{clusterID: id, ownID: c.cfg.ClusterID, now: c.cfg.Clock.Now(), dwell: c.dwellOf(id), held: &held}
	f.user, f.problem = userOf(fc)
	f.unread = !c.cfg.Directory.Judged(id) // read before the endpoint, which may be set in between
	f.endpoint, f.credentials = c.cfg.Directory.Endpoint(id)
	if f.credentials && f.endpoint.Problem == "" {
		p := c.probe(ctx, id, f.endpoint)
		f.state = p.prober.State()
		if f.state.Verdict == health.Up {
			f.uid, f.unknown = p.identify(ctx, f.now, c.cfg.Timeout)
		}
	} else {
		c.probing.stop(id)
	}
	c.gather(&f)
	f.told = c.sourced(fc)
	if err := c.report(ctx, fc, f); err != nil {
		return err
	}
	replaced := fc.Status.ClusterUID != "" && f.uid != "" && f.uid != fc.Status.ClusterUID
	if replaced || f.unknown != nil {
		c.forgetIdentity(id)
		return loop.After(recheckDelay)
	}
	if f.uid != "" && (held == 0 || held > recheckDelay) {
		held = recheckDelay // of the identity
	}
	if held > 0 {
		return loop.After(held)
	}
	return nil
}

// dwellOf returns how long the conditions of a peer that it can turn as it likes last, by type.
func (c *Conditions) dwellOf(id string) map[string]*health.Dwell {
	all, _ := c.dwell.LoadOrStore(id, map[string]*health.Dwell{corev1beta1.ConditionAPIServer: {}, corev1beta1.ConditionNetwork: {}})
	return all.(map[string]*health.Dwell)
}

// gather adds the facts from the caches.
func (c *Conditions) gather(f *facts) {
	nodes := store.Listed(c.cfg.VirtualNodes.Lister().List(labels.Everything()))
	f.virtualNode = slices.ContainsFunc(nodes, func(vn *offloadingv1beta1.VirtualNode) bool { return vn.Spec.ClusterID == f.clusterID })
	all := store.Listed(c.cfg.ForeignClusters.Lister().List(labels.Everything()))
	f.ownUID, _ = c.cfg.OwnUID() // empty while it is not known
	f.namesakes = namesakes(all, f.clusterID, f.uid)
	ns := store.Known(c.cfg.Namespaces.Lister().Get(corev1beta1.TenantNamespace(f.clusterID)))
	_, tenant := peerOf(ns)
	// Rights are not maintained in a namespace that is being deleted.
	f.tenant = tenant && ns.DeletionTimestamp == nil
}

// namesakes returns the names of the ForeignClusters with another cluster id whose recorded
// UID is uid.
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
	next := fc.DeepCopy()
	next.Status = f.status(fc)
	return store.IgnoreNotFound(store.WriteStatus(ctx, "ForeignCluster", c.cfg.Liqo.CoreV1beta1().ForeignClusters(), "", fc, next))
}

// Identity returns an error unless core reaches the recorded cluster of a peer. If no UID
// is recorded yet, any cluster but this one is accepted. It reads the UID live at each
// call. It is safe for concurrent use.
func (c *Conditions) Identity(ctx context.Context, clusterID string, kube kubernetes.Interface) error {
	fc := store.Known(c.cfg.ForeignClusters.Lister().Get(clusterID))
	if clusterID == c.cfg.ClusterID {
		return ErrSelf
	}
	have, err := clusterUID(ctx, kube)
	if revoked(err) {
		// The peer has revoked the rights. The status shows it, and the end of a peering
		// does not wait for such a peer.
		c.forgetIdentity(clusterID)
		c.loop.Add(loop.Key{Name: clusterID})
	}
	if err != nil {
		return err
	}
	if own, _ := c.cfg.OwnUID(); have == own {
		return fmt.Errorf("%w: the cluster at the address of %s is this cluster itself", ErrSelf, clusterID)
	}
	if fc != nil && fc.Status.ClusterUID != "" && have != fc.Status.ClusterUID {
		return fmt.Errorf("%w: its kube-system namespace has UID %s, recorded is %s", ErrReplaced, have, fc.Status.ClusterUID)
	}
	return nil
}

// longestUID is the limit of a cluster's UID, which is recorded, in bytes. Those of
// Kubernetes have 36.
const longestUID = 64

func clusterUID(ctx context.Context, kube kubernetes.Interface) (types.UID, error) {
	ns, err := kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the UID of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	if len(ns.UID) > longestUID {
		return "", fmt.Errorf("the UID of namespace %s has %d bytes; at most %d are accepted", metav1.NamespaceSystem, len(ns.UID), longestUID)
	}
	return ns.UID, nil
}

// Readyz returns a check of an API server's /readyz.
func Readyz(kube kubernetes.Interface) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		body, err := kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil {
			return explained(err)
		}
		if string(body) != "ok" {
			return fmt.Errorf("/readyz answers %.80q instead of ok", body)
		}
		return nil
	}
}

// A Source provides one condition of each peer that Conditions does not compute itself. Its
// methods must be safe for concurrent use.
type Source interface {
	// Condition returns the status, reason and message of the condition for a peer, without
	// any request. Its result must not differ while nothing has changed. It returns nil if
	// the condition does not apply to the peer. A source whose state is not loaded yet
	// returns the result of Standing.
	Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition
	// Subscribe registers f, which the source calls with a peer's id after each event that
	// may change its condition. It is called before the source runs. f does not block.
	Subscribe(f func(clusterID string))
}

// Standing returns a copy of the ForeignCluster's existing condition, or nil if it has
// none.
func Standing(fc *corev1beta1.ForeignCluster, kind string) *metav1.Condition {
	return meta.FindStatusCondition(fc.Status.Conditions, kind).DeepCopy()
}

// AddSource adds the sources for a type of condition: ConditionAuthenticated,
// ConditionOutgoingPeering, ConditionIncomingPeering, ConditionNetwork or
// ConditionAPIServer. The first source that has a condition for a peer counts. Those for
// ConditionAPIServer count for peers alone that this cluster has no credentials for, and so
// cannot probe. AddSource must be called before Run, once per type.
func (c *Conditions) AddSource(kind string, sources ...Source) {
	c.sources[kind] = sources
	for _, s := range sources {
		s.Subscribe(func(id string) { c.loop.Add(loop.Key{Name: id}) })
	}
}

// sourced returns the conditions of all sources for a ForeignCluster, by type.
func (c *Conditions) sourced(fc *corev1beta1.ForeignCluster) map[string]*metav1.Condition {
	out := map[string]*metav1.Condition{}
	for kind, sources := range c.sources {
		out[kind] = nil
		for _, s := range sources {
			if out[kind] == nil {
				out[kind] = s.Condition(fc)
			}
		}
	}
	return out
}

// peerVersion returns the version that the peer has reported, limited to printable ASCII
// characters and longestVersion.
func peerVersion(fc *corev1beta1.ForeignCluster) string {
	said := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, fc.Annotations[corev1beta1.PeerVersionAnnotation])
	return said[:min(len(said), longestVersion)]
}
