package scenarios

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// clockOff is by how much the clocks of the providers differ from home's: milan's is ahead,
// and turin's behind.
const clockOff = 5 * time.Minute

// TestClocks: two providers whose clocks differ from home's, from the control plane to the
// nodes and liqod's own processes, are used like any other.
func TestClocks(t *testing.T) {
	if !*all {
		t.Skip("NOT RUN: only with -all")
	}
	if !lab.CanShiftClocks() {
		t.Skip("CLOCKS THAT DIFFER ARE NOT TESTED: processes of this architecture cannot be given a clock of their own")
	}
	all := newSites(t, []string{"rome", "milan", "turin"}, func(o *lab.ClusterOptions) {
		o.ClockAhead = map[string]time.Duration{"milan": clockOff, "turin": -clockOff}[o.Name]
		o.Audit = false
	}, map[string]any{
		"peering":        map[string]any{"renewAt": 0.02}, // of 10 minutes: each 12 s, if clocks agree
		"authentication": map[string]any{"lifetime": "10m", "requestsPerAddress": 6000, "requestsPerMinute": 6000},
		"sharing":        map[string]any{"expiration": "30m"},
	})
	atRest(t, all.list...) // the controllers have what enrolments need
	rome, providers := all.list[0], all.list[1:]
	for _, provider := range providers {
		w := &world{sites: all.sites, rome: rome, milan: provider}
		w.clockIsOff(t)
		w.uses(t)
	}
	w := &world{sites: all.sites, rome: rome, milan: providers[0]}
	w.offload(t, cashiers, offloadingv1beta1.NamespaceOffloadingSpec{})
	w.makeCashier(t)
	future := w.future(t)
	for _, provider := range providers {
		t.Run(provider.Name, func(t *testing.T) { clocksDiffer(t, &world{sites: all.sites, rome: rome, milan: provider}) })
	}
	require.Empty(t, future(), "times in the status of pods that were in the future of home")
	t.Run("heartbeats", func(t *testing.T) { clocksHeartbeats(t, w, providers) })
}

// clockIsOff requires that what the API server of the provider makes is dated by its clock.
func (w *world) clockIsOff(t *testing.T) {
	t.Helper()
	made := kubetest.Create(t, w.milan.Client().CoreV1().ConfigMaps(metav1.NamespaceDefault), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "now"}})
	require.WithinDuration(t, time.Now().Add(w.milan.Options.ClockAhead), made.CreationTimestamp.Time, time.Minute)
}

// uses lets rome use a provider by a token, with a vkubelet as its Deployment would run it.
func (w *world) uses(t *testing.T) {
	t.Helper()
	vkubelet := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		vkubelet <- w.rome.StartVKubelet(ctx, corev1beta1.TenantNamespace(w.milan.Name), w.milan.Name)
	}()
	w.done(t, w.rome, "peer", "--timeout=2m", "--token", w.token(t), "--pod-cidr", w.rome.Options.PodCIDR)
	require.NoError(t, <-vkubelet)
}

// clocksDiffer: pods run, end and find their tokens, the identity is renewed and not more often
// than it should be, the offer stands, and no verdict changes meanwhile.
func clocksDiffer(t *testing.T, w *world) {
	name := w.milan.Name
	begin, renewals, transitions := time.Now(), w.renewals(t), w.transitions(t, name)
	w.createRunning(t, cashierPod("on-"+name, placedOn(name)), cashierPod("ends-on-"+name, placedOn(name), endsWith("0")))
	within(t, longest, "the token is in the provider", w.goodTokenIn)
	within(t, longest, "the pod that ends has ended", func(ctx context.Context) error {
		return w.ended(ctx, cashiers, "ends-on-"+name)
	})
	renewed := 0
	within(t, longest, "the identity is renewed twice", func(context.Context) error {
		renewed += len(renewals())
		return lab.Wrong(nil, renewed < 2, "%d renewals", renewed)
	})
	// The certificate of the provider that is behind seems to have half of its life left.
	require.LessOrEqual(t, renewed, 2+int(time.Since(begin)/(4*time.Second)), "renewals")
	well := func(ctx context.Context) error {
		return errors.Join(
			peerSays(w.rome, name, corev1beta1.ConditionAPIServer, metav1.ConditionTrue, corev1beta1.ReasonAPIServerReady)(ctx),
			peerSays(w.rome, name, corev1beta1.ConditionAuthenticated, metav1.ConditionTrue, corev1beta1.ReasonEnrolled)(ctx),
			peerSays(w.milan, w.rome.Name, corev1beta1.ConditionAPIServer, metav1.ConditionTrue, corev1beta1.ReasonHeartbeatSeen)(ctx),
			w.node(name, corev1.ConditionTrue)(ctx))
	}
	within(t, longest, "each counts the other as well", well)
	hold(t, cutFor, "and that stays", well)
	require.NoError(t, w.rome.Client().CoreV1().Pods(cashiers).Delete(t.Context(), "on-"+name, metav1.DeleteOptions{}))
	within(t, longest, "a deleted pod is gone on both sides", w.podGone(cashiers, "on-"+name))
	require.Equal(t, []corev1.ConditionStatus{corev1.ConditionTrue}, transitions(), "the Node was Ready all the time")
}

// placedOn puts a pod on a virtual node.
func placedOn(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = node
		pod.Spec.Tolerations = []corev1.Toleration{{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}}
	}
}

// endsWith has the container of a pod that is not restarted end after it ran for a while.
func endsWith(code string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{lab.SimExitCode: code, lab.SimRunFor: "3000"}
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
}

func (w *world) ended(ctx context.Context, namespace, name string) error {
	pod, err := w.rome.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	return lab.Wrong(err, pod.Status.Phase != corev1.PodSucceeded, "pod %s is %s", name, pod.Status.Phase)
}

// goodTokenIn looks for a token in the provider that home accepts as the cashier's.
func (w *world) goodTokenIn(ctx context.Context) error {
	selected := metav1.ListOptions{LabelSelector: labels.Set(tokenLabels(w.milan.Name)).String()}
	secrets, err := w.milan.Client().CoreV1().Secrets(cashiersTwin).List(ctx, selected)
	if err != nil {
		return err
	}
	if len(secrets.Items) != 1 {
		return fmt.Errorf("%d Secrets in %s", len(secrets.Items), w.milan.Name)
	}
	if user, err := w.accepted(ctx, string(secrets.Items[0].Data["token"])); err != nil || user != cashierUser {
		return fmt.Errorf("the token is accepted as %q: %w", user, err)
	}
	return nil
}

// future collects, by a watch of the pods at home, times in their status that were in the
// future when they were seen, until the returned function is called.
func (w *world) future(t *testing.T) func() []string {
	t.Helper()
	stream := must(w.rome.Client().CoreV1().Pods(cashiers).Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: ptr.To[int64](900)}))(t)
	var found []string
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range stream.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			for what, at := range statusTimes(&pod.Status) {
				if at.After(time.Now()) {
					found = append(found, fmt.Sprintf("pod %s: %s %s", pod.Name, what, at))
				}
			}
		}
	})
	return func() []string {
		stream.Stop()
		watching.Wait()
		return found
	}
}

// statusTimes are the times in a pod's status.
func statusTimes(status *corev1.PodStatus) map[string]time.Time {
	out := map[string]time.Time{}
	if status.StartTime != nil {
		out["startTime"] = status.StartTime.Time
	}
	for _, c := range status.Conditions {
		out["transition of "+string(c.Type)] = c.LastTransitionTime.Time
	}
	for _, c := range status.ContainerStatuses {
		for what, state := range map[string]corev1.ContainerState{"state": c.State, "last state": c.LastTerminationState} {
			if state.Running != nil {
				out[what+": startedAt"] = state.Running.StartedAt.Time
			}
			if state.Terminated != nil {
				out[what+": startedAt"], out[what+": finishedAt"] = state.Terminated.StartedAt.Time, state.Terminated.FinishedAt.Time
			}
		}
	}
	return out
}

// clocksHeartbeats: without heartbeats of home its API server counts as down in both
// providers, and with them as well again: also where they seem to come from the future.
func clocksHeartbeats(t *testing.T, w *world, providers []*site.Site) {
	w.rome.Controller.Kill()
	for _, provider := range providers {
		within(t, longest, provider.Name+" misses the heartbeats", peerSays(provider, "rome", corev1beta1.ConditionAPIServer, metav1.ConditionFalse, corev1beta1.ReasonHeartbeatMissed))
	}
	require.NoError(t, w.sites.Restart(&w.rome.Controller))
	for _, provider := range providers {
		within(t, longest, provider.Name+" sees them again", peerSays(provider, "rome", corev1beta1.ConditionAPIServer, metav1.ConditionTrue, corev1beta1.ReasonHeartbeatSeen))
	}
}

const (
	// slowWrite is how much longer each write to etcd takes.
	slowWrite = 500 * time.Millisecond
	slowPods  = 10
)

// TestSlowEtcd: an etcd that needs half a second for a write, in the provider and then at
// home, makes everything slower, and nothing is lost or counts as down.
func TestSlowEtcd(t *testing.T) {
	w := newAdjustedWorld(t, func(o *lab.ClusterOptions) {
		o.EtcdFront, o.Audit = true, false
		o.NodeGrace = 5 * time.Minute // the heartbeats of simulated nodes are not under test
	})
	w.deploy(t, "slow", slowPods)
	for _, c := range []*lab.Cluster{w.milan.Cluster, w.rome.Cluster} {
		t.Run(c.Name, func(t *testing.T) { slowEtcd(t, w, c) })
	}
}

// slowEtcd scales a Deployment up and down while the etcd of a cluster is slow, and then
// lets the provider be away.
func slowEtcd(t *testing.T, w *world, c *lab.Cluster) {
	before, transitions := lives(t, w.rome.Cluster, "slow"), w.transitions(t, "milan")
	there := lives(t, w.milan.Cluster, "slow-rome")
	c.SlowWrites(slowWrite)
	defer c.SlowWrites(0)
	w.scale(t, "slow", "web", 2*slowPods)
	within(t, longest, "more pods run", w.available("web", "slow", 2*slowPods))
	w.scale(t, "slow", "web", slowPods)
	for where, in := range map[*lab.Cluster]string{w.rome.Cluster: "slow", w.milan.Cluster: "slow-rome"} {
		within(t, longest, "they are gone from "+where.Name, w.bound(where, in, slowPods, true))
	}
	require.Positive(t, c.SlowedWrites())
	t.Logf("%d writes took %s longer", c.SlowedWrites(), slowWrite)
	within(t, longest, "the provider counts as up", peerSays(w.rome, "milan", corev1beta1.ConditionAPIServer, metav1.ConditionTrue, corev1beta1.ReasonAPIServerReady))
	if seen := transitions(); *all { // on a busy machine, an API server with a slow etcd may miss its probes
		require.Equal(t, []corev1.ConditionStatus{corev1.ConditionTrue}, seen, "the Node was Ready all the time")
	}

	kept, keptThere := lives(t, w.rome.Cluster, "slow"), lives(t, w.milan.Cluster, "slow-rome")
	w.milan.Proxied().Drop()
	within(t, longest, "an outage of the provider is noticed", w.node("milan", corev1.ConditionFalse))
	within(t, longest, "its pods are not Ready", w.ready("slow", corev1.ConditionFalse))
	w.milan.Proxied().Pass()
	within(t, longest, "the provider is back", w.node("milan", corev1.ConditionTrue))
	within(t, longest, "its pods are Ready again", w.available("web", "slow", slowPods))
	requireLiving(t, kept, lives(t, w.rome.Cluster, "slow"))
	requireLiving(t, keptThere, lives(t, w.milan.Cluster, "slow-rome"))
	survivors(t, before, kept)
	survivors(t, there, keptThere)
}

// survivors requires that a pod of before that is still there has not been started again.
func survivors(t *testing.T, before, after map[string]life) {
	t.Helper()
	for name, was := range before {
		if is, stays := after[name]; stays {
			require.Equal(t, was, is, "pod %s", name)
		}
	}
}
