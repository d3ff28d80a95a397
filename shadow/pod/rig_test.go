package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

var errCrash = errors.New("crash") // a sentinel of the tests: the process died at this request

// rig is an Enforcer before a fake API server that keeps UIDs, resource versions, grace
// periods and finalizers. The test refreshes the caches itself. It starts no goroutine.
type rig struct {
	t       *testing.T
	core    *fake.Clientset
	liqod   *liqodfake.Clientset
	clock   *clocktesting.FakePassiveClock
	events  *record.FakeRecorder
	shadows cache.SharedIndexInformer
	pods    cache.SharedIndexInformer
	spaces  cache.SharedIndexInformer
	quotas  *pushed
	e       *Enforcer
	harden  func(*corev1.PodSpec) error

	serial  int
	writes  []string // verb and resource of each write of the Enforcer
	done    int      // accepted writes
	reads   int
	outside bool // the test acts as another client: its writes are neither counted nor failed
	crashAt int  // number of the write at which the process dies; 0: never
	lateFor bool // the write is applied before the process dies
	refuse  map[string]error
	resized podMod // how the API server changes a resize; nil: it applies it as sent
	mutate  podMod // how admission webhooks change a new pod; nil: not at all
}

func newRig(t *testing.T, shadow *offloadingv1beta1.ShadowPod, pods ...*corev1.Pod) *rig {
	r := &rig{
		t: t, core: fake.NewClientset(), liqod: liqodfake.NewSimpleClientset(), refuse: map[string]error{},
		clock: clocktesting.NewFakePassiveClock(testTime()), harden: noHarden,
	}
	r.core.PrependReactor("*", "pods", r.reactPods)
	r.liqod.PrependReactor("*", "shadowpods", r.reactShadows)
	require.NoError(t, r.core.Tracker().Add(twin()))
	if shadow != nil {
		shadow.ResourceVersion = r.next()
		require.NoError(t, r.liqod.Tracker().Add(shadow))
	}
	for _, pod := range pods {
		require.NoError(t, r.core.Tracker().Add(pod))
	}
	r.restart()
	return r
}

// newRunningRig is a rig whose pod runs.
func newRunningRig(t *testing.T, policy corev1.RestartPolicy, mods ...shadowMod) *rig {
	r := newRig(t, newShadow(policy, mods...))
	r.settle()
	r.change(running)
	return r
}

func (r *rig) next() string { r.serial++; return strconv.Itoa(1000 + r.serial) }

// config is that of an Enforcer which accepts every pod, with informers of the factories.
func config(core *fake.Clientset, liqod *liqodfake.Clientset, own externalversions.SharedInformerFactory, shared informers.SharedInformerFactory) Config {
	return Config{
		RoomConfig: RoomConfig{
			Kube: core, Liqo: liqod, Quotas: own.Offloading().V1beta1().Quotas().Informer(), Env: loop.Env{Clock: clock.RealClock{}, Log: zap.NewNop()},
			LimitRanges: shared.Core().V1().LimitRanges(), RuntimeClasses: shared.Node().V1().RuntimeClasses(),
		},
		Recorder: record.NewFakeRecorder(1000),
		Harden:   func(string, *corev1.PodSpec) error { return nil }, Metadata: noMetadata,
		ShadowPods: own.Offloading().V1beta1().ShadowPods().Informer(), Pods: shared.Core().V1().Pods().Informer(),
		Namespaces:     shared.Core().V1().Namespaces().Informer(),
		StorageClasses: shared.Storage().V1().StorageClasses().Informer(), ForeignClusters: own.Core().V1beta1().ForeignClusters().Informer(),
	}
}

// started returns an Enforcer whose informers run, after a change of its configuration.
func started(t *testing.T, core *fake.Clientset, liqod *liqodfake.Clientset, change func(*Config)) *Enforcer {
	t.Helper()
	own, shared := externalversions.NewSharedInformerFactory(liqod, 0), informers.NewSharedInformerFactory(core, 0)
	cfg := config(core, liqod, own, shared)
	if change != nil {
		change(&cfg)
	}
	e := New(cfg)
	require.Zero(t, len(core.Actions())+len(liqod.Actions()), "New starts nothing")
	own.Start(t.Context().Done())
	shared.Start(t.Context().Done())
	return e
}

// restart replaces the Enforcer by a new process with freshly listed caches.
func (r *rig) restart() {
	r.events = record.NewFakeRecorder(100)
	cfg := config(r.core, r.liqod, externalversions.NewSharedInformerFactory(r.liqod, 0), informers.NewSharedInformerFactory(r.core, 0))
	r.quotas = &pushed{SharedIndexInformer: cfg.Quotas}
	cfg.Quotas, cfg.Recorder, cfg.Env.Clock = r.quotas, r.events, r.clock
	cfg.Harden = func(_ string, s *corev1.PodSpec) error { return r.harden(s) }
	r.shadows, r.pods, r.spaces = cfg.ShadowPods, cfg.Pods, cfg.Namespaces
	e := New(cfg)
	r.e = e
	require.NoError(r.t, r.spaces.GetIndexer().Add(twin()))
	r.refresh()
}

// pushed is an informer that does not run: the test delivers its events.
type pushed struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

// AddEventHandler implements cache.SharedInformer.
func (p *pushed) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	p.handlers = append(p.handlers, h)
	return p.SharedIndexInformer.AddEventHandler(h)
}

// put stores obj and delivers an event.
func (p *pushed) put(obj any) {
	_ = p.GetIndexer().Add(obj) // a store in memory takes everything
	for _, h := range p.handlers {
		h.OnAdd(obj, false)
	}
}

func (r *rig) key() loop.Key { return loop.Key{Namespace: testNamespace, Name: testName} }

func (r *rig) pod() *corev1.Pod {
	obj, err := r.core.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), testNamespace, testName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r.t, err)
	return obj.(*corev1.Pod).DeepCopy()
}

func (r *rig) shadow() *offloadingv1beta1.ShadowPod {
	obj, err := r.liqod.Tracker().Get(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods"), testNamespace, testName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r.t, err)
	return obj.(*offloadingv1beta1.ShadowPod).DeepCopy()
}

// refresh updates the caches from the API server and delivers the deletions to the
// Enforcer.
func (r *rig) refresh() { r.refreshShadow(); r.refreshPod() }

func (r *rig) refreshShadow() {
	if s := r.shadow(); s != nil {
		require.NoError(r.t, r.shadows.GetIndexer().Add(s))
		return
	}
	for _, shadow := range r.e.shadows.List() {
		require.NoError(r.t, r.shadows.GetIndexer().Delete(shadow))
		r.e.memory.forgetAll(cache.MetaObjectToName(shadow), shadow.UID)
	}
}

func (r *rig) refreshPod() {
	have := r.pod()
	for _, pod := range r.e.pods.List() {
		if have == nil || have.UID != pod.UID {
			require.NoError(r.t, r.pods.GetIndexer().Delete(pod))
			r.e.podGone(pod)
		}
	}
	if have != nil && have.Labels[offloadingv1beta1.ManagedByLabel] == offloadingv1beta1.ManagedByShadowPod {
		require.NoError(r.t, r.pods.GetIndexer().Add(have))
		r.e.podChanged(nil, have)
	}
}

// settle syncs until there are no more writes. The clock advances twice, so that refused
// requests are retried.
func (r *rig) settle() {
	r.t.Helper()
	idle := 0
	for range 60 {
		r.refresh()
		before := r.done
		err := r.e.sync(r.t.Context(), r.key())
		if errors.Is(err, errCrash) {
			r.crashAt = 0
			r.restart()
			continue
		}
		switch {
		case r.done > before:
			idle = 0
		case err == nil || idle == 2:
			return
		default:
			idle++
			r.clock.SetTime(r.clock.Now().Add(time.Minute))
		}
	}
	r.t.Fatal("it does not come to rest")
}

// somebody runs act as another client of the API server.
func (r *rig) somebody(act func()) {
	r.outside = true
	defer func() { r.outside = false }()
	act()
}

func (r *rig) deletePod(grace int64) {
	r.t.Helper()
	r.somebody(func() {
		require.NoError(r.t, r.core.CoreV1().Pods(testNamespace).Delete(r.t.Context(), testName, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	})
}

// change edits the live pod, as a kubelet or a user of the provider does.
func (r *rig) change(mods ...podMod) {
	pod := r.pod()
	for _, mod := range mods {
		mod(pod)
	}
	r.store(pod)
}

func (r *rig) changeShadow(mods ...shadowMod) {
	s := r.shadow()
	for _, mod := range mods {
		mod(s)
	}
	s.ResourceVersion = r.next()
	require.NoError(r.t, r.liqod.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods"), s, testNamespace))
}

func (r *rig) deleteShadow() {
	require.NoError(r.t, r.liqod.Tracker().Delete(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods"), testNamespace, testName))
}

func running(p *corev1.Pod) {
	p.Spec.NodeName = "node-1"
	p.Status = podOf(newShadow(always)).Status
	p.Status.ObservedGeneration = p.Generation
}

func (r *rig) store(pod *corev1.Pod) {
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	if pod.DeletionTimestamp != nil && *pod.DeletionGracePeriodSeconds == 0 && len(pod.Finalizers) == 0 {
		require.NoError(r.t, r.core.Tracker().Delete(gvr, pod.Namespace, pod.Name))
		return
	}
	pod.ResourceVersion = r.next()
	require.NoError(r.t, r.core.Tracker().Update(gvr, pod, pod.Namespace))
}

// note counts a request of the Enforcer, and fails it where the process is to die.
func (r *rig) note(a clienttesting.Action, act func() (runtime.Object, error)) (bool, runtime.Object, error) {
	if r.outside {
		obj, err := act()
		return true, obj, err
	}
	what := a.GetVerb() + " " + a.GetResource().Resource
	if a.GetSubresource() != "" {
		what += "/" + a.GetSubresource()
	}
	r.writes = append(r.writes, what)
	crash := r.crashAt == len(r.writes)
	if crash && !r.lateFor {
		return true, nil, errCrash
	}
	if err := r.refuse[what]; err != nil {
		return true, nil, err
	}
	obj, err := act()
	if err == nil {
		r.done++
	}
	if crash {
		return true, nil, errCrash
	}
	return true, obj, err
}

func (r *rig) reactPods(a clienttesting.Action) (bool, runtime.Object, error) {
	switch a := a.(type) {
	case clienttesting.CreateActionImpl:
		return r.note(a, func() (runtime.Object, error) { return r.create(a) })
	case clienttesting.DeleteActionImpl:
		return r.note(a, func() (runtime.Object, error) { return nil, r.remove(a.GetDeleteOptions()) })
	case clienttesting.PatchActionImpl:
		return r.note(a, func() (runtime.Object, error) { return r.patch(a) })
	}
	r.reads++
	return false, nil, nil
}

func (r *rig) create(a clienttesting.CreateActionImpl) (runtime.Object, error) {
	pod := a.GetObject().(*corev1.Pod).DeepCopy()
	pod.UID, pod.ResourceVersion, pod.Generation = types.UID("made-"+r.next()), r.next(), 1
	pod.Status.Phase = corev1.PodPending
	if r.mutate != nil {
		r.mutate(pod)
	}
	return pod, r.core.Tracker().Create(a.GetResource(), pod, pod.Namespace)
}

// remove deletes the pod as an API server does, in respect of grace periods and finalizers.
func (r *rig) remove(o metav1.DeleteOptions) error {
	pod := r.pod()
	if pod == nil {
		return apierrors.NewNotFound(corev1.Resource("pods"), testName)
	}
	p := o.Preconditions
	if p != nil && (*p.UID != pod.UID || p.ResourceVersion != nil && *p.ResourceVersion != pod.ResourceVersion) {
		return apierrors.NewConflict(corev1.Resource("pods"), testName, errors.New("UID"))
	}
	grace := int64(30)
	if o.GracePeriodSeconds != nil {
		grace = *o.GracePeriodSeconds
	}
	if pod.Spec.NodeName == "" || offloadingv1beta1.Ended(pod.Status.Phase) {
		grace = 0
	}
	now := metav1.NewTime(r.clock.Now())
	if pod.DeletionTimestamp == nil {
		pod.Generation++
	} else if grace >= *pod.DeletionGracePeriodSeconds {
		return nil
	}
	at := metav1.NewTime(now.Add(time.Duration(grace) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	r.store(pod)
	return nil
}

func (r *rig) patch(a clienttesting.PatchActionImpl) (runtime.Object, error) {
	var given struct {
		Metadata struct{ UID, ResourceVersion string }
	}
	require.NoError(r.t, json.Unmarshal(a.GetPatch(), &given))
	have := r.pod()
	if have == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), testName)
	}
	require.NotEmpty(r.t, given.Metadata.UID, "every patch names the pod that it is for")
	if given.Metadata.UID != string(have.UID) || given.Metadata.ResourceVersion != "" && given.Metadata.ResourceVersion != have.ResourceVersion {
		return nil, apierrors.NewConflict(corev1.Resource("pods"), testName, errors.New("precondition"))
	}
	_, obj, err := clienttesting.ObjectReaction(r.core.Tracker())(a)
	if err != nil {
		return nil, fmt.Errorf("patching: %w", err)
	}
	pod := obj.(*corev1.Pod)
	if a.GetSubresource() == "resize" && r.resized != nil {
		r.resized(pod)
	}
	r.store(pod)
	return pod, nil
}

func (r *rig) reactShadows(a clienttesting.Action) (bool, runtime.Object, error) {
	update, ok := a.(clienttesting.UpdateActionImpl)
	if !ok {
		r.reads++
		return false, nil, nil
	}
	return r.note(a, func() (runtime.Object, error) {
		next, have := update.GetObject().(*offloadingv1beta1.ShadowPod).DeepCopy(), r.shadow()
		if have == nil {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "shadowpods"}, testName)
		}
		if next.ResourceVersion != have.ResourceVersion {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: "shadowpods"}, testName, errors.New("stale"))
		}
		have.Status, have.ResourceVersion = next.Status, r.next()
		return have, r.liqod.Tracker().Update(a.GetResource(), have, testNamespace)
	})
}
