package discovery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	typed "github.com/liqod/liqod/api/generated/clientset/versioned/typed/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/peering/link"
)

const (
	workers = 2
	byDNS   = corev1beta1.DiscoveredByDNS
	byMDNS  = corev1beta1.DiscoveredByMulticast
	patient = time.Minute
)

type world struct {
	t        *testing.T
	liqo     *fake.Clientset
	clusters *Clusters
	last     map[string]Answer // by source
	clock    *clocktesting.FakePassiveClock

	mu      sync.Mutex
	ignored map[string]int
}

func newWorld(t *testing.T, most int, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{t: t, liqo: fake.NewSimpleClientset(objects...), ignored: map[string]int{}, last: map[string]Answer{}, clock: clocktesting.NewFakePassiveClock(time.Now())}
	informers := externalversions.NewSharedInformerFactory(w.liqo, 0)
	w.clusters = NewClusters(Config{Most: most,
		Base: link.Base{Env: loop.Env{Clock: w.clock, Log: zaptest.NewLogger(t)}, ClusterID: "rome", Liqo: w.liqo, ForeignClusters: informers.Core().V1beta1().ForeignClusters()},
		Metrics: Metrics{Found: func(string, int) {}, Ignored: func(via, reason string, n int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ignored[via+" "+reason] += n
		}}})
	informers.Start(t.Context().Done())
	informers.WaitForCacheSync(t.Context().Done())
	kubetest.Run(t, func(ctx context.Context) error { return w.clusters.Run(ctx, workers) })
	return w
}

func (w *world) get(name string) *corev1beta1.ForeignCluster {
	return kubetest.Find(w.t, w.liqo.CoreV1beta1().ForeignClusters(), name)
}

func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	require.Eventually(w.t, f, patient, 5*time.Millisecond, what)
}

// set stores the answer of a source.
func (w *world) set(via string, a Answer) {
	w.last[via] = a
	w.clusters.Set(via, a)
}

// handled waits until the loop has synced keys that were queued after all others, one per
// worker.
func (w *world) handled() {
	w.t.Helper()
	for range 4 {
		id := fmt.Sprintf("later-%d", len(w.last[byMDNS].Clusters))
		a := Answer{Clusters: append(slices.Clone(w.last[byMDNS].Clusters), found(id).Clusters...)}
		w.set(byMDNS, a)
		w.eventually("a key that came later is handled", func() bool { return w.get(id) != nil })
	}
}

// edit changes a ForeignCluster as another client, and waits for the cache: the fake
// clients detect no conflicts.
func (w *world) edit(name string, f func(*corev1beta1.ForeignCluster)) {
	fc := w.get(name)
	f(fc)
	kubetest.Update(w.t, w.liqo.CoreV1beta1().ForeignClusters(), fc)
	w.eventually("the cache has it", func() bool {
		have, err := w.clusters.cfg.ForeignClusters.Lister().Get(name)
		return err == nil && equality.Semantic.DeepEqual(have, fc)
	})
}

func (w *world) writes() (n int) {
	for _, a := range w.liqo.Actions() {
		if v := a.GetVerb(); v != "list" && v != "watch" && v != "get" {
			n++
		}
	}
	return n
}

func found(ids ...string) (a Answer) {
	for _, id := range ids {
		a.Clusters = append(a.Clusters, Record{ClusterID: id, Name: id, URL: "https://" + id + ".example", Instance: id + "._liqod._tcp.example."})
	}
	return a
}

func TestLifeOfAFoundCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10)
	w.set(byDNS, found("milan", "rome"))
	w.eventually("it is a ForeignCluster", func() bool { return w.get("milan") != nil })
	fc := w.get("milan")
	require.Equal(t, "https://milan.example", fc.Spec.AuthURL)
	require.Equal(t, byDNS, fc.Labels[corev1beta1.DiscoveredLabel])
	require.Equal(t, "milan._liqod._tcp.example", fc.Annotations[corev1beta1.DiscoveredFromAnnotation])
	require.Nil(t, w.get("rome"), "a cluster does not find itself")

	w.set(byDNS, found("milan"))
	w.set(byMDNS, found("milan"))
	w.handled()
	require.Equal(t, 5, w.writes(), "milan and what was found after it are written once")
	moved := found("milan")
	moved.Clusters[0].URL = "https://elsewhere.example"
	w.set(byDNS, moved)
	w.eventually("it follows its record", func() bool { return w.get("milan").Spec.AuthURL == "https://elsewhere.example" })

	w.set(byDNS, found())
	w.eventually("it is found on the network still", func() bool { return w.get("milan").Labels[corev1beta1.DiscoveredLabel] == byMDNS })
	w.set(byMDNS, found())
	w.eventually("it goes with its record", func() bool { return w.get("milan") == nil })
}

func TestUsedOrEditedStays(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*corev1beta1.ForeignCluster){
		"a user":         func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = "liqo.io:peer:milan:1" },
		"a token":        func(fc *corev1beta1.ForeignCluster) { fc.Spec.TokenSecretRef = &corev1beta1.SecretReference{Name: "t"} },
		"wanted":         func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringYes },
		"another URL":    func(fc *corev1beta1.ForeignCluster) { fc.Spec.AuthURL = "https://mine" },
		"credentials":    func(fc *corev1beta1.ForeignCluster) { fc.Status.APIServerURL = "https://x" },
		"a role":         func(fc *corev1beta1.ForeignCluster) { fc.Status.Role = corev1beta1.RoleProvider },
		"no label":       func(fc *corev1beta1.ForeignCluster) { delete(fc.Labels, corev1beta1.DiscoveredLabel) },
		"no annotations": func(fc *corev1beta1.ForeignCluster) { fc.Annotations = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 10)
			w.set(byDNS, found("milan"))
			w.eventually("found", func() bool { return w.get("milan") != nil })
			w.edit("milan", use)
			want := w.get("milan")
			moved := found("milan")
			moved.Clusters[0].URL = "https://hostile.example"
			w.set(byDNS, moved)
			w.handled()
			require.Equal(t, want.Spec, w.get("milan").Spec, "its record is not followed")
			w.set(byDNS, found())
			w.handled()
			require.Equal(t, want.Spec, w.get("milan").Spec)
		})
	}
}

// TestWhatPeopleWroteIsTheirs: also a virtual node keeps what was found.
func TestWhatPeopleWroteIsTheirs(t *testing.T) {
	t.Parallel()
	mine := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"}}
	w := newWorld(t, 10, mine, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-turin", Name: "turin"}})
	w.set(byDNS, found("milan", "turin", "oslo"))
	w.eventually("found", func() bool { return w.get("turin") != nil && w.get("oslo") != nil })
	w.set(byDNS, found())
	w.eventually("what is not in use goes", func() bool { return w.get("oslo") == nil })
	w.handled()
	require.NotNil(t, w.get("turin"))
	require.Equal(t, mine.Spec, w.get("milan").Spec)
}

// TestAnotherLife: ForeignClusters of an earlier process are deleted after the first
// complete answer of their source, and not before.
func TestAnotherLife(t *testing.T) {
	t.Parallel()
	left := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan", UID: "u"}}
	require.NoError(t, want(left, byMDNS, found("milan").Clusters[0]))
	w := newWorld(t, 10, left)
	w.set(byDNS, found("turin"))
	w.eventually("a domain has been asked", func() bool { return w.get("turin") != nil })
	require.NotNil(t, w.get("milan"), "the network has not")
	w.set(byMDNS, found())
	w.eventually("it goes", func() bool { return w.get("milan") == nil })
	w.clusters.Forget()
	require.False(t, w.clusters.asked(byMDNS))
}

func TestNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.set(byMDNS, found("a", "b"))
	w.eventually("two", func() bool { return w.get("a") != nil && w.get("b") != nil })
	w.set(byMDNS, found("a", "b", "c"))
	w.eventually("counted", func() bool { return w.ignoredFor("mdns too-many") > 0 })
	require.Nil(t, w.get("c"))
}

func (w *world) ignoredFor(reason string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ignored[reason]
}

// count returns the number of ForeignClusters.
func (w *world) count() int {
	return len(kubetest.List(w.t, w.liqo.CoreV1beta1().ForeignClusters()).Items)
}

// TestFlood: a host on the local network sends ever other records. What it makes the
// controller write is bounded, and clusters of the domain are found meanwhile.
func TestFlood(t *testing.T) {
	t.Parallel()
	const most, rounds = 20, 60
	for name, flood := range map[string]func(round int) Answer{
		"new clusters each time": func(round int) Answer {
			ids := make([]string, maxClusters)
			for i := range ids {
				ids[i] = fmt.Sprintf("c%d-%d", round, i)
			}
			return found(ids...)
		},
		"other URLs each time": func(round int) Answer {
			ids := make([]string, most)
			for i := range ids {
				ids[i] = fmt.Sprintf("c%d", i)
			}
			a := found(ids...)
			for i := range a.Clusters {
				a.Clusters[i].URL = fmt.Sprintf("https://%d.example", round)
			}
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, most)
			for round := range rounds {
				a := flood(round)
				if round > 0 && a.Clusters[0].ClusterID != flood(round - 1).Clusters[0].ClusterID {
					w.set(byMDNS, found())
					w.eventually("the records go, or there are too many writes", func() bool {
						return w.ignoredFor("mdns too-often") > 0 || w.count() == 0
					})
				}
				w.set(byMDNS, a)
				w.eventually("the records are followed, or there are too many writes", func() bool {
					return w.ignoredFor("mdns too-often") > 0 || slices.ContainsFunc(a.Clusters, func(r Record) bool {
						fc := w.get(r.ClusterID)
						return fc != nil && fc.Spec.AuthURL == r.URL
					})
				})
			}
			w.eventually("the limit shows", func() bool { return w.ignoredFor("mdns too-often") > 0 })
			require.LessOrEqual(t, w.writes(), writesAtOnce)
			require.LessOrEqual(t, w.count(), most)

			w.set(byDNS, found("milan"))
			w.eventually("a cluster of the domain has its own limits", func() bool { return w.get("milan") != nil })

			before := w.writes()
			w.clock.SetTime(w.clock.Now().Add(writeInterval))
			last := flood(rounds)
			w.set(byMDNS, last)
			w.clusters.wakeAll(byMDNS) // those whose record is gone wait for the real clock
			w.eventually("one more write is done later", func() bool { return w.writes() > before })
			require.Equal(t, before+1, w.writes())
		})
	}
}

// TestWorkersKeepTheLimit: several workers create no more ForeignClusters than one.
func TestWorkersKeepTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.clusters.cfg.Liqo = together{Interface: w.liqo, lists: new(atomic.Int32), both: make(chan struct{})}
	w.set(byMDNS, found("a", "b", "c", "d"))
	w.eventually("the limit shows", func() bool { return w.ignoredFor("mdns too-many") >= 3 })
	require.Equal(t, 1, w.count())
}

// together is a client whose first list of ForeignClusters waits a moment for a second one.
type together struct {
	versioned.Interface
	lists *atomic.Int32
	both  chan struct{}
}

func (c together) CoreV1beta1() typed.CoreV1beta1Interface {
	return togetherCore{c.Interface.CoreV1beta1(), c}
}

type togetherCore struct {
	typed.CoreV1beta1Interface
	together together
}

func (c togetherCore) ForeignClusters() typed.ForeignClusterInterface {
	return togetherClusters{c.CoreV1beta1Interface.ForeignClusters(), c.together}
}

type togetherClusters struct {
	typed.ForeignClusterInterface
	together together
}

func (c togetherClusters) List(ctx context.Context, opts metav1.ListOptions) (*corev1beta1.ForeignClusterList, error) {
	list, err := c.ForeignClusterInterface.List(ctx, opts)
	if c.together.lists.Add(1) == 2 {
		close(c.together.both)
	}
	select {
	case <-c.together.both:
	case <-time.After(100 * time.Millisecond): // the other worker waits, as it should
	}
	return list, err
}

// TestPartialAnswersAreBounded: the answers of a session's beginning are added up to the
// limit of one answer.
func TestPartialAnswersAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	for round := range 2 * maxClusters {
		w.clusters.Set(byMDNS, Answer{Clusters: found(fmt.Sprintf("c%d", round)).Clusters, Partial: true})
	}
	require.Len(t, w.clusters.known(), maxClusters)
	moved := found("c0")
	moved.Clusters[0].URL, moved.Partial = "https://elsewhere.example", true
	w.clusters.Set(byMDNS, moved)
	_, r, _ := w.clusters.record("c0")
	require.Equal(t, "https://elsewhere.example", r.URL, "known ones still change")
}
