package offer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// copied returns an offer of milan, as replicated to rome.
func copied(change ...func(*sharingv1alpha1.ResourceOffer)) *sharingv1alpha1.ResourceOffer {
	o := standing3("5", "5Gi", "50")
	o.Namespace, o.UID, o.Generation = "liqo-tenant-milan", "offer", 3
	o.Labels = map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}
	for _, c := range change {
		c(o)
	}
	return o
}

func TestCheckOffer(t *testing.T) {
	t.Parallel()
	hard := func(name corev1.ResourceName, amount string) func(*sharingv1alpha1.ResourceOffer) {
		return func(o *sharingv1alpha1.ResourceOffer) { o.Spec.ResourceQuota.Hard[name] = q(amount) }
	}
	label := func(key, value string) func(*sharingv1alpha1.ResourceOffer) {
		return func(o *sharingv1alpha1.ResourceOffer) { o.Spec.Labels = map[string]string{key: value} }
	}
	image := func(i corev1.ContainerImage) func(*sharingv1alpha1.ResourceOffer) {
		return func(o *sharingv1alpha1.ResourceOffer) { o.Spec.Images = []corev1.ContainerImage{i} }
	}
	for name, tc := range map[string]struct {
		change func(*sharingv1alpha1.ResourceOffer)
		want   string // part of the error; empty: accepted
	}{
		"a good one":             {func(*sharingv1alpha1.ResourceOffer) {}, ""},
		"the second":             {func(o *sharingv1alpha1.ResourceOffer) { o.Name = "milan-2" }, ""},
		"another's name":         {func(o *sharingv1alpha1.ResourceOffer) { o.Name = "oslo" }, "its name is oslo"},
		"a name beside":          {func(o *sharingv1alpha1.ResourceOffer) { o.Name = "milan-worker" }, "its name is milan-worker"},
		"to somebody else":       {func(o *sharingv1alpha1.ResourceOffer) { o.Spec.ConsumerClusterID = "oslo" }, "it is an offer of"},
		"from somebody else":     {func(o *sharingv1alpha1.ResourceOffer) { o.Spec.ProviderClusterID = "oslo" }, "it is an offer of"},
		"a negative amount":      {hard("cpu", "-1"), "resource cpu"},
		"more than can be added": {hard("cpu", "8E"), "resource cpu"},
		"a huge number of pods":  {hard("pods", "1e17"), "resource pods"},
		"many resources": {func(o *sharingv1alpha1.ResourceOffer) {
			for i := range mostResources - 2 { // beside CPU, memory and pods
				o.Spec.ResourceQuota.Hard[corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = q("1")
			}
		}, "it has 65 resources; 64 are accepted"},
		"a lot":                {hard("memory", "500Ti"), ""},
		"a device":             {hard("example.com/gpu", "4"), ""},
		"no resource's name":   {hard("a b", "4"), "resource \"a b\""},
		"a label":              {label("region", "north"), ""},
		"a zone":               {label("topology.kubernetes.io/zone", "a"), ""},
		"liqo's own kind":      {label("liqo.io/provider", "kubeadm"), ""},
		"a hostname":           {label("kubernetes.io/hostname", "node-1"), "label kubernetes.io/hostname"},
		"a role":               {label("node-role.kubernetes.io/control-plane", ""), "label node-role"},
		"a restriction":        {label("node-restriction.kubernetes.io/secure", "yes"), "label node-restriction"},
		"another cluster's id": {label("liqo.io/remote-cluster-id", "oslo"), "label liqo.io/remote"},
		"not a virtual node":   {label("liqo.io/type", "real"), "label liqo.io/type"},
		"an exotic one":        {label("sub.offloading.liqo.io/x", "y"), "label sub.offloading"},
		"no label's key":       {label("a b", "c"), "labels"},
		"no label's value":     {label("a", "b c"), "labels"},
		"a selector": {func(o *sharingv1alpha1.ResourceOffer) {
			o.Spec.NodeSelector = map[string]string{"node-role.kubernetes.io/worker": ""}
		}, ""},
		"no selector":            {func(o *sharingv1alpha1.ResourceOffer) { o.Spec.NodeSelector = map[string]string{"a b": ""} }, "nodeSelector"},
		"no storage class":       {func(o *sharingv1alpha1.ResourceOffer) { o.Spec.StorageClasses = []string{"Fast!"} }, "storageClasses"},
		"no ingress class":       {func(o *sharingv1alpha1.ResourceOffer) { o.Spec.IngressClasses = []string{""} }, "ingressClasses"},
		"no load balancer class": {func(o *sharingv1alpha1.ResourceOffer) { o.Spec.LoadBalancerClasses = []string{"a b"} }, "loadBalancerClasses"},
		"an image of names":      {image(corev1.ContainerImage{Names: []string{strings.Repeat("x", 5000)}}), "images"},
		"an image of many bytes": {image(corev1.ContainerImage{Names: []string{strings.Repeat("x", 200), strings.Repeat("y", 57)}}), "images"},
		"many images": {func(o *sharingv1alpha1.ResourceOffer) {
			o.Spec.Images = slices.Repeat([]corev1.ContainerImage{{Names: []string{"x"}}}, 51)
		}, "images: 51 are named; at most 50"},
		"some images": {func(o *sharingv1alpha1.ResourceOffer) {
			o.Spec.Images = slices.Repeat([]corev1.ContainerImage{{Names: []string{strings.Repeat("x", 256)}}}, 50)
		}, ""},
		"an image without one": {image(corev1.ContainerImage{SizeBytes: 4}), "images"},
		"an image of less":     {image(corev1.ContainerImage{Names: []string{"x"}, SizeBytes: -4}), "images"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkOffer("rome", "milan", copied(tc.change))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestReceived(t *testing.T) {
	t.Parallel()
	mine, hand := virtualNode(nil, copied(), "milan"), virtualNode(nil, copied(), "milan")
	delete(hand.Labels, offloadingv1beta1.ManagedByLabel)
	withdrawn := func(o *sharingv1alpha1.ResourceOffer) { o.Spec.WithdrawalTimestamp = seconds(noon) }
	expires := func(in time.Duration) func(o *sharingv1alpha1.ResourceOffer) {
		return func(o *sharingv1alpha1.ResourceOffer) { o.Spec.ExpirationTime = seconds(noon.Add(in)) }
	}
	for name, tc := range map[string]struct {
		offer  *sharingv1alpha1.ResourceOffer
		node   *offloadingv1beta1.VirtualNode
		change func(*received)
		want   string // the plan, phase and reason
		used   bool   // the status shows the offer as used
		again  time.Duration
	}{
		"a new one":    {copied(), nil, nil, "keep Accepted Accepted", true, 0},
		"by hand, new": {copied(), nil, func(r *received) { r.mode = Manual }, "ManualActionRequired AcceptanceRequired", false, 0},
		"by hand, accepted": {copied(func(o *sharingv1alpha1.ResourceOffer) {
			o.Annotations = map[string]string{sharingv1alpha1.AcceptedAnnotation: "true"}
		}), nil, func(r *received) { r.mode = Manual }, "keep Accepted Accepted", true, 0},
		"by hand, in use":        {copied(), mine, func(r *received) { r.mode = Manual }, "keep Accepted Accepted", true, 0},
		"no credentials":         {copied(), nil, func(r *received) { r.secret = "" }, "wait", false, 0},
		"no credentials for now": {copied(), mine, func(r *received) { r.secret = "" }, "keep Accepted Accepted", true, 0},
		"made by hand":           {copied(), hand, nil, "ManualActionRequired NameTaken", false, 0},
		"withdrawn":              {copied(withdrawn), mine, nil, "drain Refused Withdrawn", true, 0},
		"withdrawn and gone":     {copied(withdrawn), nil, nil, "Refused Withdrawn", false, 0},
		"not wanted":             {copied(), mine, func(r *received) { r.wanted = false }, "drain Refused NotWanted", true, 0},
		"not wanted and gone":    {copied(), nil, func(r *received) { r.wanted = false }, "Refused NotWanted", false, 0},
		"not wanted, by hand":    {copied(), hand, func(r *received) { r.wanted = false }, "Refused NotWanted", false, 0},
		"will expire":            {copied(expires(time.Minute)), mine, nil, "keep Accepted Accepted", true, time.Minute},
		"expires now":            {copied(expires(0)), mine, nil, "drain Refused Expired", true, 0},
		"no good":                {copied(func(o *sharingv1alpha1.ResourceOffer) { o.Spec.Labels = map[string]string{"liqo.io/x": "y"} }), nil, nil, "Refused InvalidOffer", false, 0},
		"no good any more":       {copied(func(o *sharingv1alpha1.ResourceOffer) { o.Spec.Labels = map[string]string{"liqo.io/x": "y"} }), mine, nil, "Refused InvalidOffer", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := received{clusterID: "rome", provider: "milan", offer: tc.offer, node: tc.node, wanted: true, secret: "milan", mode: Automatic, now: noon}
			if tc.change != nil {
				tc.change(&r)
			}
			p := r.decide()
			var have []string
			for word, is := range map[string]bool{"keep": p.keep, "drain": p.drain, "wait": p.wait} {
				if is {
					have = append(have, word)
				}
			}
			if !p.wait {
				have = append(have, string(p.status.Phase), p.status.Reason)
			}
			require.Equal(t, tc.want, strings.Join(have, " "))
			require.Equal(t, tc.used, p.status.VirtualNode != "")
			require.Equal(t, tc.again, p.again)
		})
	}
}

func TestVirtualNodeOfAnOffer(t *testing.T) {
	t.Parallel()
	o := copied(func(o *sharingv1alpha1.ResourceOffer) {
		o.Spec.Labels, o.Spec.NodeSelector = map[string]string{"region": "north"}, map[string]string{"pool": "shared"}
		o.Spec.StorageClasses, o.Spec.IngressClasses, o.Spec.LoadBalancerClasses = []string{"fast", "slow"}, []string{"nginx"}, []string{"lb"}
		o.Spec.Images = []corev1.ContainerImage{{Names: []string{"nginx:1"}}}
		o.Spec.Pressures = []corev1.NodeConditionType{corev1.NodeDiskPressure}
	})
	vn := virtualNode(nil, o, "milan")
	require.Equal(t, "liqo-tenant-milan/milan", vn.Namespace+"/"+vn.Name)
	require.True(t, ours(vn))
	require.Equal(t, map[string]string{offloadingv1beta1.ManagedByLabel: "resourceoffer", corev1beta1.RemoteClusterIDLabel: "milan"}, vn.Labels)
	require.Equal(t, offloadingv1beta1.VirtualNodeSpec{
		ClusterID: "milan", KubeconfigSecretRef: corev1.LocalObjectReference{Name: "milan"}, ResourceQuota: o.Spec.ResourceQuota, Labels: o.Spec.Labels, Images: o.Spec.Images, Pressures: o.Spec.Pressures,
		StorageClasses:      []offloadingv1beta1.ClassOffer{{StorageClassName: "fast", Default: true}, {StorageClassName: "slow"}},
		IngressClasses:      []offloadingv1beta1.ClassOffer{{IngressClassName: "nginx", Default: true}},
		LoadBalancerClasses: []offloadingv1beta1.ClassOffer{{LoadBalancerClassName: "lb", Default: true}},
		OffloadingPatch:     &offloadingv1beta1.OffloadingPatch{NodeSelector: map[string]string{"pool": "shared"}},
	}, vn.Spec)
	require.Equal(t, vn, virtualNode(vn, o, "milan"))

	// Additions by people stay; the offer's own fields are restored.
	vn.UID, vn.Finalizers = types.UID("1"), []string{"x"}
	vn.Spec.Taints, vn.Spec.VirtualKubelet.NodeAddress = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}, "10.0.0.1"
	vn.Spec.OffloadingPatch.Tolerations = []corev1.Toleration{{Key: "b"}}
	vn.Spec.ResourceQuota.Hard = list{"cpu": q("1000")}
	vn.Spec.Labels = map[string]string{"region": "south"}
	next := virtualNode(vn, o, "milan")
	require.Equal(t, metav1.ObjectMeta{Namespace: vn.Namespace, Name: vn.Name, UID: vn.UID, Finalizers: vn.Finalizers, Labels: vn.Labels}, next.ObjectMeta)
	require.Equal(t, vn.Spec.Taints, next.Spec.Taints)
	require.Equal(t, "10.0.0.1", next.Spec.VirtualKubelet.NodeAddress)
	require.Equal(t, vn.Spec.OffloadingPatch.Tolerations, next.Spec.OffloadingPatch.Tolerations)
	require.Equal(t, o.Spec.ResourceQuota.Hard, next.Spec.ResourceQuota.Hard)
	require.Equal(t, o.Spec.Labels, next.Spec.Labels)
	o.Spec.NodeSelector = nil
	require.Empty(t, virtualNode(next, o, "milan").Spec.OffloadingPatch.NodeSelector)
}

func FuzzCheckOffer(f *testing.F) {
	f.Add("milan", "cpu", "1", "region", "north", "fast")
	f.Add("milan-2", "example.com/gpu", "-1", "liqo.io/type", "x", "")
	f.Fuzz(func(t *testing.T, name, resourceName, amount, key, value, class string) {
		o := copied()
		o.Name = name
		if len(amount) < 40 {
			if parsed, err := resource.ParseQuantity(amount); err == nil {
				o.Spec.ResourceQuota.Hard = list{corev1.ResourceName(resourceName): parsed}
			}
		}
		o.Spec.Labels, o.Spec.StorageClasses = map[string]string{key: value}, []string{class}
		if checkOffer("rome", "milan", o) == nil {
			require.True(t, sharingv1alpha1.ValidOfferName("milan", name))
			require.False(t, strings.HasPrefix(key, "liqo.io/") && key != "liqo.io/provider")
		}
	})
}
