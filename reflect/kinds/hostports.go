package kinds

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// admit reports whether a new pod may use its host ports on the virtual node. A pod that may
// not becomes Failed, as on any other node: its owner decides about a replacement. The
// scheduler keeps such pods off the node; this concerns those that are bound without it.
func (p *Pods) admit(ctx context.Context, v view) (bool, error) {
	taken, err := p.reserve(v.local)
	if err != nil || taken == nil {
		return err == nil, err
	}
	if err := v.twin.shadows.ConfirmGone(ctx, v.there()); err != nil {
		return false, err // it may have been admitted before
	}
	why := fmt.Sprintf("Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: hostPort %d/%s", taken.HostPort, protocol(*taken))
	want := *v.local.Status.DeepCopy()
	want.ObservedGeneration = v.local.Generation
	want.Phase, want.Reason, want.Message = corev1.PodFailed, reasons.NodePorts, "Pod was rejected: "+why
	if err := p.patchStatus(ctx, v.local, want); err != nil {
		return false, err
	}
	p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, reasons.NodePorts, why)
	return false, nil
}

// reserve gives a pod its host ports. If another pod of the node has one of them, it returns
// this one and gives nothing. The error requeues the key: it is not known yet which pods have
// ports.
func (p *Pods) reserve(local *corev1.Pod) (*corev1.ContainerPort, error) {
	ports := hostPorts(&local.Spec)
	if len(ports) == 0 {
		return nil, nil
	}
	p.admitting.Lock() // of two pods that are synced at the same time, one gets the port
	defer p.admitting.Unlock()
	if p.memo(local.UID).admitted {
		return nil, nil
	}
	for _, other := range p.localPods(corev1.NamespaceAll) {
		if other.UID == local.UID {
			continue
		}
		i := slices.IndexFunc(ports, clashes(hostPorts(&other.Spec)))
		if i < 0 {
			continue
		}
		if occupies, err := p.occupies(other); err != nil {
			return nil, err
		} else if occupies {
			return &ports[i], nil
		}
	}
	p.change(local.UID, func(r *memo) { r.admitted = true })
	return nil, nil
}

// occupies reports whether a pod of the node has been sent to the provider and has not ended.
// A pod that waits, because its namespace is not offloaded, has no ports.
func (p *Pods) occupies(cached *corev1.Pod) (bool, error) {
	key := loop.Key{Namespace: cached.Namespace, Name: cached.Name}
	pod := p.localPod(key)
	if pod == nil || pod.UID != cached.UID || ended(pod) || p.locals.WasDeleted(pod.UID) {
		return false, nil
	}
	if p.memo(pod.UID).admitted || started(pod) {
		return true, nil
	}
	tw := p.twins.Get(key.Namespace)
	if tw == nil {
		return false, nil
	}
	if !tw.synced() {
		return false, loop.After(store.CatchUp)
	}
	shadow := tw.shadows.Cached(tw.key(key.Name))
	return shadow != nil && !foreign(shadow, pod), nil
}

// hostPorts returns the ports of the host that a pod uses as long as it runs. A pod with
// the host's network gets a network of its own in the provider, and no port of a host.
func hostPorts(spec *corev1.PodSpec) []corev1.ContainerPort {
	if spec.HostNetwork {
		return nil
	}
	var ports []corev1.ContainerPort
	add := func(c *corev1.Container) {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				ports = append(ports, port)
			}
		}
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	return ports
}

// clashes returns a function that reports whether a port cannot be used beside the taken ones.
func clashes(taken []corev1.ContainerPort) func(corev1.ContainerPort) bool {
	return func(a corev1.ContainerPort) bool {
		return slices.ContainsFunc(taken, func(b corev1.ContainerPort) bool {
			return a.HostPort == b.HostPort && protocol(a) == protocol(b) && (everywhere(a) || everywhere(b) || a.HostIP == b.HostIP)
		})
	}
}

func protocol(port corev1.ContainerPort) corev1.Protocol {
	return cmp.Or(port.Protocol, corev1.ProtocolTCP)
}

// everywhere reports whether a port is used at all addresses of the host, as the scheduler
// reads it.
func everywhere(port corev1.ContainerPort) bool { return port.HostIP == "" || port.HostIP == "0.0.0.0" }
