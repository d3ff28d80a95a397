package offer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/reasons"
)

// rig is one cluster with one running loop, in a synctest bubble.
type rig struct {
	t      *testing.T
	core   *corefake.Clientset
	liqo   *fake.Clientset
	inCore coreinformers.SharedInformerFactory
	inLiqo externalversions.SharedInformerFactory
	log    *zap.Logger
	secret string // set before run
}

func newRig(t *testing.T, objects ...runtime.Object) *rig {
	t.Helper()
	var core, liqo []runtime.Object
	for _, o := range objects {
		switch o.(type) {
		case *corev1.Node, *corev1.Pod:
			core = append(core, o)
		default:
			liqo = append(liqo, o)
		}
	}
	r := &rig{t: t, core: corefake.NewClientset(core...), liqo: fake.NewSimpleClientset(liqo...), log: zaptest.NewLogger(t), secret: "milan"}
	r.inCore, r.inLiqo = coreinformers.NewSharedInformerFactory(r.core, 0), externalversions.NewSharedInformerFactory(r.liqo, 0)
	return r
}

// run starts the informers and a loop. They stop at the end of the test, or when stop is
// called.
func (r *rig) run(loop func(context.Context) error) (stop func()) {
	r.inCore.Start(r.t.Context().Done())
	r.inLiqo.Start(r.t.Context().Done())
	return kubetest.Run(r.t, loop)
}

func (r *rig) base(id string, log *zap.Logger) link.Base {
	return link.Base{Env: loop.Env{Clock: clock.RealClock{}, Log: log}, ClusterID: id, Kube: r.core, Liqo: r.liqo,
		ForeignClusters: r.inLiqo.Core().V1beta1().ForeignClusters(), Namespaces: r.inCore.Core().V1().Namespaces()}
}

func (r *rig) consumer(mode Mode) func(context.Context) error {
	r.t.Helper()
	c := r.consumerOf(mode)
	return func(ctx context.Context) error { return c.Run(ctx, 2) }
}

func (r *rig) consumerOf(mode Mode) *Consumer {
	r.t.Helper()
	return NewConsumer(ConsumerConfig{Base: r.base("rome", r.log),
		VirtualNodes: r.inLiqo.Offloading().V1beta1().VirtualNodes(), Requests: r.inLiqo.Sharing().V1alpha1().ResourceRequests(), Offers: r.inLiqo.Sharing().V1alpha1().ResourceOffers(),
		Credentials: func(string) (string, bool) { return r.secret, r.secret != "" },
		LeftOut:     func(provider, key string) bool { return provider == "milan" && key == "karpenter.sh/nodepool" },
		Outgoing:    link.Policy{Mode: link.PolicyNever}, Accept: mode})
}

func (r *rig) provider(p Policy) *Provider { return r.providerOf("milan", p) }

func (r *rig) providerOf(id string, p Policy) *Provider {
	r.t.Helper()
	out := NewProvider(ProviderConfig{Base: r.base(id, zaptest.NewLogger(r.t)),
		Requests: r.inLiqo.Sharing().V1alpha1().ResourceRequests(), Offers: r.inLiqo.Sharing().V1alpha1().ResourceOffers(), Quotas: r.inLiqo.Offloading().V1beta1().Quotas(),
		Nodes: r.inCore.Core().V1().Nodes(), StorageClasses: r.inCore.Storage().V1().StorageClasses(), IngressClasses: r.inCore.Networking().V1().IngressClasses(),
		Policy: p, Incoming: link.Policy{Mode: link.PolicyAlways}})
	return out
}

// settled lets the loop work for longer than it delays a key, but for missedHold, and returns the
// number of writes so far.
func (r *rig) settled() (writes int) { return kubetest.Settled(5*time.Second, r.liqo) }

func (r *rig) request(namespace string) *sharingv1alpha1.ResourceRequest {
	return kubetest.Find(r.t, r.liqo.SharingV1alpha1().ResourceRequests(namespace), "milan")
}

func (r *rig) offer(namespace string) *sharingv1alpha1.ResourceOffer {
	return kubetest.Find(r.t, r.liqo.SharingV1alpha1().ResourceOffers(namespace), "milan")
}

func (r *rig) virtualNode() *offloadingv1beta1.VirtualNode {
	return kubetest.Find(r.t, r.liqo.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), "milan")
}

func (r *rig) quota(namespace string) *offloadingv1beta1.Quota {
	return kubetest.Find(r.t, r.liqo.OffloadingV1beta1().Quotas(namespace), "milan")
}

func (r *rig) changeCluster(name string, change func(*corev1beta1.ForeignCluster)) {
	r.t.Helper()
	fc := kubetest.Get(r.t, r.liqo.CoreV1beta1().ForeignClusters(), name)
	change(fc)
	kubetest.Update(r.t, r.liqo.CoreV1beta1().ForeignClusters(), fc)
}

func cluster(id string, change ...func(*corev1beta1.ForeignCluster)) *corev1beta1.ForeignCluster {
	fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: id}}
	for _, c := range change {
		c(fc)
	}
	return fc
}

func uses(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringYes }

// asked returns a consumer's request, as replicated to milan.
func asked(consumer string, amounts list) *sharingv1alpha1.ResourceRequest {
	return &sharingv1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + consumer, Name: "milan", UID: "request", Generation: 1,
		Labels: map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}},
		Spec: sharingv1alpha1.ResourceRequestSpec{ConsumerClusterID: consumer, ProviderClusterID: "milan", CapacityRequest: corev1beta1.CapacityRequest{Resources: amounts}}}
}

func realNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: of3("10", "10Gi", "100"), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	for _, f := range change {
		f(n)
	}
	return n
}

func ownPod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: "a",
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list{"cpu": q(cpu)}}}}}}
}

func TestConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cluster("milan"))
		r.run(r.consumer(Automatic))
		require.Zero(t, r.settled(), "nobody wants anything")
		r.changeCluster("milan", func(fc *corev1beta1.ForeignCluster) { uses(fc); fc.Spec.Request.Resources = list{"cpu": q("5")} })
		r.settled()
		require.Equal(t, "5", r.request("liqo-tenant-milan").Spec.Resources.Cpu().String())
		labelled := copied()
		labelled.Spec.Labels = map[string]string{"region": "north", "karpenter.sh/nodepool": "default"}
		kubetest.Create(t, r.liqo.SharingV1alpha1().ResourceOffers("liqo-tenant-milan"), labelled)
		r.settled()
		require.Equal(t, sharingv1alpha1.OfferAccepted, r.offer("liqo-tenant-milan").Status.Phase)
		require.Equal(t, "milan", r.virtualNode().Spec.KubeconfigSecretRef.Name)
		require.Equal(t, map[string]string{"region": "north"}, r.virtualNode().Spec.Labels, "labels that command controllers are left out")

		r.changeCluster("milan", func(fc *corev1beta1.ForeignCluster) { fc.Spec.Request.Resources = list{"cpu": q("7")} })
		r.settled()
		require.Equal(t, "7", r.request("liqo-tenant-milan").Spec.Resources.Cpu().String())
		o := r.offer("liqo-tenant-milan")
		o.Spec.ResourceQuota.Hard = of3("7", "5Gi", "50")
		kubetest.Update(t, r.liqo.SharingV1alpha1().ResourceOffers(o.Namespace), o)
		r.settled()
		require.Equal(t, "7", r.virtualNode().Spec.ResourceQuota.Hard.Cpu().String())

		r.changeCluster("milan", func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringNo })
		r.settled()
		require.Nil(t, r.virtualNode())
		require.Nil(t, r.request("liqo-tenant-milan"))
		status := r.offer("liqo-tenant-milan").Status
		require.Equal(t, sharingv1alpha1.OfferRefused, status.Phase)
		require.Equal(t, reasons.NotWanted, status.Reason)
		require.Empty(t, status.VirtualNode)
	})
}

func TestConsumerKeepsWhatItHas(t *testing.T) {
	hand := virtualNode(nil, copied(), "milan")
	delete(hand.Labels, offloadingv1beta1.ManagedByLabel)
	mine := virtualNode(nil, copied(), "milan")
	for name, objects := range map[string][]runtime.Object{
		"a node made by hand, not wanted":              {cluster("milan"), hand},
		"a node made by hand, without a record":        {hand},
		"no credentials":                               {cluster("milan", uses), mine},
		"an offer that somebody has deleted here":      {cluster("milan", uses), mine},
		"this cluster's own offer of the same name":    {cluster("milan"), copied(func(o *sharingv1alpha1.ResourceOffer) { o.Labels = nil })},
		"a peer's request that is named as its own id": {cluster("milan"), asked("milan", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, objects...)
				r.secret = ""
				r.run(r.consumer(Automatic))
				require.Zero(t, r.settled())
			})
		})
	}
}

// TestConsumerBehind: the request exists, and the cache has not heard of it. It is found, and
// corrected, without an error that a person reads.
func TestConsumerBehind(t *testing.T) {
	own := asked("milan", nil)
	own.Labels = map[string]string{corev1beta1.RemoteClusterIDLabel: "milan"}
	own.Spec = sharingv1alpha1.ResourceRequestSpec{ConsumerClusterID: "rome", ProviderClusterID: "milan"}
	for name, row := range map[string]struct {
		request *sharingv1alpha1.ResourceRequest
		asked   string // of CPU in the end
		errors  bool
	}{
		"its own":   {request: own, asked: "5"},
		"of a peer": {request: asked("milan", list{"cpu": q("3")}), asked: "3", errors: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs, records := observer.New(zapcore.WarnLevel)
				r := newRig(t, cluster("milan", uses, func(fc *corev1beta1.ForeignCluster) { fc.Spec.Request.Resources = list{"cpu": q("5")} }))
				r.log = zap.New(logs)
				var once sync.Once
				r.liqo.PrependReactor("create", "resourcerequests", func(k8stesting.Action) (bool, runtime.Object, error) {
					once.Do(func() { require.NoError(t, r.liqo.Tracker().Add(row.request)) })
					return false, nil, nil
				})
				r.run(r.consumer(Automatic))
				r.settled()
				require.Equal(t, row.asked, r.request("liqo-tenant-milan").Spec.Resources.Cpu().String())
				require.Equal(t, row.errors, records.Len() > 0, "%v", records.All())
			})
		})
	}
}

func TestConsumerExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cluster("milan", uses), copied(func(o *sharingv1alpha1.ResourceOffer) { o.Spec.ExpirationTime = seconds(time.Now().Add(time.Minute)) }))
		r.run(r.consumer(Automatic))
		r.settled()
		require.NotNil(t, r.virtualNode())
		time.Sleep(time.Minute)
		r.settled()
		require.Nil(t, r.virtualNode(), "given back")
		require.Equal(t, reasons.Expired, r.offer("liqo-tenant-milan").Status.Reason)
	})
}

func TestProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, realNode("a"), ownPod("one", "2"), cluster("rome"), cluster("oslo"))
		stop := r.run(r.provider(automatic()).Run)
		require.Zero(t, r.settled())
		for _, a := range r.core.Actions() {
			require.NotEqual(t, "pods", a.GetResource().Resource, "nobody asks: pods are not watched")
		}
		kubetest.Create(t, r.liqo.SharingV1alpha1().ResourceRequests("liqo-tenant-rome"), asked("rome", of3("5", "5Gi", "50")))
		r.settled()
		require.Equal(t, sharingv1alpha1.RequestOffered, r.request("liqo-tenant-rome").Status.Phase)
		require.Equal(t, "5", r.offer("liqo-tenant-rome").Spec.ResourceQuota.Hard.Cpu().String())
		require.Equal(t, r.offer("liqo-tenant-rome").Spec.ResourceQuota.Hard, r.quota("liqo-tenant-rome").Spec.Resources)
		var made []string // ignore concurrent reads
		for _, a := range r.liqo.Actions() {
			if a.GetVerb() == "create" && a.GetResource().Resource != "resourcerequests" {
				made = append(made, a.GetResource().Resource)
			}
		}
		require.Equal(t, []string{"quotas", "resourceoffers"}, made, "it is bounded before it is offered")

		// The next consumer gets the rest.
		kubetest.Create(t, r.liqo.SharingV1alpha1().ResourceRequests("liqo-tenant-oslo"), asked("oslo", nil))
		before := r.settled()
		require.Equal(t, "3", r.offer("liqo-tenant-oslo").Spec.ResourceQuota.Hard.Cpu().String())
		stop()
		r.run(r.provider(automatic()).Run) // a second term of leadership
		require.Equal(t, before, r.settled())

		// The cluster's own pods take capacity that was offered.
		kubetest.Create(t, r.core.CoreV1().Pods("default"), ownPod("two", "2"))
		r.settled()
		sum := list{}
		add(sum, r.offer("liqo-tenant-oslo").Spec.ResourceQuota.Hard)
		add(sum, r.offer("liqo-tenant-rome").Spec.ResourceQuota.Hard)
		require.Equal(t, "6", sum.Cpu().String(), "shrunk to what is left")
	})
}

// TestNodesOfWhatHasEnded: a Quota of zero has no node selector if another Quota limits the
// consumer, and keeps its own if it is the last one.
func TestNodesOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	ended := standing3("5", "5Gi", "50")
	ended.Name, ended.Spec.WithdrawalTimestamp = "milan-2", seconds(time.Unix(1000, 0))
	old := map[string]string{"pool": "a"}
	have := quota(nil, "liqo-tenant-rome", "milan-2", offloadingv1beta1.QuotaSpec{Resources: ended.Spec.ResourceQuota.Hard, NodeSelector: old})
	have.Spec.Cordoned = ptr.To(true)
	w := world{offers: []*sharingv1alpha1.ResourceOffer{ended}, quotas: []*offloadingv1beta1.Quota{have}}
	changes := quotaChanges("rome", w, Decision{}, offloadingv1beta1.EnforcementNone)
	require.Len(t, changes, 1)
	require.Equal(t, old, changes[0].want.Spec.NodeSelector)
	require.True(t, *changes[0].want.Spec.Cordoned, "that is for people to say")

	live := standing3("5", "5Gi", "50").Spec
	live.NodeSelector = map[string]string{"pool": "b"}
	changes = quotaChanges("rome", w, Decision{Offers: map[string]sharingv1alpha1.ResourceOfferSpec{"milan": live}}, offloadingv1beta1.EnforcementNone)
	require.Len(t, changes, 2)
	require.Equal(t, live.NodeSelector, changes[0].want.Spec.NodeSelector)
	require.Empty(t, changes[1].want.Spec.NodeSelector)
	require.True(t, changes[1].want.Spec.Resources.Cpu().IsZero())
}

// TestProviderWithdraws: the Quota of an offer has the offer's node selector, and enforces it, also
// when the offer has ended: nothing is ever unbounded.
func TestProviderWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := map[string]string{"pool": "shared", "arch": "arm64"}
		used := standing3("5", "5Gi", "50")
		used.Spec.NodeSelector = both
		used.Status = sharingv1alpha1.ResourceOfferStatus{Phase: sharingv1alpha1.OfferAccepted, VirtualNode: "milan"}
		bound := quota(nil, "liqo-tenant-rome", "milan", offloadingv1beta1.QuotaSpec{Resources: used.Spec.ResourceQuota.Hard})
		request := asked("rome", of3("5", "5Gi", "50"))
		request.Spec.NodeSelector = map[string]string{"arch": "arm64"}
		r := newRig(t, realNode("a", func(n *corev1.Node) { n.Labels = both }), cluster("rome"), request, used, bound)
		policy := automatic()
		policy.NodeSelector = map[string]string{"pool": "shared"}
		r.run(r.provider(policy).Run)
		r.settled()
		require.Equal(t, sharingv1alpha1.RequestOffered, r.request("liqo-tenant-rome").Status.Phase)
		require.Equal(t, both, r.offer("liqo-tenant-rome").Spec.NodeSelector)
		require.Equal(t, both, r.quota("liqo-tenant-rome").Spec.NodeSelector)
		r.changeCluster("rome", func(fc *corev1beta1.ForeignCluster) { fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo })
		r.settled()
		require.NotNil(t, r.offer("liqo-tenant-rome").Spec.WithdrawalTimestamp)
		require.Equal(t, sharingv1alpha1.ReasonNotAllowed, r.request("liqo-tenant-rome").Status.Reason)
		o := r.offer("liqo-tenant-rome")
		o.Status.VirtualNode = ""
		kubetest.UpdateStatus(t, r.liqo.SharingV1alpha1().ResourceOffers(o.Namespace), o)
		r.settled()
		require.Nil(t, r.offer("liqo-tenant-rome"))
		require.True(t, r.quota("liqo-tenant-rome").Spec.Resources.Cpu().IsZero())
		require.Equal(t, both, r.quota("liqo-tenant-rome").Spec.NodeSelector, "of what has ended, too")
	})
}

func TestProviderWaitsForARequestThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := standing3("5", "5Gi", "50")
		used.Status = sharingv1alpha1.ResourceOfferStatus{Phase: sharingv1alpha1.OfferAccepted, VirtualNode: "milan"}
		r := newRig(t, realNode("a"), cluster("rome"), used)
		r.run(r.provider(automatic()).Run)
		require.Zero(t, r.settled())
		time.Sleep(missedHold)
		r.settled()
		require.NotNil(t, r.offer("liqo-tenant-rome"))
		require.NotNil(t, r.offer("liqo-tenant-rome").Spec.WithdrawalTimestamp, "the wait is over")
	})
}

// TestProviderIsNotFooled: requests with false claims are refused or ignored.
func TestProviderIsNotFooled(t *testing.T) {
	another := asked("rome", nil)
	another.Spec.ConsumerClusterID = "oslo"
	own := asked("rome", nil)
	own.Labels = nil
	elsewhere := asked("rome", nil)
	elsewhere.Name = "rome"
	for name, tc := range map[string]struct {
		objects []runtime.Object
		reason  string // of the answer; empty: none
	}{
		"in another's name":       {[]runtime.Object{cluster("rome"), another}, reasons.InvalidRequest},
		"of a stranger":           {[]runtime.Object{asked("rome", nil)}, sharingv1alpha1.ReasonNotAllowed},
		"not a peer's":            {[]runtime.Object{cluster("rome"), own}, ""},
		"under another name":      {[]runtime.Object{cluster("rome"), elsewhere}, ""},
		"of a peer that may not":  {[]runtime.Object{cluster("rome", func(fc *corev1beta1.ForeignCluster) { fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo }), asked("rome", nil)}, sharingv1alpha1.ReasonNotAllowed},
		"of an ordinary consumer": {[]runtime.Object{cluster("rome"), asked("rome", nil)}, reasons.Offered},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, append(tc.objects, realNode("a"))...)
				r.run(r.provider(automatic()).Run)
				if tc.reason == "" {
					require.Zero(t, r.settled())
					return
				}
				r.settled()
				require.Equal(t, tc.reason, r.request("liqo-tenant-rome").Status.Reason)
				require.Equal(t, tc.reason == reasons.Offered, r.offer("liqo-tenant-rome") != nil)
			})
		})
	}
}

func TestDirections(t *testing.T) {
	t.Parallel()
	answered := func(phase sharingv1alpha1.RequestPhase, reason string) *sharingv1alpha1.ResourceRequest {
		r := asked("rome", nil)
		r.Status = sharingv1alpha1.ResourceRequestStatus{Phase: phase, Reason: reason, Message: "because"}
		return r
	}
	at := func(phase sharingv1alpha1.OfferPhase) *sharingv1alpha1.ResourceOffer {
		o := standing3("1", "1Gi", "1")
		o.Status = sharingv1alpha1.ResourceOfferStatus{Phase: phase, Message: "said", VirtualNode: "milan"}
		return o
	}
	making := at(sharingv1alpha1.OfferAccepted)
	making.Status.VirtualNode = "milan-2"
	type offers = []*sharingv1alpha1.ResourceOffer
	for name, tc := range map[string]struct {
		request *sharingv1alpha1.ResourceRequest
		offers  offers
		out, in string
	}{
		"nothing yet":       {nil, nil, "False NotAsked", ""},
		"asked":             {answered("", ""), nil, "False NotAnswered", "False NotAnswered"},
		"not delivered":     {answered(sharingv1alpha1.RequestPending, sharingv1alpha1.ReasonReplicationFailed), nil, "False ReplicationFailed", "False NotAnswered"},
		"refused":           {answered(sharingv1alpha1.RequestRefused, "not a reason!"), nil, "False RequestRefused", "False not a reason!"},
		"to be approved":    {answered(sharingv1alpha1.RequestManualActionRequired, sharingv1alpha1.ReasonApprovalRequired), nil, "False ApprovalRequired", "False ApprovalRequired"},
		"offered":           {answered(sharingv1alpha1.RequestOffered, reasons.Offered), nil, "False OfferNotUsed", "False NotAnswered"},
		"to be accepted":    {answered(sharingv1alpha1.RequestOffered, reasons.Offered), offers{at(sharingv1alpha1.OfferManualActionRequired)}, "False OfferNotUsed", "False OfferNotUsed"},
		"just fetched":      {answered(sharingv1alpha1.RequestOffered, reasons.Offered), offers{standing3("1", "1Gi", "1")}, "False OfferNotUsed", "False NotAnswered"},
		"used":              {answered(sharingv1alpha1.RequestOffered, reasons.Offered), offers{at(sharingv1alpha1.OfferAccepted)}, "True Accepted", "True Accepted"},
		"being made":        {answered(sharingv1alpha1.RequestOffered, reasons.Offered), offers{making}, "False OfferNotUsed", "True Accepted"},
		"used, not taken":   {answered(sharingv1alpha1.RequestPending, sharingv1alpha1.ReasonReplicationFailed), offers{at(sharingv1alpha1.OfferAccepted)}, "False ReplicationFailed", "True Accepted"},
		"used, and refused": {answered(sharingv1alpha1.RequestRefused, reasons.InvalidRequest), offers{at(sharingv1alpha1.OfferAccepted)}, "True Accepted", "True Accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := func(c *metav1.Condition) string {
				if c == nil {
					return ""
				}
				require.NotEmpty(t, c.Message)
				require.NotRegexp(t, ": *(;|$)", c.Message, "nothing is said behind a name")
				return string(c.Status) + " " + c.Reason
			}
			require.Equal(t, tc.out, is(outgoing("milan", tc.request, tc.offers, func(name string) bool { return name == "milan" })))
			require.Equal(t, tc.in, is(incoming("rome", tc.request, tc.offers)))
		})
	}
}

// TestConsumerLeaves: a consumer whose request is gone has ended its use of this cluster; one that
// has never asked has not.
func TestConsumerLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.provider(automatic())
	in.Subscribe(func(string) {})
	tenants := r.inCore.Core().V1().Namespaces().Informer().GetStore()
	r.inLiqo.Start(t.Context().Done())
	r.inLiqo.WaitForCacheSync(t.Context().Done())
	fc := cluster("rome", func(fc *corev1beta1.ForeignCluster) {
		fc.Spec.UserName, fc.Status.Role = "liqo.io:peer:rome:1", corev1beta1.RoleConsumer
	})
	require.Nil(t, in.Condition(fc), "it has not asked yet")
	meta.SetStatusCondition(&fc.Status.Conditions, metav1.Condition{Type: corev1beta1.ConditionIncomingPeering, Status: metav1.ConditionTrue, Reason: reasons.Accepted, LastTransitionTime: metav1.Unix(1000, 0)})
	for _, tc := range []struct {
		ns   *corev1.Namespace
		want string
	}{
		{nil, corev1beta1.ReasonTenantAwaited},
		{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(500, 0), DeletionTimestamp: &metav1.Time{}}}, corev1beta1.ReasonTenantAwaited},
		{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(2000, 0)}}, corev1beta1.ReasonTenantAwaited},
		{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(500, 0)}}, corev1beta1.ReasonEndedByPeer},
	} {
		if tc.ns != nil {
			tc.ns.Name = "liqo-tenant-rome"
			require.NoError(t, tenants.Update(tc.ns))
		}
		require.Equal(t, tc.want, in.Condition(fc).Reason, "a request that went with its namespace was not ended by the peer")
	}
	awaited := fc.DeepCopy()
	meta.SetStatusCondition(&awaited.Status.Conditions, metav1.Condition{Type: corev1beta1.ConditionIncomingPeering, Status: metav1.ConditionFalse, Reason: corev1beta1.ReasonTenantAwaited})
	require.Equal(t, corev1beta1.ReasonTenantAwaited, in.Condition(awaited).Reason, "until the request is there again")
	require.Contains(t, in.Condition(fc).Message, "cluster rome has ended its use of this cluster")
	fc.Status.Role = corev1beta1.RoleConsumerAndProvider
	require.Nil(t, in.Condition(fc), "this cluster uses it, too")
	fc.Status.Role, fc.Spec.UserName = corev1beta1.RoleConsumer, ""
	require.Nil(t, in.Condition(fc), "it has no rights here any more")
}

func TestDirectionOfACluster(t *testing.T) {
	t.Parallel()
	r := newRig(t, copied(func(o *sharingv1alpha1.ResourceOffer) {
		o.Status = sharingv1alpha1.ResourceOfferStatus{Phase: sharingv1alpha1.OfferAccepted, VirtualNode: "milan"}
	}))
	out, in := r.consumerOf(Automatic), r.providerOf("rome", automatic())
	before := cluster("milan", uses)
	meta.SetStatusCondition(&before.Status.Conditions, metav1.Condition{Type: corev1beta1.ConditionOutgoingPeering, Status: metav1.ConditionTrue, Reason: "Before"})
	require.Equal(t, "Before", out.Condition(before).Reason, "nothing is known yet")
	told := make(chan string, 10)
	out.Subscribe(func(id string) { told <- id })
	r.inLiqo.Start(t.Context().Done())
	r.inLiqo.WaitForCacheSync(t.Context().Done())
	require.Equal(t, "milan", <-told)
	require.Equal(t, sharingv1alpha1.ReasonNotAsked, out.Condition(cluster("milan", uses)).Reason, "there is no virtual node yet")
	kubetest.Create(t, r.liqo.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}})
	require.Equal(t, "milan", <-told)
	require.Equal(t, reasons.Accepted, out.Condition(cluster("milan", uses)).Reason)
	require.Nil(t, out.Condition(cluster("milan")), "it is not wanted")
	require.Nil(t, in.Condition(cluster("milan")), "the offer is of the other direction")
}
