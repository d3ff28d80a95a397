package kinds

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/reflect/forge"
)

const (
	// reasonHomeAPIUnknown is the reason of pods that wait for the address of the consumer's
	// API server, and of the event about pods that start without.
	reasonHomeAPIUnknown = "HomeAPIServerUnknown"
	// homeAPIPatience is how long a pod waits for the address after it was bound to the
	// virtual node. The environment of a pod cannot change later, but a pod that has no need
	// for the API server must not wait for ever.
	homeAPIPatience = 30 * time.Second
	homeAPIRetry    = 5 * time.Second
)

// HomeAPI finds the address at which pods in the provider reach the consumer's API server.
type HomeAPI interface {
	// Fabric reports whether there is such an address, or will be.
	Fabric() bool
	// Address returns the address and port, or the reason for which none is known.
	Address() (netip.AddrPort, error)
}

// apiAccess returns how a pod that starts now reaches the consumer's API server, and the
// reason if its address is not known yet.
func (p *Pods) apiAccess() (forge.APIAccess, error) {
	access := p.cfg.API
	if access.Host != "" || p.cfg.HomeAPI == nil || !p.cfg.HomeAPI.Fabric() {
		return access, nil
	}
	server, err := p.cfg.HomeAPI.Address()
	if err != nil {
		return access, err
	}
	access.Host, access.Port = server.Addr().String(), strconv.Itoa(int(server.Port()))
	return access, nil
}

// awaitsAPI returns the reason for which a new pod has to wait for the address of the
// consumer's API server; "": it need not. The pod that waits too long starts without the
// address, and an event says so.
func (p *Pods) awaitsAPI(local *corev1.Pod, o forge.PodOptions) string {
	_, err := p.apiAccess()
	if err == nil || started(local) || len(forge.Tokens(local, o)) == 0 {
		return ""
	}
	if p.now().Sub(boundSince(local)) < homeAPIPatience {
		return fmt.Sprintf("the address of this cluster's API server for cluster %s is not known yet: %s", p.cfg.Destination, err)
	}
	p.cfg.Recorder.Event(local, corev1.EventTypeWarning, reasonHomeAPIUnknown, fmt.Sprintf(
		"the pod starts in cluster %s without the address of the API server of this cluster, and clients in it do not reach the API server: %s", p.cfg.Destination, err))
	return ""
}

// boundSince returns when the pod was bound to its node, as far as it is known.
func boundSince(local *corev1.Pod) time.Time {
	for _, c := range local.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return local.CreationTimestamp.Time
}
