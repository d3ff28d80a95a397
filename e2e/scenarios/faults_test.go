package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// promptly is what is granted between a fault, or its end, and what follows from it.
	promptly = 5 * time.Second
	// tellHowLate is how long a late answer is waited for, to tell how late it was.
	tellHowLate = 2 * time.Minute
	peer        = "system:serviceaccount:liqo-tenant-rome:peer-1"
	vkubelet    = "system:serviceaccount:liqo-tenant-milan:vk-milan"
)

// fault is a way in which an API server can be away.
type fault struct {
	name   string
	strike func(*lab.Cluster)
	heal   func(context.Context, *lab.Cluster) error
	// aside says that only those who come through the front notice.
	aside bool
	// nodesLate says that the cluster's simulated nodes take their time afterwards.
	nodesLate bool
}

func faults() []fault {
	pass := func(_ context.Context, c *lab.Cluster) error {
		c.Proxied().Pass()
		return nil
	}
	return []fault{
		{
			name: "paused", strike: (*lab.Cluster).PauseAPIServer,
			heal: func(ctx context.Context, c *lab.Cluster) error {
				c.ResumeAPIServer()
				return c.WaitReady(ctx)
			},
		},
		{name: "cut off", strike: func(c *lab.Cluster) { c.Proxied().Drop() }, heal: pass, aside: true},
		{
			name: "answering 500", heal: pass, aside: true,
			strike: func(c *lab.Cluster) {
				c.Proxied().Fail()
				c.Proxied().Cut()
			},
		},
		{name: "stopped", strike: stopPlane, heal: startPlane, nodesLate: true},
	}
}

// stopPlane takes the controller manager and the scheduler with it: they would come
// back later than what is under test.
func stopPlane(c *lab.Cluster) {
	c.KillAPIServer()
	c.Component(lab.ControllerManager).Kill()
	c.Component(lab.Scheduler).Kill()
}

func startPlane(ctx context.Context, c *lab.Cluster) error {
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.StartComponent(lab.ControllerManager); err != nil {
		return err
	}
	return c.StartComponent(lab.Scheduler)
}

// steadyNodes lets a cluster's own nodes outlive an outage of its API server: their
// heartbeats stop with it, and that is not what is under test.
func steadyNodes(name string) func(*lab.ClusterOptions) {
	return func(o *lab.ClusterOptions) {
		if o.Name == name {
			o.NodeGrace = 5 * time.Minute
		}
	}
}

// outage and longOutage are how long an API server is away.
func outage() time.Duration {
	if *all {
		return 20 * time.Second
	}
	return 8 * time.Second
}

func longOutage() time.Duration { return 3 * outage() }

// by waits for a condition and logs how long that took since begin. With -all more than
// limit is an error, and the test goes on; otherwise the machine is busy with other tests,
// and nothing is said of speed.
func by(t *testing.T, begin time.Time, limit time.Duration, what string, cond func(context.Context) error) time.Duration {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), begin.Add(limit+tellHowLate))
	defer cancel()
	require.NoError(t, lab.Eventually(ctx, cond), what)
	took := time.Since(begin)
	t.Logf("%s: after %s (granted: %s)", what, took.Round(time.Millisecond), limit)
	if *all && took > limit {
		t.Errorf("%s: after %s, and %s is granted", what, took.Round(time.Millisecond), limit)
	}
	return took
}

// hold requires that a condition is true all the time for a period.
func hold(t *testing.T, period time.Duration, what string, cond func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), period)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := cond(ctx); ctx.Err() == nil {
			require.NoError(t, err, what)
		}
		select {
		case <-ctx.Done():
			require.NoError(t, t.Context().Err())
			return
		case <-tick.C:
		}
	}
}

// node looks for the Ready condition of the virtual node, which must have a reason.
func (w *world) node(name string, want corev1.ConditionStatus, reasons ...string) func(context.Context) error {
	return lab.That(w.rome.Client().CoreV1().Nodes(), name, func(n *corev1.Node) error {
		c := readyOf(n)
		if c.Status != want || c.Reason == "" || c.Message == "" {
			return fmt.Errorf("node %s is Ready=%s: %s: %s", name, c.Status, c.Reason, c.Message)
		}
		for _, reason := range reasons {
			if c.Reason != reason {
				return fmt.Errorf("node %s has reason %s: %s", name, c.Reason, c.Message)
			}
		}
		return nil
	})
}

// nodeCondition is a condition of a Node, empty if there is none.
func nodeCondition(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func readyOf(n *corev1.Node) corev1.NodeCondition { return nodeCondition(n, corev1.NodeReady) }

// ready looks for the Ready condition of every pod of a namespace at home that stays.
func (w *world) ready(namespace string, want corev1.ConditionStatus) func(context.Context) error {
	return lab.All(w.rome.Client().CoreV1().Pods(namespace), metav1.ListOptions{}, func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" || podReady(pod) == want
	})
}

// bound counts the pods of a namespace, those with a node only if scheduled is true.
func (w *world) bound(c *lab.Cluster, namespace string, want int, scheduled bool) func(context.Context) error {
	return podsAre(c, namespace, "", want, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" || !scheduled })
}

// podsAre returns a condition: are reports true for as many pods of a namespace, of those with labels.
func podsAre(c *lab.Cluster, namespace, labels string, want int, are func(*corev1.Pod) bool) func(context.Context) error {
	return lab.Those(c.Client().CoreV1().Pods(namespace), metav1.ListOptions{LabelSelector: labels}, func(pods *corev1.PodList) error {
		have := 0
		for i := range pods.Items {
			if are(&pods.Items[i]) {
				have++
			}
		}
		return lab.Wrong(nil, have != want, "%d pods, not %d, of %d in %s of %s", have, want, len(pods.Items), namespace, c.Name)
	})
}

func podReady(pod *corev1.Pod) corev1.ConditionStatus {
	return cmp.Or(podCondition(pod, corev1.PodReady).Status, corev1.ConditionFalse)
}

// life is what must not change while a pod only runs on.
type life struct {
	UID      types.UID
	Started  time.Time
	Restarts int32
}

// lives returns the lives of the pods of a namespace, by name.
func lives(t *testing.T, c *lab.Cluster, namespace string) map[string]life {
	t.Helper()
	out := map[string]life{}
	for _, pod := range kubetest.List(t, c.Client().CoreV1().Pods(namespace)).Items {
		l := life{UID: pod.UID}
		for _, status := range pod.Status.ContainerStatuses {
			l.Restarts += status.RestartCount
			if status.State.Running != nil {
				l.Started = status.State.Running.StartedAt.UTC()
			}
		}
		out[pod.Name] = l
	}
	return out
}

// requireLiving requires that each pod of before lives on in after.
func requireLiving(t *testing.T, before, after map[string]life) {
	t.Helper()
	for name, want := range before {
		require.Equal(t, want, after[name], "pod %s", name)
	}
}

func (w *world) scale(t *testing.T, namespace, name string, replicas int32) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	kubetest.Patch(t, w.rome.Client().AppsV1().Deployments(namespace), name, types.MergePatchType, patch)
}

// deploy offloads a namespace and runs pods there.
func (w *world) deploy(t *testing.T, namespace string, replicas int32) {
	t.Helper()
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(namespace), deployment("web", replicas))
	within(t, time.Minute, fmt.Sprintf("%d pods run in the provider", replicas), w.available("web", namespace, replicas))
}

// boundPod is a pod that needs no scheduler to get to the virtual node.
func boundPod(name string) *corev1.Pod {
	spec := podSpec("sim/bare:1")
	spec.NodeName = "milan"
	spec.Tolerations = []corev1.Toleration{{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func (w *world) podReady(namespace, name string) func(context.Context) error {
	return lab.Is(w.rome.Client().CoreV1().Pods(namespace), name, func(pod *corev1.Pod) bool { return podReady(pod) == corev1.ConditionTrue })
}

// transitions collects each status that the Ready condition of a Node takes, until the
// returned function is called.
func (w *world) transitions(t *testing.T, node string) func() []corev1.ConditionStatus {
	t.Helper()
	stream := must(w.rome.Client().CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, node).String(), TimeoutSeconds: ptr.To[int64](600),
	}))(t)
	seen := make(chan []corev1.ConditionStatus)
	go func() {
		var all []corev1.ConditionStatus
		for event := range stream.ResultChan() {
			n, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			if s := readyOf(n).Status; len(all) == 0 || all[len(all)-1] != s {
				all = append(all, s)
			}
		}
		seen <- all
	}()
	return func() []corev1.ConditionStatus {
		stream.Stop()
		return <-seen
	}
}

// writes returns what a user asked a cluster to change since begin, leases aside.
func writes(t *testing.T, c *lab.Cluster, user string, begin time.Time) []string {
	t.Helper()
	records := must(c.Audited(func(r lab.AuditRecord) bool {
		return r.Write() && r.User.Username == user && r.ObjectRef.Resource != "leases" && r.RequestReceivedTimestamp.After(begin)
	}))(t)
	out := make([]string, 0, len(records))
	for _, r := range records {
		out = append(out, fmt.Sprintf("%s %s %s/%s: %d", r.Verb, r.Resource(), r.ObjectRef.Namespace, r.ObjectRef.Name, r.ResponseStatus.Code))
	}
	return out
}

// effective leaves out the second try of a write whose first one arrived although its
// answer was lost: it finds the object made, changed or gone.
func effective(writes []string) []string {
	slices.Sort(writes)
	return slices.DeleteFunc(slices.Compact(writes), func(w string) bool {
		return strings.HasSuffix(w, ": 409") || strings.HasPrefix(w, "delete ") && strings.HasSuffix(w, ": 404")
	})
}
