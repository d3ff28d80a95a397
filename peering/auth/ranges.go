package auth

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// podPage is the number of pods in a page of a list, and podPages the number of pages that
// are read at most.
const (
	podPage  = 500
	podPages = 4
)

// foreign splits the ranges that a peer announces for its endpoints. Ranges that overlap
// with this cluster's own addresses are returned in ours: with such an endpoint, the peer
// could redirect traffic to this cluster's own addresses.
func foreign(ranges []string, own []netip.Prefix) (theirs, ours []string) {
	for _, text := range ranges {
		r, err := netip.ParsePrefix(text)
		if err != nil || slices.ContainsFunc(own, r.Overlaps) {
			ours = append(ours, text)
			continue
		}
		theirs = append(theirs, text)
	}
	return theirs, ours
}

// inOrder returns ranges sorted and without duplicates, as they are recorded.
func inOrder(ranges []string) []string { return slices.Compact(slices.Sorted(slices.Values(ranges))) }

// withoutOwn removes the ranges that overlap with this cluster's own addresses from an
// enrolment.
func (e *Endpoint) withoutOwn(ctx context.Context, ask enrolment) (enrolment, error) {
	if len(ask.ranges) == 0 {
		return ask, nil
	}
	own, err := e.cfg.Self.Own(ctx)
	if err != nil {
		return ask, err
	}
	ask.ranges, ask.leftOut = foreign(ask.ranges, own)
	return ask, nil
}

// tellLeftOut records an event about the ranges of a peer that were left out. It records
// none if people have written the ranges themselves.
func (e *Endpoint) tellLeftOut(ctx context.Context, ask enrolment) {
	if len(ask.leftOut) == 0 {
		return
	}
	e.cfg.Log.Warn("the peer is enrolled without the address ranges that overlap addresses of this cluster",
		zap.String("peer", ask.ID), zap.Strings("ranges", ask.leftOut))
	peers, err := e.cfg.Records.Peers(ctx)
	if err != nil {
		return
	}
	fc := peerOf(peers, ask.ID)
	if fc == nil || !slices.Equal(fc.Spec.AddressRanges, inOrder(ask.ranges)) {
		return
	}
	e.cfg.Records.Told(fc, "AddressRangesLeftOut", fmt.Sprintf(
		"cluster %s named address ranges in which this cluster has addresses of its own, and they are left out: %s. Endpoints of its Services there are not used here: "+
			"if no pod of this cluster can be in a part of them, put that part into spec.addressRanges of ForeignCluster %s", ask.ID, strings.Join(ask.leftOut, ", "), fc.Name))
}

// Own implements Self. It returns the ranges of the settings, the pod ranges and addresses
// of Nodes, and the ranges of Services. It adds the addresses of running pods, for networks
// that give Nodes no pod ranges.
func (k *Cluster) Own(ctx context.Context) ([]netip.Prefix, error) {
	var texts []string
	nodes, err := k.cfg.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	own := map[string]bool{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		own[n.Name] = !offloadingv1beta1.IsVirtual(n)
		texts = append(texts, n.Spec.PodCIDRs...)
		for _, a := range n.Status.Addresses {
			texts = append(texts, a.Address)
		}
	}
	pods, err := k.podAddresses(ctx, own)
	if err != nil {
		return nil, err
	}
	services, err := k.serviceRanges(ctx)
	if err != nil {
		return nil, err
	}
	texts = slices.Concat(texts, pods, services)
	if host, err := url.Parse(k.cfg.Host); err == nil {
		texts = append(texts, host.Hostname()) // inside a cluster, this is the address of a Service
	}
	return append(prefixes(texts), k.cfg.Ranges...), nil
}

// podAddresses returns the addresses of liqod's own pods, and of others on the nodes of
// this cluster. Pods on virtual nodes have addresses of a peer. Of a large cluster it reads
// the first pods only: they show in which ranges there are pods.
func (k *Cluster) podAddresses(ctx context.Context, own map[string]bool) (texts []string, err error) {
	pods, err := k.cfg.Kube.CoreV1().Pods(k.cfg.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of namespace %s: %w", k.cfg.Namespace, err)
	}
	texts = addressesOf(pods.Items, func(*corev1.Pod) bool { return true })
	options := metav1.ListOptions{Limit: podPage, FieldSelector: "status.phase=Running"}
	for range podPages {
		pods, err := k.cfg.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		texts = append(texts, addressesOf(pods.Items, func(pod *corev1.Pod) bool { return own[pod.Spec.NodeName] })...)
		if options.Continue = pods.Continue; options.Continue == "" {
			break
		}
	}
	return texts, nil
}

func addressesOf(pods []corev1.Pod, counts func(*corev1.Pod) bool) (texts []string) {
	for i := range pods {
		if !counts(&pods[i]) {
			continue
		}
		for _, ip := range pods[i].Status.PodIPs {
			texts = append(texts, ip.IP)
		}
	}
	return texts
}

func (k *Cluster) serviceRanges(ctx context.Context) (texts []string, err error) {
	services, err := k.cfg.Kube.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // before Kubernetes 1.33, or an older chart's rights
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing the ranges of Services: %w", err)
	}
	for i := range services.Items {
		texts = append(texts, services.Items[i].Spec.CIDRs...)
	}
	return texts, nil
}

// prefixes parses the texts that are ranges or addresses, and skips the others.
func prefixes(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if r, err := netip.ParsePrefix(text); err == nil {
			out = append(out, r.Masked())
		} else if a, err := netip.ParseAddr(text); err == nil {
			a = a.Unmap().WithZone("")
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}
