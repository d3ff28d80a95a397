package link

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/loop"
)

// Clients reach one peer.
type Clients struct {
	// Host is the address of the peer's API server.
	Host string
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// Ready fails unless the peer's API server says that it is ready. It returns soon
	// after its context is done.
	Ready func(ctx context.Context) error
	// Renew makes the clients use other credentials of the same user for the same server,
	// and reports whether they are that: what runs goes on. It may be nil.
	Renew func(kubeconfig []byte) bool
}

// Endpoint is what is known of the way to one peer.
type Endpoint struct {
	// Secret is where the credentials are from, as namespace/name.
	Secret string
	// Revision differs between different servers and users. Renewed credentials have that
	// of the first ones.
	Revision string
	// Clients are usable if Problem is empty.
	Clients Clients
	// Problem says what is wrong with the credentials, and what is accepted.
	Problem string

	digest string // of the kubeconfig
}

// DirectoryConfig configures a Directory.
type DirectoryConfig struct {
	// Kube is a client of this cluster.
	Kube kubernetes.Interface
	// Namespaces is of this cluster.
	Namespaces coreinformers.NamespaceInformer
	// Connect makes clients from a kubeconfig. It does not dial.
	Connect func(kubeconfig []byte) (Clients, error)
	Log     *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
}

// Directory knows the ways to the peers: it watches, in each tenant namespace and
// nowhere else, the Secrets that hold a peer's kubeconfig. Its methods are safe for
// concurrent use.
type Directory struct {
	loop       *loop.Loop
	cfg        DirectoryConfig
	namespaces corelisters.NamespaceLister

	watching map[string]*secrets // by namespace; used by the one worker only

	mu        sync.Mutex
	endpoints map[string]Endpoint // by cluster id
	judged    map[string]bool     // by cluster id, whether endpoints says all that there is
	told      []func(clusterID string)
	toldNone  []func(clusterID string)
}

// secrets is the watch of one tenant namespace.
type secrets struct {
	clusterID string
	informer  cache.SharedIndexInformer
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// NewDirectory registers with the informer and starts nothing.
func NewDirectory(cfg DirectoryConfig) (*Directory, error) {
	d := &Directory{cfg: cfg, namespaces: cfg.Namespaces.Lister(), watching: map[string]*secrets{},
		endpoints: map[string]Endpoint{}, judged: map[string]bool{}}
	d.loop = loop.New(loop.Config{Name: "peerdirectory", Sync: d.sync, Log: cfg.Log, Observer: cfg.Observer})
	_, err := d.loop.Watch(cfg.Namespaces.Informer(), func(obj any) []loop.Key {
		if ns, ok := obj.(*corev1.Namespace); ok {
			return []loop.Key{{Name: ns.Name}}
		}
		return nil
	})
	return d, err
}

// Subscribe makes f be called with a peer's id each time that the way to it has come,
// changed or gone. It is called before Run. f returns at once.
func (d *Directory) Subscribe(f func(clusterID string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.told, f)
}

// Endpoint returns the way to a peer; false while there is none.
func (d *Directory) Endpoint(clusterID string) (Endpoint, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.endpoints[clusterID]
	return e, ok
}

// Judged reports whether it is known if there is a way to a peer. Of a tenant namespace it is
// not until its Secrets have been read. The cache of namespaces must be synced.
func (d *Directory) Judged(clusterID string) bool {
	ns, err := d.namespaces.Get(corev1beta1.TenantNamespace(clusterID))
	if err != nil {
		return true
	}
	if _, tenant := peerOf(ns); !tenant {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.judged[clusterID]
}

// onNone makes f be called with a peer's id when it is found for the first time that there
// is no way to it: that is no change for those who subscribe.
func (d *Directory) onNone(f func(clusterID string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.toldNone = append(d.toldNone, f)
}

// Run watches until ctx is done, and returns when every watch has ended. It may be
// called again; what was known stays known in between.
func (d *Directory) Run(ctx context.Context) error {
	err := d.loop.Run(ctx, 1)
	for ns := range d.watching {
		d.end(ns)
	}
	return err
}

// peerOf returns the peer whose tenant namespace a namespace is. The name counts, too:
// two namespaces must never speak for the same peer.
func peerOf(ns *corev1.Namespace) (clusterID string, ok bool) {
	id := ns.Labels[corev1beta1.RemoteClusterIDLabel]
	return id, id != "" && ns.Labels[corev1beta1.TenantNamespaceLabel] == "true" && ns.Name == corev1beta1.TenantNamespace(id)
}

// sync has two kinds of keys: a namespace's name, whose watch it starts or ends, and a
// Secret's namespace with an empty name, whose endpoint it computes.
func (d *Directory) sync(ctx context.Context, key loop.Key) error {
	if key.Namespace != "" {
		d.refresh(key.Namespace)
		return nil
	}
	ns, err := d.namespaces.Get(key.Name)
	id, tenant := "", false
	if err == nil {
		id, tenant = peerOf(ns)
	}
	have := d.watching[key.Name]
	switch {
	case tenant && have == nil:
		return d.begin(ctx, key.Name, id)
	case !tenant:
		if have != nil {
			d.end(key.Name)
		}
		if id, ok := strings.CutPrefix(key.Name, corev1beta1.TenantNamespacePrefix); ok {
			d.set(id, nil)
		}
	}
	return nil
}

func (d *Directory) begin(ctx context.Context, namespace, id string) error {
	s := &secrets{clusterID: id}
	s.informer = coreinformers.NewFilteredSecretInformer(d.cfg.Kube, namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = corev1beta1.IdentityTypeLabel + "=" + corev1beta1.IdentityControlPlane
	})
	if err := s.informer.SetTransform(func(obj any) (any, error) {
		if m, ok := obj.(metav1.Object); ok {
			m.SetManagedFields(nil)
		}
		return obj, nil
	}); err != nil {
		return fmt.Errorf("watching the Secrets of %s: %w", namespace, err)
	}
	handler := d.loop.Handler(loop.Constant(loop.Key{Namespace: namespace}))
	if _, err := s.informer.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watching the Secrets of %s: %w", namespace, err)
	}
	ctx, s.cancel = context.WithCancel(ctx)
	d.watching[namespace] = s
	s.running.Go(func() { s.informer.RunWithContext(ctx) })
	// Secrets that went while nobody looked make no event: the endpoint is computed once
	// the list is there.
	s.running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), s.informer.HasSynced) {
			d.loop.Add(loop.Key{Namespace: namespace})
		}
	})
	return nil
}

func (d *Directory) end(namespace string) {
	s := d.watching[namespace]
	s.cancel()
	s.running.Wait()
	delete(d.watching, namespace)
}

// refresh computes the endpoint of one tenant namespace from its Secrets.
func (d *Directory) refresh(namespace string) {
	s := d.watching[namespace]
	if s == nil || !s.informer.HasSynced() {
		return
	}
	var found []*corev1.Secret
	for _, obj := range s.informer.GetStore().List() {
		if secret, ok := obj.(*corev1.Secret); ok {
			found = append(found, secret)
		}
	}
	if len(found) == 0 {
		d.set(s.clusterID, nil)
		return
	}
	slices.SortFunc(found, func(a, b *corev1.Secret) int { return cmp.Compare(a.Name, b.Name) })
	var chosen *Endpoint
	for _, secret := range found {
		e := d.connect(s.clusterID, secret)
		if chosen == nil || (chosen.Problem != "" && e.Problem == "") {
			chosen = &e
		}
	}
	d.set(s.clusterID, chosen)
}

// connect makes an endpoint of a Secret, or returns the present one if it is of the
// same credentials, or has taken them as a renewal of its own.
func (d *Directory) connect(id string, secret *corev1.Secret) Endpoint {
	data := secret.Data[corev1beta1.KubeconfigSecretKey]
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	e := Endpoint{Secret: secret.Namespace + "/" + secret.Name, Revision: digest, digest: digest}
	if have, ok := d.Endpoint(id); ok && have.Secret == e.Secret {
		if have.digest == digest {
			return have
		}
		if have.Problem == "" && have.Clients.Renew != nil && have.Clients.Renew(data) {
			d.cfg.Log.Info("credentials of peer renewed", zap.String("peer", id), zap.String("secret", e.Secret))
			have.digest = digest
			return have
		}
	}
	if len(data) == 0 {
		e.Problem = fmt.Sprintf("Secret %s has no key %s: it must hold a kubeconfig that reaches cluster %s", e.Secret, corev1beta1.KubeconfigSecretKey, id)
		return e
	}
	clients, err := d.cfg.Connect(data)
	if err != nil {
		e.Problem = fmt.Sprintf("Secret %s, key %s: %v", e.Secret, corev1beta1.KubeconfigSecretKey, err)
		return e
	}
	e.Clients = clients
	return e
}

// set replaces an endpoint, or removes it when e is nil, and tells if that is a change, or
// the first that is known.
func (d *Directory) set(id string, e *Endpoint) {
	d.mu.Lock()
	have, ok := d.endpoints[id]
	changed := ok != (e != nil) || (e != nil && (have.Revision != e.Revision || have.Secret != e.Secret))
	if e == nil {
		delete(d.endpoints, id)
	} else {
		d.endpoints[id] = *e
	}
	told := slices.Clone(d.told)
	if !changed {
		told = nil
		if !d.judged[id] {
			told = slices.Clone(d.toldNone)
		}
	}
	d.judged[id] = true
	d.mu.Unlock()
	switch {
	case !changed:
	case e != nil:
		d.cfg.Log.Info("credentials of peer read", zap.String("peer", id), zap.String("secret", e.Secret), zap.Bool("usable", e.Problem == ""))
	default:
		d.cfg.Log.Info("credentials of peer gone", zap.String("peer", id))
	}
	for _, f := range told {
		f(id)
	}
}
