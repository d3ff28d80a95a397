package auth

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	fc, err := peerOf(peers, ask.ID)
	if err != nil || fc == nil || !slices.Equal(fc.Spec.AddressRanges, inOrder(ask.ranges)) {
		return
	}
	e.cfg.Records.Told(fc, "AddressRangesLeftOut", fmt.Sprintf(
		"cluster %s named address ranges in which this cluster has addresses of its own, and they are left out: %s. Endpoints of its Services there are not used here: "+
			"if no pod of this cluster can be in a part of them, put that part into spec.addressRanges of ForeignCluster %s", ask.ID, strings.Join(ask.leftOut, ", "), fc.Name))
}

// Own implements Cluster. It returns the pod ranges and addresses of Nodes and the ranges
// of Services. It adds the addresses of liqod's own pods, for networks that give Nodes no
// pod ranges.
func (k *Cluster) Own(ctx context.Context) ([]netip.Prefix, error) {
	var texts []string
	nodes, err := k.cfg.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		texts = append(texts, nodes.Items[i].Spec.PodCIDRs...)
		for _, a := range nodes.Items[i].Status.Addresses {
			texts = append(texts, a.Address)
		}
	}
	pods, err := k.cfg.Kube.CoreV1().Pods(k.cfg.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of namespace %s: %w", k.cfg.Namespace, err)
	}
	for i := range pods.Items {
		for _, ip := range pods.Items[i].Status.PodIPs {
			texts = append(texts, ip.IP)
		}
	}
	services, err := k.cfg.Kube.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // before Kubernetes 1.33, or an older chart's rights
	case err != nil:
		return nil, fmt.Errorf("listing the ranges of Services: %w", err)
	default:
		for i := range services.Items {
			texts = append(texts, services.Items[i].Spec.CIDRs...)
		}
	}
	if host, err := url.Parse(k.cfg.Host); err == nil {
		texts = append(texts, host.Hostname()) // inside a cluster, this is the address of a Service
	}
	return prefixes(texts), nil
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
