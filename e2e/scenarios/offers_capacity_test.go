package scenarios

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// offerShare is the percentage of what is free that milan shares.
	offerShare = 80
	// offerLag is for how long offers may be as what was free before: until a successor leads
	// (3.3 s), has read what there is (1 s), and the change has settled (1 s), with as much
	// again for a busy machine. Whoever watches learns of a pod, a node and an offer by three
	// streams, of which none waits for the others: that is far less, and in it.
	offerLag = 10 * time.Second
	// offerRounds is how often the provider changes while its leader is killed.
	offerRounds = 8
)

// TestOfferCapacity: two consumers ask a nearly full provider for more than it has, while its
// own pods come and go, a node is cordoned, and its leading controller is killed. Who
// watches never sees more offered, all in all, than the share of what was really free a
// moment ago; and when all is at rest, of what is free.
func TestOfferCapacity(t *testing.T) {
	all := newSites(t, []string{"milan"}, nil, map[string]any{
		"lease":   map[string]any{"duration": "3s", "renewDeadline": "2s", "retryPeriod": "300ms"},
		"sharing": map[string]any{"percentage": offerShare, "updateThreshold": 0},
	})
	milan := all.list[0]
	kubetest.Create(t, milan.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own"}})
	o := newOfferWatch(t, milan)
	pair := newReplicaPair(t, all.sites, milan)
	fill(t, milan, "base", "milan-sim-1", 90)
	fill(t, milan, "more", "milan-sim-2", 90)
	// Of memory and pods it would be given all, if it named no amount.
	some := asking("20", "20Gi")
	some[corev1.ResourcePods] = resource.MustParse("50")
	demand(t, milan, "rome", some)
	demand(t, milan, "turin", nil)
	within(t, 30*time.Second, "all that is shared is offered", o.atRest)
	random := rand.New(rand.NewPCG(7, 7))
	for i := range offerRounds {
		switch i % 4 {
		case 0:
			remove(t, milan, "base")
		case 1:
			fill(t, milan, "base", "milan-sim-1", 50+random.Int64N(45))
		case 2:
			cordon(t, milan, true, "milan-sim-2")
		case 3:
			cordon(t, milan, false, "milan-sim-2")
			remove(t, milan, "more")
			fill(t, milan, "more", "milan-sim-2", 50+random.Int64N(45))
		}
		<-time.After(time.Duration(random.Int64N(int64(1500 * time.Millisecond)))) // in the midst of what follows
		leader := pair.leader(t, "")
		require.NoError(t, all.sites.Restart(pair.replicas[leader]))
		within(t, 30*time.Second, fmt.Sprintf("round %d: the offers are as what is free", i), o.atRest)
	}
	require.NoError(t, o.verdict())
	t.Logf("%d changes of offers, %d of what is free", o.offered, o.changed)
	require.Greater(t, o.offered, offerRounds, "offers followed")
}

// demand has a consumer ask for so much; nil: for all that there is.
func demand(t *testing.T, milan *site.Site, consumer string, amounts corev1.ResourceList) {
	t.Helper()
	tenant := corev1beta1.TenantNamespace(consumer)
	kubetest.Create(t, milan.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant,
		Labels: map[string]string{corev1beta1.RemoteClusterIDLabel: consumer, corev1beta1.TenantNamespaceLabel: "true"}}})
	kubetest.Create(t, milan.Liqod().CoreV1beta1().ForeignClusters(), &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: consumer},
		Spec: corev1beta1.ForeignClusterSpec{ClusterID: consumer, IncomingPeeringEnabled: corev1beta1.PeeringYes}})
	kubetest.Create(t, milan.Liqod().SharingV1alpha1().ResourceRequests(tenant), &sharingv1alpha1.ResourceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{
			offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: consumer, corev1beta1.RemoteClusterIDLabel: consumer}},
		Spec: sharingv1alpha1.ResourceRequestSpec{ConsumerClusterID: consumer, ProviderClusterID: "milan",
			CapacityRequest: corev1beta1.CapacityRequest{Resources: amounts}}})
}

// fill makes a pod of the cluster's own that requests so many percent of a node.
func fill(t *testing.T, s *site.Site, name, node string, percent int64) {
	t.Helper()
	n := kubetest.Get(t, s.Client().CoreV1().Nodes(), node)
	pod := coreful(name, fmt.Sprintf("%dm", n.Status.Allocatable.Cpu().MilliValue()*percent/100), corev1.RestartPolicyAlways)
	pod.Spec.NodeName = node
	kubetest.Create(t, s.Client().CoreV1().Pods("own"), pod)
}

func remove(t *testing.T, s *site.Site, name string) {
	t.Helper()
	require.NoError(t, s.Client().CoreV1().Pods("own").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	within(t, quickly, "pod "+name+" is gone", isGone(s.Client().CoreV1().Pods("own"), name))
}

// free is what is free at and after a moment.
type free struct {
	since    time.Time
	milliCPU int64
}

// offerWatch works out, by watches of its own, what is free in a provider, and what of it is
// offered.
type offerWatch struct {
	watches []*site.Watch

	mu     sync.Mutex
	nodes  map[string]*corev1.Node
	pods   map[types.UID]*corev1.Pod
	offers map[types.UID]*sharingv1alpha1.ResourceOffer
	past   []free // oldest first; the last one holds now
	err    error

	offered, changed int // how often
}

func newOfferWatch(t *testing.T, s *site.Site) *offerWatch {
	t.Helper()
	o := &offerWatch{nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{}, offers: map[types.UID]*sharingv1alpha1.ResourceOffer{}}
	core, offers := s.Client().CoreV1(), s.Liqod().SharingV1alpha1().ResourceOffers(metav1.NamespaceAll)
	for _, source := range []*cache.ListWatch{
		{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Nodes().List(ctx, o)
			},
			WatchFuncWithContext: core.Nodes().Watch,
		},
		site.Pods(s.Client(), metav1.NamespaceAll),
		{
			ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return offers.List(ctx, o) },
			WatchFuncWithContext: offers.Watch,
		},
	} {
		w := must(site.NewWatch(t.Context(), source, o.see))(t)
		t.Cleanup(w.Stop)
		o.watches = append(o.watches, w)
	}
	return o
}

func (o *offerWatch) see(kind watch.EventType, obj runtime.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	gone := kind == watch.Deleted
	switch x := obj.(type) {
	case *corev1.Node:
		o.nodes[x.Name] = x
		if gone {
			delete(o.nodes, x.Name)
		}
	case *corev1.Pod:
		o.pods[x.UID] = x
		if gone || x.Status.Phase == corev1.PodSucceeded || x.Status.Phase == corev1.PodFailed {
			delete(o.pods, x.UID)
		}
	case *sharingv1alpha1.ResourceOffer:
		o.offered++
		o.offers[x.UID] = x
		if gone {
			delete(o.offers, x.UID)
		}
	}
	now := time.Now()
	if left := o.left(); len(o.past) == 0 || o.past[len(o.past)-1].milliCPU != left {
		o.past = append(o.past, free{now, left})
		o.changed++
	}
	o.judge(now)
}

// left is what the cluster's own pods leave of the nodes that take pods.
func (o *offerWatch) left() (milliCPU int64) {
	for _, n := range o.nodes {
		if open(n) {
			milliCPU += n.Status.Allocatable.Cpu().MilliValue()
		}
	}
	for _, p := range o.pods {
		if n := o.nodes[p.Spec.NodeName]; n != nil && open(n) && p.Labels[offloadingv1beta1.ManagedByLabel] != offloadingv1beta1.ManagedByShadowPod {
			requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
			milliCPU -= requests.Cpu().MilliValue()
		}
	}
	return max(0, milliCPU)
}

// open reports whether a node takes pods of others.
func open(n *corev1.Node) bool {
	if n.Spec.Unschedulable || n.Labels[offloadingv1beta1.TypeLabel] == offloadingv1beta1.TypeVirtualNode {
		return false
	}
	for _, taint := range n.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	return readyOf(n).Status == corev1.ConditionTrue
}

// given is what is offered, all in all.
func (o *offerWatch) given() (milliCPU int64) {
	for _, x := range o.offers {
		if x.Spec.WithdrawalTimestamp == nil {
			milliCPU += x.Spec.ResourceQuota.Hard.Cpu().MilliValue()
		}
	}
	return milliCPU
}

// judge compares what is offered with the most that was free lately.
func (o *offerWatch) judge(now time.Time) {
	for len(o.past) > 1 && o.past[1].since.Before(now.Add(-offerLag)) {
		o.past = o.past[1:]
	}
	most := int64(0)
	for _, f := range o.past {
		most = max(most, f.milliCPU)
	}
	if given := o.given(); given > most*offerShare/100 && o.err == nil {
		o.err = fmt.Errorf("%dm of CPU are offered, and %d%% of no more than %dm were free in the last %s", given, offerShare, most, offerLag)
	}
}

// atRest is a condition: what is offered is the share of what is free now.
func (o *offerWatch) atRest(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judge(time.Now())
	if o.err != nil {
		return o.err
	}
	// Each of both may be less by what is rounded down.
	given, want := o.given(), o.left()*offerShare/100
	return lab.Wrong(nil, given > want || given < want-2, "%dm of CPU are offered, %dm are to be", given, want)
}

func (o *offerWatch) verdict() error {
	for _, w := range o.watches {
		if err := w.Err(); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judge(time.Now())
	return o.err
}
