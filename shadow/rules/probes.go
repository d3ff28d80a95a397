package rules

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/reasons"
)

// probesItself judges the probes and hooks of a container. A kubelet sends them from the
// node, so a host of the author's choice would be reached with the node's address, or be
// the node itself.
func probesItself(where string, c *corev1.Container, allowed Allowed) error {
	for _, probe := range []struct {
		field string
		probe *corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if p := probe.probe; p != nil {
			if err := allowed.ownHost(where, c.Name, probe.field, p.HTTPGet, p.TCPSocket); err != nil {
				return err
			}
		}
	}
	if c.Lifecycle == nil {
		return nil
	}
	for _, hook := range []struct {
		field string
		hook  *corev1.LifecycleHandler
	}{{"lifecycle.postStart", c.Lifecycle.PostStart}, {"lifecycle.preStop", c.Lifecycle.PreStop}} {
		if h := hook.hook; h != nil {
			if err := allowed.ownHost(where, c.Name, hook.field, h.HTTPGet, h.TCPSocket); err != nil {
				return err
			}
		}
	}
	return nil
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
