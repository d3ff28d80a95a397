package rules

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/reasons"
)

// probesItself judges the probes and hooks of a container. A kubelet sends them from the
// node, so a host of the author's choice would be reached with the node's address, or be
// the node itself.
func probesItself(where string, c *corev1.Container, allowed Allowed) error {
	probe := func(field string, p *corev1.Probe) error {
		if p == nil {
			return nil
		}
		return allowed.ownHost(where, c.Name, field, p.HTTPGet, p.TCPSocket)
	}
	hook := func(field string, h *corev1.LifecycleHandler) error {
		if h == nil {
			return nil
		}
		return allowed.ownHost(where, c.Name, field, h.HTTPGet, h.TCPSocket)
	}
	life := ptr.Deref(c.Lifecycle, corev1.Lifecycle{})
	return cmp.Or(probe("livenessProbe", c.LivenessProbe), probe("readinessProbe", c.ReadinessProbe), probe("startupProbe", c.StartupProbe),
		hook("lifecycle.postStart", life.PostStart), hook("lifecycle.preStop", life.PreStop))
}

func (r Allowed) ownHost(where, container, field string, get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction) error {
	refuse := func(action, host string) error {
		return &Refused{reasons.ProbeHostRefused, fmt.Sprintf("%s %q: %s.%s.host is %q: %s accepts no host from peers, and has no setting for it: leave it out, and the pod itself is probed",
			where, container, field, action, host, r.cluster())}
	}
	switch {
	case get != nil && get.Host != "":
		return refuse("httpGet", get.Host)
	case socket != nil && socket.Host != "":
		return refuse("tcpSocket", socket.Host)
	}
	return nil
}
