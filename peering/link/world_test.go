package link

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// peer is a cluster whose API server answers or not.
type peer struct {
	core   *corefake.Clientset
	renews map[string]bool // kubeconfigs that it accepts as renewed

	mu    sync.Mutex
	fails error
}

func newPeer(uid types.UID) *peer {
	return &peer{core: corefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid}})}
}

func (p *peer) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = err
}

func (p *peer) ready(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fails
}

// world is rome with the loops of this package, in a kubetest.Bubble.
type world struct {
	t             *testing.T
	core          *corefake.Clientset
	liqo          *fake.Clientset
	coreInformers coreinformers.SharedInformerFactory
	liqoInformers externalversions.SharedInformerFactory

	mu    sync.Mutex
	peers map[string]*peer // by kubeconfig

	directory  *Directory
	conditions *Conditions
	rights     *Rights
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	var core, liqo []runtime.Object
	for _, o := range objects {
		switch o.(type) {
		case *corev1beta1.ForeignCluster, *offloadingv1beta1.VirtualNode:
			liqo = append(liqo, o)
		default:
			core = append(core, o)
		}
	}
	w := &world{t: t, core: corefake.NewClientset(core...), liqo: fake.NewSimpleClientset(liqo...), peers: map[string]*peer{}}
	kubetest.WatchFromList(w.core)
	kubetest.WatchFromList(w.liqo)
	w.coreInformers = coreinformers.NewSharedInformerFactory(w.core, 0)
	w.liqoInformers = externalversions.NewSharedInformerFactory(w.liqo, 0)
	w.directory = NewDirectory(DirectoryConfig{Base: w.base("rome"), Connect: w.connect})
	w.conditions = NewConditions(ConditionsConfig{Base: w.base("rome"), Directory: w.directory, VirtualNodes: w.liqoInformers.Offloading().V1beta1().VirtualNodes(),
		Window: health.Window{Size: 5, Failures: 3, Successes: 2}, Interval: time.Second, Timeout: time.Second})
	w.rights = NewRights(RightsConfig{Base: w.base("rome"), OwnNamespace: "liqod", ServiceAccount: "liqod-controller",
		RoleBindings: w.coreInformers.Rbac().V1().RoleBindings(), ClusterRoleBindings: w.coreInformers.Rbac().V1().ClusterRoleBindings()})
	w.coreInformers.Start(t.Context().Done())
	w.liqoInformers.Start(t.Context().Done())
	synctest.Wait() // for the caches
	return w
}

// base returns what the loops of the cluster with an id have in common.
func (w *world) base(id string) Base {
	return Base{Env: loop.Env{Clock: clock.RealClock{}, Log: zaptest.NewLogger(w.t)}, ClusterID: id, Kube: w.core, Liqo: w.liqo,
		ForeignClusters: w.liqoInformers.Core().V1beta1().ForeignClusters(), Namespaces: w.coreInformers.Core().V1().Namespaces()}
}

func (w *world) connect(_ string, kubeconfig []byte) (Clients, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.peers[string(kubeconfig)]
	if p == nil {
		return Clients{}, errors.New("accepted is a kubeconfig with inline credentials")
	}
	return Clients{Host: "https://" + string(kubeconfig), Kube: p.core, Beats: p.core, Ready: p.ready, Renew: func(k []byte) bool { return p.renews[string(k)] }}, nil
}

func (w *world) addPeer(kubeconfig string, p *peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peers[kubeconfig] = p
}

func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.directory.Run(ctx) })
	wg.Go(func() { _ = w.conditions.Run(ctx, 2) })
	wg.Go(func() { _ = w.rights.Run(ctx, 2) })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	require.Eventually(w.t, f, time.Minute, 5*time.Millisecond, what)
}

// settled lets more time pass than any delay after which a loop works again by itself, waits
// until the loops are idle, and returns the number of all writes.
func (w *world) settled() int { return kubetest.Settled(2*time.Minute, w.core, w.liqo) }

func (w *world) cluster(name string) *corev1beta1.ForeignCluster {
	return kubetest.Get(w.t, w.liqo.CoreV1beta1().ForeignClusters(), name)
}

// is reports whether a condition has the given status and reason, written as "True Reason".
func (w *world) is(name, kind, want string) bool {
	return conditionOf(w.cluster(name).Status.Conditions, kind) == want
}

// condition returns a condition of milan, or nil.
func (w *world) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(w.cluster("milan").Status.Conditions, kind)
}

func (w *world) awaits(kind, want string) {
	w.t.Helper()
	w.eventually(kind+" "+want, func() bool { return w.is("milan", kind, want) })
}

func milan(user string) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan", Generation: 1}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan", UserName: user}}
}

func tenant(id string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1beta1.TenantNamespace(id),
		Labels: map[string]string{corev1beta1.TenantNamespaceLabel: "true", corev1beta1.RemoteClusterIDLabel: id, corev1beta1.PodSecurityLabel: corev1beta1.PodSecurityRestricted}}}
}

func secret(id, name, kubeconfig string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(id), Name: name,
		Labels: map[string]string{corev1beta1.IdentityTypeLabel: corev1beta1.IdentityControlPlane}}}
	if kubeconfig != "" {
		s.Data = map[string][]byte{corev1beta1.KubeconfigSecretKey: []byte(kubeconfig)}
	}
	return s
}

func contains(s, part string) bool { return strings.Contains(s, part) }
