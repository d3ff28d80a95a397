package virtualnode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

var t0 = metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))

func plainVirtualNode(change ...func(*offloadingv1beta1.VirtualNode)) *offloadingv1beta1.VirtualNode {
	vn := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID:     "milan",
			ResourceQuota: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}},
			Labels:        map[string]string{"region": "north"},
		},
	}
	for _, c := range change {
		c(vn)
	}
	return vn
}

func facts(change ...func(*NodeFacts)) NodeFacts {
	f := NodeFacts{
		NodeSettings: NodeSettings{Name: "milan", Addresses: []string{"10.0.0.7"}, Port: 10250}, Now: t0,
		Remote: Remote{Ready: ptr.To(true), Reason: "KubeletReady", Version: version.Info{GitVersion: "v1.36.3", Platform: "linux/arm64"}},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

// conditionOf returns a condition of a Node; it is empty if there is none.
func conditionOf(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func ready(n *corev1.Node) corev1.NodeCondition { return conditionOf(n, corev1.NodeReady) }

func TestWantNewNode(t *testing.T) {
	n := WantNode(nil, plainVirtualNode(), facts())
	require.Equal(t, "liqo://milan/milan", n.Spec.ProviderID)
	require.Equal(t, "virtual-node", n.Labels["liqo.io/type"])
	require.Equal(t, "virtual-kubelet", n.Labels["type"], "cluster-autoscaler, core/utils/utils.go, leaves these Nodes out")
	require.Equal(t, "milan", n.Labels["liqo.io/remote-cluster-id"])
	require.Equal(t, "north", n.Labels["region"])
	require.Equal(t, "arm64", n.Labels[corev1.LabelArchStable])
	require.Equal(t, []corev1.Taint{{Key: "virtual-node.liqo.io/not-allowed", Value: "true", Effect: corev1.TaintEffectNoExecute}}, n.Spec.Taints)
	require.Equal(t, "4", n.Status.Capacity.Cpu().String())
	require.Equal(t, "v1.36.3", n.Status.NodeInfo.KubeletVersion)
	require.Equal(t, int32(10250), n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	require.Contains(t, n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.7"})
	require.Equal(t, corev1.ConditionTrue, ready(n).Status)
}

// TestPressures: the node has the pressures of the provider, and no others. Without a change nothing is written.
func TestPressures(t *testing.T) {
	pressed := plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.Pressures = []corev1.NodeConditionType{corev1.NodeDiskPressure}
	})
	n := WantNode(nil, pressed, facts())
	require.Equal(t, corev1.ConditionTrue, conditionOf(n, corev1.NodeDiskPressure).Status)
	require.Equal(t, "RemoteClusterHasDiskPressure", conditionOf(n, corev1.NodeDiskPressure).Reason)
	require.Equal(t, corev1.ConditionFalse, conditionOf(n, corev1.NodeMemoryPressure).Status)
	require.Equal(t, corev1.ConditionFalse, conditionOf(n, corev1.NodePIDPressure).Status)
	require.Equal(t, corev1.ConditionTrue, ready(n).Status)
	require.Equal(t, n, WantNode(n, pressed, facts()))
	n = WantNode(n, plainVirtualNode(), facts())
	require.Equal(t, corev1.ConditionFalse, conditionOf(n, corev1.NodeDiskPressure).Status)
	require.Equal(t, "RemoteClusterHasNoDiskPressure", conditionOf(n, corev1.NodeDiskPressure).Reason)
}

// The Node has the node ports that its vkubelet answers, whatever others have written there.
func TestNodePortsOnTheNode(t *testing.T) {
	const key = offloadingv1beta1.NodePortsAnnotation
	vn := plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.Annotations = map[string]string{key: "1", "note": "x"}
	})
	answering := facts(func(f *NodeFacts) { f.Remote.NodePorts = "30080,30443" })
	n := WantNode(nil, vn, facts())
	require.Empty(t, n.Annotations[key])
	n = WantNode(n, vn, answering)
	require.Equal(t, "30080,30443", n.Annotations[key])
	require.Equal(t, "x", n.Annotations["note"])
	n.Annotations[key] = "10250"
	require.Equal(t, "30080,30443", WantNode(n, plainVirtualNode(), answering).Annotations[key])
	require.Empty(t, WantNode(n, vn, facts()).Annotations[key])
}

func TestWantIsStable(t *testing.T) {
	once := WantNode(nil, plainVirtualNode(), facts())
	later := facts(func(f *NodeFacts) { f.Now = metav1.NewTime(t0.Add(time.Hour)) })
	require.Equal(t, once, WantNode(once, plainVirtualNode(), later), "a restart with nothing changed must write nothing")
}

func TestWantKeepsWhatOthersSet(t *testing.T) {
	have := WantNode(nil, plainVirtualNode(), facts())
	have.Labels["other"] = "kept"
	delete(have.Labels, "type")
	have.Spec.Unschedulable = true
	foreign := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}
	have.Spec.Taints = append([]corev1.Taint{foreign}, have.Spec.Taints...)

	n := WantNode(have, plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.Labels = map[string]string{"zone": "a", "type": "gpu"}
		vn.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}), facts())
	require.Equal(t, "kept", n.Labels["other"])
	require.Equal(t, "virtual-kubelet", n.Labels["type"])
	require.NotContains(t, n.Labels, "region", "a label that the VirtualNode no longer has goes")
	require.Equal(t, "a", n.Labels["zone"])
	require.True(t, n.Spec.Unschedulable)
	require.Contains(t, n.Spec.Taints, foreign)
	require.Len(t, n.Spec.Taints, 3)

	n = WantNode(n, plainVirtualNode(), facts())
	require.Len(t, n.Spec.Taints, 2, "and so does a taint")
}

// TestNoStorage: the scheduler sees by a label that no volume is made on a node.
func TestNoStorage(t *testing.T) {
	offers := func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.StorageClasses = []offloadingv1beta1.ClassOffer{{StorageClassName: "fast"}}
	}
	const label = "offloading.liqo.io/no-storage"
	none := WantNode(nil, plainVirtualNode(), facts())
	require.Equal(t, "true", none.Labels[label])
	require.NotContains(t, WantNode(none, plainVirtualNode(offers), facts()).Labels, label)
	require.Contains(t, WantNode(none, plainVirtualNode(offers), facts(func(f *NodeFacts) { f.NoVolumes = true })).Labels, label)
}

// TestTaintSwitch: the VirtualNode decides, then the setting. What others have set stays.
func TestTaintSwitch(t *testing.T) {
	taint := offloadingv1beta1.VirtualNodeTaint()
	gpu, notReady := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}
	for name, tc := range map[string]struct {
		setting bool
		spec    *bool
		tainted bool
	}{
		"by default":               {setting: true, tainted: true},
		"the setting":              {},
		"the VirtualNode takes it": {setting: true, spec: ptr.To(false)},
		"the VirtualNode gives it": {spec: ptr.To(true), tainted: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range []*bool{ptr.To(true), ptr.To(false)} {
				change := func(switched *bool) *offloadingv1beta1.VirtualNode {
					return plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
						vn.Spec.VirtualKubelet.NodeTaint, vn.Spec.Taints = switched, []corev1.Taint{gpu}
					})
				}
				have := WantNode(nil, change(before), facts())
				have.Spec.Taints = append(have.Spec.Taints, notReady)
				n := WantNode(have, change(tc.spec), facts(func(f *NodeFacts) { f.Untainted = !tc.setting }))
				want := []corev1.Taint{gpu, notReady}
				if tc.tainted {
					want = append(want, taint)
				}
				require.ElementsMatch(t, want, n.Spec.Taints)
			}
		})
	}
	closed := WantNode(nil, plainVirtualNode(), facts(func(f *NodeFacts) { f.Closed = true }))
	require.ElementsMatch(t, []corev1.Taint{taint, {Key: "virtual-node.liqo.io/closed", Effect: corev1.TaintEffectNoSchedule}}, closed.Spec.Taints)
	require.ElementsMatch(t, []corev1.Taint{taint}, WantNode(closed, plainVirtualNode(), facts()).Spec.Taints, "it is open again")
	own := corev1.Taint{Key: taint.Key, Value: "mine", Effect: taint.Effect}
	n := WantNode(nil, plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.VirtualKubelet.NodeTaint, vn.Spec.Taints = ptr.To(false), []corev1.Taint{own}
	}), facts())
	require.Equal(t, []corev1.Taint{own}, n.Spec.Taints, "the author's own one counts")
}

func TestWantCapacityKeysGo(t *testing.T) {
	have := WantNode(nil, plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.ResourceQuota.Hard["example.com/gpu"] = resource.MustParse("1")
	}), facts())
	n := WantNode(have, plainVirtualNode(), facts())
	require.NotContains(t, n.Status.Capacity, corev1.ResourceName("example.com/gpu"))
}

func TestDeclaredFeatures(t *testing.T) {
	both := []string{"InPlacePodLevelResourcesVerticalScaling", "RestartAllContainersOnContainerExits"}
	for name, tc := range map[string]struct {
		version string
		want    []string
	}{
		"has them":       {"v1.36.0", both},
		"before release": {"v1.36.0-alpha.1", both},
		"newer":          {"v1.40.1+k3s1", both},
		"older":          {"v1.35.9", nil},
		"not a version":  {"latest", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := WantNode(nil, plainVirtualNode(), facts(func(f *NodeFacts) { f.Remote.Version.GitVersion = tc.version }))
			require.Equal(t, tc.want, n.Status.DeclaredFeatures)
			again := WantNode(n, plainVirtualNode(), facts(func(f *NodeFacts) { f.Remote.Version = version.Info{} }))
			require.Equal(t, tc.want, again.Status.DeclaredFeatures, "what is not known yet stays as it was")
		})
	}
}

func TestReadyCondition(t *testing.T) {
	up := WantNode(nil, plainVirtualNode(), facts())
	down := Remote{Ready: ptr.To(false), Reason: "RemoteAPIServerNotReady", Message: "3 of the last 5 probes failed"}
	for name, tc := range map[string]struct {
		have   *corev1.Node
		remote Remote
		want   corev1.ConditionStatus
		reason string
	}{
		"new and never contacted":            {nil, Remote{Reason: "RemoteNotContacted"}, corev1.ConditionFalse, "RemoteNotContacted"},
		"goes down":                          {up, down, corev1.ConditionFalse, "RemoteAPIServerNotReady"},
		"no verdict yet: predecessor's word": {up, Remote{Reason: "RemoteNotContacted"}, corev1.ConditionTrue, "KubeletReady"},
		"comes back":                         {WantNode(up, plainVirtualNode(), facts(func(f *NodeFacts) { f.Remote = down })), facts().Remote, corev1.ConditionTrue, "KubeletReady"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ready(WantNode(tc.have, plainVirtualNode(), facts(func(f *NodeFacts) { f.Remote = tc.remote })))
			require.Equal(t, tc.want, got.Status)
			require.Equal(t, tc.reason, got.Reason)
		})
	}
}

// TestRefusedReflection: the Node says which objects its provider refuses, and when that is over. A Node whose
// provider has refused nothing has no such condition.
func TestRefusedReflection(t *testing.T) {
	refused := func(n *corev1.Node) string {
		c := conditionOf(n, offloadingv1beta1.ReasonReflectionRefused)
		return string(c.Status) + " " + c.Reason + " " + c.Message
	}
	up := WantNode(nil, plainVirtualNode(), facts())
	require.Equal(t, "  ", refused(up))
	some := WantNode(up, plainVirtualNode(), facts(func(f *NodeFacts) { f.Remote.Refused = "service shop/ext: no" }))
	require.Equal(t, "True ReflectionRefused service shop/ext: no", refused(some))
	require.Equal(t, "False NothingRefused ", refused(WantNode(some, plainVirtualNode(), facts())))
}

// TestSilentController: a provider without a controller creates no pods, and runs those that it
// has: the Node is Ready, and has a condition that says so. A provider of which nothing is known
// has no such condition.
func TestSilentController(t *testing.T) {
	silent := func(n *corev1.Node) string {
		c := conditionOf(n, offloadingv1beta1.ReasonControllerSilent)
		return string(c.Status) + " " + c.Message
	}
	up := WantNode(nil, plainVirtualNode(), facts())
	require.Equal(t, " ", silent(up))
	lone := WantNode(up, plainVirtualNode(), facts(func(f *NodeFacts) { f.Remote.Silent = "no controller" }))
	require.Equal(t, "True no controller", silent(lone))
	require.Equal(t, corev1.ConditionTrue, ready(lone).Status)
	require.Equal(t, "True no controller", silent(WantNode(lone, plainVirtualNode(), facts(func(f *NodeFacts) { f.Remote = Remote{Reason: "RemoteNotContacted"} }))),
		"no verdict yet: predecessor's word")
	require.Equal(t, "False ", silent(WantNode(lone, plainVirtualNode(), facts())))
}

func network(n *corev1.Node) corev1.NodeCondition {
	return conditionOf(n, corev1.NodeNetworkUnavailable)
}

func TestNetworkUnavailable(t *testing.T) {
	told := func(status metav1.ConditionStatus) *metav1.Condition {
		return &metav1.Condition{Status: status, Reason: "Why", Message: "because"}
	}
	with := func(c *metav1.Condition) func(*NodeFacts) { return func(f *NodeFacts) { f.Network = c } }
	down := WantNode(nil, plainVirtualNode(), facts(with(told(metav1.ConditionFalse))))
	up := WantNode(nil, plainVirtualNode(), facts(with(told(metav1.ConditionTrue))))
	unchecked := plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) { vn.Spec.DisableNetworkCheck = ptr.To(true) })
	checked := plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) { vn.Spec.DisableNetworkCheck = ptr.To(false) })
	for name, tc := range map[string]struct {
		have   *corev1.Node
		vn     *offloadingv1beta1.VirtualNode
		told   *metav1.Condition
		want   corev1.ConditionStatus
		reason string
	}{
		"no fabric":                   {nil, checked, nil, corev1.ConditionFalse, "NetworkNotChecked"},
		"it works":                    {nil, checked, told(metav1.ConditionTrue), corev1.ConditionFalse, "LiqoNetworkingUp"},
		"it does not":                 {up, checked, told(metav1.ConditionFalse), corev1.ConditionTrue, "Why"},
		"unknown, new":                {nil, checked, told(metav1.ConditionUnknown), corev1.ConditionUnknown, "Why"},
		"unknown, and it worked":      {up, checked, told(metav1.ConditionUnknown), corev1.ConditionUnknown, "Why"},
		"unknown, and it did not":     {down, checked, told(metav1.ConditionUnknown), corev1.ConditionTrue, "Why"},
		"it works again":              {down, checked, told(metav1.ConditionTrue), corev1.ConditionFalse, "LiqoNetworkingUp"},
		"it does not, and is ignored": {down, unchecked, told(metav1.ConditionFalse), corev1.ConditionFalse, "NetworkCheckDisabled"},
	} {
		t.Run(name, func(t *testing.T) {
			got := network(WantNode(tc.have, tc.vn, facts(with(tc.told))))
			require.Equal(t, tc.want, got.Status)
			require.Equal(t, tc.reason, got.Reason)
		})
	}
	// It is told also while nothing is known of the provider's API server.
	unknown := facts(with(told(metav1.ConditionFalse)), func(f *NodeFacts) { f.Remote = Remote{Reason: "RemoteNotContacted"} })
	require.Equal(t, corev1.ConditionTrue, network(WantNode(up, plainVirtualNode(), unknown)).Status)
}

// An unknown network changes nothing for the grace period, and then counts as down. Neither a
// restart nor the clock of another replica prolongs or shortens that.
func TestUnknownNetworkFailsSafe(t *testing.T) {
	const grace = 30 * time.Second
	began := facts().Now
	at := func(after time.Duration, status metav1.ConditionStatus, reason string) NodeFacts {
		return facts(func(f *NodeFacts) {
			f.Network, f.Grace = &metav1.Condition{Status: status, Reason: reason}, grace
			f.Now = metav1.NewTime(began.Add(after))
		})
	}
	up := WantNode(nil, plainVirtualNode(), at(-time.Hour, metav1.ConditionTrue, "Up"))
	unknown := WantNode(up, plainVirtualNode(), at(0, metav1.ConditionUnknown, "NoGateway"))
	ahead := WantNode(up, plainVirtualNode(), at(5*time.Minute, metav1.ConditionUnknown, "NoGateway"))
	for name, tc := range map[string]struct {
		have *corev1.Node
		told NodeFacts
		want corev1.ConditionStatus
		left time.Duration
	}{
		"it has just become unknown":       {up, at(0, metav1.ConditionUnknown, "NoGateway"), corev1.ConditionUnknown, grace},
		"it was never known":               {nil, at(0, metav1.ConditionUnknown, "Negotiating"), corev1.ConditionUnknown, grace},
		"within the grace":                 {unknown, at(29*time.Second, metav1.ConditionUnknown, "NoGateway"), corev1.ConditionUnknown, time.Second},
		"another reason begins none anew":  {unknown, at(29*time.Second, metav1.ConditionUnknown, "NoController"), corev1.ConditionUnknown, time.Second},
		"the grace is over":                {unknown, at(grace, metav1.ConditionUnknown, "NoGateway"), corev1.ConditionTrue, 0},
		"back within the grace":            {unknown, at(29*time.Second, metav1.ConditionTrue, "Up"), corev1.ConditionFalse, 0},
		"down within the grace":            {unknown, at(time.Second, metav1.ConditionFalse, "Down"), corev1.ConditionTrue, 0},
		"the last replica's clock was off": {ahead, at(0, metav1.ConditionUnknown, "NoGateway"), corev1.ConditionUnknown, grace},
	} {
		t.Run(name, func(t *testing.T) {
			n := WantNode(tc.have, plainVirtualNode(), tc.told)
			require.Equal(t, tc.want, network(n).Status)
			left, isUnknown := graceLeft(&n.Status, tc.told)
			require.Equal(t, tc.want == corev1.ConditionUnknown, isUnknown)
			require.Equal(t, tc.left, left)
		})
	}
	over := WantNode(unknown, plainVirtualNode(), at(time.Minute, metav1.ConditionUnknown, "NoGateway"))
	require.Equal(t, "NoGateway", network(over).Reason)
	stays := WantNode(over, plainVirtualNode(), at(time.Minute+time.Second, metav1.ConditionUnknown, "NoGateway"))
	require.Equal(t, corev1.ConditionTrue, network(stays).Status, "it stays down until somebody can tell")
	back := WantNode(stays, plainVirtualNode(), at(2*time.Minute, metav1.ConditionTrue, "Up"))
	require.Equal(t, corev1.ConditionFalse, network(back).Status)
}

func TestOwnZone(t *testing.T) {
	own := facts(func(f *NodeFacts) { f.OwnZone = true })
	named := plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.Labels = map[string]string{corev1.LabelTopologyZone: "a"}
	})
	require.NotContains(t, WantNode(nil, plainVirtualNode(), facts()).Labels, corev1.LabelTopologyZone)
	n := WantNode(nil, plainVirtualNode(), own)
	require.Equal(t, "milan.liqo.io", n.Labels[corev1.LabelTopologyZone])
	require.Equal(t, "a", WantNode(n, named, own).Labels[corev1.LabelTopologyZone], "the VirtualNode names a zone")
	require.NotContains(t, WantNode(n, plainVirtualNode(), facts()).Labels, corev1.LabelTopologyZone)
}
