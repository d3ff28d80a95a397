package engine

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

const tenant = "liqo-tenant-milan"

// configMaps returns a Kind like those of package kinds.
func configMaps() Kind[*corev1.ConfigMap, *corev1.ConfigMap] {
	watch := func(in Informers) *store.Informer {
		return InformerOf(in, in.Kube.CoreV1().ConfigMaps(in.Namespace), &corev1.ConfigMap{})
	}
	return Kind[*corev1.ConfigMap, *corev1.ConfigMap]{
		Resource: "configmap", Local: watch, Remote: watch,
		Reader: func(c Clients, namespace string) store.Getter[*corev1.ConfigMap] {
			return c.Kube.CoreV1().ConfigMaps(namespace)
		},
		Writer: func(c Clients, namespace string) Writer[*corev1.ConfigMap] {
			return c.Kube.CoreV1().ConfigMaps(namespace)
		},
		List: func(ctx context.Context, c Clients, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
			return c.Kube.CoreV1().ConfigMaps(namespace).List(ctx, opts)
		},
		Forge: func(local *corev1.ConfigMap, s Scope) (*corev1.ConfigMap, error) {
			return forge.ConfigMap(local, s.ObjectOptions)
		},
		Merge: forge.MergeConfigMap, Replaces: forge.ReplacesConfigMap,
	}
}

// rig is a fake consumer, a fake provider and an engine between them.
type rig struct {
	home, remote           *fake.Clientset
	homeLiqod, remoteLiqod *liqodfake.Clientset
	events                 *record.FakeRecorder
	closed                 atomic.Bool  // Config.Gate returns an error
	refused                atomic.Int64 // how often it did
	lost                   time.Time
	setting                Setting
	whole                  bool // updates send the whole object
	derived                bool // Kind.Derived
	misleads               func(have, merged *corev1.ConfigMap) bool
	admit                  func(*corev1.ConfigMap) // the provider's admission webhook
	serial                 atomic.Int64            // the last resource version in the provider
	skipLabels             []string
	clock                  clock.PassiveClock
	engine                 *Engine
}

func newRig() *rig {
	r := &rig{
		home: fake.NewClientset(), remote: fake.NewClientset(), homeLiqod: liqodfake.NewSimpleClientset(), remoteLiqod: liqodfake.NewSimpleClientset(),
		events: record.NewFakeRecorder(100), setting: Setting{Policy: forge.DenyList, Workers: 4},
		clock: clock.RealClock{},
	}
	kubetest.WatchFromList(r.home)
	kubetest.WatchFromList(r.remote)
	r.remote.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if m, err := meta.Accessor(action.(clienttesting.CreateAction).GetObject()); err == nil {
			m.SetUID(types.UID(fmt.Sprintf("remote-%d", r.serial.Add(1))))
			m.SetResourceVersion(fmt.Sprint(r.serial.Load()))
			if cm, ok := m.(*corev1.ConfigMap); ok && r.admit != nil {
				r.admit(cm)
			}
		}
		return false, nil, nil
	})
	// The fake tracker lacks resource versions, without which the order of two states is
	// unknown.
	r.remote.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		given := action.(clienttesting.UpdateAction).GetObject().(*corev1.ConfigMap)
		obj, err := r.remote.Tracker().Get(action.GetResource(), given.Namespace, given.Name)
		if err != nil {
			return true, nil, err
		}
		if have := obj.(*corev1.ConfigMap); have.UID != given.UID || have.ResourceVersion != given.ResourceVersion {
			return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), given.Name, nil)
		}
		return r.store(action, given.DeepCopy())
	})
	r.remote.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		_, obj, err := clienttesting.ObjectReaction(r.remote.Tracker())(action)
		if err != nil {
			return true, nil, err
		}
		return r.store(action, obj.(*corev1.ConfigMap))
	})
	r.add(r.homeLiqod.Tracker(), &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}})
	return r
}

// shopRig returns a rig whose namespace shop is offloaded, with objects at home.
func shopRig(t *testing.T, objects ...*corev1.ConfigMap) *rig {
	t.Helper()
	r := newRig()
	r.offload(t, "shop")
	for _, cm := range objects {
		r.createHome(t, cm)
	}
	return r
}

// stopClock has the engine go by a clock that moves in later only.
func (r *rig) stopClock() *clocktesting.FakeClock {
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	r.clock = c
	return c
}

// later moves the clock on until cond holds, and returns how far it has moved: what waits for
// a time comes no earlier, however slow or fast the machine is.
func later(t *testing.T, c *clocktesting.FakeClock, cond func() bool, what string) time.Duration {
	t.Helper()
	begin := c.Now()
	eventually(t, func() bool {
		if cond() {
			return true
		}
		c.Step(loop.FirstRepair / 100)
		return false
	}, what)
	return c.Since(begin)
}

// store admits an updated object and stores it with the next resource version.
func (r *rig) store(action clienttesting.Action, next *corev1.ConfigMap) (bool, runtime.Object, error) {
	if r.admit != nil {
		r.admit(next)
	}
	next.ResourceVersion = fmt.Sprint(r.serial.Add(1))
	return true, next, r.remote.Tracker().Update(action.GetResource(), next, next.Namespace)
}

func (r *rig) add(tracker clienttesting.ObjectTracker, objects ...runtime.Object) {
	for _, o := range objects {
		if err := tracker.Add(o); err != nil {
			panic(err)
		}
	}
}

// offload maps namespaces to their twins, which are named <namespace>-rome.
func (r *rig) offload(t *testing.T, namespaces ...string) {
	t.Helper()
	of := map[string]string{}
	for _, ns := range namespaces {
		of[ns] = ns + "-rome"
	}
	m := twins(of)
	maps := r.homeLiqod.OffloadingV1beta1().NamespaceMaps(tenant)
	if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		kubetest.Update(t, maps, m)
	}
}

func (r *rig) start(t *testing.T) (stop func()) {
	t.Helper()
	own := externalversions.NewSharedInformerFactory(r.homeLiqod, 0)
	kind := configMaps()
	kind.Whole, kind.Derived, kind.Misleads = r.whole, r.derived, r.misleads
	namespaces, err := NewFollower(own.Offloading().V1beta1().NamespaceMaps(), tenant, "milan")
	require.NoError(t, err)
	r.engine = New(Config{
		Home: Clients{r.home, r.homeLiqod}, Remote: Clients{r.remote, r.remoteLiqod},
		Target: Target{
			Namespaces: namespaces, VirtualNodes: own.Offloading().V1beta1().VirtualNodes(),
			TenantNamespace: tenant, Origin: "rome", Destination: "milan", SkipLabels: r.skipLabels,
			Gate: func() error {
				if r.closed.Load() {
					r.refused.Add(1)
					return fmt.Errorf("closed")
				}
				return nil
			},
			HomeLost:  func() time.Time { return r.lost },
			Transform: func(o any) (any, error) { return o, nil },
			Recorder:  r.events, Env: loop.Env{Clock: r.clock, Log: zap.NewNop()},
		},
		Kinds:   []Choice{{kind, r.setting}},
		Settled: func(_, _, _ string) {},
	})
	own.Offloading().V1beta1().VirtualNodes().Informer()
	return kubetest.Run(t, func(ctx context.Context) error {
		own.Start(ctx.Done())
		defer own.Shutdown()
		return r.engine.Run(ctx)
	})
}

// carry starts the engine and returns when the first object is reflected.
func (r *rig) carry(t *testing.T) (stop func()) {
	t.Helper()
	r.offload(t, "shop")
	r.createHome(t, local("app"))
	stop = r.start(t)
	r.requireWrites(t, "create configmaps shop-rome/app")
	return stop
}

func eventually(t *testing.T, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, cond, time.Minute, 2*time.Millisecond, what)
}

// idle waits until the caches of a namespace have synced and the queues are empty.
func (r *rig) idle(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, func() bool {
		if r.engine.spaces.Get(namespace) == nil || r.engine.sweeper.Len() > 0 {
			return false
		}
		for _, any := range r.engine.reflectors {
			k := any.(*kindLoop[*corev1.ConfigMap, *corev1.ConfigMap])
			if st := k.storesOf(namespace); st == nil || !st.synced() || k.loop.Len() > 0 {
				return false
			}
		}
		return true
	}, "the engine is idle")
}

// silent requires that nothing is written to the provider for a while, and that nothing
// was written to the consumer.
func (r *rig) silent(t *testing.T, what string) {
	t.Helper()
	require.Never(t, func() bool { return len(writesOf(r.remote)) > 0 }, 250*time.Millisecond, 10*time.Millisecond, what)
	kubetest.RequireWrites(t, r.home)
}

// liveReads returns the number of single objects that were read in the consumer.
func (r *rig) liveReads() int {
	reads := 0
	for _, a := range r.home.Actions() {
		if a.GetVerb() == "get" {
			reads++
		}
	}
	return reads
}

func writesOf(c *fake.Clientset) (out []string) {
	for _, a := range c.Actions() {
		switch a.GetVerb() {
		case "get", "list", "watch":
		default:
			out = append(out, a.GetVerb()+" "+a.GetResource().Resource)
		}
	}
	return out
}

// requireWrites waits until exactly these writes were sent to the provider, in this
// order, and clears the record of writes.
func (r *rig) requireWrites(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, func() bool { return len(writesOf(r.remote)) >= len(want) }, "writes "+strings.Join(want, ", "))
	kubetest.RequireWrites(t, r.remote, want...)
}

func local(name string, change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("local-" + name), Labels: map[string]string{"app": "web"}},
		Data:       map[string]string{"a": "1"},
	}
	for _, c := range change {
		c(cm)
	}
	return cm
}

func annotated(key string) func(*corev1.ConfigMap) {
	return func(cm *corev1.ConfigMap) { metav1.SetMetaDataAnnotation(&cm.ObjectMeta, key, "true") }
}

// forged returns what the engine creates in the provider for a local ConfigMap.
func forged(cm *corev1.ConfigMap) *corev1.ConfigMap {
	out, err := forge.ConfigMap(cm, forge.ObjectOptions{OriginClusterID: "rome", DestinationClusterID: "milan", RemoteNamespace: cm.Namespace + "-rome"})
	if err != nil {
		panic(err)
	}
	out.UID, out.ResourceVersion = "forged-"+cm.UID, "0" // lower than any version that the rig assigns
	return out
}

func (r *rig) createHome(t *testing.T, cm *corev1.ConfigMap) {
	t.Helper()
	r.add(r.home.Tracker(), cm)
}

func (r *rig) updateHome(t *testing.T, cm *corev1.ConfigMap) {
	t.Helper()
	require.NoError(t, r.home.Tracker().Update(corev1.SchemeGroupVersion.WithResource("configmaps"), cm, cm.Namespace))
}

func (r *rig) deleteHome(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, r.home.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "shop", name))
}

func (r *rig) there(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	obj, err := r.remote.Tracker().Get(corev1.SchemeGroupVersion.WithResource("configmaps"), "shop-rome", name)
	if err != nil {
		return nil
	}
	return obj.(*corev1.ConfigMap)
}

// updateThere changes the object app in the provider, as another client.
func (r *rig) updateThere(t *testing.T, change func(*corev1.ConfigMap)) {
	t.Helper()
	next := r.there(t, "app").DeepCopy()
	change(next)
	next.ResourceVersion = fmt.Sprint(r.serial.Add(1))
	require.NoError(t, r.remote.Tracker().Update(corev1.SchemeGroupVersion.WithResource("configmaps"), next, next.Namespace))
}

func (r *rig) requireEvent(t *testing.T, says ...string) {
	t.Helper()
	select {
	case e := <-r.events.Events:
		for _, s := range says {
			require.Contains(t, e, s)
		}
	case <-time.After(time.Minute):
		require.Fail(t, "no event", says)
	}
}
