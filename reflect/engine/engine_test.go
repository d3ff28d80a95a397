package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

func TestLife(t *testing.T) {
	r := shopRig(t, local("app"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "app"}})
	r.start(t)
	r.requireWrites(t, "create configmaps shop-rome/app")
	r.idle(t, "shop")
	r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "2" }))
	r.requireWrites(t, `patch configmaps shop-rome/app {"data":{"a":"2"},"metadata":{"uid":"remote-1"}}`)
	r.deleteHome(t, "app")
	r.requireWrites(t, "delete configmaps shop-rome/app")
	r.createHome(t, local("late"))
	r.requireWrites(t, "create configmaps shop-rome/late")
	r.silent(t, "at rest")
	require.Empty(t, r.events.Events)
}

// TestWhole covers updates with a resource version: a concurrent change by another client
// must not be lost.
func TestWhole(t *testing.T) {
	r := newRig()
	r.whole = true
	r.carry(t)
	r.idle(t, "shop")
	r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "2" }))
	r.requireWrites(t, "update configmaps shop-rome/app")
	require.Equal(t, "2", r.there(t, "app").Data["a"])
	r.idle(t, "shop")

	theirs := r.there(t, "app").DeepCopy()
	theirs.ResourceVersion, theirs.Labels["theirs"] = fmt.Sprint(r.serial.Add(1)), "1"
	var once sync.Once
	r.remote.PrependReactor("update", "configmaps", func(a clienttesting.Action) (handled bool, _ runtime.Object, err error) {
		once.Do(func() { err = r.remote.Tracker().Update(a.GetResource(), theirs, "shop-rome") })
		return err != nil, nil, err
	})
	r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "3" }))
	eventually(t, func() bool { return r.there(t, "app").Data["a"] == "3" }, "tried again")
	require.Equal(t, "1", r.there(t, "app").Labels["theirs"])
	r.remote.ClearActions()
	r.silent(t, "at rest")
}

func TestDeletesNameTheUID(t *testing.T) {
	r := shopRig(t)
	r.add(r.remote.Tracker(), forged(local("app")))
	r.start(t)
	eventually(t, func() bool { return len(writesOf(r.remote)) > 0 }, "what has no local object is removed")
	for _, a := range r.remote.Actions() {
		if d, ok := a.(clienttesting.DeleteAction); ok {
			require.Equal(t, types.UID("forged-local-app"), *d.GetDeleteOptions().Preconditions.UID)
		}
	}
	require.Equal(t, 1, r.liveReads(), "confirmed by a live read")
}

// TestDeletionIsShown counts live reads: an absence is confirmed by one, a deletion that
// the watch reported is not.
func TestDeletionIsShown(t *testing.T) {
	r := shopRig(t)
	for _, name := range []string{"a", "b", "c"} {
		r.createHome(t, local(name))
	}
	stop := r.start(t)
	r.requireWrites(t, "create configmaps", "create configmaps", "create configmaps")
	r.deleteHome(t, "a")
	r.requireWrites(t, "delete configmaps shop-rome/a")
	require.Zero(t, r.liveReads(), "it was shown")

	r.updateHome(t, local("b", annotated(offloadingv1beta1.SkipReflectionAnnotation)))
	r.requireWrites(t, "delete configmaps shop-rome/b")
	require.Equal(t, 1, r.liveReads(), "it is there")
	stop()
	r.deleteHome(t, "c")
	r.start(t)
	r.requireWrites(t, "delete configmaps shop-rome/c")
	require.Equal(t, 2, r.liveReads(), "nobody watched")
}

// TestShownDeletionIsOfOneObject deletes an object and creates another of the same name.
// The reported deletion must not count for the new object.
func TestShownDeletionIsOfOneObject(t *testing.T) {
	r := newRig()
	r.carry(t)
	r.closed.Store(true)
	r.deleteHome(t, "app")
	r.createHome(t, local("app", annotated(offloadingv1beta1.SkipReflectionAnnotation)))
	k := r.engine.reflectors[0].(*kindLoop[*corev1.ConfigMap, *corev1.ConfigMap])
	key := loop.Key{Namespace: "shop", Name: "app"}
	eventually(t, func() bool {
		cm := store.Cached[*corev1.ConfigMap](k.storesOf("shop").local, key)
		return cm != nil && len(cm.Annotations) > 0
	}, "the successor is there")
	k.storesOf("shop").left.Begin("app", time.Now()) // late
	r.closed.Store(false)
	r.engine.Resync()
	r.requireWrites(t, "delete configmaps shop-rome/app")
	require.Equal(t, 1, r.liveReads())
}

func TestRestartWritesNothing(t *testing.T) {
	r := shopRig(t)
	for _, name := range []string{"a", "b", "c"} {
		r.createHome(t, local(name))
	}
	stop := r.start(t)
	r.requireWrites(t, "create configmaps", "create configmaps", "create configmaps")
	stop()
	r.start(t)
	r.idle(t, "shop")
	r.engine.Resync() // as a duplicate of every event
	r.silent(t, "everything is as wanted")
}

func TestStaleCache(t *testing.T) {
	r := newRig()
	r.remote.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, watch.NewFake(), nil // shows nothing ever
	})
	r.carry(t)
	r.engine.Resync()
	r.silent(t, "it is known what was written")
	r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "2" }))
	r.requireWrites(t, "patch configmaps shop-rome/app")
	r.deleteHome(t, "app")
	r.requireWrites(t, "delete configmaps shop-rome/app")
	r.engine.Resync()
	r.silent(t, "it is known what was deleted")
}

// TestRestoredConsumerKeepsWhatItForgot covers a consumer that was restored from a
// backup. Objects that it has lost stay in the provider, also after a restart of the
// vkubelet.
func TestRestoredConsumerKeepsWhatItForgot(t *testing.T) {
	r := shopRig(t)
	r.lost = time.Now()
	there := forged(local("app"))
	there.CreationTimestamp = metav1.NewTime(r.lost.Add(4 * time.Minute)) // by the provider's clock
	r.add(r.remote.Tracker(), there)
	stop := r.start(t)
	r.requireWrites(t, "patch configmaps shop-rome/app")
	require.NotEmpty(t, r.there(t, "app").Annotations[offloadingv1beta1.KeptAnnotation])
	r.engine.Resync()
	r.idle(t, "shop")
	r.silent(t, "marked once")
	stop()

	r.lost = time.Time{}
	stop = r.start(t)
	r.idle(t, "shop")
	r.silent(t, "kept")
	r.createHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "2" }))
	r.requireWrites(t, "patch configmaps shop-rome/app")
	have := r.there(t, "app")
	require.Equal(t, "2", have.Data["a"])
	require.NotContains(t, have.Annotations, offloadingv1beta1.KeptAnnotation)
	stop()
	r.deleteHome(t, "app")
	r.start(t)
	r.requireWrites(t, "delete configmaps shop-rome/app")
}

// TestRestoredConsumerExcludes covers an object that exists in the restored consumer and
// is excluded from reflection. It is deleted in the provider, with or without the mark.
func TestRestoredConsumerExcludes(t *testing.T) {
	for name, mark := range map[string]string{"unmarked": "", "marked": "2026-01-01T00:00:00Z"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shopRig(t, local("app", annotated(offloadingv1beta1.SkipReflectionAnnotation)))
			r.lost = time.Now()
			have := forged(local("app"))
			if mark != "" {
				have.Annotations[offloadingv1beta1.KeptAnnotation] = mark
			}
			r.add(r.remote.Tracker(), have)
			r.start(t)
			r.requireWrites(t, "delete configmaps shop-rome/app")
		})
	}
}

// TestRestoredConsumerDoesNotMarkWhatIsDerived covers objects that controllers create
// again under new names: the next process deletes the old ones.
func TestRestoredConsumerDoesNotMarkWhatIsDerived(t *testing.T) {
	r := shopRig(t)
	r.derived, r.lost = true, time.Now()
	r.add(r.remote.Tracker(), forged(local("app")))
	stop := r.start(t)
	r.idle(t, "shop")
	r.silent(t, "kept")
	stop()
	r.lost = time.Time{}
	r.start(t)
	r.requireWrites(t, "delete configmaps shop-rome/app")
}

// TestRestoredConsumerDeletes deletes an object after the restoration. It is deleted in
// the provider too, even if the provider was unreachable at that moment.
func TestRestoredConsumerDeletes(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"at once": func(*rig) {},
		"the provider is away": func(r *rig) {
			var once sync.Once
			r.remote.PrependReactor("delete", "configmaps", func(clienttesting.Action) (handled bool, _ runtime.Object, err error) {
				once.Do(func() { handled, err = true, apierrors.NewInternalError(fmt.Errorf("away")) })
				return handled, nil, err
			})
		},
		"the gate is closed": func(r *rig) { r.closed.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig()
			r.lost = time.Now()
			r.carry(t)
			r.idle(t, "shop")
			prepare(r)
			if r.closed.Load() { // no sync of the object is under way after that
				r.engine.Resync()
				eventually(t, func() bool { return r.refused.Load() > 0 }, "the gate was asked")
			}
			r.deleteHome(t, "app")
			if r.closed.Load() {
				r.silent(t, "the gate is closed")
				r.closed.Store(false)
				r.engine.Resync()
			}
			eventually(t, func() bool { return r.there(t, "app") == nil }, "the deletion was shown")
		})
	}
}

// TestStaleHomeCache covers a consumer cache that lags behind: no object may be deleted
// because of it.
func TestStaleHomeCache(t *testing.T) {
	r := shopRig(t, local("app"))
	r.home.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.ConfigMapList{}, nil
	})
	r.home.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, watch.NewFake(), nil
	})
	r.add(r.remote.Tracker(), forged(local("app")))
	r.start(t)
	eventually(t, func() bool { return len(r.home.Actions()) > 2 }, "asks live")
	r.silent(t, "the live read says that it is there")
}

func TestConflictAndErrors(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("configmaps"), "app", nil)
	away := apierrors.NewServiceUnavailable("away")
	for name, tc := range map[string]struct {
		verb string
		err  error
	}{
		"create, away":    {"create", away},
		"update, uid":     {"patch", conflict},
		"update, gone":    {"patch", apierrors.NewNotFound(corev1.Resource("configmaps"), "app")},
		"whole, changed":  {"update", conflict},
		"withdrawal away": {"delete", away},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shopRig(t)
			r.whole = tc.verb == "update"
			failed := false
			r.remote.PrependReactor(tc.verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				if failed {
					return false, nil, nil
				}
				failed = true
				return true, nil, tc.err
			})
			if tc.verb != "delete" {
				r.createHome(t, local("app"))
			}
			if tc.verb != "create" {
				r.add(r.remote.Tracker(), forged(local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "old" })))
			}
			r.start(t)
			r.requireWrites(t, tc.verb+" configmaps shop-rome/app", tc.verb+" configmaps shop-rome/app")
			r.silent(t, "done")
		})
	}
}

func TestCollision(t *testing.T) {
	r := shopRig(t)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "app", UID: "theirs"}}
	r.add(r.remote.Tracker(), theirs)
	r.createHome(t, local("app"))
	r.start(t)
	r.requireEvent(t, "Warning FailedReflection", "configmap shop-rome/app of cluster milan")
	r.requireWrites(t, "create configmaps shop-rome/app")
	r.engine.Resync()
	r.silent(t, "asked for by a read, and told once")
	require.Empty(t, r.events.Events)
	require.Equal(t, types.UID("theirs"), r.there(t, "app").UID)
	r.deleteHome(t, "app")
	r.silent(t, "what is not ours stays")

	r.createHome(t, local("app"))
	r.requireEvent(t, "FailedReflection")
	r.remote.ClearActions()
	require.NoError(t, r.remote.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "shop-rome", "app"))
	r.engine.Resync()
	r.requireWrites(t, "create configmaps shop-rome/app")
}

// TestGoingIsWaitedFor covers an object in the provider that is already being deleted.
func TestGoingIsWaitedFor(t *testing.T) {
	for name, wanted := range map[string]bool{"wanted again": true, "not wanted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shopRig(t)
			going := forged(local("app"))
			going.DeletionTimestamp, going.Finalizers = ptr.To(metav1.Now()), []string{"example.com/slow"}
			r.add(r.remote.Tracker(), going)
			if wanted {
				r.createHome(t, local("app"))
			}
			r.start(t)
			r.idle(t, "shop")
			r.silent(t, "it goes by itself")
			require.NoError(t, r.remote.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "shop-rome", "app"))
			if wanted {
				r.requireWrites(t, "create configmaps shop-rome/app")
			} else {
				r.silent(t, "nothing is left to do")
			}
		})
	}
}

func TestAnnotations(t *testing.T) {
	r := newRig()
	r.carry(t)
	r.updateHome(t, local("app", annotated(offloadingv1beta1.SkipReflectionAnnotation)))
	r.requireWrites(t, "delete configmaps shop-rome/app")
	r.updateHome(t, local("app"))
	r.requireWrites(t, "create configmaps shop-rome/app")
	r.updateHome(t, local("app", annotated(offloadingv1beta1.SkipReflectionAnnotation), annotated(offloadingv1beta1.AllowReflectionAnnotation)))
	r.requireWrites(t, "delete configmaps shop-rome/app")
	r.requireEvent(t, "FailedReflection", "both set")
}

func TestPolicyChange(t *testing.T) {
	r := shopRig(t, local("plain"), local("allowed", annotated(offloadingv1beta1.AllowReflectionAnnotation)))
	stop := r.start(t)
	r.requireWrites(t, "create configmaps", "create configmaps")
	stop()
	r.setting.Policy = forge.AllowList
	stop = r.start(t)
	r.requireWrites(t, "delete configmaps shop-rome/plain")
	stop()
	r.setting.Policy = forge.DenyList
	r.start(t)
	r.requireWrites(t, "create configmaps shop-rome/plain")
}

func TestKindOff(t *testing.T) {
	r := shopRig(t, local("app"))
	r.add(r.remote.Tracker(), forged(local("app")),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "theirs", UID: "theirs"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "paris", UID: "paris",
			Labels: map[string]string{offloadingv1beta1.OriginLabel: "paris", offloadingv1beta1.DestinationLabel: "milan"}}})
	r.setting.Workers = 0
	r.start(t)
	r.requireWrites(t, "delete configmaps shop-rome/app")
	r.engine.Resync()
	r.silent(t, "swept once")
	for _, a := range append(r.remote.Actions(), r.home.Actions()...) {
		require.NotEqual(t, "watch", a.GetVerb())
	}
}

func TestUnmappedIsLeftToTheProvider(t *testing.T) {
	r := newRig()
	r.offload(t, "shop", "bank")
	r.createHome(t, local("app"))
	r.start(t)
	r.requireWrites(t, "create configmaps shop-rome/app")
	r.offload(t, "bank")
	eventually(t, func() bool { return r.engine.spaces.Get("shop") == nil }, "closed")
	r.deleteHome(t, "app")
	r.createHome(t, local("more"))
	r.silent(t, "the provider deletes the twin namespace")
	r.offload(t, "shop", "bank")
	eventually(t, func() bool { return r.there(t, "more") != nil && r.there(t, "app") == nil }, "open again")
}

// TestClosedIsForgotten closes a namespace while a worker syncs one of its objects. The
// worker must not leave records behind.
func TestClosedIsForgotten(t *testing.T) {
	for name, answer := range map[string]error{
		"made":    nil,
		"refused": apierrors.NewForbidden(corev1.Resource("configmaps"), "app", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shopRig(t, local("app"))
			asked, closed := make(chan struct{}), make(chan struct{})
			r.remote.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				close(asked)
				<-closed
				return answer != nil, nil, answer
			})
			r.start(t)
			<-asked
			k := r.engine.reflectors[0].(*kindLoop[*corev1.ConfigMap, *corev1.ConfigMap])
			r.offload(t)
			eventually(t, func() bool { return k.storesOf("shop") == nil }, "closed")
			close(closed)
			r.requireWrites(t, "create configmaps shop-rome/app")
			require.Never(t, func() bool { return len(r.events.Events) > 0 || len(r.engine.Refused()) > 0 },
				250*time.Millisecond, 10*time.Millisecond, "nothing is remembered")
		})
	}
}

// TestGate covers a provider that is unreachable or another cluster: nothing is written.
func TestGate(t *testing.T) {
	r := shopRig(t, local("app"))
	r.closed.Store(true)
	r.add(r.remote.Tracker(), forged(local("orphan")))
	r.start(t)
	r.idle(t, "shop")
	r.silent(t, "the gate is closed")
	r.closed.Store(false)
	r.engine.Resync()
	eventually(t, func() bool { return len(writesOf(r.remote)) == 2 }, "caught up")
	require.NotNil(t, r.there(t, "app"))
	require.Nil(t, r.there(t, "orphan"))
}

func TestSkipListsAreLive(t *testing.T) {
	r := shopRig(t)
	r.skipLabels = []string{"usual"}
	r.createHome(t, local("app", func(cm *corev1.ConfigMap) {
		cm.Labels = map[string]string{"usual": "1", "configured": "1", "patched": "1", "kept": "1"}
	}))
	r.start(t)
	r.requireWrites(t, "create configmaps shop-rome/app")
	require.NotContains(t, r.there(t, "app").Labels, "usual")
	vns := r.homeLiqod.OffloadingV1beta1().VirtualNodes(tenant)
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"},
		Status: offloadingv1beta1.VirtualNodeStatus{NotReflected: &offloadingv1beta1.NotReflected{Labels: []string{"configured"}}}}
	kubetest.Update(t, vns, vn)
	r.requireWrites(t, "patch configmaps shop-rome/app")
	require.NotContains(t, r.there(t, "app").Labels, "configured")
	require.Contains(t, r.there(t, "app").Labels, "usual", "the status says what there is")
	vn = vn.DeepCopy()
	vn.Generation = 2
	vn.Spec.OffloadingPatch = &offloadingv1beta1.OffloadingPatch{LabelsNotReflected: []string{"patched"}}
	kubetest.Update(t, vns, vn)
	r.requireWrites(t, "patch configmaps shop-rome/app")
	have := r.there(t, "app").Labels
	require.NotContains(t, have, "patched")
	require.Contains(t, have, "kept")

	// Another virtual node of the provider says nothing else: who reflects does not matter.
	kubetest.Create(t, vns, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan-2"},
		Status: vn.Status})
	r.silent(t, "the same")
	require.NoError(t, vns.Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	require.NoError(t, vns.Delete(t.Context(), "milan-2", metav1.DeleteOptions{}))
	eventually(t, func() bool {
		left, err := r.engine.cfg.VirtualNodes.Lister().List(labels.Everything())
		return err == nil && len(left) == 0
	}, "the virtual nodes are seen to be gone")
	r.remote.ClearActions()
	r.createHome(t, local("more"))
	r.silent(t, "without a VirtualNode nobody says what may be carried")
}

// TestARefusedChangeLeavesNothingMisleading: what would lead elsewhere than home says goes, once,
// and comes back when the provider accepts it. What does not mislead stays.
func TestARefusedChangeLeavesNothingMisleading(t *testing.T) {
	forbidden, failed := apierrors.NewForbidden(corev1.Resource("configmaps"), "app", nil), apierrors.NewInternalError(errors.New("failed calling webhook"))
	for name, tc := range map[string]struct {
		misleads bool
		answer   error
		goes     bool
	}{
		"misleading": {true, forbidden, true}, "stale": {false, forbidden, false}, "a webhook of the provider is down": {true, failed, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			r.misleads = func(have, want *corev1.ConfigMap) bool { return tc.misleads && have.Data["a"] != want.Data["a"] }
			var allowed atomic.Bool
			for _, verb := range []string{"patch", "create"} {
				r.remote.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
					return !allowed.Load(), nil, tc.answer
				})
			}
			r.offload(t, "shop")
			r.add(r.remote.Tracker(), forged(local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "old" })))
			r.createHome(t, local("app"))
			r.start(t)
			if tc.answer == error(forbidden) {
				r.requireEvent(t, "FailedReflection", "cluster milan refuses it")
			}
			eventually(t, func() bool { return len(writesOf(r.remote)) > 3 }, "tried again")
			require.Equal(t, tc.goes, r.there(t, "app") == nil)
			require.Equal(t, tc.goes, slices.Contains(writesOf(r.remote), "delete configmaps"))
			allowed.Store(true)
			eventually(t, func() bool { cm := r.there(t, "app"); return cm != nil && cm.Data["a"] == "1" }, "as home says when it may be")
		})
	}
}

// TestWhatIsAcceptedOnlyAnewIsNotMadeWithoutEnd: the provider changes what it creates, and refuses
// to have that put right. The object is made again at growing intervals.
func TestWhatIsAcceptedOnlyAnewIsNotMadeWithoutEnd(t *testing.T) {
	r := shopRig(t, local("app"))
	c := r.stopClock()
	r.misleads = func(have, want *corev1.ConfigMap) bool { return have.Data["a"] != want.Data["a"] }
	r.admit = func(cm *corev1.ConfigMap) { cm.Data["a"] = "theirs" }
	r.remote.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "app", nil)
	})
	deletions := func() (n int) {
		for _, w := range writesOf(r.remote) {
			if w == "delete configmaps" {
				n++
			}
		}
		return n
	}
	r.start(t)
	eventually(t, func() bool { return deletions() == 2 }, "made again at once")
	require.GreaterOrEqual(t, later(t, c, func() bool { return deletions() == 3 }, "and again"), loop.FirstRepair)
}

// TestAnnotationsThatAProviderLeavesOut: the object is reflected without them, one event
// says which they are, and no write follows.
func TestAnnotationsThatAProviderLeavesOut(t *testing.T) {
	r := shopRig(t, local("app", annotated("cert-manager.io/issuer"), annotated("example.com/odd"), annotated("note")))
	r.admit = func(cm *corev1.ConfigMap) {
		delete(cm.Annotations, "cert-manager.io/issuer")
		delete(cm.Annotations, "example.com/odd")
	}
	r.start(t)
	r.requireWrites(t, "create configmaps", "patch configmaps")
	r.requireEvent(t, "AnnotationsLeftOut", "cluster milan", ": cert-manager.io/issuer, example.com/odd;", "sharing.annotations")
	require.Equal(t, "true", r.there(t, "app").Annotations["note"])
	r.engine.Resync()
	r.idle(t, "shop")
	r.silent(t, "the provider has left the same annotations out")
	require.Empty(t, r.events.Events, "told once")
}

// TestARefusalIsToldInFewWords covers a provider that answers with a very long error
// message.
func TestARefusalIsToldInFewWords(t *testing.T) {
	r := shopRig(t, local("app"))
	r.remote.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "app", errors.New(strings.Repeat("no ", 1<<20)))
	})
	r.start(t)
	require.Less(t, len(<-r.events.Events), 2000)
	k := r.engine.reflectors[0].(*kindLoop[*corev1.ConfigMap, *corev1.ConfigMap])
	st := k.storesOf("shop")
	st.mu.Lock()
	defer st.mu.Unlock()
	require.Less(t, len(st.told["app"].text), 2000, "nor is more remembered")
}

// TestRefused: what the provider refuses is known as long as it refuses it, whether it refuses the object or a
// change of it, and one event tells it, however often it is sent. A part that it leaves out is no refusal.
func TestRefused(t *testing.T) {
	r := shopRig(t, local("app", annotated("example.com/odd")))
	var refuses atomic.Bool
	refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuses.Load(), nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "app", errors.New("no"))
	}
	r.remote.PrependReactor("create", "configmaps", refuse)
	r.remote.PrependReactor("patch", "configmaps", refuse)
	r.admit = func(cm *corev1.ConfigMap) { delete(cm.Annotations, "example.com/odd") }
	refused := func() string { return offloadingv1beta1.RefusedText(r.engine.Refused()) }
	const app = `configmap shop/app: cluster milan refuses it: configmaps "app" is forbidden: no`

	refuses.Store(true)
	r.start(t)
	eventually(t, func() bool { return refused() == app }, "the object is refused")
	toldOnce := func() {
		r.requireEvent(t, "FailedReflection", "cluster milan refuses it")
		r.remote.ClearActions()
		eventually(t, func() bool { return len(writesOf(r.remote)) > 1 }, "tried again")
		require.Empty(t, r.events.Events, "told once")
	}
	toldOnce()
	refuses.Store(false)
	eventually(t, func() bool { return r.there(t, "app") != nil && refused() == "" }, "the object is there")
	r.requireEvent(t, "AnnotationsLeftOut")
	refuses.Store(true)
	r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "2" }))
	eventually(t, func() bool { return refused() == app }, "a change is refused")
	toldOnce()
	r.deleteHome(t, "app")
	eventually(t, func() bool { return refused() == "" }, "the object is gone")
}

// TestHosted requires that the pods that the provider has offloaded to this cluster are
// recognised.
func TestHosted(t *testing.T) {
	home := fake.NewClientset()
	kubetest.WatchFromList(home)
	h := newHosted(home, "milan")
	changed := make(chan string, 10)
	synced, err := h.watch(func(namespace string) { changed <- namespace })
	require.NoError(t, err)
	t.Cleanup(loop.Start(t.Context(), h.RunWithContext))
	require.Eventually(t, synced, time.Minute, time.Millisecond)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{
		"liqo.io/managed-by": "shadowpod", "offloading.liqo.io/origin": "milan"}}}
	kubetest.Create(t, home.CoreV1().Pods("shop"), pod)
	require.Equal(t, "shop", <-changed)
	ref := &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web", UID: "u1"}
	require.Eventually(t, func() bool { return h.has(ref) }, time.Minute, time.Millisecond)
	for name, other := range map[string]*corev1.ObjectReference{
		"none": nil, "of another kind": {Kind: "RemotePod", Namespace: "shop", Name: "web"}, "of another name": {Kind: "Pod", Namespace: "shop", Name: "db"},
		"of another namespace": {Kind: "Pod", Namespace: "bank", Name: "web"}, "its successor": {Kind: "Pod", Namespace: "shop", Name: "web", UID: "u2"},
	} {
		require.False(t, h.has(other), name)
	}
	// What came in between was missed: the watch broke.
	successor := pod.DeepCopy()
	successor.UID = "u2"
	kubetest.Update(t, home.CoreV1().Pods("shop"), successor)
	require.Equal(t, "shop", <-changed)
	require.False(t, h.has(ref))
	ref.UID = "u2"
	require.True(t, h.has(ref))
	successor.Labels["tier"] = "web"
	kubetest.Update(t, home.CoreV1().Pods("shop"), successor)
	require.NoError(t, home.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.Equal(t, "shop", <-changed)
	require.False(t, h.has(ref))
	require.Empty(t, changed, "nothing is told of a pod that stays")
}

// enqueued is a reflector that records the namespaces that were enqueued.
type enqueued struct {
	reflector
	endpoints bool
	of        []string
}

func (e *enqueued) hasEndpoints() bool       { return e.endpoints }
func (e *enqueued) enqueue(namespace string) { e.of = append(e.of, namespace) }

// TestEndpointsChanged: only kinds with endpoints are enqueued, in a namespace that is reflected.
func TestEndpointsChanged(t *testing.T) {
	slices, services := &enqueued{endpoints: true}, &enqueued{}
	e := &Engine{reflectors: []reflector{slices, services}}
	e.spaces = NewSpaces(func(context.Context, string, string) *space { return &space{} }, func(*space) {})
	e.spaces.set(t.Context(), map[string]string{"shop": "shop-rome"})
	e.EndpointsChanged("shop")
	e.EndpointsChanged("bank")
	require.Equal(t, []string{"shop"}, slices.of)
	require.Empty(t, services.of)
}
