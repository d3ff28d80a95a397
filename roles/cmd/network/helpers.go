package network

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/plan"
	"github.com/liqod/liqod/roles/cmd/helper"
	"github.com/liqod/liqod/roles/cmd/report"
)

const (
	fieldManager = "liqod-network-check"
	// checkLabel marks the namespaces of checks, and namePrefix begins their names: names that begin with liqo
	// are reserved in peers.
	checkLabel = "networking.liqo.io/check"
	namePrefix = "network-check-"
	// longestCheck ends the pods of a check that was killed. A later check deletes its namespaces.
	longestCheck = 10 * time.Minute
	// clearing is how long the removal may take.
	clearing = time.Minute
	// resolved is a name of the type SRV that exists in every cluster. Only DNS has it: the hosts files of pods in
	// peers have the address of Service kubernetes.
	resolved = "_https._tcp.kubernetes.default.svc"
)

// prepare makes the namespaces of the pods: one for those of this cluster, and for each peer that runs pods one
// that is offloaded to it alone. Of a namespace that several peers share, each would learn of the others.
func (c *checker) prepare(ctx context.Context) error {
	if _, err := store.Sweep(ctx, "namespace", c.Kube.CoreV1().Namespaces(), metav1.ListOptions{LabelSelector: checkLabel + "=true"}, c.forgotten); err != nil {
		return err
	}
	var err error
	if c.space, err = c.makeSpace(ctx); err != nil {
		return err
	}
	for _, p := range c.peers {
		if p.virtual == "" || !p.connected() {
			continue
		}
		if p.space, err = c.makeSpace(ctx); err != nil {
			return err
		}
		o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: offloadingv1beta1.NamespaceOffloadingName}}
		o.Spec.PodOffloadingStrategy = offloadingv1beta1.PodsLocalAndRemote
		o.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1beta1.RemoteClusterIDLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{p.ID}},
		}}}
		if _, err := c.Liqo.OffloadingV1beta1().NamespaceOffloadings(p.space).Create(ctx, o, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("offloading a namespace of the check: %w", err)
		}
	}
	return nil
}

// forgotten reports whether a check made a namespace and was killed. The label alone says nothing: others may set it.
func (c *checker) forgotten(ns *corev1.Namespace) bool {
	return c.Now().Sub(ns.CreationTimestamp.Time) > longestCheck && strings.HasPrefix(ns.Name, namePrefix) &&
		slices.ContainsFunc(ns.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == fieldManager })
}

// makeSpace makes a namespace, and returns its name. Pods in the network of a node are privileged by the levels of pod
// security.
func (c *checker) makeSpace(ctx context.Context) (string, error) {
	ns, err := c.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: namePrefix, Labels: map[string]string{checkLabel: "true", "pod-security.kubernetes.io/enforce": "privileged"},
	}}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return "", fmt.Errorf("creating a namespace for the pods of the check: %w", err)
	}
	c.spaces = append(c.spaces, ns.Name)
	return ns.Name, nil
}

// forge returns a pod of the check, without any privilege, that runs the program of probes.
func (c *checker) forge(space, name, node string, args ...string) *corev1.Pod {
	pod := helper.New(metav1.ObjectMeta{Namespace: space, Name: name, Labels: map[string]string{checkLabel: "true"}}, node, c.Image, append([]string{"network", "probe"}, args...)...)
	pod.Spec.RestartPolicy, pod.Spec.ActiveDeadlineSeconds = corev1.RestartPolicyNever, ptr.To(int64(longestCheck/time.Second))
	security := pod.Spec.SecurityContext
	security.RunAsNonRoot, security.RunAsUser, security.RunAsGroup = ptr.To(true), ptr.To[int64](65532), ptr.To[int64](65532)
	security.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ping_group_range", Value: "0 2147483647"}} // ICMP without a capability
	return pod
}

// to returns targets as arguments of a pod.
func to(targets ...Target) (args []string) {
	for _, t := range targets {
		args = append(args, "--to", t.String())
	}
	return args
}

// hostPod returns the pod that sends probes as a node does. It is in the network of the node.
func (c *checker) hostPod(i int, node *corev1.Node) *corev1.Pod {
	var targets []Target
	for _, g := range c.seen.Gateways {
		targets = append(targets, Target{kindGateway, "gateway " + g.Name, plan.ReplicaAddr(c.external, int(g.Number))})
	}
	for _, p := range c.peers {
		if p.address.IsValid() {
			targets = append(targets, Target{kindRoute, p.ID, p.address})
		}
	}
	pod := c.forge(c.space, fmt.Sprintf("node-%d", i), node.Name, append(to(targets...), "--node")...)
	pod.Spec.HostNetwork, pod.Spec.SecurityContext.Sysctls = true, nil
	return pod
}

// herePod returns the pod that sends to the gateway, to the gateways of the peers, and to their pods.
func (c *checker) herePod(i int, node *corev1.Node) *corev1.Pod {
	targets := []Target{{kindPing, toGateway, plan.GatewayAddr(c.external)}}
	for _, p := range c.peers {
		if p.address.IsValid() {
			targets = append(targets, Target{kindPing, toGatewayOf(p.ID), p.address})
		}
		if a := addressOf(p.there); a.IsValid() {
			targets = append(targets, Target{kindPod, toPodIn(p.ID), a})
			p.ThereIP = a.String()
		}
	}
	for _, g := range c.pods {
		if g.cluster != "" {
			targets = append(targets, Target{kindPing, toPod(g.name), g.address})
		}
	}
	return c.forge(c.space, fmt.Sprintf("here-%d", i), node.Name, append(to(targets...), "--resolve", resolved)...)
}

// createEchoes makes the pods of this cluster that answer those in the peers, and waits until they have addresses.
func (c *checker) createEchoes(ctx context.Context) error {
	var names []string
	for i, p := range c.peers {
		if p.space == "" || len(c.nodes) == 0 {
			continue
		}
		names = append(names, fmt.Sprintf("echo-%d", i))
		if err := c.create(ctx, c.forge(p.space, names[len(names)-1], c.nodes[0].Name, "--serve")); err != nil {
			return err
		}
	}
	return c.started(ctx, names...)
}

// createThere makes the pods in the peers, and waits until they have addresses, or for a while.
func (c *checker) createThere(ctx context.Context) error {
	var names []string
	for i, p := range c.peers {
		switch {
		case !p.connected():
			p.Why = "the tunnel does not carry packets"
			continue
		case p.virtual == "":
			p.Why = "this cluster runs no pods in it, so nothing sends packets from there"
			continue
		}
		if p.Why = c.offloaded(ctx, p); p.Why != "" {
			continue
		}
		targets := []Target{{kindPing, toOwnGateway, p.own}, {kindPing, toGateway, p.ours}}
		if a := p.view(addressOf(c.running[fmt.Sprintf("echo-%d", i)])); a.IsValid() {
			targets = append(targets, Target{kindPod, toPodHere, a})
		}
		for _, g := range c.pods {
			if a := p.view(g.address); g.cluster != p.ID && a.IsValid() {
				targets = append(targets, Target{kindPing, toPod(g.name), a})
			}
		}
		names = append(names, fmt.Sprintf("there-%d", i))
		if err := c.create(ctx, c.forge(p.space, names[len(names)-1], p.virtual, append(to(targets...), "--serve", "--resolve", resolved)...)); err != nil {
			return err
		}
	}
	if err := c.started(ctx, names...); err != nil {
		return err
	}
	for i, p := range c.peers {
		p.there = c.running[fmt.Sprintf("there-%d", i)]
		if p.there != nil && !addressOf(p.there).IsValid() {
			p.Why = waits(p.there)
		}
	}
	return nil
}

// offloaded waits for a while until a peer has the twin of its namespace, and returns why it has not.
func (c *checker) offloaded(ctx context.Context, p *peering) (why string) {
	_ = wait.PollUntilContextTimeout(ctx, c.Every, c.Wait, true, func(ctx context.Context) (bool, error) {
		o, err := c.Liqo.OffloadingV1beta1().NamespaceOffloadings(p.space).Get(ctx, offloadingv1beta1.NamespaceOffloadingName, metav1.GetOptions{})
		if err != nil {
			why = err.Error()
			return false, nil
		}
		why = "the namespace of the check has no twin there yet: " + string(o.Status.OffloadingPhase)
		if twin := meta.FindStatusCondition(o.Status.RemoteNamespacesConditions[p.ID], offloadingv1beta1.RemoteNamespaceReady); twin != nil {
			why = "the namespace of the check has no twin there: " + twin.Message
			if twin.Status == metav1.ConditionTrue {
				why = ""
			}
		}
		return why == "", nil
	})
	return why
}

func (c *checker) create(ctx context.Context, pod *corev1.Pod) error {
	if _, err := c.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("creating pod %s of the check: %w", pod.Name, err)
	}
	return nil
}

// until polls the pods of the check until done is true for all of them, or for Wait.
func (c *checker) until(ctx context.Context, done func(pods map[string]*corev1.Pod) bool) error {
	err := wait.PollUntilContextTimeout(ctx, c.Every, c.Wait, true, func(ctx context.Context) (bool, error) {
		running := map[string]*corev1.Pod{}
		for _, space := range c.spaces {
			list, err := c.Kube.CoreV1().Pods(space).List(ctx, metav1.ListOptions{})
			if apierrors.IsForbidden(err) {
				return false, fmt.Errorf("listing the pods of the check: %w", err)
			}
			if err != nil {
				return false, nil // an API server that does not answer for a moment is no verdict on the network
			}
			for i := range list.Items {
				running[list.Items[i].Name] = &list.Items[i]
			}
		}
		c.running = running
		return done(c.running), nil
	})
	if ctx.Err() == nil && wait.Interrupted(err) {
		return nil // the verdict says which did not report
	}
	return err
}

// started waits until pods have addresses.
func (c *checker) started(ctx context.Context, names ...string) error {
	return c.until(ctx, func(pods map[string]*corev1.Pod) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			return pods[name] == nil || pods[name].Status.Phase == corev1.PodPending || !addressOf(pods[name]).IsValid()
		})
	})
}

func addressOf(pod *corev1.Pod) netip.Addr {
	if pod == nil {
		return netip.Addr{}
	}
	a, _ := netip.ParseAddr(pod.Status.PodIP)
	return a
}

// collect waits for the reports of all pods.
func (c *checker) collect(ctx context.Context) error {
	reports := map[string]*Report{}
	err := c.until(ctx, func(pods map[string]*corev1.Pod) bool {
		for name, pod := range pods {
			if strings.HasPrefix(name, "echo-") {
				reports[name] = &Report{} // it sends nothing
			}
			if reports[name] == nil && pod.Status.Phase != corev1.PodPending {
				reports[name] = c.report(ctx, pod)
			}
		}
		return !slices.ContainsFunc(slices.Collect(maps.Keys(pods)), func(name string) bool { return reports[name] == nil && pods[name].Status.Phase != corev1.PodFailed })
	})
	if err != nil {
		return err
	}
	for i, n := range c.seen.Nodes {
		host, here := fmt.Sprintf("node-%d", i), fmt.Sprintf("here-%d", i)
		n.Host, n.Pod = reports[host], reports[here]
		for name, report := range map[string]*Report{host: n.Host, here: n.Pod} {
			if report == nil && c.running[name] != nil {
				n.Why = waits(c.running[name])
			}
		}
		for _, p := range c.peers {
			to, from := cmp.Or(addressOf(p.there), p.address), addressOf(c.running[here])
			if !to.IsValid() || !from.IsValid() {
				continue
			}
			switch view, err := planned(c.fabric, to, from); {
			case errors.Is(err, errEnds):
				n.Ends[p.ID] = err.Error()
			case err == nil:
				n.Views[p.ID] = view.String()
			}
		}
	}
	for i, p := range c.peers {
		name := fmt.Sprintf("there-%d", i)
		if p.There = reports[name]; p.There == nil && p.Why == "" {
			p.Why = waits(c.running[name])
		}
	}
	return nil
}

// report reads the report in the log of a pod; nil: there is none yet.
func (c *checker) report(ctx context.Context, pod *corev1.Pod) *Report {
	text, err := c.Logs(ctx, pod)
	line, _, whole := bytes.Cut(text, []byte("\n"))
	var out Report
	if err != nil || !whole || json.Unmarshal(line, &out) != nil {
		return nil
	}
	return &out
}

// waits returns why a pod has not reported.
func waits(pod *corev1.Pod) string {
	if pod == nil {
		return "there is no pod"
	}
	return strings.TrimSpace(fmt.Sprintf("pod %s of the check has not reported (phase %s) %s", pod.Name, pod.Status.Phase, report.Trouble(pod)))
}

// clear deletes the namespaces with the pods, and waits until they are gone. ctx may have ended.
func (c *checker) clear(ctx context.Context) error {
	namespaces := c.Kube.CoreV1().Namespaces()
	err := wait.PollUntilContextTimeout(context.WithoutCancel(ctx), c.Every, clearing, true, func(ctx context.Context) (bool, error) {
		var left []string
		for _, name := range c.spaces {
			ns, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if left = append(left, name); err == nil && ns.DeletionTimestamp == nil {
				err = namespaces.Delete(ctx, name, store.DeleteUID(ns))
			}
			if err != nil {
				if err := c.Say("deleting namespace " + name + ": " + err.Error()); err != nil {
					return false, err
				}
			}
		}
		c.spaces = left
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("namespaces of the check are not gone yet: %s; `kubectl get namespace NAME -o yaml` says what one waits for: %w", strings.Join(c.spaces, ", "), err)
	}
	return nil
}
