// Package kinds has the reflected kinds, one file each, and the informers for twin
// namespaces that they share. All translations of objects are made by package forge.
package kinds

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"cmp"
	"context"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// twin is an offloaded namespace with what is in it in the provider. It ends with all that is
// remembered of it when the namespace is closed.
type twin struct {
	opened
	shadows *store.Store[*offloadingv1beta1.ShadowPod]
	pods    *store.Store[*corev1.Pod]

	mu sync.Mutex
	// left has the UIDs of local pods whose deletion the watch in the consumer has reported
	// while the provider still had a ShadowPod.
	left loop.Since[types.UID]
	// doubted has the time since when a ShadowPod seems to belong to a pod that was lost by a
	// restored backup, by the UID of the local pod.
	doubted loop.Since[types.UID]
	// newest is the highest resource version of the consumer that a ShadowPod has had.
	newest string
}

// key returns the key in the provider of an object of this name.
func (t *twin) key(name string) loop.Key { return loop.Key{Namespace: t.remote, Name: name} }

// saw notes from which state of the consumer a ShadowPod was made.
func (t *twin) saw(shadow *offloadingv1beta1.ShadowPod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := shadow.Spec.LocalResourceVersion; t.newest == "" || store.OlderVersion(t.newest, have) {
		t.newest = have
	}
}

// forget drops what is remembered of the ShadowPod of a local pod.
func (t *twin) forget(local types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left.End(local)
	t.doubted.End(local)
}

func slimContainers(all []corev1.Container) []corev1.Container {
	slim := make([]corev1.Container, 0, len(all))
	for i := range all {
		slim = append(slim, corev1.Container{Name: all[i].Name, Image: all[i].Image, Resources: all[i].Resources})
	}
	return slim
}

// PodsConfig is the configuration of a Pods for one virtual node.
type PodsConfig struct {
	OfNode
	// Home and HomeLiqod are clients for the consumer.
	Home     kubernetes.Interface
	HomeLiqo versioned.Interface
	// Remote has the clients for the provider.
	Remote engine.Clients
	// Pods is an informer for the pods of the virtual node only, and Nodes for its Node.
	Pods  coreinformers.PodInformer
	Nodes coreinformers.NodeInformer
	// HostIPs replace the addresses of the provider's nodes in the pod status.
	HostIPs []netip.Addr
	// Claims provisions the volumes of this virtual node.
	Claims *Claims
	// Remapper translates and checks the addresses of the provider's pods.
	Remapper forge.Remapper
	// Refused counts what is left out or delayed of the status of the provider's pods.
	Refused func(reason string)
	// API configures how pods in the provider reach the consumer's API server.
	API forge.APIAccess
	// HomeAPI finds the address of the consumer's API server if API.Host is empty; nil: pods
	// are not led there.
	HomeAPI HomeAPI
	// HomeDNS returns the DNS for pods that use the consumer's Services, or the reason why the provider
	// does not lead there.
	HomeDNS func() (forge.DNS, error)
	// Behind returns the first of the named objects of a namespace whose copy in its twin is not
	// as it has to be, as engine.Engine does.
	Behind func(ctx context.Context, namespace, remote string, named []forge.Named, existed time.Time) (forge.Named, bool, error)
	// RightsName is the name of the RoleBinding in each offloaded namespace that grants
	// the right to request tokens there.
	RightsName string
	// While returns a copy of a context that ends when Gate closes, and the function that
	// releases it.
	While func(context.Context) (context.Context, context.CancelFunc)
	// Silent says that the provider's controller does not run, so that no new pod is created
	// there; "": it runs, or nothing is known of it.
	Silent func() string
	// Workers is the number of pods synced concurrently, TokenWorkers that of tokens. With no
	// Workers, no further pods are offloaded, and one is for those that are.
	Workers, TokenWorkers int
}

// Pods offloads the pods of one virtual node: it copies their specs to the provider and
// their status back.
type Pods struct {
	cfg    PodsConfig
	loop   *loop.Loop
	twins  *engine.Spaces[*twin]
	tokens *tokens

	locals *store.Store[*corev1.Pod]

	// admitting is locked while the host ports of a pod are compared with those in use.
	admitting sync.Mutex

	// endings has when namespaces were taken back.
	endings loop.Since[string]

	mu sync.Mutex
	// memos are those of the local pods, by their UIDs.
	memos map[types.UID]*memo
	// spent limits the bytes that all statuses write after what is free for each pod.
	spent spent
}

// unlessOver returns nil if ctx is done, and err otherwise. Stopped informers reject
// handlers, which is no error during shutdown.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// earlier orders pods by namespace and age. Pods that started together are mostly in the same
// EndpointSlice: the controller of this cluster, which follows while their statuses are
// being written, then has few of a Service's EndpointSlices to write at a time, and not all
// of them each time.
func earlier(a, b *corev1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

func (p *Pods) localPods(namespace string) []*corev1.Pod {
	return store.Listed(p.cfg.Pods.Lister().Pods(namespace).List(labels.Everything()))
}

// memo is what is remembered of a local pod until it is deleted.
type memo struct {
	// moved is true if the status must be written even if only the host IP differs.
	moved bool
	// admitted is true if the pod has got its host ports.
	admitted bool
	// rejected is the last event about a rejected change, and told has the other events that a
	// pod gets once.
	rejected string
	told     map[string]bool
	// writes limits the writes of the status, and bytes is the size of those that were free.
	writes spent
	bytes  int
	// awaits is the copy that the pod waits for, or the last one that it waited for.
	awaits awaiting
	// last is the last state of the remote pod that was deleted.
	last *corev1.Pod
	// withLocal is true if the watch has reported the deletion of the remote pod after
	// that of its ShadowPod, while the local pod was being deleted. Then the provider
	// creates no replacement, and nothing is left there.
	withLocal bool
}

// change calls f with the memo of a pod.
func (p *Pods) change(uid types.UID, f func(*memo)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.memos[uid]
	if r == nil {
		r = &memo{}
		p.memos[uid] = r
	}
	f(r)
}

// memo returns a copy of the memo of a pod.
func (p *Pods) memo(uid types.UID) (out memo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.memos[uid]; r != nil {
		out = *r
	}
	return out
}

// remember keeps the last state of a deleted remote pod as long as its local pod exists.
// missed is true if the watch did not report the deletion and a new list lacked the pod.
func (p *Pods) remember(tw *twin, pod *corev1.Pod, missed bool) {
	local := p.locals.Cached(loop.Key{Namespace: tw.local, Name: pod.Name})
	if local == nil || localUID(pod) != local.UID {
		return
	}
	// This process may have deleted the ShadowPod before the watch reports that.
	shadow := tw.shadows.Cached(tw.key(pod.Name))
	withdrawn := shadow == nil || tw.shadows.WasDeleted(shadow.UID)
	p.change(local.UID, func(r *memo) { r.last, r.withLocal = pod, !missed && local.DeletionTimestamp != nil && withdrawn })
}

func (p *Pods) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.memos, uid)
}

func (p *Pods) now() metav1.Time { return metav1.NewTime(p.cfg.Clock.Now()) }

// newest returns the highest resource version of the consumer that any ShadowPod contains.
func (p *Pods) newest() (version string) {
	for _, tw := range p.twins.Each(corev1.NamespaceAll) {
		tw.mu.Lock()
		if version == "" || store.OlderVersion(version, tw.newest) {
			version = tw.newest
		}
		tw.mu.Unlock()
	}
	return version
}

// slim keeps the used fields of a remote pod. The spec is most of the size of a pod, and
// is only needed to see whether a change has arrived.
func (p *Pods) slim(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{
			NodeName: pod.Spec.NodeName, Containers: slimContainers(pod.Spec.Containers), InitContainers: slimContainers(pod.Spec.InitContainers),
			EphemeralContainers: pod.Spec.EphemeralContainers,
		}
	}
	return p.cfg.Transform(obj)
}
