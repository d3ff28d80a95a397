package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
)

// specAnnotation has the digest of the spec that discovery wrote. If the digest does not
// match, the ForeignCluster was edited, and discovery no longer changes it.
const specAnnotation = "liqo.io/discovered-spec"

// Limit for the writes of one source: anybody on a local network may change records without
// end. The first writes come at once, as many as there can be clusters.
const (
	writesAtOnce  = maxClusters
	writeInterval = 10 * time.Second
)

// Metrics receives the counts of records. Its functions must be safe for concurrent use.
type Metrics struct {
	// Ignored is called with the source, the reason and the number of ignored records.
	Ignored func(via, reason string, n int)
	// Found is called with a source and the number of clusters known from it.
	Found func(via string, n int)
}

// Config is the input of NewClusters. All fields are required. The record of this cluster itself is
// skipped.
type Config struct {
	link.Base

	// Most is the maximum number of ForeignClusters that discovery creates for each source, so
	// that records of a local network take no room from those of the domain.
	Most int

	Metrics Metrics
}

// Clusters creates ForeignClusters for the clusters that were found. It deletes one that it
// created when its record is gone and nothing uses it. Its keys are cluster ids.
type Clusters struct {
	*loop.Loop
	cfg Config

	mu     sync.Mutex
	found  map[string]map[string]Record // by source, then by cluster id
	whole  map[string]bool              // by source: a complete answer has arrived
	writes loop.Pace                    // by source

	// creating is held while a ForeignCluster is created, so that the workers together do not
	// exceed Most.
	creating sync.Mutex
}

// NewClusters returns a Clusters and registers its event handler on the informer. It starts
// nothing.
func NewClusters(cfg Config) *Clusters {
	c := &Clusters{cfg: cfg, found: map[string]map[string]Record{}, whole: map[string]bool{}}
	c.Loop = loop.New(loop.Config{Name: "discovery", Sync: c.sync, Log: cfg.Log, Observer: cfg.Observer, Beside: c.known}, loop.From(cfg.ForeignClusters.Informer(), loop.Self))
	return c
}

// Set stores the answer of a source (DiscoveredByDNS or DiscoveredByMulticast). A complete
// answer replaces the earlier ones; a partial answer is added to them, up to maxClusters. It
// is safe for concurrent use.
func (c *Clusters) Set(via string, a Answer) {
	now := map[string]Record{}
	for _, r := range a.Clusters {
		if r.ClusterID != c.cfg.ClusterID {
			now[r.ClusterID] = r
		}
	}
	c.mu.Lock()
	before, first := c.found[via], !a.Partial && !c.whole[via]
	if a.Partial {
		now = added(before, now)
	}
	c.found[via] = now
	c.whole[via] = c.whole[via] || !a.Partial
	c.mu.Unlock()
	for reason, n := range a.Ignored {
		c.cfg.Metrics.Ignored(via, reason, n)
	}
	c.cfg.Metrics.Found(via, len(now))
	for id := range store.ChangedKeys(before, now) {
		c.Wake(loop.Key{Name: id})
	}
	if first { // ForeignClusters of an earlier process may have lost their record
		c.wakeAll(via)
	}
}

// added returns the known records and the further ones for which there is room.
func added(known, further map[string]Record) map[string]Record {
	all := make(map[string]Record, len(known)+len(further))
	maps.Copy(all, known)
	for id, r := range further {
		if _, ok := all[id]; ok || len(all) < maxClusters {
			all[id] = r
		}
	}
	return all
}

// known returns the keys of all clusters that were found. Run queues them, because Set may
// have been called earlier.
func (c *Clusters) known() (keys []loop.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, records := range c.found {
		for id := range records {
			keys = append(keys, loop.Key{Name: id})
		}
	}
	return keys
}

// Forget drops all answers. Nothing is created or deleted until Set is called again.
func (c *Clusters) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.found)
	clear(c.whole)
}

func (c *Clusters) wakeAll(via string) {
	for _, fc := range store.Listed(c.cfg.ForeignClusters.Lister().List(labels.Everything())) {
		if fc.Labels[corev1beta1.DiscoveredLabel] == via {
			c.Wake(loop.Key{Name: fc.Name})
		}
	}
}

// record returns the record of a cluster and its source. The configured domain takes
// precedence over the local network.
func (c *Clusters) record(id string) (via string, r Record, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, via := range []string{corev1beta1.DiscoveredByDNS, corev1beta1.DiscoveredByMulticast} {
		if r, ok := c.found[via][id]; ok {
			return via, r, true
		}
	}
	return "", Record{}, false
}

func (c *Clusters) asked(via string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole[via]
}

func (c *Clusters) sync(ctx context.Context, key loop.Key) error {
	via, r, found := c.record(key.Name)
	have, ours := pick(store.Listed(c.cfg.ForeignClusters.Lister().List(labels.Everything())), key.Name, via)
	switch {
	case found && have == nil && ours >= c.cfg.Most:
		return c.full(via)
	case found && have == nil:
		return c.create(ctx, via, r)
	case have == nil || !untouched(have):
		return nil
	case found:
		return c.follow(ctx, have, via, r)
	case !c.asked(have.Labels[corev1beta1.DiscoveredLabel]):
		return nil // no complete answer yet
	}
	return c.remove(ctx, have)
}

// pick returns the ForeignCluster with a name, or nil, and how many a source has made.
func pick(all []*corev1beta1.ForeignCluster, name, via string) (have *corev1beta1.ForeignCluster, ours int) {
	for _, fc := range all {
		if fc.Name == name {
			have = fc
		}
		if fc.Labels[corev1beta1.DiscoveredLabel] == via {
			ours++
		}
	}
	return have, ours
}

// full counts a record for which there is no room. The loop tries again later: no event
// names the record that gets the room of a ForeignCluster that is gone.
func (c *Clusters) full(via string) error {
	c.cfg.Metrics.Ignored(via, IgnoredTooMany, 1)
	return loop.After(minTTL)
}

// spend takes a write from the budget of a source, or returns an error that has the loop try
// again later.
func (c *Clusters) spend(via string) error {
	wait := c.writes.Take(via, writesAtOnce, writeInterval, c.cfg.Clock.Now())
	if wait <= 0 {
		return nil
	}
	c.cfg.Metrics.Ignored(via, IgnoredTooOften, 1)
	return loop.After(wait)
}

// want sets the fields of a ForeignCluster from a record.
func want(fc *corev1beta1.ForeignCluster, via string, r Record) error {
	fc.Spec.ClusterID, fc.Spec.ClusterName, fc.Spec.AuthURL = r.ClusterID, r.Name, r.URL
	// The API server sets these defaults, and the digest must match the stored spec.
	fc.Spec.OutgoingPeeringEnabled, fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringAuto, corev1beta1.PeeringAuto
	sum, err := digest(fc)
	if err != nil {
		return err
	}
	metav1.SetMetaDataLabel(&fc.ObjectMeta, corev1beta1.DiscoveredLabel, via)
	metav1.SetMetaDataAnnotation(&fc.ObjectMeta, corev1beta1.DiscoveredFromAnnotation, strings.TrimSuffix(r.Instance, "."))
	metav1.SetMetaDataAnnotation(&fc.ObjectMeta, specAnnotation, sum)
	return nil
}

func digest(fc *corev1beta1.ForeignCluster) (string, error) {
	data, err := json.Marshal(fc.Spec)
	if err != nil {
		return "", fmt.Errorf("encoding ForeignCluster %s: %w", fc.Name, err)
	}
	return trust.Hash(string(data))[:16], nil
}

// untouched reports whether a ForeignCluster is as discovery wrote it and not in use: there
// is no identity in either direction and no virtual node.
func untouched(fc *corev1beta1.ForeignCluster) bool {
	sum, err := digest(fc)
	role := fc.Status.Role
	return err == nil && fc.Labels[corev1beta1.DiscoveredLabel] != "" && fc.Annotations[specAnnotation] == sum &&
		fc.Spec.UserName == "" && fc.Spec.TokenSecretRef == nil && fc.DeletionTimestamp == nil &&
		fc.Status.APIServerURL == "" && (role == "" || role == corev1beta1.RoleUnknown)
}

// create creates the ForeignCluster of a record. It never overwrites an existing one.
func (c *Clusters) create(ctx context.Context, via string, r Record) error {
	c.creating.Lock()
	defer c.creating.Unlock()
	if err := c.spend(via); err != nil {
		return err
	}
	live, err := c.cfg.Liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("confirming that there is no ForeignCluster of %s: %w", r.ClusterID, err)
	}
	have, ours := pick(store.Pointers(live.Items), r.ClusterID, via)
	switch {
	case have != nil:
		return nil // the event of that object queues the key
	case ours >= c.cfg.Most:
		return c.full(via)
	}
	fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: r.ClusterID}}
	if err := want(fc, via, r); err != nil {
		return err
	}
	_, err = store.Write(ctx, "ForeignCluster", c.cfg.Liqo.CoreV1beta1().ForeignClusters(), "", nil, fc)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return err
	}
	c.cfg.Log.Info("cluster found", zap.String("peer", r.ClusterID), zap.String("via", via), zap.String("instance", r.Instance))
	return nil
}

// follow updates a ForeignCluster that discovery created to its current record.
func (c *Clusters) follow(ctx context.Context, have *corev1beta1.ForeignCluster, via string, r Record) error {
	next := have.DeepCopy()
	if err := want(next, via, r); err != nil {
		return err
	}
	if next.Spec.AuthURL == have.Spec.AuthURL && next.Spec.ClusterName == have.Spec.ClusterName &&
		maps.Equal(next.Labels, have.Labels) && maps.Equal(next.Annotations, have.Annotations) {
		return nil
	}
	if err := c.spend(via); err != nil {
		return err
	}
	_, err := store.Write(ctx, "ForeignCluster", c.cfg.Liqo.CoreV1beta1().ForeignClusters(), "", have, next)
	return store.IgnoreGone(err) // the event of the other write queues the key
}

// remove deletes a ForeignCluster whose record is gone, after live reads have confirmed
// that nothing uses it.
func (c *Clusters) remove(ctx context.Context, have *corev1beta1.ForeignCluster) error {
	if err := c.spend(have.Labels[corev1beta1.DiscoveredLabel]); err != nil {
		return err
	}
	live, err := store.Live(ctx, "ForeignCluster", c.cfg.Liqo.CoreV1beta1().ForeignClusters(), have.Name)
	if err != nil || live == nil || live.UID != have.UID || !untouched(live) {
		return err
	}
	nodes, err := c.cfg.Liqo.OffloadingV1beta1().VirtualNodes(corev1beta1.TenantNamespace(live.Spec.ClusterID)).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("confirming that there is no virtual node of %s: %w", live.Spec.ClusterID, err)
	}
	if len(nodes.Items) > 0 {
		return loop.After(minTTL)
	}
	options := store.DeleteUID(live)
	options.Preconditions.ResourceVersion = &live.ResourceVersion
	err = c.cfg.Liqo.CoreV1beta1().ForeignClusters().Delete(ctx, live.Name, options)
	if store.IgnoreGone(err) != nil {
		return fmt.Errorf("removing ForeignCluster %s, whose record is gone: %w", live.Name, err)
	}
	if err != nil {
		return loop.After(time.Second) // another client has just changed it
	}
	c.cfg.Log.Info("cluster no longer found", zap.String("peer", live.Spec.ClusterID))
	return nil
}
