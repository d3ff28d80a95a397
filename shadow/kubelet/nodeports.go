package kubelet

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
)

// NodePorts answers the TCP node ports of Services at the address of a virtual node, as kube-proxy does at those of
// other nodes: a connection leads to the cluster IP of the Service. A port of a Service with externalTrafficPolicy Local
// is not answered, since no endpoint is on this machine. Its methods may be called concurrently.
type NodePorts struct {
	address netip.Addr
	told    func(served map[string]string)
	relay   *serve.Relay
	leads   atomic.Pointer[map[netip.AddrPort]lead]
	log     *zap.Logger

	mu       sync.Mutex
	services map[cache.ObjectName]*corev1.Service
}

// lead is where a node port leads: to the cluster IP and port of a Service in a namespace.
type lead struct{ to, namespace string }

// NewNodePorts returns NodePorts for an address of this host. After each change of a Service, told is called with the
// ports that are answered, each with the namespace of its Service. It must not block. closed is that of serve.NewRelay.
func NewNodePorts(address netip.Addr, told func(served map[string]string), closed func(why string), log *zap.Logger) *NodePorts {
	n := &NodePorts{address: address, told: told, log: log, services: map[cache.ObjectName]*corev1.Service{}}
	n.relay = serve.NewRelay(func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", (*n.leads.Load())[at].to) // one that leads nowhere is an error
	}, closed, log)
	return n
}

// Follow answers the node ports of the Services of an informer, until Close.
func (n *NodePorts) Follow(services cache.SharedIndexInformer) error {
	_, err := services.AddEventHandler(store.Handler[*corev1.Service]{
		Set: func(_, s *corev1.Service) { n.change(func() { n.services[cache.MetaObjectToName(s)] = s }) },
		Gone: func(s *corev1.Service, _ bool) {
			n.change(func() { delete(n.services, cache.MetaObjectToName(s)) })
		},
	})
	return err
}

// Close answers no node port of a namespace any more. Its informer has stopped.
func (n *NodePorts) Close(namespace string) {
	n.change(func() {
		maps.DeleteFunc(n.services, func(name cache.ObjectName, _ *corev1.Service) bool { return name.Namespace == namespace })
	})
}

// change answers the node ports of the Services as they are after the change, and no others.
func (n *NodePorts) change(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	leads, served := map[netip.AddrPort]lead{}, map[string]string{}
	for _, s := range n.services {
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 && p.Protocol == corev1.ProtocolTCP && s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
				leads[netip.AddrPortFrom(n.address, uint16(p.NodePort))] = lead{net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(p.Port))), s.Namespace}
			}
		}
	}
	n.leads.Store(&leads)
	if err := n.relay.Follow(slices.Collect(maps.Keys(leads))); err != nil {
		n.log.Warn("node ports are not answered: another process has them, or the address of the node is not this host's", zap.Error(err))
	}
	for _, at := range n.relay.Served() {
		served[strconv.Itoa(int(at.Port()))] = leads[at].namespace
	}
	n.told(served)
}
