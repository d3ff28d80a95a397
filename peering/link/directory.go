// Package link handles what concerns a peer as a whole: its identity, the credentials for
// it, whether its API server answers and is still the cluster of the peering, and the rights
// of the peer and of this cluster's controller in the tenant namespace. In the controller,
// Directory keeps the clients for the peers, Rights the RBAC bindings, and Conditions the
// status of ForeignClusters. In a vkubelet, which has one provider, Credentials keeps the
// clients for the provider, and Check its state.
package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/trust"
)

// Clients are the clients of one peer.
type Clients struct {
	// Host is the address of the peer's API server.
	Host string
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// Beats renews heartbeat Leases, and writes nothing else. It writes in every replica, also
	// in those that do not lead: a renewal says only that this cluster's API server serves.
	Beats kubernetes.Interface
	// Ready returns an error unless the peer's API server is ready. It must return soon
	// after ctx is done.
	Ready func(ctx context.Context) error
	// Renew makes the clients use other credentials, and reports whether it has done so. It
	// does if they are credentials of the same user for the same server, so that running
	// requests and watches can go on. It may be nil.
	Renew func(kubeconfig []byte) bool
}

// Endpoint is the access to one peer.
type Endpoint struct {
	// Secret is the Secret with the credentials, as namespace/name.
	Secret string
	// Revision differs between different servers or users. Renewed credentials keep the
	// Revision of the first ones.
	Revision string
	// Clients are valid if Problem is empty.
	Clients Clients
	// Problem says what is wrong with the credentials and what is accepted.
	Problem string
	// Life is the life of the credentials, also after they were renewed. It is zero if they
	// do not expire, and if Problem is not empty.
	Life client.Life

	digest string // of the kubeconfig
}

// Base is what the loops of peerings have in common. All fields are required except Observer.
type Base struct {
	loop.Env

	// ClusterID is this cluster's id.
	ClusterID string
	// Kube and Liqo are clients of this cluster.
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// The informers watch this cluster in all namespaces, without label selectors.
	ForeignClusters informers.ForeignClusterInformer
	Namespaces      coreinformers.NamespaceInformer
}

// OwnUID returns the UID of this cluster's kube-system namespace.
func (b Base) OwnUID() (types.UID, error) {
	ns, err := b.Namespaces.Lister().Get(metav1.NamespaceSystem)
	if err != nil {
		return "", fmt.Errorf("reading the UID of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return ns.UID, nil
}

// DirectoryConfig is the input of NewDirectory. All fields are required.
type DirectoryConfig struct {
	Base

	// Connect creates the clients of a peer from its cluster id and a kubeconfig. It must
	// not connect to the peer.
	Connect func(id string, kubeconfig []byte) (Clients, error)
}

// Directory has the clients for the peers. It watches the Secrets with the peers'
// kubeconfigs, in tenant namespaces only. Its methods are safe for concurrent use.
type Directory struct {
	loop *loop.Loop
	cfg  DirectoryConfig

	watching perPeer[cache.SharedIndexInformer] // of the Secrets in a tenant namespace, by its name

	changes, none loop.Listeners[string] // they take cluster ids

	mu        sync.Mutex
	endpoints map[string]Endpoint // by cluster id
	judged    map[string]bool     // by cluster id: whether the peer's Secrets have been read
}

// NewDirectory returns a Directory and registers its event handler on the informer. It
// starts nothing.
func NewDirectory(cfg DirectoryConfig) *Directory {
	d := &Directory{cfg: cfg, endpoints: map[string]Endpoint{}, judged: map[string]bool{}}
	d.loop = loop.New(loop.Config{Name: "peerdirectory", Sync: d.sync, Log: cfg.Log, Observer: cfg.Observer}, loop.From(cfg.Namespaces.Informer(), loop.Self))
	return d
}

// Subscribe registers f, which is called with a peer's id after the credentials for the
// peer have appeared, changed or gone. It must be called before Run. f must not block.
func (d *Directory) Subscribe(f func(clusterID string)) { d.changes.Subscribe(f) }

// Endpoint returns the access to a peer. It returns false if there are no credentials.
func (d *Directory) Endpoint(clusterID string) (Endpoint, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.endpoints[clusterID]
	return e, ok
}

// Judged reports whether the result of Endpoint is final: it is not before the Secrets of
// an existing tenant namespace have been read. The cache of namespaces must be synced.
func (d *Directory) Judged(clusterID string) bool {
	ns := store.Known(d.cfg.Namespaces.Lister().Get(corev1beta1.TenantNamespace(clusterID)))
	if _, tenant := peerOf(ns); !tenant {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.judged[clusterID]
}

// lost reports, by a live read, whether the credentials for a peer went with its tenant
// namespace. They do not say that somebody wants to end the peering.
func (d *Directory) lost(ctx context.Context, clusterID string) (bool, error) {
	ns, err := store.Live(ctx, "Namespace", d.cfg.Kube.CoreV1().Namespaces(), corev1beta1.TenantNamespace(clusterID))
	return err == nil && (ns == nil || ns.DeletionTimestamp != nil), err
}

// onNone registers f, which is called with a peer's id when the first read of its Secrets
// finds no credentials. Subscribers are not called then, as nothing has changed for them.
func (d *Directory) onNone(f func(clusterID string)) { d.none.Subscribe(f) }

// Run blocks until ctx is done and all watches have stopped. It may be called again after
// that. The endpoints stay available in between.
func (d *Directory) Run(ctx context.Context) error {
	err := d.loop.Run(ctx, 1)
	d.watching.stopAll()
	return err
}

// peerOf returns the peer of a tenant namespace; ns may be nil. Besides the labels, it checks the
// namespace's name, so that two namespaces can never belong to the same peer.
func peerOf(ns *corev1.Namespace) (clusterID string, ok bool) {
	if ns == nil {
		return "", false
	}
	id := ns.Labels[corev1beta1.RemoteClusterIDLabel]
	return id, id != "" && ns.Labels[corev1beta1.TenantNamespaceLabel] == "true" && ns.Name == corev1beta1.TenantNamespace(id)
}

// sync handles two kinds of keys. A key with the name of a namespace starts or stops the
// watch of its Secrets. A key with a namespace and an empty name computes the endpoint from
// these Secrets.
func (d *Directory) sync(ctx context.Context, key loop.Key) error {
	if key.Namespace != "" {
		d.refresh(key.Namespace)
		return nil
	}
	_, tenant := peerOf(store.Known(d.cfg.Namespaces.Lister().Get(key.Name)))
	_, watched := d.watching.running()[key.Name]
	switch {
	case tenant && !watched:
		return d.begin(ctx, key.Name)
	case !tenant:
		d.watching.stop(key.Name)
		if id, ok := strings.CutPrefix(key.Name, corev1beta1.TenantNamespacePrefix); ok {
			d.set(id, nil)
		}
	}
	return nil
}

func (d *Directory) begin(ctx context.Context, namespace string) error {
	informer := coreinformers.NewFilteredSecretInformer(d.cfg.Kube, namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = corev1beta1.IdentityTypeLabel + "=" + corev1beta1.IdentityControlPlane
	})
	if err := informer.SetTransform(client.StripManagedFields); err != nil {
		return fmt.Errorf("watching the Secrets of %s: %w", namespace, err)
	}
	handler := d.loop.Handler(loop.Constant(loop.Key{Namespace: namespace}))
	if _, err := informer.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watching the Secrets of %s: %w", namespace, err)
	}
	// The deletion of a Secret while no watch was running causes no event, so the endpoint
	// is computed after the initial list, too.
	d.watching.keep(ctx, namespace, "", informer, func(ctx context.Context) {
		defer loop.Start(ctx, informer.RunWithContext)()
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			d.loop.Add(loop.Key{Namespace: namespace})
		}
		<-ctx.Done()
	})
	return nil
}

// refresh computes the endpoint of a tenant namespace from its Secrets.
func (d *Directory) refresh(namespace string) {
	watched, ok := d.watching.running()[namespace]
	if !ok || !watched.is.HasSynced() {
		return
	}
	id, found := corev1beta1.PeerOfNamespace(namespace), store.All[*corev1.Secret](watched.is.GetStore())
	if len(found) == 0 {
		d.set(id, nil)
		return
	}
	slices.SortFunc(found, func(a, b *corev1.Secret) int { return cmp.Compare(a.Name, b.Name) })
	var chosen *Endpoint
	for _, secret := range found {
		e := d.connect(id, secret)
		if chosen == nil || (chosen.Problem != "" && e.Problem == "") {
			chosen = &e
		}
	}
	d.set(id, chosen)
}

// connect returns the endpoint for a Secret. It keeps the existing clients if the
// credentials are unchanged or renewed.
func (d *Directory) connect(id string, secret *corev1.Secret) Endpoint {
	data := secret.Data[corev1beta1.KubeconfigSecretKey]
	digest := trust.Hash(string(data))
	e := Endpoint{Secret: secret.Namespace + "/" + secret.Name, Revision: digest, digest: digest}
	if have, ok := d.Endpoint(id); ok && have.Secret == e.Secret {
		if have.digest == digest {
			return have
		}
		if have.Problem == "" && have.Clients.Renew != nil && have.Clients.Renew(data) {
			d.cfg.Log.Info("credentials of peer renewed", zap.String("peer", id), zap.String("secret", e.Secret))
			have.digest, have.Life = digest, lifeOf(data)
			return have
		}
	}
	if len(data) == 0 {
		e.Problem = fmt.Sprintf("Secret %s has no key %s: it must hold a kubeconfig that reaches cluster %s", e.Secret, corev1beta1.KubeconfigSecretKey, id)
		return e
	}
	clients, err := d.cfg.Connect(id, data)
	if err != nil {
		e.Problem = fmt.Sprintf("Secret %s, key %s: %v", e.Secret, corev1beta1.KubeconfigSecretKey, err)
		return e
	}
	e.Clients, e.Life = clients, lifeOf(data)
	return e
}

func lifeOf(kubeconfig []byte) client.Life {
	cfg, err := client.FromKubeconfig(kubeconfig)
	if err != nil {
		return client.Life{}
	}
	return client.LifeOf(cfg)
}

// set replaces an endpoint, or removes it if e is nil. It calls the subscribers after a
// change, and the functions of onNone after a first empty result.
func (d *Directory) set(id string, e *Endpoint) {
	d.mu.Lock()
	have, ok := d.endpoints[id]
	changed := ok != (e != nil) || (e != nil && (have.Revision != e.Revision || have.Secret != e.Secret))
	if e == nil {
		delete(d.endpoints, id)
	} else {
		d.endpoints[id] = *e
	}
	first := !d.judged[id]
	d.judged[id] = true
	d.mu.Unlock()
	switch {
	case !changed && first:
		d.none.Tell(id)
		return
	case !changed:
		return
	case e != nil:
		d.cfg.Log.Info("credentials of peer read", zap.String("peer", id), zap.String("secret", e.Secret), zap.Bool("usable", e.Problem == ""))
	default:
		d.cfg.Log.Info("credentials of peer gone", zap.String("peer", id))
	}
	d.changes.Tell(id)
}

// Connector returns a function that creates the clients of a peer from its cluster id and
// a kubeconfig. Each peer has its own limit for writes. The gate of settings holds for all
// but heartbeats. foreign describes the peer's API server. The function does not connect to
// the peer.
func Connector(settings client.Settings, foreign func(id string) client.Foreign) func(id string, kubeconfig []byte) (Clients, error) {
	return func(id string, kubeconfig []byte) (Clients, error) {
		cfg, err := client.FromKubeconfig(kubeconfig)
		if err != nil {
			return Clients{}, err
		}
		way := client.NewWay(cfg)
		distrusted, err := client.Distrust(way.Config(), foreign(id))
		if err != nil {
			return Clients{}, err
		}
		cfg = client.Harden(distrusted, settings)
		kube, kubeErr := kubernetes.NewForConfig(client.Core(cfg))
		liqo, liqoErr := versioned.NewForConfig(cfg)
		free := settings
		free.Gate = nil
		beats, beatsErr := kubernetes.NewForConfig(client.Core(client.Harden(distrusted, free)))
		if err := errors.Join(kubeErr, liqoErr, beatsErr); err != nil {
			return Clients{}, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
		}
		renew := func(kubeconfig []byte) bool {
			cfg, err := client.FromKubeconfig(kubeconfig)
			return err == nil && way.Renew(cfg)
		}
		return Clients{Host: cfg.Host, Kube: kube, Liqo: liqo, Beats: beats, Ready: Readyz(kube), Renew: renew}, nil
	}
}
