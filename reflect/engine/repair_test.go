package engine

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

func TestSameChangeIsSpaced(t *testing.T) {
	hash := func(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }
	c, now := change{"u", hash("a"), hash("p")}, time.Unix(1e9, 0)
	var s sent
	for _, seconds := range []int{0, 0, 1, 2, 4, 8, 16, 32, 60, 60} {
		wait, ok := s.due(c, "1", now)
		require.True(t, ok)
		require.Equal(t, time.Duration(seconds)*time.Second, wait)
		now = now.Add(wait)
		s = s.again(c, now)
	}
	for name, wait := range map[string]func() (time.Duration, bool){
		"another wish":   func() (time.Duration, bool) { return s.due(change{"u", hash("b"), hash("p")}, "1", now) },
		"another object": func() (time.Duration, bool) { return s.due(change{"v", hash("a"), hash("p")}, "1", now) },
		"long after":     func() (time.Duration, bool) { return s.due(c, "1", now.Add(loop.LastRepair)) },
	} {
		d, ok := wait()
		require.True(t, ok, name)
		require.Zero(t, d, name)
	}
	another := change{"u", hash("a"), hash("q")}
	wait, ok := s.due(another, "1", now)
	require.True(t, ok)
	require.Equal(t, loop.LastRepair, wait, "of the same wish something else was undone")
	require.Zero(t, s.again(c, now.Add(time.Hour)).delay, "peace for long begins anew")
	s.answer = "7"
	_, ok = s.due(c, "7", now)
	require.False(t, ok, "accepted as it is")
	_, ok = s.due(another, "7", now)
	require.True(t, ok, "something else is to be changed in the answer")
	_, ok = s.due(c, "8", now)
	require.True(t, ok, "somebody has written since")
}

// TestAdmissionIsNotFought covers an admission webhook of the provider that overwrites a
// reflected value. The engine must write once, not with each sync.
func TestAdmissionIsNotFought(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole %t", whole), func(t *testing.T) {
			r := newRig()
			r.whole, r.admit = whole, func(next *corev1.ConfigMap) { next.Data["a"] = "theirs" }
			verb := "patch configmaps shop-rome/app"
			if whole {
				verb = "update configmaps shop-rome/app"
			}
			r.offload(t, "shop")
			r.add(r.remote.Tracker(), forged(local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "old" })))
			r.createHome(t, local("app"))
			r.start(t)
			r.requireWrites(t, verb)
			r.idle(t, "shop")
			r.silent(t, "it is as the provider wants it")
			for i := range 3 {
				r.updateThere(t, func(cm *corev1.ConfigMap) { metav1.SetMetaDataAnnotation(&cm.ObjectMeta, "theirs", fmt.Sprint(i)) })
				r.silent(t, "whatever others write beside")
			}
			r.updateThere(t, func(cm *corev1.ConfigMap) { cm.Data["a"] = "somebody else's" })
			r.requireWrites(t, verb)
			r.idle(t, "shop")
			r.silent(t, "it is as the provider wants it, again")
			r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["b"], cm.ResourceVersion = "2", "2" }))
			eventually(t, func() bool {
				have := r.there(t, "app").Data
				return have["b"] == "2" && have["a"] == "theirs"
			}, "a change is sent all the same")
		})
	}
}

// TestForeignWriterIsNotRaced covers one or two controllers of the provider that keep
// reverting a reflected object. The engine must back off.
func TestForeignWriterIsNotRaced(t *testing.T) {
	for name, keys := range map[string][]string{"one field": {"ca"}, "two in turn": {"ca", "proxy"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig()
			clock := r.stopClock()
			r.carry(t)
			r.idle(t, "shop")
			next := 0
			inject := func() int {
				if len(r.there(t, "app").Data) == 1 {
					r.updateThere(t, func(cm *corev1.ConfigMap) { cm.Data[keys[next%len(keys)]] = "bundle" })
					next++
				}
				return len(writesOf(r.remote))
			}
			eventually(t, func() bool { return inject() >= 2 }, "it is put right twice at once")
			waited := later(t, clock, func() bool { return inject() > 2 }, "and again")
			require.GreaterOrEqual(t, waited, loop.FirstRepair, "but later")
		})
	}
}

// TestChangesAtHomeAreNotSpaced changes the local object back and forth. Each change is a
// new desired state, so the engine must not back off.
func TestChangesAtHomeAreNotSpaced(t *testing.T) {
	for name, whole := range map[string]bool{"patches": false, "whole objects": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig()
			r.whole = whole
			r.stopClock() // nothing that waits would ever be written
			r.carry(t)
			r.idle(t, "shop")
			for i := range 10 {
				value := fmt.Sprint(i % 2)
				r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = value }))
				eventually(t, func() bool { return r.there(t, "app").Data["a"] == value }, "sent")
			}
		})
	}
}

// TestForeignChangeBesideOurs changes another field of the object while an update is
// sent. The API server's answer then has both changes, and the engine must still revert
// the foreign one.
func TestForeignChangeBesideOurs(t *testing.T) {
	r := newRig()
	r.carry(t)
	r.idle(t, "shop")
	var once sync.Once
	r.remote.PrependReactor("patch", "configmaps", func(a clienttesting.Action) (handled bool, _ runtime.Object, err error) {
		once.Do(func() {
			have := r.there(t, "app").DeepCopy()
			have.Data["theirs"] = "1"
			err = r.remote.Tracker().Update(a.GetResource(), have, "shop-rome")
		})
		return err != nil, nil, err
	})
	r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "2" }))
	eventually(t, func() bool {
		have := r.there(t, "app").Data
		return have["a"] == "2" && len(have) == 1
	}, "both are put right")
}

// TestForeignDeletionIsNotRaced covers a controller of the provider that keeps deleting a
// reflected object. The engine must back off.
func TestForeignDeletionIsNotRaced(t *testing.T) {
	r := shopRig(t, local("app"))
	clock := r.stopClock()
	r.start(t)
	prune := func() int {
		_ = r.remote.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "shop-rome", "app") // or there is none
		return len(writesOf(r.remote))
	}
	eventually(t, func() bool { return prune() >= 2 }, "it is made twice at once")
	waited := later(t, clock, func() bool { return prune() > 2 }, "and again")
	require.GreaterOrEqual(t, waited, loop.FirstRepair, "but later")
	waited = later(t, clock, func() bool { return prune() > 3 }, "and again")
	require.GreaterOrEqual(t, waited, 2*loop.FirstRepair, "and later again")

	prune()
	r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "2" }))
	eventually(t, func() bool { return len(writesOf(r.remote)) > 4 }, "a change is sent at once: the clock stands still")
}

// TestWantedAgainIsMadeAtOnce covers an object that is reflected, withdrawn and reflected
// again: its creation must not be delayed.
func TestWantedAgainIsMadeAtOnce(t *testing.T) {
	for name, forget := range map[string]func(*testing.T, *rig){
		"deleted at home": func(t *testing.T, r *rig) { r.deleteHome(t, "app") },
		"excluded": func(t *testing.T, r *rig) {
			r.updateHome(t, local("app", annotated(offloadingv1beta1.SkipReflectionAnnotation)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig()
			r.stopClock() // nothing that waits would ever be written
			r.carry(t)
			for range 8 {
				forget(t, r)
				eventually(t, func() bool { return r.there(t, "app") == nil }, "withdrawn")
				_ = r.home.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "shop", "app") // or it is gone
				r.createHome(t, local("app"))
				eventually(t, func() bool { return r.there(t, "app") != nil }, "made again")
			}
		})
	}
}

// TestImmutableByAdmissionIsLeft covers an admission webhook that makes every ConfigMap
// immutable, and may change its content. A ConfigMap may be replaced only if its local object changes.
func TestImmutableByAdmissionIsLeft(t *testing.T) {
	for name, content := range map[string]bool{"immutable": false, "its content as well": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig()
			r.admit = func(next *corev1.ConfigMap) {
				next.Immutable = ptr.To(true)
				if content {
					next.Data["ca"] = "bundle"
				}
			}
			stop := r.carry(t)
			r.idle(t, "shop")
			r.silent(t, "it is as the provider wants it")
			r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"], cm.ResourceVersion = "2", "2" }))
			r.requireWrites(t, "delete configmaps shop-rome/app", "create configmaps shop-rome/app")
			require.Equal(t, "2", r.there(t, "app").Data["a"])
			r.idle(t, "shop")
			r.silent(t, "and it is again")
			if content {
				return
			}
			stop()
			r.start(t)
			r.idle(t, "shop")
			r.silent(t, "who starts anew leaves it, too")
			r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"], cm.Labels["app"] = "2", "shop" }))
			r.requireWrites(t, "patch configmaps shop-rome/app")
			require.Equal(t, "shop", r.there(t, "app").Labels["app"])
		})
	}
}

// TestMakingImmutableIsNotRaced covers a client of the provider that keeps changing an
// object and making it immutable. The engine must back off.
func TestMakingImmutableIsNotRaced(t *testing.T) {
	r := newRig()
	clock := r.stopClock()
	r.carry(t)
	r.idle(t, "shop")
	freeze := func() int {
		if have := r.there(t, "app"); have != nil && have.Immutable == nil {
			have = have.DeepCopy()
			have.Data["a"], have.Immutable, have.ResourceVersion = "theirs", ptr.To(true), fmt.Sprint(r.serial.Add(1))
			_ = r.remote.Tracker().Update(corev1.SchemeGroupVersion.WithResource("configmaps"), have, "shop-rome", metav1.UpdateOptions{}) // or it is gone
		}
		return len(writesOf(r.remote)) // two each time
	}
	eventually(t, func() bool { return freeze() >= 4 }, "it is made anew twice at once")
	waited := later(t, clock, func() bool { return freeze() > 4 }, "and again")
	require.GreaterOrEqual(t, waited, loop.FirstRepair, "but later")
	eventually(t, func() bool { return r.there(t, "app") != nil }, "and it is made at once where it was deleted: the clock stands still")
}
