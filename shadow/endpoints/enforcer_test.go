package endpoints

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

func invalid() error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "EndpointSlice"}, testName, field.ErrorList{field.Invalid(field.NewPath("ports"), "x", "too long")})
}

// forbid has the API server refuse what is written.
func (r *rig) forbid() {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, testName, nil)
	r.refuse["update"], r.refuse["create"] = forbidden, forbidden
}

// createAgain creates another shadow of the name.
func (r *rig) createAgain() {
	again := newShadow(func(s *offloadingv1beta1.ShadowEndpointSlice) { s.UID = "shadow-2" })
	again.ResourceVersion = r.next()
	require.NoError(r.t, r.liqod.Tracker().Add(again))
}

func TestCreatedOnceAndLeftAlone(t *testing.T) {
	r := newRig(t, newShadow())
	require.Equal(t, []string{"create"}, r.settle())
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())
	require.Empty(t, r.shadow().Status.Conditions)
	require.Empty(t, r.events.Events)
	require.Zero(t, r.reads, "nothing is asked for")

	r.restart()
	require.Empty(t, r.settle(), "a restart writes nothing")
	require.Empty(t, r.syncs(), "a duplicate event writes nothing")
}

func TestStaleCaches(t *testing.T) {
	r := newRig(t, newShadow())
	require.Equal(t, []string{"create"}, r.syncs())
	require.Empty(t, r.syncs(), "the cache does not show the EndpointSlice yet")

	// The cache lags behind another process's write; the API server's answer shows it.
	r.restart()
	require.NoError(t, r.e.cfg.Slices.GetIndexer().Replace(nil, ""))
	require.Equal(t, []string{"create"}, r.syncs())
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())

	// A stale read of the shadow does not write the condition a second time.
	r.refresh()
	r.changeShadow(endpointsOf(at("127.0.0.1")))
	r.refresh()
	require.Equal(t, []string{"update", "status"}, r.syncs())
	require.Empty(t, r.syncs())
}

func TestConflict(t *testing.T) {
	r := newRig(t, newShadow(endpointsOf(at("127.0.0.1"))))
	r.changeShadow(labelled("a", "b")) // the cache does not show this yet
	writes, err := r.sync()
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.Equal(t, []string{"create", "status"}, writes)
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Equal(t, offloadingv1beta1.ReasonEndpointsRefused, r.reason())
	require.Len(t, r.events.Events, 1)
}

func TestLostAnswer(t *testing.T) {
	r := newRig(t, newShadow())
	r.lost["create"] = true
	_, err := r.sync()
	require.ErrorIs(t, err, errLost)
	delete(r.lost, "create")
	require.Empty(t, r.settle(), "it is there")
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())
}

func TestDeletedWithItsShadow(t *testing.T) {
	shadow := newShadow()
	r := newRig(t, shadow, sliceOf(shadow))
	require.NoError(t, r.e.cfg.Shadows.GetIndexer().Replace(nil, ""))
	require.Empty(t, r.syncs(), "an empty cache deletes nothing")
	require.Equal(t, 2, r.reads)
	r.refresh()

	r.reads = 0
	r.deleteShadow()
	require.Equal(t, []string{"delete"}, r.settle())
	require.Nil(t, r.slice())
	require.Zero(t, r.reads, "its deletion was shown")
	require.Zero(t, r.e.memory.left.Len())
}

// TestMissedDeletionIsConfirmed: a shadow that is missing after a relist is confirmed as
// deleted by a live read.
func TestMissedDeletionIsConfirmed(t *testing.T) {
	shadow := newShadow()
	r := newRig(t, shadow, sliceOf(shadow))
	r.deleteShadow()
	require.NoError(t, r.e.cfg.Shadows.GetIndexer().Replace(nil, ""))
	r.e.shadowGone(shadow, true)
	require.Equal(t, []string{"delete"}, r.settle())
	require.Equal(t, 2, r.reads)
}

// TestPredecessorLeaves: the recorded deletion of an earlier shadow does not apply to a new
// shadow of that name.
func TestPredecessorLeaves(t *testing.T) {
	shadow := newShadow()
	r := newRig(t, shadow, sliceOf(shadow))
	r.deleteShadow()
	r.refresh()
	r.createAgain()
	require.Equal(t, []string{"delete", "create"}, r.settle())
	require.EqualValues(t, "shadow-2", madeFor(r.slice()))
	require.NoError(t, r.e.cfg.Shadows.GetIndexer().Replace(nil, ""))
	require.Empty(t, r.syncs(), "an empty cache deletes nothing")
}

func TestDeletionStopsHalfWay(t *testing.T) {
	shadow := newShadow()
	r := newRig(t, shadow, sliceOf(shadow, func(s *discoveryv1.EndpointSlice) { s.Finalizers = []string{"example.com/wait"} }))
	r.deleteShadow()
	require.Equal(t, []string{"delete"}, r.settle())
	r.restart()
	require.Empty(t, r.settle(), "it is being deleted already")

	// A new shadow appears while the EndpointSlice of the earlier one still exists.
	r.createAgain()
	require.Empty(t, r.settle())
	r.deleteSlice()
	require.Equal(t, []string{"create"}, r.settle())
	require.EqualValues(t, "shadow-2", madeFor(r.slice()))
}

func TestLostDeleteAnswer(t *testing.T) {
	shadow := newShadow()
	r := newRig(t, shadow, sliceOf(shadow))
	r.deleteShadow()
	r.refresh()
	r.lost["delete"] = true
	_, err := r.sync()
	require.ErrorIs(t, err, errLost)
	r.restart()
	require.Empty(t, r.settle())
	require.Nil(t, r.slice())
}

func TestRepaired(t *testing.T) {
	for name, tc := range map[string]struct {
		mod  sliceMod
		want []string
	}{
		"endpoints": {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.100.9.9" }, []string{"update"}},
		"record":    {func(s *discoveryv1.EndpointSlice) { delete(s.Annotations, AppliedAnnotation) }, []string{"update"}},
		// The informer's selector no longer matches it, so it is found by its name.
		"managed-by": {func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "me" }, []string{"create", "update"}},
		"theirs":     {func(s *discoveryv1.EndpointSlice) { s.Labels["theirs"] = "x" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newShadow())
			r.settle()
			want := r.slice()
			r.change(tc.mod)
			require.Equal(t, tc.want, r.settle())
			have := r.slice()
			have.ResourceVersion = want.ResourceVersion
			delete(have.Labels, "theirs")
			require.Equal(t, want, have)
		})
	}
	r := newRig(t, newShadow())
	r.settle()
	r.deleteSlice()
	require.Equal(t, []string{"create"}, r.settle(), "one that is deleted comes back")
}

func TestFollowsTheShadow(t *testing.T) {
	r := newRig(t, newShadow(labelled("old", "x")))
	r.settle()
	r.change(func(s *discoveryv1.EndpointSlice) { s.Labels["theirs"] = "y" })
	r.changeShadow(endpointsOf(at("10.100.1.6"), at("10.100.1.7")), func(s *offloadingv1beta1.ShadowEndpointSlice) { delete(s.Labels, "old") })
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"+10.100.1.6", "+10.100.1.7"}, r.ready())
	require.NotContains(t, r.slice().Labels, "old")
	require.Contains(t, r.slice().Labels, "theirs")

	r.changeShadow(func(s *offloadingv1beta1.ShadowEndpointSlice) {
		s.Spec.Template.AddressType, s.Spec.Template.Endpoints = discoveryv1.AddressTypeIPv6, []discoveryv1.Endpoint{at("2001:db8::1")}
	})
	require.Equal(t, []string{"delete", "create", "status"}, r.settle())
	require.Equal(t, offloadingv1beta1.ReasonEndpointsRefused, r.reason())
	r.changeShadow(func(s *offloadingv1beta1.ShadowEndpointSlice) {
		s.Spec.Template.AddressType = discoveryv1.AddressTypeFQDN
	})
	require.Equal(t, []string{"delete", "status"}, r.settle())
}

func TestCollisionAndItsEnd(t *testing.T) {
	theirs := sliceOf(newShadow(), foreign)
	r := newRig(t, newShadow(), theirs)
	before := r.slice()
	require.Equal(t, []string{"create", "status"}, r.settle())
	require.Equal(t, offloadingv1beta1.ReasonEndpointSliceCollision, r.reason())
	require.Len(t, r.events.Events, 1)
	require.Equal(t, before, r.slice(), "it is not changed")
	_, err := r.sync()
	require.Equal(t, loop.After(time.Second), err)

	r.clock.SetTime(testTime().Add(time.Second))
	require.Equal(t, []string{"create"}, r.settle(), "tried again, and said nothing new")
	r.deleteSlice()
	r.clock.SetTime(testTime().Add(time.Minute))
	require.Equal(t, []string{"create", "status"}, r.settle())
	require.Empty(t, r.shadow().Status.Conditions)
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())
}

func TestRefusedByTheAPIServer(t *testing.T) {
	r := newRig(t, newShadow())
	r.refuse["create"] = invalid()
	require.Equal(t, []string{"create", "status"}, r.settle())
	require.Equal(t, offloadingv1beta1.ReasonEndpointSliceRefused, r.reason())
	require.Empty(t, r.settle(), "not before a second has passed")
	r.clock.SetTime(testTime().Add(time.Second))
	require.Equal(t, []string{"create"}, r.settle())
	r.changeShadow(labelled("a", "b"))
	require.Equal(t, []string{"create", "status"}, r.settle(), "a new generation is tried at once")
	delete(r.refuse, "create")
	r.clock.SetTime(testTime().Add(time.Hour))
	require.Equal(t, []string{"create", "status"}, r.settle())
	require.Empty(t, r.reason())

	r.refuse["update"] = apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, testName, nil)
	r.changeShadow(endpointsOf(at("10.100.1.5"), at("10.100.1.6")))
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Equal(t, []string{"+10.100.1.5"}, r.ready(), "a policy may change its mind, and this endpoint is right")
	r.refuse["update"], r.refuse["create"] = invalid(), invalid()
	r.clock.SetTime(testTime().Add(2 * time.Hour))
	require.Equal(t, []string{"update", "delete", "status"}, r.settle(), "what is out of date for good does not stay")
	require.Nil(t, r.slice())
}

// TestARefusedChangeLeavesNoEndpointThatIsNotWanted: the address of an endpoint that the consumer
// has withdrawn may be another's by now, and another port may be another server's.
func TestARefusedChangeLeavesNoEndpointThatIsNotWanted(t *testing.T) {
	off := at("10.100.1.5")
	off.Conditions.Ready = new(false)
	for name, change := range map[string]func(*offloadingv1beta1.ShadowEndpointSlice){
		"replaced": endpointsOf(at("10.100.1.6")), "not ready": endpointsOf(off), "withdrawn": endpointsOf(),
		"another port": func(s *offloadingv1beta1.ShadowEndpointSlice) {
			s.Spec.Template.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(81))}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newShadow())
			require.Equal(t, []string{"create"}, r.settle())
			r.forbid()
			r.changeShadow(change)
			require.Equal(t, []string{"update", "delete", "status"}, r.settle())
			require.Nil(t, r.slice())
			clear(r.refuse)
			r.clock.SetTime(testTime().Add(time.Hour))
			require.Equal(t, []string{"create", "status"}, r.settle())
			require.NotNil(t, r.slice())
		})
	}
}

// TestABrokenWebhookTakesNoEndpointAway: an admission webhook of this cluster that does not answer
// has refused nothing. Without the slice there would be no endpoint at all until it answers.
func TestABrokenWebhookTakesNoEndpointAway(t *testing.T) {
	r := newRig(t, newShadow())
	require.Equal(t, []string{"create"}, r.settle())
	r.refuse["update"] = apierrors.NewInternalError(errors.New("failed calling webhook"))
	r.changeShadow(endpointsOf(at("10.100.1.5"), at("10.100.1.6")))
	require.Equal(t, []string{"update", "status"}, r.settle())
	r.changeShadow(endpointsOf(at("10.100.1.6")))
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Empty(t, r.settle(), "nor while it waits for the next try")
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())
	clear(r.refuse)
	r.clock.SetTime(testTime().Add(time.Hour))
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Equal(t, []string{"+10.100.1.6"}, r.ready())
}

// TestRefusedWhileTheConsumerIsDown: an EndpointSlice whose update is refused is deleted,
// so that no endpoint of an unwell consumer stays ready.
func TestRefusedWhileTheConsumerIsDown(t *testing.T) {
	t.Run("the change that turns them off", func(t *testing.T) {
		r := newRig(t, newShadow())
		require.Equal(t, []string{"create"}, r.settle())
		r.forbid()
		r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, ago(0)))
		require.Equal(t, []string{"update", "delete", "status"}, r.settle())
		require.Nil(t, r.slice())
	})
	t.Run("an earlier change", func(t *testing.T) {
		r := newRig(t, newShadow())
		require.Equal(t, []string{"create"}, r.settle())
		r.forbid()
		r.changeShadow(endpointsOf(at("10.100.1.5"), at("10.100.1.6")))
		require.Equal(t, []string{"update", "status"}, r.settle())
		require.Equal(t, []string{"+10.100.1.5"}, r.ready())
		r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, ago(0)))
		require.Equal(t, []string{"delete"}, r.settle(), "not when the next try is due, but at once")
		require.Nil(t, r.slice())
		delete(r.refuse, "create")
		r.clock.SetTime(testTime().Add(time.Hour))
		require.Equal(t, []string{"create", "status"}, r.settle())
		require.Equal(t, []string{"-10.100.1.5", "-10.100.1.6"}, r.ready())
	})
	t.Run("of a pod that runs here", func(t *testing.T) {
		r := newRig(t, newShadow(endpointsOf(ownedBy("milan", "10.200.1.9"))))
		r.pod("10.200.1.9")
		require.Equal(t, []string{"create"}, r.settle())
		r.forbid()
		r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, ago(0)))
		require.Equal(t, []string{"update", "status"}, r.settle())
		require.Equal(t, []string{"+10.200.1.9"}, r.ready(), "it does not end with the consumer")
		r.pod("10.200.1.9", func(p *corev1.Pod) { p.Status.Conditions = nil })
		require.Contains(t, r.settle(), "delete", "nor is it ready when the pod is not")
		require.Nil(t, r.slice())
	})
}

func TestAdmissionIsNotFought(t *testing.T) {
	r := newRig(t, newShadow(endpointsOf(discoveryv1.Endpoint{Addresses: []string{"10.100.1.5"}, Hostname: new("db-0")})))
	r.admit = func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			s.Endpoints[i].Hostname = nil
		}
	}
	require.Equal(t, []string{"create"}, r.settle())
	r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, ago(0)))
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"-10.100.1.5"}, r.ready())
	r.change(func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
	require.Equal(t, []string{"update"}, r.settle(), "somebody's edit is undone all the same")
	r.restart()
	require.Equal(t, []string{"update"}, r.settle(), "a new process has to find out")
}

func TestReadyFollowsTheConsumer(t *testing.T) {
	r := newRig(t, newShadow(endpointsOf(at("10.100.1.5"), discoveryv1.Endpoint{
		Addresses: []string{"10.100.1.6"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)},
	})))
	r.settle()
	require.Equal(t, []string{"+10.100.1.5", "-10.100.1.6"}, r.ready())
	server := func(s metav1.ConditionStatus, since time.Duration) {
		r.peer(check(corev1beta1.ConditionAPIServer, s, metav1.NewTime(r.clock.Now().Add(-since))))
	}
	server(metav1.ConditionFalse, 0)
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"-10.100.1.5", "-10.100.1.6"}, r.ready())
	server(metav1.ConditionUnknown, 0)
	require.Empty(t, r.settle(), "unknown is not up")
	server(metav1.ConditionTrue, 0)
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"+10.100.1.5", "-10.100.1.6"}, r.ready())

	server(metav1.ConditionUnknown, 5*time.Second)
	_, err := r.sync()
	require.Equal(t, loop.After(25*time.Second), err, "unknown is not down")
	r.restart()
	require.Empty(t, r.settle(), "nor is it after a restart")
	r.changeShadow(endpointsOf(at("10.100.1.7")))
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"+10.100.1.7"}, r.ready(), "what comes meanwhile is as the rest")
	r.clock.SetTime(testTime().Add(26 * time.Second))
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"-10.100.1.7"}, r.ready())
	require.Empty(t, r.reason())
}

// TestNoControllerForLong: endpoints that nobody could turn off are not turned off just
// because somebody is back.
func TestNoControllerForLong(t *testing.T) {
	r := newRig(t, newShadow())
	r.settle()
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())
	r.peer(func(fc *corev1beta1.ForeignCluster) {
		fc.Status.Conditions = append(fc.Status.Conditions, metav1.Condition{Type: corev1beta1.ConditionAPIServer, Status: metav1.ConditionUnknown,
			Reason: corev1beta1.ReasonNoController, LastTransitionTime: ago(time.Hour)})
	})
	r.restart()
	_, err := r.sync()
	require.Equal(t, loop.After(testGrace), err)
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())
	r.clock.SetTime(testTime().Add(testGrace))
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"-10.100.1.5"}, r.ready())
}

// TestUnknownSinceTheFuture: a transition time written by a fast clock does not prolong the
// grace.
func TestUnknownSinceTheFuture(t *testing.T) {
	unknown := func(since time.Duration) clusterMod {
		return check(corev1beta1.ConditionAPIServer, metav1.ConditionUnknown, ago(-since))
	}
	r := newRig(t, newShadow())
	r.settle()
	r.peer(unknown(time.Hour))
	_, err := r.sync()
	require.Equal(t, loop.After(testGrace), err)
	r.clock.SetTime(testTime().Add(20 * time.Second))
	_, err = r.sync()
	require.Equal(t, loop.After(10*time.Second), err)
	r.clock.SetTime(testTime().Add(31 * time.Second))
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"-10.100.1.5"}, r.ready())

	r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionTrue, ago(0)))
	require.Equal(t, []string{"update"}, r.settle())
	require.Empty(t, r.e.memory.unknown)
	r.peer(unknown(2 * time.Hour))
	require.Empty(t, r.settle(), "another time it is unknown, another grace")
	r.peer(unknown(3 * time.Hour))
	r.clock.SetTime(testTime().Add(62 * time.Second))
	_, err = r.sync()
	require.Equal(t, loop.After(testGrace), err, "nor was it seen to be known in between")
	r.noPeer()
	r.settle()
	require.Empty(t, r.e.memory.unknown)
}

// TestMadeWhileUnknown: an EndpointSlice created while the consumer's health is Unknown
// gets the readiness of the peer's other EndpointSlices.
func TestMadeWhileUnknown(t *testing.T) {
	for _, up := range []bool{true, false} {
		t.Run(fmt.Sprintf("was well: %t", up), func(t *testing.T) {
			r := newRig(t, newShadow())
			last, ready := metav1.ConditionFalse, "-10.100.1.5"
			if up {
				last, ready = metav1.ConditionTrue, "+10.100.1.5"
			}
			r.peer(check(corev1beta1.ConditionAPIServer, last, metav1.NewTime(r.clock.Now())))
			r.settle()
			r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionUnknown, metav1.NewTime(r.clock.Now())))
			require.NoError(t, r.core.Tracker().Delete(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), testNamespace, testName))
			require.Equal(t, []string{"create"}, r.settle())
			require.Equal(t, []string{ready}, r.ready())
			r.restart()
			require.Equal(t, up, r.e.lastWell(peerOf(twin()), nil), "a new process goes by the others")
		})
	}
}

func TestForeignClusterComesAndGoes(t *testing.T) {
	r := newRig(t, newShadow())
	r.settle()
	r.noPeer()
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Empty(t, r.slice().Endpoints)
	require.Equal(t, offloadingv1beta1.ReasonEndpointsRefused, r.reason())
	r.peer(func(fc *corev1beta1.ForeignCluster) { fc.Spec.AddressRanges = nil })
	require.Equal(t, []string{"status"}, r.settle())
	require.Contains(t, r.shadow().Status.Conditions[0].Message, "is not in spec.addressRanges of ForeignCluster rome (none)")
	r.peer()
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())
	require.Empty(t, r.reason())
}

// TestAbsenceIsConfirmed: a ForeignCluster or a namespace that is absent from a cache costs no
// endpoint while the API server has it, or does not answer.
func TestAbsenceIsConfirmed(t *testing.T) {
	r := newRig(t, newShadow())
	require.NoError(t, r.liqod.Tracker().Add(peer()))
	require.NoError(t, r.core.Tracker().Add(twin()))
	r.settle()
	stays := func() {
		t.Helper()
		require.Equal(t, loop.After(store.CatchUp), r.e.sync(t.Context(), r.key()))
		require.Equal(t, []string{"+10.100.1.5"}, r.ready())
	}
	r.noPeer()
	stays()
	away := true
	r.liqod.PrependReactor("get", "foreignclusters", func(clienttesting.Action) (bool, runtime.Object, error) { return away, nil, errors.New("away") })
	require.ErrorContains(t, r.e.sync(t.Context(), r.key()), "confirming that ForeignCluster rome is gone: away")
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())
	away = false
	r.peer()
	require.NoError(t, r.e.cfg.Namespaces.GetIndexer().Delete(twin()))
	r.clock.SetTime(r.clock.Now().Add(time.Hour))
	stays()
}

func TestNodeAddresses(t *testing.T) {
	r := newRig(t, newShadow())
	r.settle()
	node := r.node("milan-1", "10.100.1.5", "fd00::1")
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Empty(t, r.slice().Endpoints)
	require.Contains(t, r.shadow().Status.Conditions[0].Message, "10.100.1.5 is the address of a node of this cluster")
	require.NoError(t, r.e.cfg.Nodes.GetIndexer().Delete(node))
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Equal(t, []string{"+10.100.1.5"}, r.ready())
}

// TestOwnPodComesAndGoes: an endpoint of a pod in this cluster follows that pod, whatever
// the consumer writes.
func TestOwnPodComesAndGoes(t *testing.T) {
	r := newRig(t, newShadow(endpointsOf(ownedBy("milan", "10.200.1.9"))))
	r.peer(func(fc *corev1beta1.ForeignCluster) { fc.Spec.AddressRanges = nil })
	require.Equal(t, []string{"create", "status"}, r.settle())
	require.Empty(t, r.slice().Endpoints)
	require.Equal(t, offloadingv1beta1.ReasonEndpointsRefused, r.reason())

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "leader", Labels: map[string]string{offloadingv1beta1.OriginLabel: origin}}}
	step := func(change func(*corev1.Pod)) {
		t.Helper()
		pod = pod.DeepCopy()
		change(pod)
		require.NoError(t, r.e.cfg.Pods.GetIndexer().Add(pod))
	}
	step(func(p *corev1.Pod) { p.Spec.NodeName = "milan-sim-1" })
	require.Empty(t, r.settle())
	step(func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.200.1.9"}} })
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Equal(t, []string{"+10.200.1.9"}, r.ready())
	r.restart()
	require.Empty(t, r.settle())
	ready := func(s corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: s}} }
	}
	step(ready(corev1.ConditionFalse))
	require.Empty(t, r.settle(), "the consumer knows that, and says what follows")
	step(ready(corev1.ConditionTrue))
	r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, metav1.NewTime(r.clock.Now())))
	r.settle()
	require.Equal(t, []string{"+10.200.1.9"}, r.ready(), "it runs on without the consumer")
	step(ready(corev1.ConditionFalse))
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"-10.200.1.9"}, r.ready(), "while nobody else follows its health")
	step(ready(corev1.ConditionTrue))
	require.Equal(t, []string{"update"}, r.settle())
	require.Equal(t, []string{"+10.200.1.9"}, r.ready())
	step(func(p *corev1.Pod) { p.Labels[offloadingv1beta1.OriginLabel] = "paris" })
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Empty(t, r.ready(), "another consumer's")
	step(func(p *corev1.Pod) { p.Labels[offloadingv1beta1.OriginLabel] = origin })
	require.Equal(t, []string{"update", "status"}, r.settle())
	step(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	require.Equal(t, []string{"update", "status"}, r.settle())
	require.Empty(t, r.ready(), "its address may be another pod's")
}

func TestNamespaceGoes(t *testing.T) {
	r := newRig(t, newShadow())
	r.refuse["create"] = &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: 403, Reason: metav1.StatusReasonForbidden, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
	}}
	require.Equal(t, []string{"create"}, r.syncs(), "nothing is said of what goes anyway")
}

// TestOwnPodTakesOverAnAddress: if a terminating and a running pod have the same address,
// the running pod counts.
func TestOwnPodTakesOverAnAddress(t *testing.T) {
	r := newRig(t, newShadow(endpointsOf(ownedBy("milan", "10.200.1.9"))))
	for _, name := range []string{"a", "b", "c"} {
		r.pod("10.200.1.9", func(p *corev1.Pod) {
			p.Name = name
			if name != "b" {
				p.DeletionTimestamp = new(ago(0))
			}
		})
	}
	require.Equal(t, []string{"create"}, r.settle())
	require.Equal(t, []string{"+10.200.1.9"}, r.ready())
}

// TestNobodysPodsAreTakenForOwn: a UID that a consumer makes up leads to none but its own pods.
func TestNobodysPodsAreTakenForOwn(t *testing.T) {
	named := func(uid string) discoveryv1.Endpoint {
		e := at("10.200.1.9")
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "x", UID: types.UID(uid)}
		return e
	}
	of := func(key, value string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels[key] = value } }
	uid := of(offloadingv1beta1.LocalPodUIDLabel, "u")
	for name, tc := range map[string]struct {
		uid  string
		pods []func(*corev1.Pod)
		want []string
	}{
		"its own":              {"u", []func(*corev1.Pod){uid}, []string{"+10.200.1.20"}},
		"another consumer's":   {"u", []func(*corev1.Pod){uid, of(offloadingv1beta1.OriginLabel, "paris")}, nil},
		"another namespace's":  {"u", []func(*corev1.Pod){uid, func(p *corev1.Pod) { p.Namespace = "other" }}, nil},
		"on the host network":  {"u", []func(*corev1.Pod){uid, func(p *corev1.Pod) { p.Spec.HostNetwork = true }}, nil},
		"an address as a UID":  {"10.200.1.20", nil, nil},
		"without an address":   {"u", []func(*corev1.Pod){uid, func(p *corev1.Pod) { p.Status.PodIPs = nil }}, nil},
		"without any such pod": {"v", []func(*corev1.Pod){uid}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newShadow(endpointsOf(named(tc.uid))))
			r.pod("10.200.1.20", tc.pods...)
			r.settle()
			require.Equal(t, tc.want, r.ready())
			require.Equal(t, tc.want == nil, r.reason() == offloadingv1beta1.ReasonEndpointsRefused)
		})
	}
}

func TestSuccessorTakesOver(t *testing.T) {
	r := newRig(t, newShadow(), sliceOf(newShadow(), predecessors))
	require.Equal(t, []string{"delete", "create"}, r.settle())
	require.EqualValues(t, "shadow-1", madeFor(r.slice()))
}
