package report

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// TestPodsWithoutAProblem: pods that start, wait on purpose, or are no concern of liqod are no
// problem.
func TestPodsWithoutAProblem(t *testing.T) {
	for name, change := range map[string]func(*Snapshot){
		"a first probe has failed": func(s *Snapshot) {
			p := broken(s, "web-3", "milan", unreadyFor("ContainersNotReady", "containers with unready status: [app]"))
			p.CreationTimestamp, p.Status.Conditions[0].LastTransitionTime = ago(20*time.Second), ago(20*time.Second)
			s.Events = []corev1.Event{warningAbout(p, "Unhealthy", "Readiness probe failed")}
		},
		"waits for its twin": func(s *Snapshot) {
			p := broken(s, "web-3", "milan", refusing(offloadingv1beta1.ReasonOffloadingBackOff, "namespace shop has no twin in cluster milan yet"))
			p.CreationTimestamp, p.Status.Conditions[0].LastTransitionTime = ago(20*time.Second), ago(20*time.Second)
		},
		"just taken back": func(s *Snapshot) {
			set(s.Maps[0].Status.Conditions, "Ready", metav1.ConditionFalse, offloadingv1beta1.ReasonTerminating, "1 twin namespaces are being removed")
		},
		"waits at a scheduling gate": func(s *Snapshot) {
			broken(s, "web-3", "", func(st *corev1.PodStatus) {
				st.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}}
			})
		},
		"waits in a namespace that stays here": func(s *Snapshot) {
			s.Offloadings[0].Spec.PodOffloadingStrategy = offloadingv1beta1.PodsLocal
			broken(s, "web-3", "", unplaced("0/4 nodes are available: 4 Insufficient cpu."))
		},
		"waits in a namespace that is not offloaded": func(s *Snapshot) {
			broken(s, "web-3", "", unplaced("0/4 nodes are available: 4 Insufficient cpu.")).Namespace = "lab"
		},
		"keeps off virtual nodes in a namespace that is not offloaded": func(s *Snapshot) {
			p := broken(s, "agent", "", unplaced("0/4 nodes are available: 4 Insufficient cpu."))
			p.Namespace, p.OwnerReferences[0].Kind = "kube-system", "DaemonSet"
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: offloadingv1beta1.TypeLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{offloadingv1beta1.TypeVirtualNode}}}}}}}}
		},
		"of a DaemonSet in a namespace that is not offloaded": func(s *Snapshot) {
			p := broken(s, "agent", "milan", refusing(offloadingv1beta1.ReasonOffloadingBackOff, "namespace kube-system is not offloaded"))
			p.Namespace, p.CreationTimestamp, p.OwnerReferences[0].Kind = "kube-system", ago(time.Hour), "DaemonSet"
			p.Status.Conditions[0].LastTransitionTime = ago(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			change(s)
			status := Summarize(s)
			require.Equal(t, OK, status.Health, status.Text(false))
			require.Empty(t, status.Warnings, status.Text(false))
		})
	}
}

// TestBrokenPodsAreNotHealthy: each state is counted and explained, also in the data for scripts,
// and the peer itself stays healthy.
func TestBrokenPodsAreNotHealthy(t *testing.T) {
	s := healthy(t)
	broken(s, "a", "milan", stuck("ImagePullBackOff", `no image "web:nope"`))
	broken(s, "b", "milan", refusing(offloadingv1beta1.ReasonPodRefused, "privileged"))
	broken(s, "c", "milan", func(st *corev1.PodStatus) {
		unreadyFor(corev1.PodReasonUnschedulable, "in the provider: 0/1 nodes")(st)
	})
	broken(s, "d", "milan", refusing(offloadingv1beta1.ReasonQuotaExceeded, "no room left"))
	p := broken(s, "e", "", unplaced("0/4 nodes are available"))
	offloadedAs(p, offloadingv1beta1.PodsLocalAndRemote, corev1.NodeSelector{})
	status := Summarize(s)
	require.Equal(t, Problem, status.Health)
	require.Equal(t, OK, status.Peers[0].Health, "milan is well, and pods in it are not")
	want := PodCounts{Pods: 6, Ready: 2, NotReady: 1, Refused: 1, Unschedulable: 1, Waiting: 1, Cause: `a: ImagePullBackOff: container app: no image "web:nope"`}
	require.Equal(t, want, status.Namespaces[0].Peers[0].PodCounts)
	require.Equal(t, PodCounts{Pods: 1, Waiting: 1, Cause: "e: Unschedulable: 0/4 nodes are available"}, status.Namespaces[0].NoNode)
	require.Contains(t, status.Text(false), "milan: 2 of 6 pods ready (1 not ready, 1 refused, 1 unschedulable there, 1 waiting), no node yet: 1 pod\n")
	require.Contains(t, status.Text(true), "VIRTUAL NODE   PEER    HEALTH    PODS READY")
	require.Contains(t, status.Text(true), "shop                  LocalAndRemote   Ready   milan   shop-rome     6      2       1           1         1               1         a: ImagePullBackOff:")
	require.Contains(t, status.DetailText(false), "shop as shop-rome: 2 of 6 pods ready")
	require.Equal(t, 5, strings.Count(status.Text(false), "✘"))

	one, err := status.Of("milan")
	require.NoError(t, err)
	require.Equal(t, Problem, one.Health)
	require.Len(t, one.Problems, 4)
}

// TestCausesOfOneReason: a finding quotes a pod for each cause, and not for each restart.
func TestCausesOfOneReason(t *testing.T) {
	s := healthy(t)
	broken(s, "web-a", "milan", crashed(1, "Error"))
	broken(s, "web-b", "milan", crashed(1, "Error")).Status.ContainerStatuses[0].RestartCount = 9
	broken(s, "web-c", "milan", crashed(127, "Error"))
	text := Summarize(s).Text(false)
	require.Contains(t, text, "3 of 5 pods are not ready (CrashLoopBackOff); the first, web-a: container app: it ended with exit code 1 (Error); it was started 4 times"+
		"; web-c: container app: it ended with exit code 127 (Error); it was started 4 times\n")
	require.NotContains(t, text, "web-b")

	s = healthy(t)
	for _, why := range []string{"a", "b", "c", "d", "e", "f"} {
		broken(s, "web-"+why, "milan", refusing("PodRefused", "field "+why+"x"))
	}
	require.Contains(t, Summarize(s).Text(false), "; the first, web-a: field ax; web-b: field bx; web-c: field cx; web-d: field dx; 2 causes more\n")
}

// TestManyCauses: one namespace does not fill the screen.
func TestManyCauses(t *testing.T) {
	s := healthy(t)
	for i := range 3 * mostCauses {
		broken(s, fmt.Sprint("p", i), "milan", refusing(fmt.Sprint("Reason", i), "no"))
	}
	text := Summarize(s).Text(false)
	require.Equal(t, mostCauses+1, strings.Count(text, "✘"), text)
	require.Contains(t, text, "pods are not ready for further reasons")
}

// TestEarlierAffinity: only pods that a controller would create differently now, and that fit a
// node then, have an outdated affinity.
func TestEarlierAffinity(t *testing.T) {
	const remote = offloadingv1beta1.PodsRemote
	own, earlier, all := region("nowhere"), region("nowhere"), corev1.NodeSelector{}
	claims := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
	unread := func(s *Snapshot, _ *corev1.Pod) { s.Templates = nil }
	as := func(p *corev1.Pod, err error) func(*corev1.Pod) {
		require.NoError(t, err)
		return func(to *corev1.Pod) { to.Spec = p.Spec }
	}
	for name, tc := range map[string]struct {
		strategy offloadingv1beta1.PodOffloadingStrategy // of the offloading now
		selector corev1.NodeSelector                     // of the offloading now
		was      *corev1.NodeSelector                    // of the offloading, Remote, when the pod was created
		change   func(*Snapshot, *corev1.Pod)
		want     bool
	}{
		"selector changed":                       {strategy: remote, selector: region("north"), was: &earlier, want: true},
		"selector removed":                       {was: &earlier, want: true},
		"offloading ended":                       {was: &all, change: func(s *Snapshot, _ *corev1.Pod) { s.Offloadings = nil }, want: true},
		"created before the offloading":          {strategy: remote, want: true},
		"present":                                {strategy: remote, was: &all},
		"the present one fits no node either":    {strategy: remote, selector: region("elsewhere"), was: &earlier},
		"with a claim, and the selector changed": {was: &earlier, change: func(_ *Snapshot, p *corev1.Pod) { claims(p) }, want: true},
		"without a controller":                   {was: &earlier, change: func(s *Snapshot, p *corev1.Pod) { unread(s, p); p.OwnerReferences = nil }, want: true},
		"template unread, and present":           {strategy: remote, was: &all, change: unread},
		"has a node by now":                      {was: &earlier, change: func(_ *Snapshot, p *corev1.Pod) { p.Spec.NodeName = "milan" }},
		"of the pod itself": {strategy: remote, change: func(s *Snapshot, p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &own}}
			s.Templates = map[types.UID]corev1.PodTemplateSpec{"web-6c9f": {Spec: corev1.PodSpec{Affinity: p.Spec.Affinity.DeepCopy()}}}
			offloadedAs(p, remote, all)
		}},
		"kept on own nodes by its claim": {change: func(_ *Snapshot, p *corev1.Pod) { claims(p); as(rules.KeepHome(p))(p) }},
		"off virtual nodes without storage by its claim": {change: func(_ *Snapshot, p *corev1.Pod) {
			claims(p)
			offloadedAs(p, offloadingv1beta1.PodsLocalAndRemote, all)
			as(rules.WithStorage(p, true))(p)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			s.Nodes[0].Labels[corev1beta1.RemoteClusterIDLabel], s.Nodes[0].Labels["region"] = "milan", "north"
			s.Offloadings[0].Spec.PodOffloadingStrategy = cmp.Or(tc.strategy, s.Offloadings[0].Spec.PodOffloadingStrategy)
			s.Offloadings[0].Spec.ClusterSelector = tc.selector
			s.Templates = map[types.UID]corev1.PodTemplateSpec{"web-6c9f": {}}
			p := broken(s, "web-3", "", unplaced("0/4 nodes are available"))
			if tc.was != nil {
				offloadedAs(p, remote, *tc.was)
			}
			if tc.change != nil {
				tc.change(s, p)
			}
			require.Equal(t, tc.want, s.outdated(p))
			if tc.want {
				status := Summarize(s)
				require.Equal(t, Problem, status.Health)
				require.Contains(t, status.Text(false), "kubectl -n shop delete pod web-3")
			}
		})
	}
}

func TestOwners(t *testing.T) {
	s := healthy(t)
	for _, name := range []string{"web-3", "web-4"} {
		broken(s, name, "", unplaced("0/4 nodes"))
	}
	broken(s, "web-5", "milan", stuck("ContainerCreating", ""))
	require.Equal(t, []Owner{{"shop", "ReplicaSet", "web-6c9f", "web-6c9f"}}, s.Owners())
	require.Equal(t, []string{"shop"}, s.Unexplained())
}

// TestWordsOfPeersAreNoCommands: a provider writes the messages of pods. No part of them that is not
// a name becomes part of a command that people paste.
func TestWordsOfPeersAreNoCommands(t *testing.T) {
	for _, words := range []string{`configmap "x; rm -rf ~" not found`, "configmap \"$(id)\" not found", "secret \"`id`\" not found", "configmap \"a\nb\" not found", `configmap "-h" not found`} {
		s := healthy(t)
		broken(s, "web-3", "milan", stuck("CreateContainerConfigError", words))
		findings := Summarize(s).Problems
		require.Len(t, findings, 1)
		require.Contains(t, findings[0].Fix, "kubectl -n shop describe pod web-3\n", words)
	}
	s := healthy(t)
	broken(s, "web-3", "milan", refusing("PodRefused", strings.Repeat("é", 4000)))
	require.Less(t, len(Summarize(s).Text(false)), 3000, "a long message is cut")
}

// TestBudgets: only a budget that covers a pod of the virtual node and admits no eviction blocks.
func TestBudgets(t *testing.T) {
	s := healthy(t)
	require.False(t, s.Drains())
	s.VirtualNodes[0].DeletionTimestamp = ptr.To(ago(time.Minute))
	require.True(t, s.Drains())
	require.Len(t, Summarize(s).Warnings, 1)
	require.Contains(t, Summarize(s).Text(false), "1/1 (1 being removed)")
	require.Contains(t, Summarize(s).Text(true), "Being removed")
	for name, tc := range map[string]struct {
		change func(*policyv1.PodDisruptionBudget, *corev1.Pod)
		want   bool
	}{
		"blocks":           {func(*policyv1.PodDisruptionBudget, *corev1.Pod) {}, true},
		"admits":           {func(b *policyv1.PodDisruptionBudget, _ *corev1.Pod) { b.Status.DisruptionsAllowed = 1 }, false},
		"of other pods":    {func(_ *policyv1.PodDisruptionBudget, p *corev1.Pod) { p.Labels = nil }, false},
		"elsewhere":        {func(b *policyv1.PodDisruptionBudget, _ *corev1.Pod) { b.Namespace = "lab" }, false},
		"selects nothing":  {func(b *policyv1.PodDisruptionBudget, _ *corev1.Pod) { b.Spec.Selector = nil }, false},
		"of a DaemonSet":   {func(_ *policyv1.PodDisruptionBudget, p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }, false},
		"pod is not ready": {func(_ *policyv1.PodDisruptionBudget, p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"pod is not ready, and too few are": {func(b *policyv1.PodDisruptionBudget, p *corev1.Pod) {
			p.Status.Conditions, b.Status.CurrentHealthy = nil, 0
		}, true},
		"unhealthy pods may go": {func(b *policyv1.PodDisruptionBudget, p *corev1.Pod) {
			p.Status.Conditions, b.Status.CurrentHealthy = nil, 0
			b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			p := broken(s, "web-3", "milan", func(st *corev1.PodStatus) {
				unreadyFor("", "")(st)
				st.Conditions[0].Status = corev1.ConditionTrue
			})
			s.Budgets = []policyv1.PodDisruptionBudget{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
				Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
				Status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 1}}}
			tc.change(&s.Budgets[0], p)
			require.Equal(t, tc.want, s.blocking(p) != nil)
		})
	}
}

func TestVersionsInOneForm(t *testing.T) {
	for have, want := range map[string]string{
		"0.1.0": "0.1.0", "v0.1.0": "0.1.0", "v0.0.0-20261124120000-abcdef123456": "commit-abcdef123456", "v0.2.0-rc.1": "0.2.0-rc.1",
		"v0.1.1-0.20261124120000-abcdef123456+dirty": "commit-abcdef123456-dirty", "commit-abcdef123456": "commit-abcdef123456", "(devel)": "devel", "": "",
	} {
		require.Equal(t, want, PlainVersion(have), have)
	}
}

// TestPaint: colours change no character of the text.
func TestPaint(t *testing.T) {
	s := healthy(t)
	broken(s, "a", "milan", refusing("PodRefused", "privileged"))
	text := Summarize(s).Text(true)
	painted := Paint(text)
	require.Contains(t, painted, red+"  ✘ "+plain)
	require.Contains(t, painted, green+" Healthy "+plain)
	for _, code := range []string{plain, bold, red, green, yellow, cyan} {
		painted = strings.ReplaceAll(painted, code, "")
	}
	require.Equal(t, text, painted)
}

// TestConsequences: status lists the consequences of a cause below its fix. Check lists a consequence where it belongs,
// with its cause instead of a fix, and neither counts it. If the cause is not printed, as it is about another peer, the
// consequence is a finding of its own.
func TestConsequences(t *testing.T) {
	s := healthy(t)
	apiServer(s, metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, "https://milan:6443: timeout")
	s.Nodes[0].Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "ProviderAway", Message: "milan is away"}
	for i := range s.Pods[:2] {
		unreadyFor(reasons.NodeNotReady, "the virtual node is not ready")(&s.Pods[i].Status)
	}
	status := Summarize(s)
	require.Equal(t, Problem, status.Health)
	pastes(t, status)
	text := status.Text(false)
	require.Contains(t, text, `Cluster rome: 1 problem

Problems
  ✘ milan, API server: https://milan:6443: timeout (APIServerNotReady; False for 12s)
      Fix: curl --insecure --globoff --max-time 10 https://milan:6443/readyz
           If it does not answer, cluster milan is down, or a firewall is between. If it answers, this cluster's pods do not reach it: docs/networking.md#ports-and-reachability. What runs there goes on running.
      Docs: https://github.com/liqod/liqod/blob/main/docs/checks.md#peer-api-server
      Therefore: milan, virtual node milan; milan, pods of namespace shop

liqod 0.1.0 in namespace liqod`)
	require.Contains(t, text, "\nmilan   ConsumerAndProvider   Unhealthy   0/1     0/2          0.75/4 (19%)   2/8Gi (25%)   1\n")
	text = CheckText(Check(s))
	require.Contains(t, text, "pods of namespace shop: 2 of 2 pods are not ready (NodeNotReady); the first, web-1: the virtual node is not ready\n      See: milan, API server\n")
	require.Contains(t, text, "\n1 problem.\n")
	orphan := Finding{Level: Problem, Subject: "pods", Message: "m", Fix: "f", Because: "elsewhere"}
	require.Contains(t, CheckText([]Finding{orphan}), "Fix: f\n\n1 problem.\n")
}

// TestKey: the key stays the same while only times pass.
func TestKey(t *testing.T) {
	s := healthy(t)
	apiServer(s, metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, "timeout")
	before := Summarize(s)
	s.Taken = s.Taken.Add(3 * time.Second)
	after := Summarize(s)
	require.NotEqual(t, before.Text(false), after.Text(false))
	require.Equal(t, before.Key(), after.Key())
	broken(s, "a", "milan", refusing("PodRefused", "privileged"))
	require.NotEqual(t, before.Key(), Summarize(s).Key())

	s.Nodes[0].Status.Allocatable["state"] = resource.MustParse("1") // a resource with the name of a field
	before = Summarize(s)
	text, key := before.Text(false), before.Key()
	s.Nodes[0].Status.Allocatable["state"] = resource.MustParse("2")
	require.NotEqual(t, key, Summarize(s).Key())
	require.Equal(t, text, before.Text(false), "Key changes no status")

	with := func(text string) *Status {
		found := []Finding{{Message: text, Fix: text}}
		return &Status{
			Installation: Installation{Roles: []Role{{Message: text}}}, Problems: found, Warnings: found, Kept: text, Moves: []Move{{State: text}},
			Peers: []Peer{{
				Message: text, Conditions: []metav1.Condition{{Message: text}}, Offers: []Offer{{Message: text}}, VirtualNodes: []VirtualNode{{Message: text}},
			}},
			Namespaces: []Namespace{{Message: text, NoNode: PodCounts{Cause: text}, Peers: []NamespacePeer{{Message: text, PodCounts: PodCounts{Cause: text}}}}},
		}
	}
	require.Equal(t, with("").Key(), with("for 3s").Key())
}

// TestUnreadIsNotNone: objects that could not be read are unknown, not absent.
func TestUnreadIsNotNone(t *testing.T) {
	s := healthy(t)
	s.ForeignClusters, s.VirtualNodes, s.Nodes, s.Offloadings, s.Maps, s.Pods = nil, nil, nil, nil, nil, nil
	for _, what := range []string{ReadForeignClusters, ReadOffloadings, ReadPods} {
		s.Unread[what] = denied("foreignclusters")
	}
	status := Summarize(s)
	text := status.Text(false)
	require.NotContains(t, text, "No peers")
	require.Contains(t, text, "The list of peers is not complete: ForeignClusters cannot be read.")
	require.Contains(t, text, "Offloaded namespaces are unknown")
	require.Equal(t, []string{ReadForeignClusters, ReadOffloadings, ReadPods}, status.Unread)
	require.Equal(t, Unknown, status.Health)
	_, err := status.Of("milan")
	require.ErrorContains(t, err, "the peers are not known")
}
