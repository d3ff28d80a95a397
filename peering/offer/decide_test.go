package offer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/reasons"
)

type list = corev1.ResourceList

func q(s string) resource.Quantity { return resource.MustParse(s) }

// of3 returns amounts of CPU, memory and pods.
func of3(cpu, memory, pods string) list {
	return list{corev1.ResourceCPU: q(cpu), corev1.ResourceMemory: q(memory), corev1.ResourcePods: q(pods)}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func automatic() Policy {
	return Policy{Mode: Automatic, Percentage: 100, UpdateThreshold: 10, SelectorLabels: func(string) []string { return []string{"x", "arch"} }}
}

func node(name string, amounts list, labels ...string) *corev1.Node {
	n := realNode(name)
	n.Status.Allocatable, n.Labels = amounts, map[string]string{}
	for i := 0; i+1 < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

// factsOf returns the facts of an empty cluster with one node of 10 CPUs, 10 GiB and 100
// pods.
func factsOf(change ...func(*Facts)) Facts {
	f := Facts{Provider: "milan", Consumer: "rome", Request: &corev1beta1.CapacityRequest{}, Now: noon,
		Nodes: []*corev1.Node{node("a", of3("10", "10Gi", "100"))}}
	for _, c := range change {
		c(&f)
	}
	return f
}

func standing3(cpu, memory, pods string) *sharingv1alpha1.ResourceOffer {
	return &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Name: "milan", Namespace: "liqo-tenant-rome"}, Spec: sharingv1alpha1.ResourceOfferSpec{
		ConsumerClusterID: "rome", ProviderClusterID: "milan", Approved: true, ResourceQuota: corev1.ResourceQuotaSpec{Hard: of3(cpu, memory, pods)},
	}}
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	ask := func(amounts list) func(*Facts) {
		return func(f *Facts) { f.Request.Resources = amounts }
	}
	use := func(node, consumer string, amounts list) func(*Facts) {
		return func(f *Facts) { f.Used = append(f.Used, Use{node, consumer, amounts}) }
	}
	hold := func(consumer string, amounts list, labels ...string) func(*Facts) {
		return func(f *Facts) {
			f.Others = append(f.Others, Holding{consumer, node("", nil, labels...).Labels, amounts})
		}
	}
	have := func(cpu, memory, pods string) func(*Facts) {
		return func(f *Facts) { f.Offers = append(f.Offers, standing3(cpu, memory, pods)) }
	}
	nodes := func(nodes ...*corev1.Node) func(*Facts) { return func(f *Facts) { f.Nodes = nodes } }
	selects := func(key, value string) func(*Facts) {
		return func(f *Facts) { f.Request.NodeSelector = map[string]string{key: value} }
	}
	gpu := list{"example.com/gpu": q("3")}
	for name, tc := range map[string]struct {
		facts  []func(*Facts)
		policy func(*Policy)
		want   string // CPU, memory, pods; empty: refused
		reason string
	}{
		"all there is":                {nil, nil, "10 10Gi 100", ""},
		"a share is rounded down":     {[]func(*Facts){nodes(node("a", of3("3333m", "1000Mi", "9")))}, func(p *Policy) { p.Percentage = 50 }, "1666m 500Mi 4", ""},
		"less than asked for":         {[]func(*Facts){ask(of3("20", "1Gi", "10"))}, nil, "10 1Gi 10", ""},
		"the rest is not asked for":   {[]func(*Facts){ask(list{"cpu": q("2")})}, nil, "2 10Gi 100", ""},
		"own pods first, then a part": {[]func(*Facts){use("a", "", of3("4", "0", "0"))}, func(p *Policy) { p.Percentage = 50 }, "3 5Gi 50", ""},
		"own pods use it all":         {[]func(*Facts){use("a", "", of3("12", "1Gi", "10"))}, nil, "", sharingv1alpha1.ReasonNoCapacity},
		"own pods elsewhere":          {[]func(*Facts){use("x", "", of3("4", "1Gi", "10"))}, nil, "10 10Gi 100", ""},
		"its own pods count not":      {[]func(*Facts){use("a", "rome", of3("4", "1Gi", "10"))}, nil, "10 10Gi 100", ""},
		"another's pods":              {[]func(*Facts){use("a", "oslo", of3("4", "1Gi", "10"))}, nil, "6 9Gi 90", ""},
		"another's pods to come":      {[]func(*Facts){use("", "oslo", of3("4", "1Gi", "10"))}, nil, "6 9Gi 90", ""},
		"an offer in use, in part":    {[]func(*Facts){hold("oslo", of3("4", "1Gi", "10")), use("a", "oslo", of3("3", "1Gi", "10"))}, nil, "6 9Gi 90", ""},
		"more used than offered":      {[]func(*Facts){hold("oslo", of3("4", "1Gi", "10")), use("a", "oslo", of3("5", "1Gi", "10"))}, nil, "5 9Gi 90", ""},
		"two others":                  {[]func(*Facts){hold("oslo", of3("4", "1Gi", "10")), hold("paris", of3("4", "1Gi", "10"))}, nil, "2 8Gi 80", ""},
		"nothing is left":             {[]func(*Facts){hold("oslo", of3("10", "1Gi", "10"))}, nil, "", sharingv1alpha1.ReasonNoCapacity},
		"a limit for all":             {[]func(*Facts){hold("oslo", of3("4", "1Gi", "10"))}, func(p *Policy) { p.Limit = list{"cpu": q("5")} }, "1 9Gi 90", ""},
		"a limit that is less now":    {[]func(*Facts){have("10", "10Gi", "100")}, func(p *Policy) { p.Limit = list{"cpu": q("9500m")} }, "9500m 10Gi 100", ""},
		"a limit that others fill":    {[]func(*Facts){have("5", "10Gi", "100"), hold("oslo", list{"cpu": q("4")})}, func(p *Policy) { p.Limit = list{"cpu": q("8800m")} }, "4800m 10Gi 100", ""},
		"a limit for one":             {nil, func(p *Policy) { p.PeerLimits = map[string]list{"rome": {"cpu": q("5")}, "oslo": {"cpu": q("1")}} }, "5 10Gi 100", ""},
		"a limit below the request":   {[]func(*Facts){ask(of3("7", "1Gi", "10"))}, func(p *Policy) { p.PeerLimits = map[string]list{"rome": {"cpu": q("5")}} }, "5 1Gi 10", ""},
		"nothing for this one":        {nil, func(p *Policy) { p.PeerLimits = map[string]list{"rome": {"cpu": q("0")}} }, "", sharingv1alpha1.ReasonNoCapacity},
		"the policy's nodes":          {[]func(*Facts){nodes(node("a", of3("1", "1Gi", "10"), "x", "1"), node("b", of3("2", "2Gi", "20")))}, func(p *Policy) { p.NodeSelector = map[string]string{"x": "1"} }, "1 1Gi 10", ""},
		"against the policy":          {[]func(*Facts){selects("x", "2")}, func(p *Policy) { p.NodeSelector = map[string]string{"x": "1"} }, "", reasons.NoNodes},
		"an offer on other nodes": {[]func(*Facts){nodes(node("a", of3("1", "1Gi", "10"), "x", "1"), node("b", of3("2", "2Gi", "20"), "x", "2")), selects("x", "1"),
			hold("oslo", of3("2", "1Gi", "10"), "x", "2")}, nil, "1 1Gi 10", ""},
		"an offer on some of them": {[]func(*Facts){nodes(node("a", of3("1", "1Gi", "10"), "x", "1"), node("b", of3("2", "2Gi", "20"), "x", "2")),
			hold("oslo", of3("2", "1Gi", "10"), "x", "2")}, nil, "1 2Gi 20", ""},
		"no node at all":                                {[]func(*Facts){nodes()}, nil, "", reasons.NoNodes},
		"other resources, unasked":                      {[]func(*Facts){nodes(node("a", of3("1", "1Gi", "10")), node("g", gpu))}, nil, "1 1Gi 10", ""},
		"a little less":                                 {[]func(*Facts){have("10", "10Gi", "100"), use("a", "", of3("0", "512Mi", "0"))}, func(p *Policy) { p.Percentage = 100 }, "10 9728Mi 100", ""},
		"a little less of the share":                    {[]func(*Facts){have("9", "9Gi", "90"), use("a", "", of3("500m", "0", "0"))}, func(p *Policy) { p.Percentage = 90 }, "9 9Gi 90", ""},
		"much less of the share":                        {[]func(*Facts){have("9", "9Gi", "90"), use("a", "", of3("2", "0", "0"))}, func(p *Policy) { p.Percentage = 90 }, "7200m 9Gi 90", ""},
		"a little more":                                 {[]func(*Facts){have("8500m", "8704Mi", "85")}, func(p *Policy) { p.Percentage = 90 }, "8500m 8704Mi 85", ""},
		"much more":                                     {[]func(*Facts){have("5", "9Gi", "90")}, func(p *Policy) { p.Percentage = 90 }, "9 9Gi 90", ""},
		"a little more is asked for":                    {[]func(*Facts){have("5", "5Gi", "50"), ask(of3("5100m", "5Gi", "50"))}, nil, "5100m 5Gi 50", ""},
		"a little less is asked for":                    {[]func(*Facts){have("5", "5Gi", "50"), ask(of3("4900m", "5Gi", "50"))}, nil, "4900m 5Gi 50", ""},
		"what is offered shrinks to nothing, and stays": {[]func(*Facts){have("5", "5Gi", "50"), use("a", "", of3("12", "0", "0"))}, nil, "0 10Gi 100", ""},
		"the last node is gone":                         {[]func(*Facts){have("5", "5Gi", "50"), nodes()}, nil, "0 0 0", ""},
		"a wrong name":                                  {[]func(*Facts){ask(list{"a b": q("1")})}, nil, "", reasons.InvalidRequest},
		"less than nothing":                             {[]func(*Facts){ask(list{"cpu": q("-1")})}, nil, "", reasons.InvalidRequest},
		"too much to add up":                            {[]func(*Facts){ask(list{"cpu": q("8E")})}, nil, "", reasons.InvalidRequest},
		"a reserved label":                              {[]func(*Facts){func(f *Facts) { f.Request.Labels = map[string]string{"liqo.io/type": "x"} }}, nil, "", reasons.InvalidRequest},
		"sharing is off":                                {nil, func(p *Policy) { p.Mode = Never }, "", reasons.SharingOff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := factsOf(tc.facts...), automatic()
			if tc.policy != nil {
				tc.policy(&p)
			}
			d := Decide(f, p)
			if tc.want == "" {
				require.Equal(t, sharingv1alpha1.RequestRefused, d.Phase)
				require.Equal(t, tc.reason, d.Reason)
				require.Empty(t, d.Offers)
				return
			}
			require.Equal(t, sharingv1alpha1.RequestOffered, d.Phase, d.Message)
			require.Len(t, d.Offers, 1)
			hard := d.Offers["milan"].ResourceQuota.Hard
			require.Equal(t, tc.want, fmt.Sprintf("%s %s %s", hard.Cpu(), hard.Memory(), hard.Pods()))
			require.True(t, d.Offers["milan"].Approved)

			// A second decision, with the first one carried out, changes nothing.
			o := standing3("0", "0", "0")
			o.Spec = d.Offers["milan"]
			f.Offers = []*sharingv1alpha1.ResourceOffer{o}
			require.Equal(t, d, Decide(f, p))
		})
	}
}

func TestOtherResources(t *testing.T) {
	t.Parallel()
	f := factsOf(func(f *Facts) {
		f.Nodes = []*corev1.Node{node("a", list{"cpu": q("10"), "memory": q("10Gi"), "pods": q("100"), "example.com/gpu": q("4"), "ephemeral-storage": q("5Gi")})}
	})
	names := func(d Decision) (out []string) {
		for name := range d.Offers["milan"].ResourceQuota.Hard {
			out = append(out, string(name))
		}
		return out
	}
	require.ElementsMatch(t, []string{"cpu", "memory", "pods", "ephemeral-storage", "example.com/gpu"}, names(Decide(f, automatic())))
	f.Request.Resources = list{"cpu": q("1")}
	require.ElementsMatch(t, []string{"cpu", "memory", "pods", "ephemeral-storage"}, names(Decide(f, automatic())), "what is costly is given when it is asked for")
	f.Request.Resources = list{"example.com/gpu": q("9"), "example.com/fpga": q("1")}
	d := Decide(f, automatic())
	require.ElementsMatch(t, []string{"cpu", "memory", "pods", "ephemeral-storage", "example.com/gpu"}, names(d))
	require.Contains(t, d.Message, "less than asked for: example.com/fpga: 0 of 1, example.com/gpu: 4 of 9")
}

func TestDivided(t *testing.T) {
	t.Parallel()
	f := factsOf(func(f *Facts) {
		f.Request.VirtualNodes = 3
		f.Nodes[0].Status.Allocatable = of3("10", "10Gi", "100")
	})
	d := Decide(f, automatic())
	require.Len(t, d.Offers, 3)
	sum := list{}
	for name, o := range d.Offers {
		require.True(t, sharingv1alpha1.ValidOfferName("milan", name))
		add(sum, o.ResourceQuota.Hard)
	}
	require.Equal(t, "10 10Gi 100", fmt.Sprintf("%s %s %s", sum.Cpu(), sum.Memory(), sum.Pods()))
	for name, want := range map[string]string{"milan": "3334m", "milan-2": "3333m", "milan-3": "3333m"} {
		hard := d.Offers[name].ResourceQuota.Hard
		require.Equal(t, want, hard.Cpu().String())
	}
	f.Request.VirtualNodes = 1000
	require.Len(t, Decide(f, automatic()).Offers, sharingv1alpha1.MaxVirtualNodes)
}

func TestApproval(t *testing.T) {
	t.Parallel()
	p := automatic()
	p.Mode = Manual
	f := factsOf()
	d := Decide(f, p)
	require.Equal(t, sharingv1alpha1.RequestManualActionRequired, d.Phase)
	require.Equal(t, sharingv1alpha1.ReasonApprovalRequired, d.Reason)
	require.Contains(t, d.Message, "liqod offer approve milan -n liqo-tenant-rome")
	require.False(t, d.Offers["milan"].Approved)

	o := standing3("10", "10Gi", "100")
	f.Offers = []*sharingv1alpha1.ResourceOffer{o}
	d = Decide(f, p)
	require.Equal(t, sharingv1alpha1.RequestOffered, d.Phase)
	require.True(t, d.Offers["milan"].Approved, "an approval stands")

	o.Spec.Approved, o.Status.VirtualNode = false, "milan"
	d = Decide(f, p)
	require.NotNil(t, d.Offers["milan"].WithdrawalTimestamp, "who uses it leaves first")
	o.Status.VirtualNode = ""
	require.Nil(t, Decide(f, p).Offers["milan"].WithdrawalTimestamp)
}

func TestExpiration(t *testing.T) {
	t.Parallel()
	p, f := automatic(), factsOf()
	require.Nil(t, Decide(f, p).Offers["milan"].ExpirationTime)
	p.Expiration = time.Hour
	require.Equal(t, noon.Add(time.Hour), Decide(f, p).Offers["milan"].ExpirationTime.Time)
	o := standing3("10", "10Gi", "100")
	f.Offers = []*sharingv1alpha1.ResourceOffer{o}
	for left, want := range map[time.Duration]time.Duration{40 * time.Minute: 40 * time.Minute, 20 * time.Minute: time.Hour, -time.Hour: time.Hour, 3 * time.Hour: time.Hour} {
		o.Spec.ExpirationTime = seconds(noon.Add(left))
		got := Decide(f, p).Offers["milan"]
		require.Equal(t, noon.Add(want), got.ExpirationTime.Time, left)
		require.Nil(t, got.WithdrawalTimestamp)
	}
	// A person set the time, and the policy sets none.
	p.Expiration = 0
	o.Spec.ExpirationTime = seconds(noon.Add(time.Minute))
	require.Equal(t, noon.Add(time.Minute), Decide(f, p).Offers["milan"].ExpirationTime.Time)
	o.Spec.ExpirationTime, o.Status.VirtualNode = seconds(noon), "milan"
	require.NotNil(t, Decide(f, p).Offers["milan"].WithdrawalTimestamp)
	o.Status.VirtualNode = ""
	require.Nil(t, Decide(f, p).Offers["milan"].ExpirationTime, "when it has been left it is a new one")
}

// TestAnswersTellOfNoSingleNode: a request by a label that is not listed gets the same answer
// whether there are such nodes or not, and ends no offer.
func TestAnswersTellOfNoSingleNode(t *testing.T) {
	t.Parallel()
	for _, key := range []string{corev1.LabelHostname, "alpha.eksctl.io/instance-id", "example.com/vault"} {
		there := factsOf(func(f *Facts) {
			f.Nodes = []*corev1.Node{node("a", of3("5", "5Gi", "50"), key, "a"), node("b", of3("5", "5Gi", "50"))}
			f.Request.NodeSelector = map[string]string{key: "a"}
		})
		missing := factsOf(func(f *Facts) { f.Request.NodeSelector = map[string]string{key: "a"} })
		d := Decide(there, automatic())
		require.Equal(t, reasons.InvalidRequest, d.Reason)
		require.Equal(t, "nodeSelector: label "+key+" is not accepted: cluster milan accepts from peers: x, arch; its administrators can allow more by the setting sharing.selectorLabels", d.Message)
		require.Equal(t, d, Decide(missing, automatic()))
		there.Offers = []*sharingv1alpha1.ResourceOffer{standing3("5", "5Gi", "50")}
		require.Contains(t, Decide(there, automatic()).Offers, "milan", "an offer from before stays")
	}
	// The provider's own selector is known to its consumers.
	f := factsOf(func(f *Facts) {
		f.Nodes = []*corev1.Node{node("a", of3("5", "5Gi", "50"), "pool", "shared")}
		f.Request.NodeSelector = map[string]string{"pool": "shared"}
	})
	p := automatic()
	p.NodeSelector = map[string]string{"pool": "shared"}
	require.Equal(t, reasons.Offered, Decide(f, p).Reason)
	// A further rule of the provider.
	p.NodeSelector = nil
	require.Equal(t, reasons.InvalidRequest, Decide(f, p).Reason)
	p.Selectable = func(_ []string, key string) bool { return key == "pool" }
	require.Equal(t, reasons.Offered, Decide(f, p).Reason)
}

func TestMistakesEndNothing(t *testing.T) {
	t.Parallel()
	f := factsOf(func(f *Facts) {
		f.Offers = []*sharingv1alpha1.ResourceOffer{standing3("5", "5Gi", "50")}
		f.Request.Labels = map[string]string{"not a label": ""}
	})
	d := Decide(f, automatic())
	require.Equal(t, reasons.InvalidRequest, d.Reason)
	require.Equal(t, f.Offers[0].Spec, d.Offers["milan"])

	// The offer does not expire either: it is still prolonged.
	p := automatic()
	p.Expiration = time.Hour
	f.Offers[0].Spec.ExpirationTime = seconds(noon.Add(20 * time.Minute))
	require.Equal(t, noon.Add(time.Hour), Decide(f, p).Offers["milan"].ExpirationTime.Time)
	f.Offers[0].Spec.WithdrawalTimestamp = seconds(noon)
	require.Equal(t, f.Offers[0].Spec, Decide(f, p).Offers["milan"], "what ends goes on ending")
}

func TestClasses(t *testing.T) {
	t.Parallel()
	there := []string{"fast", "slow", "tape"}
	for name, tc := range map[string]struct{ allowed, there, asked, want []string }{
		"all":                        {[]string{"*"}, there, nil, there},
		"none":                       {nil, there, nil, nil},
		"some that are not there":    {[]string{"gold", "fast"}, there, nil, []string{"fast"}},
		"asked for and not given":    {[]string{"fast"}, there, []string{"tape", "fast"}, []string{"fast"}},
		"what there is is not known": {[]string{"lb"}, nil, nil, []string{"lb"}},
		"all, and not known":         {[]string{"*"}, nil, []string{"lb"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, classesFor(tc.allowed, tc.there, tc.asked))
		})
	}
}

// TestOrderOfClasses: the default class of an offer is the one of the cluster, and no class is offered
// of which peers get no volumes.
func TestOrderOfClasses(t *testing.T) {
	t.Parallel()
	const annotation = "storageclass.kubernetes.io/is-default-class"
	class := func(name, provisioner string, isDefault bool, age time.Duration) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))}, Provisioner: provisioner}
		if isDefault {
			c.Annotations = map[string]string{annotation: "true"}
		}
		return c
	}
	require.Equal(t, []string{"new", "also-new", "old", "a", "z"}, inOrder([]*storagev1.StorageClass{
		class("z", "x", false, 0), class("old", "x", true, time.Hour), class("also-new", "x", true, time.Minute), class("a", "x", false, time.Hour), class("new", "x", true, 0),
	}, annotation))

	require.True(t, offerable(class("fast", "x", false, 0), []string{"*"}))
	require.False(t, offerable(class("liqo", "liqo.io/storage", false, 0), []string{"*", "liqo"}))
	byPeople := class("shelf", "kubernetes.io/no-provisioner", true, 0)
	require.False(t, offerable(byPeople, []string{"*"}))
	require.True(t, offerable(byPeople, []string{"*", "shelf"}), "listed by name")
}

func TestLabels(t *testing.T) {
	t.Parallel()
	p := automatic()
	p.Labels = map[string]string{"region": "north", "kind": "edge"}
	f := factsOf(func(f *Facts) { f.Request.Labels = map[string]string{"region": "south", "tier": "2"} })
	require.Equal(t, map[string]string{"region": "north", "kind": "edge", "tier": "2"}, Decide(f, p).Offers["milan"].Labels)
}

// TestNeverMoreThanThereIs lets consumers send requests in any order while the cluster's
// own pods come and go. The offers and the usage together never exceed what the nodes have
// at that time.
func TestNeverMoreThanThereIs(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		p := Policy{Mode: Automatic, Percentage: int64(r.IntN(101)), UpdateThreshold: int64(r.IntN(30)), SelectorLabels: func(string) []string { return []string{"x"} }}
		nodes := []*corev1.Node{node("a", of3("10", "10Gi", "100"), "x", "1"), node("b", of3("7", "3Gi", "50"), "x", "2")}
		offers := map[string]sharingv1alpha1.ResourceOfferSpec{}
		for range 20 {
			consumer := fmt.Sprintf("c%d", r.IntN(4))
			own := of3(fmt.Sprint(r.IntN(8)), "1Gi", "5")
			f := Facts{Provider: "milan", Consumer: consumer, Now: noon, Nodes: nodes, Used: []Use{{"a", "", own}}, Request: &corev1beta1.CapacityRequest{}}
			if r.IntN(2) == 0 {
				f.Request.Resources = list{"cpu": *resource.NewQuantity(int64(r.IntN(20)), resource.DecimalSI)}
			}
			if r.IntN(3) == 0 {
				f.Request.NodeSelector = map[string]string{"x": "1"}
			}
			for other, spec := range offers {
				if other == consumer {
					o := standing3("0", "0", "0")
					o.Spec = spec
					f.Offers = append(f.Offers, o)
				} else {
					f.Others = append(f.Others, Holding{other, spec.NodeSelector, spec.ResourceQuota.Hard})
				}
			}
			d := Decide(f, p)
			delete(offers, consumer)
			others := list{}
			for _, spec := range offers {
				add(others, spec.ResourceQuota.Hard)
			}
			got := d.Offers["milan"]
			if d.Phase == sharingv1alpha1.RequestOffered {
				offers[consumer] = got
			}
			for name, amount := range got.ResourceQuota.Hard {
				free := q("0")
				for _, n := range nodes {
					free.Add(n.Status.Allocatable[name])
				}
				free.Sub(own[name])
				free.Sub(others[name])
				if free.Sign() < 0 { // offered to others when there was more
					free = q("0")
				}
				require.LessOrEqual(t, amount.Cmp(free), 0, "%s: %s of %s", name, amount.String(), free.String())
			}
		}
	}
}
