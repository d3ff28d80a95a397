package exchange

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/check"
)

const tenant = "liqo-tenant-milan"

var (
	noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	kept = ranges("10.0.0.0/8", "fc00::/7")
)

func keepsAll(string) []netip.Prefix { return kept }

func ranges(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// rig is the API server of one cluster.
type rig struct {
	t       *testing.T
	tracker clienttesting.ObjectTracker
	server  *kubetest.Server
	clk     *clocktesting.FakeClock
	user    *fake.Clientset
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, tracker: fake.NewSimpleClientset().Tracker(), clk: clocktesting.NewFakeClock(noon)}
	r.server = kubetest.NewServer(r.tracker, r.clk)
	r.user = r.client(r.server.React)
	return r
}

// client returns another client of the server, whose requests pass react.
func (r *rig) client(react clienttesting.ReactionFunc) *fake.Clientset {
	c := &fake.Clientset{}
	c.AddReactor("*", "*", react)
	c.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := r.tracker.Watch(a.GetResource(), a.GetNamespace())
		return true, w, err
	})
	return c
}

// actor is an Allocator with caches of its own, which are filled by hand unless it runs.
type actor struct {
	*Allocator
	caches
	client *fake.Clientset
}

func (r *rig) actor(change ...func(*AllocateConfig)) *actor {
	r.t.Helper()
	return r.actorWith(r.client(r.server.React), change...)
}

func (r *rig) actorWith(client *fake.Clientset, change ...func(*AllocateConfig)) *actor {
	r.t.Helper()
	factory := externalversions.NewSharedInformerFactory(client, 0)
	group := factory.IPAM().V1alpha1()
	cfg := AllocateConfig{
		Pools: ranges("10.80.0.0/14", "fd80::/46"), Keep: keepsAll, External: ranges("10.70.0.0/27", "fd70::/123"),
		Reserved: &fixedRanges{list: []ipamv1alpha1.NamedRange{{Prefix: netip.MustParsePrefix("10.244.0.0/16"), Name: "a pod range of this cluster"}}},
		Base:     Base{Env: loop.Env{Clock: r.clk, Log: zap.NewNop()}, Client: client, ForeignClusters: factory.Core().V1beta1().ForeignClusters()},
		Networks: group.Networks(), IPs: group.IPs(), AddressPools: group.AddressPools(),
	}
	for _, c := range change {
		c(&cfg)
	}
	a, err := NewAllocator(cfg)
	require.NoError(r.t, err)
	return &actor{a, caches{r, factory, kindsOf(ipamv1alpha1.SchemeGroupVersion, "Network", "IP", "AddressPool")}, client}
}

// allocated is a cluster, and an Allocator that has given Networks what they ask for: a name and a range of each.
// The test runs beside others.
func allocated(t *testing.T, networks ...string) (*rig, *actor) {
	t.Helper()
	t.Parallel()
	r := newRig(t)
	a := r.actor()
	for i := 0; i < len(networks); i += 2 {
		r.network(networks[i], networks[i+1])
	}
	a.settle()
	return r, a
}

// fixedRanges are reserved ranges that a test chooses.
type fixedRanges struct {
	mu   sync.Mutex
	list []ipamv1alpha1.NamedRange
	err  error
	told []func()
}

func (f *fixedRanges) HasSynced() bool       { return true }
func (f *fixedRanges) Subscribe(told func()) { f.told = append(f.told, told) }

func (f *fixedRanges) Reserved() ([]ipamv1alpha1.NamedRange, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list, f.err
}

// set makes them others, and tells.
func (f *fixedRanges) set(err error, texts ...string) {
	f.mu.Lock()
	f.list, f.err = check.Named("a range of this cluster", ranges(texts...)), err
	f.mu.Unlock()
	for _, tell := range f.told {
		tell()
	}
}

// resources are what an Allocator watches.
var resources = []string{"networks", "ips", "addresspools"}

// caches are those of one client, which a test fills by hand unless the informers run.
type caches struct {
	r       *rig
	factory externalversions.SharedInformerFactory
	kinds   []schema.GroupVersionKind
}

func kindsOf(group schema.GroupVersion, kinds ...string) (out []schema.GroupVersionKind) {
	for _, kind := range kinds {
		out = append(out, group.WithKind(kind))
	}
	return out
}

// deliver makes caches as the API server is now: all of them, unless some are named.
func (c caches) deliver(names ...string) {
	c.r.t.Helper()
	for _, kind := range c.kinds {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		if len(names) > 0 && !slices.Contains(names, resource.Resource) {
			continue
		}
		var objects []any
		for _, o := range must(meta.ExtractList(must(c.r.tracker.List(resource, kind, "")))) {
			objects = append(objects, o)
		}
		c.replace(resource.Resource, objects...)
	}
}

// replace makes a cache have these objects.
func (c caches) replace(name string, objects ...any) {
	c.r.t.Helper()
	for _, kind := range c.kinds {
		if resource, _ := meta.UnsafeGuessKindToResource(kind); resource.Resource == name {
			require.NoError(c.r.t, must(c.factory.ForResource(resource)).Informer().GetStore().Replace(objects, ""))
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// settle delivers and syncs every key until nothing is written any more.
func (a *actor) settle() {
	a.r.t.Helper()
	for range 20 {
		a.client.ClearActions()
		a.deliver()
		for _, k := range a.keys() {
			err := k.sync(a.r.t.Context())
			require.True(a.r.t, err == nil || apierrors.IsConflict(err), "%v", err)
		}
		if len(kubetest.TakeWrites(a.client)) == 0 {
			return
		}
	}
	a.r.t.Fatal("writes do not end")
}

// work is one key of one loop.
type work struct {
	loop *claims // nil: the loop of pools
	key  loop.Key
	of   *actor
}

func (w work) sync(ctx context.Context) error {
	if w.loop == nil {
		return w.of.syncPool(ctx, w.key)
	}
	return w.loop.sync(ctx, w.key)
}

// keys are those that the caches show, in order: a random choice among them is one of the seed.
func (a *actor) keys() (out []work) {
	for _, c := range []*claims{a.networks, a.ips} {
		names := c.informer.GetStore().ListKeys()
		slices.Sort(names)
		for _, name := range names {
			out = append(out, work{c, must(cache.ParseObjectName(name)), a})
		}
		out = append(out, work{nil, loop.Key{Name: c.pool.name}, a})
	}
	return out
}

func (a *actor) syncNetwork(name string) error {
	return a.networks.sync(a.r.t.Context(), loop.Key{Namespace: tenant, Name: name})
}

// run starts the informers and the loops, until the test ends or stop is called.
func (a *actor) run() (stop func()) {
	a.r.t.Helper()
	started := make(chan struct{})
	stop = kubetest.Run(a.r.t, func(ctx context.Context) error {
		a.factory.Start(ctx.Done())
		a.factory.WaitForCacheSync(ctx.Done()) // a fake's watch misses what happens between its list and its start
		defer a.factory.Shutdown()
		close(started)
		return a.Run(ctx, 2)
	})
	<-started
	return stop
}

func (r *rig) network(name, cidr string, labels ...string) *ipamv1alpha1.Network {
	r.t.Helper()
	n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Spec: ipamv1alpha1.NetworkSpec{CIDR: networkingv1beta1.CIDR(cidr)}}
	for _, l := range labels {
		n.Labels = map[string]string{l: "true"}
	}
	return kubetest.Create(r.t, r.user.IPAMV1alpha1().Networks(tenant), n)
}

func (r *rig) ip(name, addr string) *ipamv1alpha1.IP {
	r.t.Helper()
	i := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Spec: ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(addr)}}
	return kubetest.Create(r.t, r.user.IPAMV1alpha1().IPs(tenant), i)
}

func (r *rig) getNetwork(name string) *ipamv1alpha1.Network {
	return kubetest.Find(r.t, r.user.IPAMV1alpha1().Networks(tenant), name)
}

func (r *rig) getIP(name string) *ipamv1alpha1.IP {
	return kubetest.Find(r.t, r.user.IPAMV1alpha1().IPs(tenant), name)
}

func (r *rig) pool(name string) *ipamv1alpha1.AddressPool {
	return kubetest.Find(r.t, r.user.IPAMV1alpha1().AddressPools(), name)
}

func (r *rig) poolReason() string {
	return ready(r.pool(ipamv1alpha1.PoolNetworks).Status.Conditions).Reason
}

// given is what the pool of networks has recorded, as "name cidr".
func (r *rig) given() (out []string) {
	p := r.pool(ipamv1alpha1.PoolNetworks)
	if p == nil {
		return nil
	}
	for _, a := range p.Spec.Allocations {
		out = append(out, a.Name+" "+a.CIDR)
	}
	return out
}

func (r *rig) editPool(name string, edit func(*ipamv1alpha1.AddressPool)) {
	r.t.Helper()
	p := r.pool(name)
	edit(p)
	kubetest.Update(r.t, r.user.IPAMV1alpha1().AddressPools(), p)
}

func (r *rig) deleteNetwork(name string) {
	r.t.Helper()
	require.NoError(r.t, r.user.IPAMV1alpha1().Networks(tenant).Delete(context.Background(), name, metav1.DeleteOptions{}))
}

// unhold takes the finalizers off a Network.
func (r *rig) unhold(name string) {
	r.t.Helper()
	_, err := r.user.IPAMV1alpha1().Networks(tenant).Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(r.t, err)
}

func (r *rig) eventually(what string, f func() bool) {
	r.t.Helper()
	require.Eventually(r.t, f, time.Minute, 5*time.Millisecond, what)
}

func ready(conditions []metav1.Condition) metav1.Condition {
	c := meta.FindStatusCondition(conditions, ipamv1alpha1.ConditionReady)
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}
