package kinds

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	tenant = "liqo-tenant-milan"
	// firstVersion is greater than what tests give objects.
	firstVersion = 100000
)

// site is a fake consumer, a fake provider and a Pods between them.
type site struct {
	closed                 bool // offloading is switched off
	home, remote           *fake.Clientset
	homeLiqod, remoteLiqod *liqodfake.Clientset
	events                 *record.FakeRecorder
	patching               sync.Mutex
	version                int // of what was patched at home last
	gate, away             error
	while                  func(context.Context) (context.Context, context.CancelFunc)
	lost                   func() time.Time
	silent                 func() string
	api                    forge.APIAccess
	homeAPI                HomeAPI
	homeDNS                func() (forge.DNS, error)
	behind                 func(context.Context, string, string, []forge.Named, time.Time) (forge.Named, bool, error)
	remapper               forge.Remapper // untranslated if nil
	pods                   *Pods
	claims                 *Claims
	// watched replaces the informer of the local pods; nil: it stays as it is.
	watched func(coreinformers.PodInformer) coreinformers.PodInformer
}

func newSite() *site {
	s := &site{
		home: fake.NewClientset(), remote: fake.NewClientset(),
		homeLiqod: liqodfake.NewSimpleClientset(), remoteLiqod: liqodfake.NewSimpleClientset(),
		events: record.NewFakeRecorder(100),
		while:  func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		claims: &Claims{}, // without workers
		lost:   func() time.Time { return time.Time{} }, silent: func() string { return "" },
		behind: func(context.Context, string, string, []forge.Named, time.Time) (forge.Named, bool, error) {
			return forge.Named{}, false, nil
		},
	}
	for _, c := range []kubetest.Tracked{s.home, s.remote, s.homeLiqod, s.remoteLiqod} {
		kubetest.WatchFromList(c)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.add(s.home.Tracker(), node)
	s.add(s.homeLiqod.Tracker(), &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}})
	s.home.PrependReactor("patch", "pods", s.patchAtHome)
	return s
}

// shopSite returns a site whose namespace shop is offloaded, with objects at home.
func shopSite(objects ...runtime.Object) *site {
	s := newSite()
	s.offload("shop")
	s.add(s.home.Tracker(), objects...)
	return s
}

// patchAtHome increments the resource version with each patch, as an API server does.
// Without it, the order of cache and writes would be unknown.
func (s *site) patchAtHome(a clienttesting.Action) (bool, runtime.Object, error) {
	s.patching.Lock()
	defer s.patching.Unlock()
	patch := a.(clienttesting.PatchActionImpl)
	if err := s.outdated(patch); err != nil {
		return true, nil, err
	}
	_, obj, err := clienttesting.ObjectReaction(s.home.Tracker())(patch)
	if err != nil {
		return true, nil, err
	}
	s.version++
	obj = obj.DeepCopyObject()
	obj.(metav1.Object).SetResourceVersion(strconv.Itoa(firstVersion + s.version))
	return true, obj, s.home.Tracker().Update(a.GetResource(), obj, a.GetNamespace())
}

// outdated rejects a patch with an outdated resource version.
func (s *site) outdated(patch clienttesting.PatchActionImpl) error {
	obj, err := s.home.Tracker().Get(patch.GetResource(), patch.GetNamespace(), patch.GetName())
	if err != nil {
		return err
	}
	var from metav1.PartialObjectMetadata
	if err := json.Unmarshal(patch.GetPatch(), &from); err != nil {
		return err
	}
	if have := obj.(metav1.Object).GetResourceVersion(); from.ResourceVersion != "" && from.ResourceVersion != have {
		return apierrors.NewConflict(patch.GetResource().GroupResource(), patch.GetName(), errors.New("it has version "+have))
	}
	return nil
}

func (s *site) add(tracker clienttesting.ObjectTracker, objects ...runtime.Object) {
	for _, o := range objects {
		switch m := o.(metav1.Object); m.(type) {
		case *corev1.Pod, *corev1.PersistentVolumeClaim, *corev1.PersistentVolume:
			m.SetResourceVersion(cmp.Or(m.GetResourceVersion(), "1"))
		}
		if err := tracker.Add(o); err != nil {
			panic(err)
		}
	}
}

// offload maps namespaces to their twins, which are named <namespace>-rome.
func (s *site) offload(namespaces ...string) { s.add(s.homeLiqod.Tracker(), mapOf(namespaces...)) }

// mapOf returns the NamespaceMap of milan, which has accepted the namespaces.
func mapOf(namespaces ...string) *offloadingv1beta1.NamespaceMap {
	m := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"},
		Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{}},
		Status:     offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{}},
	}
	for _, ns := range namespaces {
		m.Spec.DesiredMapping[ns] = ns + "-rome"
		m.Status.CurrentMapping[ns] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: ns + "-rome", Phase: offloadingv1beta1.MappingAccepted}
	}
	return m
}

// inPhase is what the provider says of the twin of shop.
func inPhase(phase offloadingv1beta1.MappingPhase) offloadingv1beta1.RemoteNamespaceStatus {
	return offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "shop-rome", Phase: phase}
}

// requireEvent waits for an event with these words.
func (s *site) requireEvent(t *testing.T, words ...string) {
	t.Helper()
	eventually(t, func() bool { return len(s.events.Events) > 0 }, "there is an event")
	event := <-s.events.Events
	for _, w := range words {
		require.Contains(t, event, w)
	}
}

// ofNode returns the configuration of what reflects to milan.
func ofNode(namespaces *engine.Follower, own externalversions.SharedInformerFactory, events record.EventRecorder, gate func() error, verify func(context.Context) error) OfNode {
	return OfNode{Node: "milan", Target: engine.Target{
		Namespaces: namespaces, VirtualNodes: own.Offloading().V1beta1().VirtualNodes(),
		TenantNamespace: tenant, Origin: "rome", Destination: "milan",
		Gate: gate, Verify: verify, HomeLost: func() time.Time { return time.Time{} }, Transform: func(o any) (any, error) { return o, nil },
		Recorder: events, Env: loop.Env{Clock: clock.RealClock{}, Log: zap.NewNop()},
	}}
}

func (s *site) start(t *testing.T) (stop func()) {
	t.Helper()
	core := informers.NewSharedInformerFactory(s.home, 0)
	own := externalversions.NewSharedInformerFactory(s.homeLiqod, 0)
	if s.remapper == nil {
		s.remapper = untranslated{}
	}
	locals := core.Core().V1().Pods()
	if s.watched != nil {
		locals = s.watched(locals)
	}
	namespaces, err := engine.NewFollower(own.Offloading().V1beta1().NamespaceMaps(), tenant, "milan")
	require.NoError(t, err)
	node := ofNode(namespaces, own, s.events, func() error { return s.gate }, func(context.Context) error { return errors.Join(s.gate, s.away) })
	node.HomeLost = s.lost
	s.pods = NewPods(PodsConfig{
		OfNode: node, Home: s.home, HomeLiqo: s.homeLiqod, Remote: engine.Clients{Kube: s.remote, Liqo: s.remoteLiqod},
		Pods: locals, Nodes: core.Core().V1().Nodes(),
		API: s.api, HomeAPI: s.homeAPI, HomeDNS: s.homeDNS, RightsName: "rights", Claims: s.claims, Behind: s.behind,
		HostIPs: []netip.Addr{netip.MustParseAddr("10.0.0.7")}, Remapper: s.remapper,
		While: s.while, Silent: s.silent, Refused: func(string) {}, Workers: map[bool]int{false: 4}[s.closed],
	})
	return kubetest.Run(t, func(ctx context.Context) error {
		core.Start(ctx.Done())
		own.Start(ctx.Done())
		return s.pods.Run(ctx)
	})
}

// startIdle starts Pods, and waits until it is idle.
func (s *site) startIdle(t *testing.T) {
	t.Helper()
	s.start(t)
	s.idle(t, "shop")
}

func localPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "local-1", Generation: 1, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: "milan", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func running(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
	p.Status.PodIP, p.Status.PodIPs = "10.1.0.9", []corev1.PodIP{{IP: "10.1.0.9"}}
}

func never(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
func deleting(p *corev1.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(time.Now().Add(30*time.Second))), ptr.To[int64](30)
	p.Finalizers = []string{"test/keeps-it"} // the fake deletes at once
}

func uid(u types.UID) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = u } }

// there creates the ShadowPod of a local pod and optionally its remote pod, as the
// provider's controller does.
func (s *site) there(local *corev1.Pod, pod bool, change ...func(*corev1.Pod)) {
	shadow, err := forge.ShadowPod(local, forge.PodOptions{NodeName: "milan", ObjectOptions: forge.ObjectOptions{OriginClusterID: "rome", DestinationClusterID: "milan", RemoteNamespace: "shop-rome"}})
	if err != nil {
		panic(err)
	}
	shadow.UID = "shadow-" + local.UID
	shadow.Namespace = "shop-rome"
	s.add(s.remoteLiqod.Tracker(), shadow)
	if !pod {
		return
	}
	remote := &corev1.Pod{ObjectMeta: *shadow.ObjectMeta.DeepCopy(), Spec: *shadow.Spec.Pod.DeepCopy()}
	remote.UID = "remote-" + local.UID
	for _, c := range change {
		c(remote)
	}
	s.add(s.remote.Tracker(), remote)
}

func (s *site) shadow(t *testing.T) *offloadingv1beta1.ShadowPod {
	t.Helper()
	return kubetest.Find(t, s.remoteLiqod.OffloadingV1beta1().ShadowPods("shop-rome"), "web")
}

func (s *site) local(t *testing.T) *corev1.Pod {
	t.Helper()
	return kubetest.Find(t, s.home.CoreV1().Pods("shop"), "web")
}

func writes(actions []clienttesting.Action) []string {
	var out []string
	for _, a := range actions {
		if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			out = append(out, strings.TrimSuffix(a.GetVerb()+" "+a.GetResource().Resource+"/"+a.GetSubresource(), "/"))
		}
	}
	return out
}

func eventually(t *testing.T, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, cond, time.Minute, 5*time.Millisecond, what)
}

// idle waits until the queue is empty and the twin of the namespace has synced.
func (s *site) idle(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, func() bool {
		tw := s.pods.twins.Get(namespace)
		return tw != nil && tw.synced() && s.pods.loop.Len() == 0
	}, "the reflector is idle")
}

// known waits until the cache has the local pod: other caches may be filled before.
func (s *site) known(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return s.pods.localPod(cache.ObjectName{Namespace: "shop", Name: "web"}) != nil }, "the local pod is known")
}

func TestOffloadIsOneWriteAndStatusReturns(t *testing.T) {
	s := shopSite(localPod())
	s.start(t)
	eventually(t, func() bool { return s.shadow(t) != nil }, "the ShadowPod is created")
	require.Equal(t, "local-1", s.shadow(t).Labels[offloadingv1beta1.LocalPodUIDLabel])

	remote := localPod(running, func(p *corev1.Pod) { p.Namespace, p.Labels = "shop-rome", s.shadow(t).Labels })
	kubetest.Create(t, s.remote.CoreV1().Pods("shop-rome"), remote)
	eventually(t, func() bool { return s.local(t).Status.Phase == corev1.PodRunning }, "the status comes home")
	require.Equal(t, "10.1.0.9", s.local(t).Status.PodIP)
	require.Equal(t, "10.0.0.7", s.local(t).Status.HostIP)
	require.Equal(t, []string{"create shadowpods"}, writes(s.remoteLiqod.Actions()))
	require.Equal(t, []string{"patch pods/status"}, writes(s.home.Actions()))
}

// ranAndStopped returns a site whose pod runs in the provider and has its status, and
// whose Pods has ended.
func ranAndStopped(t *testing.T) *site {
	t.Helper()
	s := shopSite(localPod())
	s.there(localPod(), true, running)
	stop := s.start(t)
	eventually(t, func() bool { return s.local(t).Status.Phase == corev1.PodRunning }, "the status comes home")
	stop()
	return s
}

// TestStatusHeldUpOnTheWay delays a status write until another process has written, as a
// paused leader does. The late write must fail.
func TestStatusHeldUpOnTheWay(t *testing.T) {
	s := ranAndStopped(t)
	counted := func(restarts int32) corev1.PodStatus {
		status := s.local(t).Status.DeepCopy()
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: restarts}}
		return *status
	}
	before := s.local(t)
	require.NoError(t, s.pods.writeStatus(t.Context(), before, counted(14)))
	require.Error(t, s.pods.writeStatus(t.Context(), before, counted(6)))
	require.EqualValues(t, 14, s.local(t).Status.ContainerStatuses[0].RestartCount)
	require.NoError(t, s.pods.writeStatus(t.Context(), s.local(t), counted(15)))
}

// TestStatusWaitsForTheNode covers a vkubelet that did not report for so long that the
// node controller marked its pods as not ready. It must report the node first, and then
// write each pod once.
func TestStatusWaitsForTheNode(t *testing.T) {
	for _, says := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
		s := ranAndStopped(t)
		node := func(status corev1.ConditionStatus) {
			n := kubetest.Get(t, s.home.CoreV1().Nodes(), "milan")
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
			kubetest.UpdateStatus(t, s.home.CoreV1().Nodes(), n)
		}
		node(corev1.ConditionUnknown)
		taken := s.local(t).DeepCopy()
		for i := range taken.Status.Conditions {
			if c := &taken.Status.Conditions[i]; c.Type == corev1.PodReady {
				c.Status, c.Reason, c.Message = corev1.ConditionFalse, "", ""
			}
		}
		kubetest.UpdateStatus(t, s.home.CoreV1().Pods("shop"), taken)
		s.home.ClearActions()
		s.startIdle(t)
		require.Empty(t, writes(s.home.Actions()))
		node(says)
		eventually(t, func() bool { return len(writes(s.home.Actions())) > 1 }, "the pod is written") // beside the node
		s.idle(t, "shop")
		require.Len(t, writes(s.home.Actions()), 2)
		for _, c := range s.local(t).Status.Conditions {
			if c.Type == corev1.PodReady {
				require.Equal(t, says, c.Status)
			}
		}
	}
}

// turning is the informer of a Node that becomes ready after it was read once.
type turning struct {
	coreinformers.NodeInformer
	corelisters.NodeLister
	reads int
}

func (n *turning) Lister() corelisters.NodeLister { return n }

func (n *turning) Get(string) (*corev1.Node, error) {
	n.reads++
	status := corev1.ConditionTrue
	if n.reads == 1 {
		status = corev1.ConditionUnknown
	}
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}, nil
}

// TestNodeReadyMeanwhile lets the Node become ready while a status is computed. What was
// computed for an unknown Node must not be written.
func TestNodeReadyMeanwhile(t *testing.T) {
	for name, sync := range map[string]func(s *site, local *corev1.Pod) error{
		"open": func(s *site, local *corev1.Pod) error {
			remote := kubetest.Get(t, s.remote.CoreV1().Pods("shop-rome"), local.Name)
			shadow := kubetest.Get(t, s.remoteLiqod.OffloadingV1beta1().ShadowPods("shop-rome"), local.Name)
			return s.pods.report(t.Context(), local, shadow, remote)
		},
		"gate closed": func(s *site, local *corev1.Pod) error { return s.pods.holdUnready(t.Context(), local) },
	} {
		t.Run(name, func(t *testing.T) {
			s := ranAndStopped(t)
			s.home.ClearActions()
			s.pods.cfg.Nodes = &turning{}
			require.NoError(t, sync(s, s.local(t)))
			require.Empty(t, writes(s.home.Actions()))
		})
	}
}

func TestRestartWritesNothing(t *testing.T) {
	s := ranAndStopped(t)
	s.home.ClearActions()
	s.remoteLiqod.ClearActions()
	s.startIdle(t)
	require.Never(t, func() bool {
		return len(writes(s.home.Actions()))+len(writes(s.remoteLiqod.Actions()))+len(writes(s.remote.Actions())) > 0
	}, 300*time.Millisecond, 10*time.Millisecond, "a restart wrote")
}

func TestNotOffloadedWaitsAndStartsLater(t *testing.T) {
	s := newSite()
	s.offload("other")
	s.add(s.home.Tracker(), localPod())
	s.start(t)
	eventually(t, func() bool { return s.local(t).Status.Reason == offloadingv1beta1.ReasonOffloadingBackOff }, "the reason shows")
	require.Equal(t, corev1.PodPending, s.local(t).Status.Phase)
	require.Contains(t, <-s.events.Events, offloadingv1beta1.ReasonOffloadingBackOff)

	s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) { *m = *mapOf("other", "shop") })
	eventually(t, func() bool { return s.shadow(t) != nil }, "it starts when the namespace is offloaded")
}

// TestSwitchedOff: without workers no further pod is offloaded, and those that are go on.
func TestSwitchedOff(t *testing.T) {
	s := shopSite()
	s.closed = true
	late := localPod(func(p *corev1.Pod) { p.Name, p.UID = "late", "local-2" })
	s.add(s.home.Tracker(), localPod(), late)
	s.there(localPod(), true, running)
	s.start(t)
	eventually(t, func() bool { return s.local(t).Status.Phase == corev1.PodRunning }, "the status comes home")
	eventually(t, func() bool {
		p := kubetest.Get(t, s.home.CoreV1().Pods("shop"), "late")
		return p.Status.Reason == reasons.OffloadingSwitchedOff
	}, "the reason shows")
	require.Empty(t, writes(s.remoteLiqod.Actions()))
}

// TestPodsWithoutARemotePod: what becomes of a pod that has none in the provider when the vkubelet starts.
func TestPodsWithoutARemotePod(t *testing.T) {
	const waits, aborted = offloadingv1beta1.ReasonOffloadingBackOff, "OffloadingAborted"
	const lost, taken = offloadingv1beta1.ReasonRemotePodLost, "ShadowPodTaken"
	ofDaemonSet := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
	}
	onFailure := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
	neverOfContainer := func(p *corev1.Pod) {
		p.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
	}
	another := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "d", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}})
	}
	restarted := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{}
	}
	for name, tc := range map[string]struct {
		offloaded string // the namespace
		pod       *corev1.Pod
		event     string
		phase     corev1.PodPhase // "": it is created
		reason    string
	}{
		"of a DaemonSet, not offloaded":                                         {"other", localPod(ofDaemonSet), "", corev1.PodPending, waits},
		"it ran, and is not offloaded":                                          {"other", localPod(running), "", corev1.PodFailed, aborted},
		"another node has its ShadowPod":                                        {"shop", localPod(uid("local-2")), taken, corev1.PodPending, taken},
		"Always runs again":                                                     {"shop", localPod(running), "Warning PodReplaced", "", ""},
		"Never, once started, is lost":                                          {"shop", localPod(running, never), lost, corev1.PodFailed, lost},
		"Never, not started, is created":                                        {"shop", localPod(never), "", "", ""},
		"Never of its only container":                                           {"shop", localPod(running, neverOfContainer), lost, corev1.PodFailed, lost},
		"OnFailure runs again":                                                  {"shop", localPod(running, onFailure), "Warning PodReplaced", "", ""},
		"OnFailure with a container that ended well is lost":                    {"shop", localPod(running, onFailure, another), lost, corev1.PodFailed, lost},
		"OnFailure with a container that ended well before its restart is lost": {"shop", localPod(running, onFailure, restarted), lost, corev1.PodFailed, lost},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite()
			s.offload(tc.offloaded)
			s.add(s.home.Tracker(), tc.pod)
			if tc.reason == taken {
				s.there(localPod(), false)
				sh := s.shadow(t)
				sh.Labels[offloadingv1beta1.NodeNameLabel] = "milan-2"
				require.NoError(t, s.remoteLiqod.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods"), sh, "shop-rome"))
			}
			s.start(t)
			if tc.phase != "" {
				eventually(t, func() bool { return s.local(t).Status.Reason == tc.reason }, "it has the reason")
				require.Equal(t, tc.phase, s.local(t).Status.Phase)
				require.Equal(t, tc.reason == taken, s.shadow(t) != nil)
			} else {
				eventually(t, func() bool { return s.shadow(t) != nil }, "it is created")
				var earlier []offloadingv1beta1.ContainerRestarts
				if started(tc.pod) {
					earlier = []offloadingv1beta1.ContainerRestarts{{Name: "c", Count: tc.pod.Status.ContainerStatuses[0].RestartCount + 1}}
				}
				require.Equal(t, earlier, s.shadow(t).Spec.EarlierRestarts)
			}
			if tc.reason == aborted {
				require.Equal(t, aborted, s.local(t).Status.ContainerStatuses[0].State.Terminated.Reason, "kubectl shows it")
			}
			if tc.event != "" {
				s.requireEvent(t, tc.event)
			} else {
				require.Empty(t, s.events.Events)
			}
		})
	}
}

// TestPodsThatAreLeft: nothing is written of a pod that has ended, nor while the provider is not known to be itself, or there is no
// NamespaceMap.
func TestPodsThatAreLeft(t *testing.T) {
	for name, site := range map[string]func() *site{
		"it has ended": func() *site {
			return shopSite(localPod(running, never, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
		},
		"the gate is closed": func() *site {
			s := shopSite(localPod(running, never))
			s.gate = errors.New("another cluster answers there")
			return s
		},
		"nobody knows who answers there": func() *site {
			s := shopSite(localPod(running, never))
			s.away = errors.New("nobody knows who answers there")
			return s
		},
		"no NamespaceMap": func() *site {
			s := newSite()
			s.add(s.home.Tracker(), localPod(running))
			return s
		},
		"no NamespaceMap, and it is being deleted": func() *site {
			s := newSite()
			s.add(s.home.Tracker(), localPod(running, deleting))
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := site()
			s.start(t)
			s.known(t)
			require.Never(t, func() bool { return len(writes(s.home.Actions()))+len(writes(s.remoteLiqod.Actions())) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
		})
	}
}

func TestADrainedNodeTakesNoPods(t *testing.T) {
	s := shopSite(localPod())
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant, Name: "milan", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{offloadingv1beta1.VirtualNodeFinalizer},
	}}
	require.NoError(t, s.homeLiqod.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("virtualnodes"), vn, tenant))
	s.startIdle(t)
	require.Never(t, func() bool { return s.shadow(t) != nil }, 200*time.Millisecond, 10*time.Millisecond)
}

// TestAMovedVkubeletChangesHostIPs requires that a background pass writes the new
// address, because no other change of the pods does.
func TestAMovedVkubeletChangesHostIPs(t *testing.T) {
	s := shopSite(localPod(running, func(p *corev1.Pod) {
		p.Status.HostIP, p.Status.HostIPs = "10.9.9.9", []corev1.HostIP{{IP: "10.9.9.9"}}
	}))
	s.there(localPod(), true, running)
	s.start(t)
	eventually(t, func() bool { return s.local(t).Status.HostIP == "10.0.0.7" }, "the new address is written")
	require.Equal(t, []corev1.HostIP{{IP: "10.0.0.7"}}, s.local(t).Status.HostIPs)
}

// TestPodsOnTheirWayAreAborted: a namespace is taken back while one of its pods has no ShadowPod yet,
// and one that was created before is bound later. Both end. One that was created later waits, as in a
// namespace that was never offloaded, and nothing ends it when the vkubelet restarts.
func TestPodsOnTheirWayAreAborted(t *testing.T) {
	for name, restart := range map[string]bool{"seen": false, "the vkubelet was away": true} {
		t.Run(name, func(t *testing.T) {
			s := shopSite()
			s.add(s.home.Tracker(), localPod())
			s.gate = errors.New("the provider is away")
			if !restart {
				s.start(t)
			}
			s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) {
				delete(m.Spec.DesiredMapping, "shop")
				m.Status.CurrentMapping["shop"] = inPhase(offloadingv1beta1.MappingTerminating)
			})
			if restart {
				s.start(t)
			}
			eventually(t, func() bool { return s.local(t).Status.Phase == corev1.PodFailed }, "the pod ends")
			require.Equal(t, "OffloadingAborted", s.local(t).Status.Reason)
			s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) { m.Status.CurrentMapping = nil })
			status := func(name string) corev1.PodStatus {
				pod := kubetest.Get(t, s.home.CoreV1().Pods("shop"), name)
				return pod.Status
			}
			for name, created := range map[string]time.Time{"bound-later": time.Now().Add(-time.Minute), "created-later": time.Now().Add(time.Minute)} {
				s.add(s.home.Tracker(), localPod(func(p *corev1.Pod) {
					p.Name, p.UID, p.CreationTimestamp = name, types.UID(name), metav1.NewTime(created)
				}))
			}
			eventually(t, func() bool { return status("bound-later").Reason == "OffloadingAborted" }, "it ends")
			eventually(t, func() bool { return status("created-later").Reason == offloadingv1beta1.ReasonOffloadingBackOff }, "it waits")
		})
	}
}

func TestPodsOfATwinThatGoesAreNotReady(t *testing.T) {
	s := shopSite()
	s.add(s.home.Tracker(), localPod(running))
	s.there(localPod(), true, running)
	s.startIdle(t)
	phase := func(phase offloadingv1beta1.MappingPhase) {
		s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) { m.Status.CurrentMapping["shop"] = inPhase(phase) })
	}
	ready := func(want corev1.ConditionStatus) func() bool {
		return func() bool {
			return slices.ContainsFunc(s.local(t).Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == want
			})
		}
	}
	phase(offloadingv1beta1.MappingTerminating)
	eventually(t, ready(corev1.ConditionFalse), "the pod is not Ready while its twin namespace goes")
	require.Equal(t, corev1.PodRunning, s.local(t).Status.Phase)
	phase(offloadingv1beta1.MappingAccepted)
	eventually(t, ready(corev1.ConditionTrue), "and Ready when the provider shows it again")
}

func TestDeletion(t *testing.T) {
	s := shopSite(localPod(running, deleting))
	s.there(localPod(), true, running)
	s.start(t)
	eventually(t, func() bool {
		pod := s.local(t)
		return pod == nil || ended(pod)
	}, "the local pod ends")
	eventually(t, func() bool { return slices.Contains(writes(s.home.Actions()), "delete pods") }, "and is released")
	require.Equal(t, []string{"delete shadowpods"}, writes(s.remoteLiqod.Actions()))
	deletes := slices.DeleteFunc(s.remote.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() != "delete" })
	require.Len(t, deletes, 1)
	options := deletes[0].(clienttesting.DeleteAction).GetDeleteOptions()
	require.Equal(t, types.UID("remote-local-1"), *options.Preconditions.UID)
	require.InDelta(t, 30, *options.GracePeriodSeconds, 2)
}

// TestDeletionAfterAnEndThatOnlyTheShadowPodKnows covers a pod that ended while no
// vkubelet ran. Its remote pod was deleted, and its local pod is being deleted.
func TestDeletionAfterAnEndThatOnlyTheShadowPodKnows(t *testing.T) {
	s := shopSite(localPod(running, never, deleting))
	s.there(localPod(never), false)
	shadow := s.shadow(t)
	shadow.Status.Phase = corev1.PodSucceeded
	shadow.Status.PodStatus = &corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
	}}}
	require.NoError(t, s.remoteLiqod.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods"), shadow, "shop-rome"))
	var last corev1.PodStatus
	s.home.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod, err := s.home.Tracker().Get(a.GetResource(), "shop", "web")
		if err == nil {
			last = pod.(*corev1.Pod).Status
		}
		return false, nil, err
	})
	s.start(t)
	eventually(t, func() bool { return slices.Contains(writes(s.home.Actions()), "delete pods") }, "it is released")
	require.Equal(t, []string{"delete shadowpods"}, writes(s.remoteLiqod.Actions()))
	require.Equal(t, corev1.PodSucceeded, last.Phase)
	require.Equal(t, "Completed", last.ContainerStatuses[0].State.Terminated.Reason)
}

func TestSuccessorWaitsForItsPredecessor(t *testing.T) {
	s := shopSite(localPod(uid("local-2")))
	s.there(localPod(uid("local-1")), true, running)
	s.start(t)
	eventually(t, func() bool {
		sh := s.shadow(t)
		return sh != nil && sh.Labels[offloadingv1beta1.LocalPodUIDLabel] == "local-2"
	}, "the successor is offloaded")
	require.Equal(t, []string{"delete shadowpods", "create shadowpods"}, writes(s.remoteLiqod.Actions()))
}

// TestAClosingGateEndsASync: a pod whose request has no answer yet is unready at the verdict.
func TestAClosingGateEndsASync(t *testing.T) {
	s := newSite()
	open, closes := context.WithCancel(t.Context())
	s.while = func(context.Context) (context.Context, context.CancelFunc) { return open, func() {} }
	s.offload("shop")
	node := kubetest.Get(t, s.home.CoreV1().Nodes(), "milan")
	node.Status.Conditions[0].Status = corev1.ConditionFalse
	require.NoError(t, s.home.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""))
	s.remoteLiqod.PrependReactor("create", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
		closes()
		return true, nil, context.Canceled
	})
	s.add(s.home.Tracker(), localPod(running))
	s.start(t)
	eventually(t, func() bool {
		pod := kubetest.Get(t, s.home.CoreV1().Pods("shop"), "web")
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse
		})
	}, "it is not Ready")
}

// TestARefusedPodHasAnEventThoughTheAnswerIsLost: the status is written and its answer does not
// arrive. The next sync has nothing to write.
func TestARefusedPodHasAnEventThoughTheAnswerIsLost(t *testing.T) {
	s := shopSite()
	var lost atomic.Bool
	write := clienttesting.ObjectReaction(s.home.Tracker())
	s.home.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_, pod, err := write(a)
		if err == nil && !lost.Swap(true) {
			return true, nil, apierrors.NewTimeoutError("the answer is lost", 1)
		}
		return true, pod, err
	})
	s.add(s.home.Tracker(), localPod(running, func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }))
	s.start(t)
	s.requireEvent(t, reasons.ResourceClaimsNotSupported)
	eventually(t, lost.Load, "the status was written")
}

// TestHostNamespacesAreToldOnce: a pod that asks for namespaces of its node runs without them, and
// has an event.
func TestHostNamespacesAreToldOnce(t *testing.T) {
	s := shopSite(localPod(func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.HostIPC = true, true }))
	s.start(t)
	eventually(t, func() bool { return len(s.events.Events) > 0 }, "it has an event")
	require.Equal(t, "Warning HostNamespacesLeftOut cluster milan runs the pod without hostNetwork, hostIPC: it has a network and processes of its own there", <-s.events.Events)
	s.idle(t, "shop")
	require.Empty(t, s.events.Events)
}

func TestTombstonesAreRemembered(t *testing.T) {
	s := shopSite(localPod(running))
	s.startIdle(t)
	s.known(t)
	remote := localPod(running, func(p *corev1.Pod) {
		p.Labels = map[string]string{offloadingv1beta1.LocalPodUIDLabel: "local-1"}
	})
	s.pods.onRemote(s.pods.twins.Get("shop")).OnDelete(cache.DeletedFinalStateUnknown{Obj: remote})
	require.NotNil(t, s.pods.memo("local-1").last)
}

// TestAbsenceIsNoEnd requires that a local pod is deleted only after the watch has
// reported the deletion of its remote pod, or a live read has confirmed it.
func TestAbsenceIsNoEnd(t *testing.T) {
	remote := localPod(running, func(p *corev1.Pod) {
		p.Labels = map[string]string{offloadingv1beta1.LocalPodUIDLabel: "local-1"}
	})
	goes := localPod(running, deleting, known("2"))
	for name, c := range map[string]struct {
		before, after any // what is told of the provider's pod, before and after the local one is deleted
		sure          bool
	}{
		"shown to go":                   {after: remote, sure: true},
		"missing in a list":             {after: cache.DeletedFinalStateUnknown{Obj: remote}},
		"lost earlier, and made again?": {before: remote},
	} {
		t.Run(name, func(t *testing.T) {
			s := shopSite(localPod(running))
			s.away = errors.New("nobody knows who answers there")
			s.startIdle(t)
			local := func() *corev1.Pod { return s.pods.localPod(cache.MetaObjectToName(goes)) }
			eventually(t, func() bool { return local() != nil }, "it is known")
			if c.before != nil {
				s.pods.onRemote(s.pods.twins.Get("shop")).OnDelete(c.before)
			}
			require.NoError(t, s.home.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), goes, "shop"))
			eventually(t, func() bool { return local().DeletionTimestamp != nil }, "it is seen")
			if c.after != nil {
				s.pods.onRemote(s.pods.twins.Get("shop")).OnDelete(c.after)
			}
			released := func() bool { return slices.Contains(writes(s.home.Actions()), "delete pods") }
			if !c.sure {
				require.Never(t, released, 300*time.Millisecond, 10*time.Millisecond)
				return
			}
			eventually(t, released, "it is released")
		})
	}
}

// TestLostBeforeItWasWithdrawn deletes the remote pod before its ShadowPod, so that the
// provider may create a replacement.
func TestLostBeforeItWasWithdrawn(t *testing.T) {
	s := shopSite(localPod(running, deleting))
	s.gate = errors.New("nothing is withdrawn")
	s.there(localPod(), true, running)
	s.startIdle(t)
	s.known(t)
	tw := s.pods.twins.Get("shop")
	remote := tw.pods.Cached(tw.key("web"))
	require.NotNil(t, remote)
	s.pods.onRemote(s.pods.twins.Get("shop")).OnDelete(remote)
	require.NotNil(t, s.pods.memo("local-1").last)
	require.False(t, s.pods.memo("local-1").withLocal)
	tw.shadows.Deleted("shadow-local-1")
	s.pods.onRemote(s.pods.twins.Get("shop")).OnDelete(remote)
	require.True(t, s.pods.memo("local-1").withLocal)
}

// untranslated is the Remapper for a peer whose addresses need no translation.
type untranslated struct{}

func (untranslated) Remap(addr netip.Addr) (netip.Addr, string, bool) { return addr, "", true }

func TestPodsAreUnreadyWithTheirNodeWhileTheGateIsClosed(t *testing.T) {
	s := shopSite(localPod(running))
	s.gate = errors.New("the provider is away")
	s.startIdle(t)
	node := kubetest.Get(t, s.home.CoreV1().Nodes(), "milan")
	node.Status.Conditions[0].Status = corev1.ConditionFalse
	kubetest.UpdateStatus(t, s.home.CoreV1().Nodes(), node)
	eventually(t, func() bool { return s.local(t).Status.Conditions[0].Status == corev1.ConditionFalse }, "it is not Ready")
	have := s.local(t).Status
	require.Equal(t, "NodeNotReady", have.Conditions[0].Reason)
	require.Equal(t, corev1.ConditionTrue, have.Conditions[1].Status, "its containers run on")
	require.Equal(t, corev1.PodRunning, have.Phase)
	require.Empty(t, writes(s.remoteLiqod.Actions()))
}

func TestWhatHasNoLocalPodIsWithdrawnWhenTheGateOpens(t *testing.T) {
	s := shopSite()
	s.gate = errors.New("another cluster answers there")
	s.there(localPod(), true, running)
	s.startIdle(t)
	require.Never(t, func() bool { return s.shadow(t) == nil }, 200*time.Millisecond, 10*time.Millisecond)
	s.gate = nil
	s.pods.Resync()
	eventually(t, func() bool { return s.shadow(t) == nil }, "what belongs to no local pod is withdrawn")
}

func TestWhatHasNoLocalPodIsWithdrawnThoughItWasKnownFirst(t *testing.T) {
	s := shopSite()
	s.there(localPod(), true, running)
	known := make(chan struct{})
	s.home.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-known
		return false, nil, nil
	})
	s.start(t)
	eventually(t, func() bool {
		tw := s.pods.twins.Get("shop")
		return tw != nil && tw.synced()
	}, "the provider is known before the consumer")
	require.Never(t, func() bool { return s.shadow(t) == nil }, 100*time.Millisecond, 10*time.Millisecond)
	close(known)
	eventually(t, func() bool { return s.shadow(t) == nil }, "what belongs to no local pod is withdrawn")
}

// TestSilentControllerIsReportedAfterAWait: a provider's controller that is back has not shown so
// to the vkubelet yet when it creates the first pods. Such a pod has no event; one that no
// controller creates has it after the wait.
func TestSilentControllerIsReportedAfterAWait(t *testing.T) {
	for _, returns := range []bool{true, false} {
		t.Run(fmt.Sprint("the controller returns: ", returns), func(t *testing.T) {
			inTokenSite(t, func(s *tokenSite) {
				var back atomic.Bool
				s.silent = func() string {
					if back.Load() {
						return ""
					}
					return "no controller"
				}
				s.add(s.home.Tracker(), localPod(boundNow))
				s.run()
				s.settle(silentPatience / 2)
				require.NotNil(t, s.shadow(t))
				require.Empty(t, s.local(t).Status.Reason)
				back.Store(returns)
				if returns {
					s.pods.Resync() // as the check does when the controller is back
				}
				s.settle(time.Minute)
				if returns {
					require.Empty(t, s.local(t).Status.Reason)
					require.Empty(t, s.events.Events)
					return
				}
				require.Equal(t, offloadingv1beta1.ReasonControllerSilent, s.local(t).Status.Reason)
				require.Len(t, s.events.Events, 1)
				require.Contains(t, <-s.events.Events, offloadingv1beta1.ReasonControllerSilent)
			})
		})
	}
}
