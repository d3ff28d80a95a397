package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	resourcehelper "k8s.io/component-helpers/resource"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// leaderKills is how often the leader dies in a burst, and allLeaderKills with -all.
	leaderKills, allLeaderKills = 6, 20
	// inQueue is how many pods each consumer keeps waiting during the burst.
	inQueue = 40
	// slowestWrite is how long a pod's creation is on its way at most: less than what is left
	// of the lease when its holder has to stop.
	slowestWrite = 300 * time.Millisecond
)

// ceiling is what a consumer may use in the burst.
func ceiling(consumer string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:  map[string]resource.Quantity{"rome": resource.MustParse("2"), "turin": resource.MustParse("1500m")}[consumer],
		corev1.ResourcePods: resource.MustParse("12"),
	}
}

// testQuotaBurst: two consumers ask a nearly full provider for more than it has given
// them, while its leading controller is killed again and again, writes take their time, and
// the caches of its successor lag. An observer never sees more than was given, and in the
// end all have run.
func testQuotaBurst(t *testing.T, consumers []*site.Site, milan *site.Site, pair *replicaPair) {
	o := newUsageWatch(t, milan)
	for _, s := range consumers {
		w := &world{sites: pair.sites, rome: s, milan: milan}
		w.offload(t, "burst", offloadingv1beta1.NamespaceOffloadingSpec{})
		kubetest.Create(t, milan.Liqod().OffloadingV1beta1().Quotas("liqo-tenant-"+s.Name), &offloadingv1beta1.Quota{
			ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: offloadingv1beta1.QuotaSpec{Resources: ceiling(s.Name)},
		})
	}
	var writes atomic.Uint64
	milan.Proxied().Intercept(func(r lab.Request) lab.Fate {
		if r.Verb != "create" || r.Resource != "pods" || r.Subresource != "" {
			return lab.Fate{}
		}
		n := writes.Add(1)
		d := time.Duration(rand.New(rand.NewPCG(n, 1)).Int64N(int64(slowestWrite)))
		// One without an answer arrives whether the leader lives or not.
		return lab.Fate{Before: func() { <-time.After(d) }, Unanswered: n%4 == 0}
	})
	ctx, stop := context.WithCancel(t.Context())
	var creators sync.WaitGroup
	var made atomic.Int64
	errs := make([]error, len(consumers))
	for i, s := range consumers {
		creators.Go(func() { errs[i] = keepPending(ctx, s, &made) })
	}
	random := rand.New(rand.NewPCG(5, 5))
	kills := leaderKills
	if *all {
		kills = allLeaderKills
	} else {
		t.Logf("left to make test-all: %s: %d kills", t.Name(), allLeaderKills)
	}
	for i := range kills {
		pair.killLeader(t, random, i%2 == 1)
	}
	stop()
	creators.Wait()
	require.NoError(t, errors.Join(errs...))
	milan.Proxied().Intercept(nil)
	for _, s := range consumers {
		within(t, 3*time.Minute, "all pods of "+s.Name+" have come to their end", lab.All(s.Client().CoreV1().Pods("burst"), metav1.ListOptions{}, inPhase(corev1.PodSucceeded)))
	}
	t.Logf("%d pods, %d kills; most at once: %v", made.Load(), kills, o.most())
	require.NoError(t, o.verdict())
	requireFull(t, consumers, o.most())
}

// requireFull requires, with -all, that each consumer used what its Quota allows. A busy
// machine may run too few pods at once for that.
func requireFull(t *testing.T, consumers []*site.Site, most map[string]load) {
	t.Helper()
	if !*all {
		return
	}
	for _, s := range consumers {
		used, limit := most[s.Name], ceiling(s.Name)
		require.True(t, used.pods == limit.Pods().Value() || used.milliCPU >= limit.Cpu().MilliValue()*9/10, "%s used what it has: %+v", s.Name, used)
	}
}

// keepPending keeps a number of pods of a consumer waiting until ctx is done.
func keepPending(ctx context.Context, s *site.Site, made *atomic.Int64) error {
	random := rand.New(rand.NewPCG(uint64(len(s.Name)), 3))
	for i := 0; ctx.Err() == nil; {
		pending, err := s.Client().CoreV1().Pods("burst").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
		for err == nil && len(pending.Items) < inQueue {
			pod := coreful(fmt.Sprintf("p-%04d", i), fmt.Sprintf("%dm", 50+50*random.IntN(6)), corev1.RestartPolicyNever,
				lab.SimRunFor, fmt.Sprint(200+random.IntN(2500)), lab.SimExitCode, "0")
			_, err = s.Client().CoreV1().Pods("burst").Create(ctx, pod, metav1.CreateOptions{})
			if err == nil {
				pending.Items = append(pending.Items, *pod)
				made.Add(1)
				i++
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

// replicaPair is two replicas of a controller.
type replicaPair struct {
	sites    *site.Sites
	site     *site.Site
	replicas map[string]**lab.Process // by identity
}

func newReplicaPair(t *testing.T, sites *site.Sites, s *site.Site) *replicaPair {
	t.Helper()
	p := &replicaPair{sites: sites, site: s, replicas: map[string]**lab.Process{}}
	s.Controller.Options.Env = append(s.Controller.Options.Env, "POD_NAME=controller-0")
	require.NoError(t, sites.Restart(&s.Controller))
	p.replicas["controller-0"] = &s.Controller
	second := must(sites.Replica(s.Controller, "-1", "POD_NAME=controller-1"))(t)
	p.replicas["controller-1"] = &second
	p.leader(t, "")
	return p
}

// leader waits until a replica other than that one leads.
func (p *replicaPair) leader(t *testing.T, not string) string {
	t.Helper()
	var holder string
	within(t, 30*time.Second, "a controller leads", lab.That(p.site.Client().CoordinationV1().Leases(site.Namespace), "liqod-controller", func(lease *coordinationv1.Lease) error {
		if lease.Spec.HolderIdentity == nil || p.replicas[*lease.Spec.HolderIdentity] == nil || *lease.Spec.HolderIdentity == not {
			return errors.New("nobody leads yet")
		}
		holder = *lease.Spec.HolderIdentity
		return nil
	}))
	return holder
}

// killLeader kills the leader in the midst of its work. Its successor is itself, started
// again, or the other one, whose cache of pods does not learn anything for a while.
func (p *replicaPair) killLeader(t *testing.T, random *rand.Rand, takeOver bool) {
	t.Helper()
	leader := p.leader(t, "")
	<-time.After(1200*time.Millisecond + time.Duration(random.Int64N(int64(2*time.Second))))
	target := p.replicas[leader]
	if !takeOver {
		require.NoError(t, p.sites.Restart(target))
		return
	}
	release := p.site.Proxied().HoldWatches(func(r lab.Request) bool {
		return r.Resource == "pods" && strings.Contains(r.UserAgent, "controller")
	})
	defer release()
	(*target).Kill()
	p.leader(t, leader)
	<-time.After(1500 * time.Millisecond) // it works by what it has listed
	release()
	require.NoError(t, p.sites.Restart(target))
}

// load is the most that a consumer was seen to have at once.
type load struct{ milliCPU, pods int64 }

// usageWatch sees every change of the pods in the twins of burst, by a watch of its own, and what
// they request together.
type usageWatch struct {
	watch *site.Watch

	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
	top  map[string]load
	err  error
}

func newUsageWatch(t *testing.T, s *site.Site) *usageWatch {
	t.Helper()
	g := &usageWatch{pods: map[types.UID]*corev1.Pod{}, top: map[string]load{}}
	pods := must(site.WatchPods(t.Context(), s.Client(), corev1.NamespaceAll, g.see))(t)
	t.Cleanup(pods.Stop)
	g.watch = pods
	return g
}

func (g *usageWatch) see(event watch.EventType, pod *corev1.Pod) {
	consumer, twin := strings.CutPrefix(pod.Namespace, "burst-")
	if !twin {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if event == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		delete(g.pods, pod.UID)
		return
	}
	g.pods[pod.UID] = pod
	now := load{}
	for _, p := range g.pods {
		if p.Namespace == pod.Namespace {
			requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
			now.milliCPU += requests.Cpu().MilliValue()
			now.pods++
		}
	}
	limit := ceiling(consumer)
	if now.milliCPU > limit.Cpu().MilliValue() || now.pods > limit.Pods().Value() {
		g.err = errors.Join(g.err, fmt.Errorf("%s has %dm of CPU in %d pods once %s began", consumer, now.milliCPU, now.pods, pod.Name))
	}
	g.top[consumer] = load{max(g.top[consumer].milliCPU, now.milliCPU), max(g.top[consumer].pods, now.pods)}
}

func (g *usageWatch) verdict() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.err, g.watch.Err())
}

func (g *usageWatch) most() map[string]load {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]load{}
	for k, v := range g.top {
		out[k] = v
	}
	return out
}

// testQuotaUnseen: a new leader's cache has none of the pods that fill the Quota.
func testQuotaUnseen(t *testing.T, w *world, pair *replicaPair) {
	a := w.quotaFixture(t, "unseen", offloadingv1beta1.QuotaSpec{Resources: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("6")}})
	leader := pair.leader(t, "")
	release := w.milan.Proxied().HoldWatches(func(r lab.Request) bool {
		return r.Resource == "pods" && strings.Contains(r.UserAgent, "controller")
	})
	defer release()
	for i := range 12 {
		a.create(t, bare(fmt.Sprintf("p-%02d", i), corev1.RestartPolicyAlways))
	}
	exist := func(want int) func(context.Context) error {
		return lab.Number(w.milan.Client().CoreV1().Pods(a.twin), metav1.ListOptions{}, want)
	}
	within(t, 10*time.Second, "the leader fills the Quota without seeing its pods", exist(6))
	target := pair.replicas[leader]
	(*target).Kill()
	pair.leader(t, leader)
	hold(t, 4*time.Second, "nothing is added to it", exist(6))
	release()
	hold(t, 2*time.Second, "nothing is added to it once they are seen", exist(6))
	require.NoError(t, w.sites.Restart(target))
	a.change(t, `{"resources":{"pods":"12"}}`)
	within(t, 10*time.Second, "the rest goes on with the new leader", exist(12))
	a.deleteAll(t)
}

// testQuotaUnderWay: the leader dies while its last write is on its way. It arrives when
// its successor leads, and would give the room to another pod.
func testQuotaUnderWay(t *testing.T, w *world, pair *replicaPair) {
	a := w.quotaFixture(t, "underway", cores("1"))
	a.create(t, coreful("first", "300m", corev1.RestartPolicyNever))
	a.runs(t, "first")
	a.create(t, coreful("old", "800m", corev1.RestartPolicyAlways))
	a.waits(t, "old", offloadingv1beta1.ReasonQuotaExceeded)
	sent, leads, arrived := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var dead atomic.Bool
	var sending atomic.Bool
	var leading sync.Once
	w.milan.Proxied().Intercept(func(r lab.Request) lab.Fate {
		switch {
		case r.Verb == "update" && r.Resource == "leases" && r.Name == "liqod-controller" && dead.Load():
			return lab.Fate{After: func() { leading.Do(func() { close(leads) }) }}
		case r.Verb == "create" && r.Resource == "pods" && r.Name == "young" && sending.CompareAndSwap(false, true):
			return lab.Fate{
				Before:     func() { close(sent); <-leads; <-time.After(slowestWrite) },
				After:      func() { close(arrived) },
				Unanswered: true, // its sender is dead
			}
		}
		return lab.Fate{}
	})
	defer w.milan.Proxied().Intercept(nil)
	a.create(t, coreful("young", "600m", corev1.RestartPolicyAlways))
	<-sent
	target := pair.replicas[pair.leader(t, "")]
	(*target).Kill()
	dead.Store(true)
	a.end(t, "first", "0")
	a.untilRemote(t, 10*time.Second, "first", "has ended", inPhase(corev1.PodSucceeded))
	require.NoError(t, w.sites.Restart(target))
	<-arrived
	a.waits(t, "old", offloadingv1beta1.ReasonQuotaExceeded)
	a.runs(t, "young")
	hold(t, 3*time.Second, "one of both runs", lab.Number(w.milan.Client().CoreV1().Pods(a.twin), metav1.ListOptions{FieldSelector: "metadata.name=old"}, 0))
	a.deleteAll(t)
}
