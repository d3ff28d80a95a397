package replication

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
)

type (
	ro = sharingv1alpha1.ResourceOffer
	rr = sharingv1alpha1.ResourceRequest
)

// given returns an offer of milan to rome, as it exists in milan.
func given(change ...func(*ro)) *ro {
	o := &ro{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "milan", UID: "there", Generation: 7},
		Spec: sharingv1alpha1.ResourceOfferSpec{ConsumerClusterID: "rome", ProviderClusterID: "milan", Approved: true,
			ResourceQuota: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"cpu": resource.MustParse("4")}}}}
	for _, c := range change {
		c(o)
	}
	return o
}

// taken returns its copy in rome.
func taken(change ...func(*ro)) *ro {
	o := given(change...)
	o.Namespace, o.UID, o.Generation = "liqo-tenant-milan", "here", 3
	o.Labels = map[string]string{offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: "milan", corev1beta1.RemoteClusterIDLabel: "milan"}
	return o
}

func inUse(o *ro) {
	o.Status = sharingv1alpha1.ResourceOfferStatus{ObservedGeneration: 3, Phase: sharingv1alpha1.OfferAccepted, VirtualNode: "milan"}
}

func letGo(o *ro) {
	o.Status = sharingv1alpha1.ResourceOfferStatus{ObservedGeneration: 3, Phase: sharingv1alpha1.OfferRefused}
}

func withdrawn(o *ro) {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	o.Spec.WithdrawalTimestamp = &at
}

// negotiation is the cluster rome, which requests capacity of milan.
type negotiation struct {
	t            *testing.T
	home, remote *fake.Clientset
	cfg          Config
	identity     error
	clk          *clocktesting.FakeClock
}

func newNegotiation(t *testing.T, home, remote []runtime.Object) *negotiation {
	n := &negotiation{t: t, home: fake.NewSimpleClientset(home...), remote: fake.NewSimpleClientset(remote...), clk: clocktesting.NewFakeClock(time.Now())}
	n.cfg = configOf(t, externalversions.NewSharedInformerFactory(n.home, 0), Config{ClusterID: "rome", Liqo: n.home})
	n.cfg.Clock = n.clk
	return n
}

func (n *negotiation) way() Peer {
	return Peer{Revision: "1", Liqo: n.remote, Identity: func(context.Context) error { return n.identity }}
}

// pull returns the replication of offers with running informers and without workers, so
// that the test calls sync itself.
func (n *negotiation) pull() *pull[*ro] {
	p := newPull(n.cfg, resourceOffers("rome", "milan"), n.cfg.Offers.Informer(), "milan", n.way())
	return started(n.t, p, &p.factory)
}

func offerIn(t *testing.T, c *fake.Clientset, namespace, name string) *ro {
	t.Helper()
	return kubetest.Find(t, c.SharingV1alpha1().ResourceOffers(namespace), name)
}

func (n *negotiation) here() *ro  { return offerIn(n.t, n.home, "liqo-tenant-milan", "milan") }
func (n *negotiation) there() *ro { return offerIn(n.t, n.remote, "liqo-tenant-rome", "milan") }

// TestPull runs one sync for each combination of states of the offer and its copy.
func TestPull(t *testing.T) {
	unapproved := func(o *ro) { o.Spec.Approved = false }
	more := func(o *ro) { o.Spec.ResourceQuota.Hard = corev1.ResourceList{"cpu": resource.MustParse("8")} }
	for name, tc := range map[string]struct {
		home, remote *ro
		identity     error
		want         func(*testing.T, *negotiation, error)
		homeWrites   int
		remoteWrites int
	}{
		"a new one": {nil, given(), nil, func(t *testing.T, n *negotiation, err error) {
			require.Equal(t, given().Spec, n.here().Spec)
			require.Equal(t, taken().Labels, n.here().Labels)
		}, 1, 0},
		"of an impostor":       {nil, given(), errors.New("another cluster"), func(t *testing.T, _ *negotiation, err error) { require.ErrorContains(t, err, "another cluster") }, 0, 0},
		"not approved":         {nil, given(unapproved), nil, nil, 0, 0},
		"not approved, copied": {taken(inUse), given(unapproved, more), nil, nil, 0, 0},
		"approval taken back": {taken(inUse), given(unapproved, withdrawn), nil, func(t *testing.T, n *negotiation, err error) {
			require.NotNil(t, n.here().Spec.WithdrawalTimestamp)
		}, 1, 0},
		"approval taken back, and let go": {taken(unapproved, withdrawn, letGo), given(unapproved, withdrawn, inUse), nil, func(t *testing.T, n *negotiation, err error) {
			require.Empty(t, n.there().Status.VirtualNode)
			require.NotNil(t, n.here(), "it goes when the peer knows")
		}, 0, 1},
		"approval taken back, and left": {taken(withdrawn), given(unapproved), nil, func(t *testing.T, n *negotiation, err error) { require.Nil(t, n.here()) }, 1, 0},
		"changed": {taken(inUse), given(more), nil, func(t *testing.T, n *negotiation, err error) {
			require.Equal(t, given(more).Spec, n.here().Spec)
			require.Equal(t, "milan", n.here().Status.VirtualNode)
		}, 1, 0},
		"answered": {taken(inUse), given(), nil, func(t *testing.T, n *negotiation, err error) {
			want := taken(inUse).Status
			want.ObservedGeneration = 7
			require.Equal(t, want, n.there().Status)
		}, 0, 1},
		"an impostor is not answered": {taken(inUse), given(), errors.New("another cluster"), func(t *testing.T, _ *negotiation, err error) { require.Error(t, err) }, 0, 0},
		"nothing to answer yet":       {taken(), given(), nil, nil, 0, 0},
		"answered already": {taken(inUse), given(inUse, func(o *ro) { o.Status.ObservedGeneration = 7 }), nil, func(t *testing.T, n *negotiation, err error) {
			require.NoError(t, err)
		}, 0, 0},
		"to somebody else": {nil, given(func(o *ro) { o.Spec.ConsumerClusterID = "oslo" }), nil, func(t *testing.T, n *negotiation, err error) {
			require.Equal(t, sharingv1alpha1.ReasonInvalidOffer, n.there().Status.Reason)
			require.Nil(t, n.here())
		}, 0, 1},
		"our own of that name":             {given(func(o *ro) { o.Namespace = "liqo-tenant-milan" }), given(more), nil, nil, 0, 0},
		"gone and unused":                  {taken(), nil, nil, func(t *testing.T, n *negotiation, err error) { require.Nil(t, n.here()) }, 1, 0},
		"gone, withdrawn and unused":       {taken(withdrawn), nil, nil, func(t *testing.T, n *negotiation, err error) { require.Nil(t, n.here()) }, 1, 0},
		"gone, withdrawn and in use":       {taken(withdrawn, inUse), nil, nil, nil, 0, 0},
		"gone at an impostor":              {taken(), nil, errors.New("another cluster"), func(t *testing.T, _ *negotiation, err error) { require.Error(t, err) }, 0, 0},
		"a copy that is being deleted":     {taken(func(o *ro) { o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x"} }), given(more), nil, nil, 0, 0},
		"the peer's copy of ours, by name": {nil, given(func(o *ro) { o.Labels = map[string]string{offloadingv1beta1.ReplicatedLabel: "true"} }), nil, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var home, remote []runtime.Object
			if tc.home != nil {
				home = append(home, tc.home)
			}
			if tc.remote != nil && own(tc.remote) { // the fake knows no selectors
				remote = append(remote, tc.remote)
			}
			n := newNegotiation(t, home, remote)
			n.identity = tc.identity
			err := n.pull().sync(t.Context(), milanKey)
			if tc.want == nil {
				require.NoError(t, err)
			} else {
				tc.want(t, n, err)
			}
			require.Equal(t, tc.homeWrites, writes(n.home))
			require.Equal(t, tc.remoteWrites, writes(n.remote))
		})
	}
}

// TestVanished deletes an offer in use in the peer, and creates it again or not.
func TestVanished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNegotiation(t, []runtime.Object{taken(inUse)}, nil)
		p := n.pull()
		require.ErrorContains(t, p.sync(t.Context(), milanKey), "again in")
		n.clk.Step(vanishedHold / 2)
		require.ErrorContains(t, p.sync(t.Context(), milanKey), "again in")
		require.Zero(t, writes(n.home))
		kubetest.Create(t, n.remote.SharingV1alpha1().ResourceOffers("liqo-tenant-rome"), given())
		synctest.Wait() // the cache has it
		require.NoError(t, p.sync(t.Context(), milanKey))
		require.NoError(t, n.remote.SharingV1alpha1().ResourceOffers("liqo-tenant-rome").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		synctest.Wait()
		require.ErrorContains(t, p.sync(t.Context(), milanKey), "again in", "the time begins anew")
		n.clk.Step(vanishedHold + time.Second)
		require.NoError(t, p.sync(t.Context(), milanKey))
		require.NotNil(t, n.here().Spec.WithdrawalTimestamp, "the local copy is released")
		require.Equal(t, "milan", n.here().Status.VirtualNode)
	})
}

// TestPeerRefusesToBeRead requires that a copy is kept if the peer rejects reading the
// offer.
func TestPeerRefusesToBeRead(t *testing.T) {
	n := newNegotiation(t, []runtime.Object{taken()}, nil)
	n.remote.PrependReactor("get", "resourceoffers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(sharingv1alpha1.Resource("resourceoffers"), "milan", errors.New("no"))
	})
	require.Error(t, n.pull().sync(t.Context(), milanKey))
	require.NotNil(t, n.here())
}

func request(change ...func(*rr)) *rr {
	r := &rr{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", UID: "home", Generation: 4},
		Spec: sharingv1alpha1.ResourceRequestSpec{ConsumerClusterID: "rome", ProviderClusterID: "milan"}}
	for _, c := range change {
		c(r)
	}
	return r
}

// TestRequestThereAndBack runs the replication of requests and offers in both directions.
func TestRequestThereAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNegotiation(t, []runtime.Object{request()}, nil)
		w := newWorld(t, nil, nil)
		n.cfg.Kube, n.cfg.Peers, n.cfg.Clock = w.core, to("milan", n.way()), clock.RealClock{}
		w.r = New(n.cfg)
		w.r.Changed("milan")
		w.run()
		copied := func() *rr {
			return kubetest.Find(t, n.remote.SharingV1alpha1().ResourceRequests("liqo-tenant-rome"), "milan")
		}
		w.settled()
		require.Equal(t, request().Spec, copied().Spec)
		require.Equal(t, "rome", copied().Labels[offloadingv1beta1.OriginIDLabel])
		r := copied()
		r.Status = sharingv1alpha1.ResourceRequestStatus{ObservedGeneration: r.Generation, Phase: sharingv1alpha1.RequestRefused, Reason: "SharingOff", Message: "nothing"}
		r.Generation = 1
		r.Status.ObservedGeneration = 1
		kubetest.Update(t, n.remote.SharingV1alpha1().ResourceRequests(r.Namespace), r)
		w.settled()
		have := kubetest.Get(t, n.home.SharingV1alpha1().ResourceRequests("liqo-tenant-milan"), "milan")
		require.Equal(t, sharingv1alpha1.ResourceRequestStatus{ObservedGeneration: 4, Phase: sharingv1alpha1.RequestRefused, Reason: "SharingOff", Message: "nothing"}, have.Status)
		kubetest.Create(t, n.remote.SharingV1alpha1().ResourceOffers("liqo-tenant-rome"), given())
		w.settled()
		require.NotNil(t, n.here(), "the offer is here")
		require.NoError(t, n.home.SharingV1alpha1().ResourceRequests("liqo-tenant-milan").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.settled()
		require.Nil(t, copied(), "the deletion follows")
		require.NoError(t, n.remote.SharingV1alpha1().ResourceOffers("liqo-tenant-rome").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.settled()
		require.Nil(t, n.here(), "the offer is gone")
	})
}

func TestPullRequest(t *testing.T) {
	answer := func(observed int64) sharingv1alpha1.ResourceRequestStatus {
		return sharingv1alpha1.ResourceRequestStatus{ObservedGeneration: observed, Phase: sharingv1alpha1.RequestOffered, Reason: "Offered", Message: "x"}
	}
	for name, tc := range map[string]struct {
		remote rr
		want   int64 // observed generation; 0: nothing is taken over
	}{
		"no answer yet":      {rr{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: request().Spec}, 0},
		"an answer":          {rr{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: request().Spec, Status: answer(2)}, 4},
		"to an older copy":   {rr{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Spec: request().Spec, Status: answer(2)}, 3},
		"to another request": {rr{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: answer(2)}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			home := request(func(r *rr) { r.Status.ObservedGeneration, r.Status.Phase = 3, sharingv1alpha1.RequestPending })
			before := home.Status
			pullRequest(&tc.remote, home)
			want := before
			if tc.want != 0 {
				want = answer(tc.want)
			}
			require.Equal(t, want, home.Status)
		})
	}
}
