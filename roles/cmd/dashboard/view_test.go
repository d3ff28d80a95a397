package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain":       {"all is well", "all is well"},
		"letters":     {"größer, 大きい, ✔", "größer, 大きい, ✔"},
		"lines":       {"one\ntwo\r\n", "one two  "},
		"terminal":    {"\x1b[31mred", " [31mred"},
		"directions":  {"a\u202egnp.exe\u2066b", "a gnp.exe b"},
		"markup":      {"<b>&</b>", "<b>&</b>"},
		"end of data": {"a\n\ndata: {}", "a  data: {}"},
		"bytes":       {"a\xff\xfeb", "a\uFFFD\uFFFDb"},
		"long":        {strings.Repeat("ä", 5000), strings.Repeat("ä", longest) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			data := must(printable(&View{Headline: tc.in}))
			require.NotContains(t, string(data), "<")
			require.NotContains(t, string(data), "\n")
			var have View
			require.NoError(t, json.Unmarshal(data, &have))
			require.Equal(t, tc.want, have.Headline)
		})
	}
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) []corev1.PodCondition {
	return []corev1.PodCondition{{Type: kind, Status: status, Reason: reason, Message: message}}
}

var now = time.Date(2030, 5, 4, 12, 0, 0, 0, time.UTC)

// shop is a picture of rome, whose namespace shop has pods in rome, in milan and nowhere.
func shop() *picture {
	pod := func(name, node string, status corev1.PodStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-2 * time.Minute))}, Spec: corev1.PodSpec{NodeName: node}, Status: status}
	}
	ready := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: condition(corev1.PodReady, corev1.ConditionTrue, "", "")}
	p := &picture{
		Snapshot: &report.Snapshot{
			Whole: map[string]error{"shop": nil}, Taken: now, ClusterID: "rome", Namespace: "liqod", Kubernetes: "v1.36.3", Unread: map[string]error{},
			ForeignClusters: []corev1beta1.ForeignCluster{{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"},
				Status: corev1beta1.ForeignClusterStatus{Role: corev1beta1.RoleProvider}}},
			VirtualNodes: []offloadingv1beta1.VirtualNode{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan-big"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}},
			Offloadings: []offloadingv1beta1.NamespaceOffloading{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"},
				Spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote},
				Status: offloadingv1beta1.NamespaceOffloadingStatus{OffloadingPhase: offloadingv1beta1.PhaseReady, RemoteNamespacesConditions: map[string][]metav1.Condition{
					"milan": {{Type: offloadingv1beta1.RemoteNamespaceReady, Status: metav1.ConditionTrue}}}}}},
		},
	}
	p.Pods = []corev1.Pod{
		pod("web-1", "rome-1", ready), pod("web-2", "milan-big", ready), pod("web-3", "milan-big", corev1.PodStatus{Phase: corev1.PodRunning}),
		pod("web-4", "", corev1.PodStatus{Phase: corev1.PodPending, Conditions: condition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "0/3 nodes")}),
		pod("job", "milan-big", corev1.PodStatus{Phase: corev1.PodSucceeded}),
	}
	return p
}

func TestNamespace(t *testing.T) {
	v := view(shop())
	require.Len(t, v.Namespaces, 1)
	ns := v.Namespaces[0]
	require.Equal(t, report.Problem, ns.Level)
	require.Equal(t, []Place{
		{Kind: placeHere, Name: "rome", Pods: 1, Ready: 1}, {Kind: placePeer, Name: "milan", Pods: 2, Ready: 1}, {Kind: placeNowhere, Name: "no node yet", Pods: 1},
	}, ns.Places)
	require.Equal(t, []int{1, 1}, []int{ns.Broken, ns.Waiting})
	require.Equal(t, []string{"web-4", "web-3", "job", "web-1", "web-2"}, []string{ns.Pods[0].Name, ns.Pods[1].Name, ns.Pods[2].Name, ns.Pods[3].Name, ns.Pods[4].Name})
	require.Equal(t, Pod{report.Pod{Level: report.Problem, Name: "web-4", State: "Unschedulable", Why: "0/3 nodes", Judged: true}, "no node yet"}, ns.Pods[0])
	require.Equal(t, report.Problem, v.Health)
	require.Equal(t, report.Summarize(shop().Snapshot).Health, v.Health)
}

// Volumes are those of own claims, the lost ones first, and data that is kept without a claim.
func TestVolumes(t *testing.T) {
	p := shop()
	claim := func(name string, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaim {
		return corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": offloadingv1beta1.StorageProvisioner}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-" + name, StorageClassName: new("liqo")}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
		}
	}
	volume := func(name string, phase corev1.PersistentVolumePhase) corev1.PersistentVolume {
		return corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + name, Labels: map[string]string{corev1beta1.RemoteClusterIDLabel: "milan"}, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": offloadingv1beta1.StorageProvisioner}},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: name, UID: types.UID(name)}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain},
			Status:     corev1.PersistentVolumeStatus{Phase: phase},
		}
	}
	p.Claims = []corev1.PersistentVolumeClaim{claim("data", corev1.ClaimBound), claim("gone", corev1.ClaimLost)}
	p.Volumes = []corev1.PersistentVolume{volume("data", corev1.VolumeBound), volume("old", corev1.VolumeReleased)}
	have := view(p)
	var shown [][]string
	for _, v := range have.Volumes {
		shown = append(shown, []string{string(v.Level), v.Claim, v.Size, v.Where, v.Phase, v.Why})
	}
	require.Equal(t, [][]string{
		{"problem", "shop/gone", "0", "unknown", "lost", "PersistentVolume pvc-gone is gone"},
		{"ok", "shop/data", "0", "cluster milan", "bound", ""},
		{"ok", "shop/old", "0", "cluster milan", "kept", "its claim is gone, and the reclaim policy of PersistentVolume pvc-old is Retain"},
	}, shown)
	require.Contains(t, have.Kept, "1 volume whose claim is gone")
	p.Unread = map[string]error{report.ReadClaims: errors.New("no right")}
	p.Claims = nil
	have = view(p)
	require.Equal(t, []string{"bound", "kept"}, []string{have.Volumes[0].Phase, have.Volumes[1].Phase}, "without claims, none is taken for gone")
	require.Contains(t, have.Unread, Unread{Section: sectionVolumes, What: report.ReadClaims, Why: "no right"})
	p.Volumes = nil
	for i := range shownVolumes + 2 {
		p.Volumes = append(p.Volumes, volume(fmt.Sprint(i), corev1.VolumeReleased))
	}
	have = view(p)
	require.Len(t, have.Volumes, shownVolumes)
	require.Equal(t, 2, have.MoreVolumes)
}

func TestManyPods(t *testing.T) {
	p := shop()
	for i := range 500 {
		p.Pods = append(p.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("a-%03d", i)}, Spec: corev1.PodSpec{NodeName: "rome-1"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}})
	}
	ns := view(p).Namespaces[0]
	require.Len(t, ns.Pods, shownPods)
	require.Equal(t, 405, ns.More)
	require.Equal(t, "web-4", ns.Pods[0].Name, "those in trouble come first")
}

// A read that failed makes the health unknown, and is named in the section that lacks it.
func TestUnread(t *testing.T) {
	for what, section := range map[string]string{
		report.ReadForeignClusters: sectionClusters, report.ReadNetworks: sectionClusters, report.ReadOffers: sectionClusters, report.ReadTenants: sectionClusters,
		report.ReadVirtualNodes: sectionCapacity, report.ReadNodes: sectionCapacity, report.ReadOffloadings: sectionNamespaces, report.ReadPods: sectionNamespaces,
		report.ReadMaps: sectionHosted, report.ReadLeases: sectionParts, "something new": sectionClusters,
	} {
		p := &picture{Snapshot: &report.Snapshot{Kubernetes: "v1.36.3", Unread: map[string]error{what: errors.New("forbidden")}}}
		v := view(p)
		require.Equal(t, []Unread{{Section: section, What: what, Why: "forbidden"}}, v.Unread)
		require.NotEqual(t, report.OK, v.Health)
		require.NotEqual(t, "healthy", v.Headline)
	}
	p := shop()
	p.Pods, p.Whole["shop"] = nil, errors.New("forbidden")
	p.keepEvents("shop", nil, false, errors.New("forbidden"))
	p.keepEvents("liqod", nil, true, nil)
	v := view(p)
	require.True(t, v.Namespaces[0].Unread)
	require.Equal(t, report.Unknown, v.Namespaces[0].Level)
	require.Len(t, v.Unread, 2)
	require.Contains(t, string(v.Unread[0].Why), "more events than are read")
}

func role(name string, ready int32) appsv1.Deployment {
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod-" + name, Labels: map[string]string{report.ComponentLabel: name}},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}, Status: appsv1.DeploymentStatus{ReadyReplicas: ready},
	}
}

func TestParts(t *testing.T) {
	p := shop()
	p.Roles = []appsv1.Deployment{role("webhook", 1), role(report.Controller, 0), role("gateway", 0), role("ipam", 2)}
	p.DaemonSets = []appsv1.DaemonSet{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod-route", Labels: map[string]string{report.ComponentLabel: "route", "app.kubernetes.io/name": "liqod"}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}},
	}
	p.Leases = []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: report.LeaseName(report.Webhook)}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("webhook-0"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: ptr.To(metav1.NewMicroTime(p.Taken))}}}
	v := view(p)
	var have []string
	for _, part := range v.Parts {
		have = append(have, fmt.Sprintf("%s %s %d/%d", part.Name, part.Level, part.Ready, part.Want))
	}
	require.Equal(t, []string{"controller problem 0/2", "webhook warning 1/2", "ipam ok 2/2", "gateway problem 0/2", "route problem 0/0"}, have)
	require.Equal(t, "no node takes it", v.Parts[4].Message)
	subjects := map[string]int{}
	for _, problem := range v.Problems {
		subjects[problem.Subject]++
	}
	for _, name := range []string{"role controller", "role gateway", "role route"} {
		require.Equal(t, 1, subjects[name], name)
	}
}

// The same trouble with several peers is one entry.
func TestProblemsAreFolded(t *testing.T) {
	v := &View{}
	same := report.Folded{Therefore: []string{"pods"}, Finding: report.Finding{Section: "Peering with milan", Peer: "milan", Level: report.Unknown, Subject: "network", Message: "no gateway", Fix: "look\nagain"}}
	v.addProblem(same, "liqod")
	same.Peer = "turin"
	v.addProblem(same, "liqod")
	same.Message = "another"
	v.addProblem(same, "liqod")
	v.addProblem(report.Folded{Finding: report.Finding{Section: "Installation", Level: report.Problem, Subject: "CRDs"}}, "liqod")
	v.addProblem(report.Folded{Finding: report.Finding{Section: "Installation", Level: report.Problem, Subject: "CRDs"}}, "liqod")
	require.Len(t, v.Problems, 4)
	require.Equal(t, "milan, turin", v.Problems[0].Where)
	require.Equal(t, []Step{{Text: "look"}, {Text: "again"}}, v.Problems[0].Fix)
	require.Equal(t, []string{"pods", "pods"}, v.Problems[0].Therefore)
	require.Equal(t, "Installation", v.Problems[2].Where)
}

// What nobody checks has no level.
func TestLevelOf(t *testing.T) {
	found := []report.Finding{{Subject: "network", Level: report.Warning}, {Subject: "network", Level: report.OK}}
	require.Equal(t, report.Warning, levelOf(found, "network"))
	require.Empty(t, levelOf(found, "API server"))
}

func TestEvents(t *testing.T) {
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	p := &picture{Snapshot: &report.Snapshot{VirtualNodes: shop().VirtualNodes}}
	p.keepEvents("shop", []corev1.Event{
		{Reason: "Old", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "old"}, LastTimestamp: at(time.Hour)},
		{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "new"}, LastTimestamp: at(time.Minute), Count: 3, Type: corev1.EventTypeWarning,
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{offloadingv1beta1.OriginLabel: "milan"}}},
		{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "series"}, EventTime: metav1.NewMicroTime(now.Add(-time.Hour)),
			Series: &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(now)}},
		{Reason: "Made", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "made"}, ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(2 * time.Hour)}},
	}, false, nil)
	p.keepEvents("default", []corev1.Event{
		{InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "milan-big"}, LastTimestamp: at(2 * time.Minute)},
		{InvolvedObject: corev1.ObjectReference{Kind: "ForeignCluster", Name: "milan"}, LastTimestamp: at(3 * time.Minute)},
		{InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "rome-1"}, LastTimestamp: at(0)},
		{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "other"}, LastTimestamp: at(0)},
	}, false, nil)
	var have []string
	for _, e := range events(p) {
		have = append(have, fmt.Sprintf("%s %d %t %s", e.Object, e.Count, e.Warning, e.From))
	}
	require.Equal(t, []string{"Pod shop/series 7 false ", "Pod shop/new 3 true milan", "Node milan-big 1 false ", "ForeignCluster milan 1 false ", "Pod shop/old 1 false ", "Pod shop/made 1 false "}, have)
	for i := range 300 {
		p.events = append(p.events, corev1.Event{Reason: fmt.Sprintf("R%d", i)})
	}
	require.Len(t, events(p), shownEvents)
}

// Equal events of several objects are one, with the newest of them.
func TestEventsAreFolded(t *testing.T) {
	p := &picture{Snapshot: &report.Snapshot{}}
	add := func(name, level, message string, age time.Duration, count int32) {
		p.events = append(p.events, corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name}, Type: level, Reason: "R", Message: message,
			Count: count, LastTimestamp: metav1.NewTime(now.Add(-age))})
	}
	add("web-1", corev1.EventTypeNormal, "pulled in 31ms for web-1", 3*time.Minute, 1)
	add("web-2", corev1.EventTypeNormal, "pulled in 2ms for web-2", time.Minute, 1)
	add("web-2", corev1.EventTypeNormal, "pulled in 4ms for web-2", 2*time.Minute, 2)
	add("web-1", corev1.EventTypeWarning, "status 500", 4*time.Minute, 5)
	add("web-1", corev1.EventTypeWarning, "status 503", 5*time.Minute, 1)
	add("web-3", corev1.EventTypeWarning, "status 503", 6*time.Minute, 1)
	var have []string
	for _, e := range events(p) {
		have = append(have, fmt.Sprintf("%s +%d: %s (%d)", e.Object, e.Others, e.Message, e.Count))
	}
	require.Equal(t, []string{"Pod shop/web-2 +1: pulled in 2ms for web-2 (4)", "Pod shop/web-1 +0: status 500 (5)", "Pod shop/web-1 +1: status 503 (2)"}, have)
}

// A line of a fix is a command if it begins with a program.
func TestSteps(t *testing.T) {
	long := "kubectl " + strings.Repeat("x", longest)
	require.Equal(t, []Step{{"liqod unpeer milan", true}, {"or:", false}, {"kubectl get nodes", true}, {"  kubectl is a word", false}, {"liqodx", false}, {long, false}},
		steps("liqod unpeer milan\nor:\nkubectl get nodes\n  kubectl is a word\nliqodx\n"+long, "liqod"))
	require.Empty(t, steps("", "liqod"))
}

// The namespaces that are read follow from the offloadings and peers.
func TestTake(t *testing.T) {
	source := &still{snapshot: *shop().Snapshot, events: map[string][]corev1.Event{
		"shop": {{}}, "liqo-tenant-milan": {{}, {}}, "liqod": {{}, {}, {}}}}
	p := must(take(t.Context(), source))
	require.Len(t, p.events, 6)
	require.Len(t, p.unread, 1, "liqod has more events")
	source.events = nil
	p = must(take(t.Context(), source))
	require.Len(t, p.unread, 4, "events of shop, liqod, the tenant namespace, default")
	source.err = errors.New("away")
	_, err := take(t.Context(), source)
	require.EqualError(t, err, "away")
}

// Nothing of a cluster leaves with control characters, whatever field it is in.
func TestNothingHostileLeaves(t *testing.T) {
	const bad = "x\n\ndata: {}\x1b[2J\u202e\u2028</script>\xff"
	p := shop()
	p.ClusterID, p.Kubernetes, p.Namespace = bad, bad, bad
	p.Unread[bad] = errors.New(bad)
	p.keepEvents(bad, nil, false, errors.New(bad))
	p.events = []corev1.Event{{Reason: bad, Message: bad, InvolvedObject: corev1.ObjectReference{Kind: bad, Name: bad, Namespace: bad}, ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{offloadingv1beta1.OriginLabel: bad}}}}
	p.ForeignClusters = append(p.ForeignClusters, corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: bad}, Status: corev1beta1.ForeignClusterStatus{
		Role: bad, Version: bad, APIServerURL: bad, Conditions: []metav1.Condition{{Type: corev1beta1.ConditionNetwork, Status: bad, Reason: bad, Message: bad}}}})
	p.Offloadings[0].Namespace, p.Offloadings[0].Status.OffloadingPhase, p.Offloadings[0].Spec.PodOffloadingStrategy = bad, bad, bad
	p.Pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: bad, Name: bad}, Spec: corev1.PodSpec{NodeName: bad}, Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: bad, Message: bad}}}
	p.Roles = []appsv1.Deployment{role(bad, 0)}
	p.Maps = []offloadingv1beta1.NamespaceMap{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{offloadingv1beta1.OriginIDLabel: bad, offloadingv1beta1.ReplicatedLabel: "true"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{bad: {RemoteNamespace: bad, Phase: offloadingv1beta1.MappingAccepted}}}}}
	for _, v := range []*View{view(p), nothing(errors.New(bad)), view(p).outdated(errors.New(bad))} {
		data := must(printable(v))
		require.NotContains(t, string(data), "<")
		require.NotContains(t, string(data), "\n")
		require.NotContains(t, string(data), ":null", "the script walks through each list")
		var anything any
		require.NoError(t, json.Unmarshal(data, &anything))
		requirePrintable(t, anything)
	}
}

func requirePrintable(t *testing.T, value any) {
	t.Helper()
	switch v := value.(type) {
	case string:
		for _, r := range v {
			require.True(t, unicode.IsPrint(r), "%q", v)
		}
	case []any:
		for _, e := range v {
			requirePrintable(t, e)
		}
	case map[string]any:
		for _, e := range v {
			requirePrintable(t, e)
		}
	}
}
