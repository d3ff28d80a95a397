package scenarios

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// These are the connections to each listener of a role, with -all and without: more than any
	// listener has places for one address.
	allFloodConnections, floodConnections = 10_000, 2_000

	floodNamespace = "flood"
)

// replicasFlooded: a pod for each listener of each role opens 10,000 connections to it (2,000
// without -all), all of them at the same time. Each role does its work meanwhile, within the memory
// that the chart gives to it, and no container ends.
func replicasFlooded(t *testing.T, w replicasWorld) {
	before, err := w.rolePods(t.Context())
	require.NoError(t, err)
	home := w.rome.Client().CoreV1()
	kubetest.Create(t, home.Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: floodNamespace}})
	listeners, connections := listenersOf(before), floodConnections
	if *all {
		connections = allFloodConnections
	} else {
		t.Logf("left to make test-all: %s: %d connections to each listener", t.Name(), allFloodConnections)
	}
	for i, address := range slices.Sorted(maps.Keys(listeners)) {
		t.Logf("%d connections to %s at %s", connections, listeners[address], address)
		kubetest.Create(t, home.Pods(floodNamespace), floodPod(i, address, connections))
	}
	floods := func(ctx context.Context) error { return w.floods(ctx, len(listeners)) }
	within(t, longest, "all connections are open", floods)

	w.offload(t, "flooded", offloadingv1beta1.NamespaceOffloadingSpec{}) // controller
	w.started(t, "flooded")                                              // webhook, vkubelet
	w.allocated(t)                                                       // ipam
	w.crossed(t, "in a flood", "rome-1", "rome-2")                       // gateway, route, kubelet API

	require.NoError(t, floods(t.Context()), "the flood has lasted until here")
	after, err := w.rolePods(t.Context())
	require.NoError(t, err)
	require.Equal(t, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	for name, p := range after {
		require.Equal(t, corev1.ConditionTrue, podReady(&p), "pod %s: %+v", name, p.Status)
		require.Equal(t, restarts(new(before[name])), restarts(&p), "restarts of pod %s: %+v", name, p.Status)
	}
	w.withinMemory(t, after)
	require.NoError(t, home.Namespaces().Delete(t.Context(), floodNamespace, metav1.DeleteOptions{}))
	within(t, longest, "the flood has ended", isGone(home.Namespaces(), floodNamespace))
}

// listenersOf returns the containers of roles by the addresses at which they listen.
func listenersOf(pods map[string]corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, p := range pods {
		for _, port := range p.Spec.Containers[0].Ports {
			if port.Protocol == corev1.ProtocolTCP {
				out[fmt.Sprintf("%s:%d", p.Status.PodIP, port.ContainerPort)] = p.Name
			}
		}
	}
	return out
}

// floodPod is a pod that is Ready once it has all connections.
func floodPod(number int, address string, connections int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("flood-%d", number)}, Spec: testSpec(1, "test", "flood", address, strconv.Itoa(connections))}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)},
	}}
	return pod
}

// floods says whether all floods have all of their connections.
func (w replicasWorld) floods(ctx context.Context, want int) error {
	return podsAre(w.rome.Cluster, floodNamespace, "", want, func(p *corev1.Pod) bool { return podReady(p) == corev1.ConditionTrue && restarts(p) == 0 })(ctx)
}

// allocated waits until an IP that is created now has an address.
func (w replicasWorld) allocated(t *testing.T) {
	t.Helper()
	ips := w.rome.Liqod().IPAMV1alpha1().IPs(floodNamespace)
	kubetest.Create(t, ips, &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Name: "host"}, Spec: ipamv1alpha1.IPSpec{IP: "198.51.100.7"}})
	within(t, longest, "an IP has an address", lab.Is(ips, "host", func(ip *ipamv1alpha1.IP) bool { return ip.Status.IP != "" }))
}

// withinMemory compares the peaks of the roles' memory with their limits, which are the chart's.
func (w replicasWorld) withinMemory(t *testing.T, pods map[string]corev1.Pod) {
	t.Helper()
	judged := 0
	for _, n := range w.full.Nodes(w.rome.Cluster) {
		for _, p := range pods {
			if p.Spec.NodeName != n.Name {
				continue
			}
			c := p.Spec.Containers[0]
			limit := c.Resources.Limits.Memory().Value()
			role := c.Args[slices.IndexFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--role=") })]
			processes, err := n.Processes(t.Context(), role)
			require.NoError(t, err)
			require.Len(t, processes, 1, "%s on node %s", role, n.Name)
			out, err := n.Exec(t.Context(), "grep", "VmHWM", "/proc/"+processes[0]+"/status")
			require.NoError(t, err)
			kilobytes, err := strconv.ParseInt(strings.Fields(out)[1], 10, 64)
			require.NoError(t, err)
			t.Logf("pod %s: %d MiB at most, and the limit is %d MiB", p.Name, kilobytes>>10, limit>>20)
			require.Less(t, kilobytes<<10, limit, "pod %s", p.Name)
			judged++
		}
	}
	require.Len(t, pods, judged)
}
