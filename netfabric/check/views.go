package check

import (
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/netfabric/plan"
)

// What a Configuration may have at most. The API server checks most of this, too; a copy
// that a peer has written is checked as if it did not.
const (
	MaxPodRanges      = 8
	maxExternalRanges = 2  // one of each family
	MaxTransitRanges  = 16 // of clusters behind it
	maxServiceRanges  = 4  // of its Services
	MaxThirds         = 16 // clusters that it names
	maxGateways       = 8  // of one cluster
	MaxEndpoints      = 8  // of one gateway
	maxTotalBits      = 24 // the IPv4 ranges of a cluster together have as many addresses as a /8
	maxProblems       = 5  // that are listed
)

// Surroundings hold what a peer's Configuration may not collide with. The zero value is for
// checks of form alone.
type Surroundings struct {
	ClusterID string // this cluster's
	Own       Own
	// Keys are the WireGuard keys in use, each with the name of its owner for messages.
	Keys map[string]string
	// Views are the ranges under which this cluster sees other peers.
	Views []ipamv1alpha1.NamedRange
}

// special and metadata are ranges that no peer is seen under.
var special, metadata = ipamv1alpha1.SpecialRanges(), ipamv1alpha1.MetadataServices()

// Overlap names the first of the ranges that p overlaps, and "" if there is none.
func Overlap(p netip.Prefix, ranges []ipamv1alpha1.NamedRange) string {
	for _, r := range ranges {
		if r.Prefix.Overlaps(p) {
			return fmt.Sprintf("%s, %s", r.Prefix, r.Name)
		}
	}
	return ""
}

// Named returns the prefixes as ranges of one name.
func Named(name string, prefixes []netip.Prefix) (out []ipamv1alpha1.NamedRange) {
	for _, p := range prefixes {
		out = append(out, ipamv1alpha1.NamedRange{Prefix: p, Name: name})
	}
	return out
}

// inside are the ranges that lead to something in this cluster.
func (s Surroundings) inside() []ipamv1alpha1.NamedRange {
	return slices.Concat(
		Named("a pod range of "+s.ClusterID, s.Own.Pods), Named("a range of Services of "+s.ClusterID, s.Own.Services),
		Named("an external range of "+s.ClusterID, s.Own.External), Named("a node of "+s.ClusterID, Singles(s.Own.Nodes)),
		Named("an API server of "+s.ClusterID, Singles(s.Own.APIServer)))
}

// Singles returns the range of each address.
func Singles(addrs []netip.Addr) (out []netip.Prefix) {
	for _, a := range addrs {
		out = append(out, plan.Single(a))
	}
	return out
}

// Problems are sentences about mistakes in an object.
type Problems []string

// Add adds a sentence.
func (p *Problems) Add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// String lists the first of them.
func (p Problems) String() string {
	if more := len(p) - maxProblems; more > 0 {
		return strings.Join(p[:maxProblems], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(p, "; ")
}

// CheckConfiguration returns the mistakes in a peer's Configuration.
// The ranges in it are the peer's own: they may overlap all that this cluster has or sees,
// which is what views are for.
func (s Surroundings) CheckConfiguration(peer string, c *networkingv1beta1.Configuration) Problems {
	var out Problems
	for _, label := range [][2]string{{offloadingv1beta1.ReplicatedLabel, "true"}, {offloadingv1beta1.OriginIDLabel, peer}} {
		if have := c.Labels[label[0]]; have != label[1] {
			out.Add("its label %s is %.64q: %q is accepted", label[0], have, label[1])
		}
	}
	if c.Spec.Remote != nil {
		out.Add("remote is not accepted: a Configuration has the ranges of the cluster that writes it")
	}
	all := Ranges(c.Spec.Local.CIDR, &out)
	checkThirds("behind", c.Spec.Behind, c.Spec.Local.CIDR.Transit, &out)
	checkThirds("admits", c.Spec.Admits, nil, &out)
	s.CheckGateways(peer, c.Spec.Gateways, &out)
	least := plan.MinMTU4
	if slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		least = plan.MinMTU6
	}
	if mtu := int(c.Spec.MTU); mtu != 0 && (mtu < least || mtu > plan.MaxMTU) {
		out.Add("mtu is %d: %d to %d bytes are accepted, and 0", mtu, least, plan.MaxMTU)
	}
	return out
}

// Ranges returns the valid ranges of a cluster, and adds the mistakes in the others to out.
func Ranges(c networkingv1beta1.ClusterCIDR, out *Problems) []netip.Prefix {
	pods, external := parseRanges("pod", c.Pod, MaxPodRanges, out), parseRanges("external", c.External, 2*maxExternalRanges, out)
	for i, p := range external {
		if err := plan.CheckExternal(p); err != nil {
			out.Add("external: %s", err)
		}
		if slices.ContainsFunc(external[:i], func(q netip.Prefix) bool { return sameFamily(p, q) }) {
			out.Add("external: %s is the second of its family: one is accepted", p)
		}
	}
	all, total := slices.Concat(pods, external), 0
	if len(c.Transit) > 0 {
		all = append(all, parseRanges("transit", c.Transit, MaxTransitRanges, out)...)
	}
	if len(c.Service) > 0 {
		all = append(all, parseRanges("service", c.Service, maxServiceRanges, out)...)
	}
	for i, p := range all {
		if j := slices.IndexFunc(all[:i], p.Overlaps); j >= 0 {
			out.Add("%s and %s overlap: a cluster's own ranges are distinct", all[j], p)
		}
		if p.Addr().Is4() {
			total += 1 << (32 - p.Bits())
		}
	}
	if total > 1<<maxTotalBits {
		out.Add("the IPv4 ranges have %d addresses together: as many as a /%d has are accepted", total, 32-maxTotalBits)
	}
	return all
}

func sameFamily(a, b netip.Prefix) bool { return a.Addr().Is4() == b.Addr().Is4() }

func parseRanges(use string, texts []networkingv1beta1.CIDR, most int, out *Problems) (ranges []netip.Prefix) {
	if len(texts) == 0 || len(texts) > most {
		out.Add("%s has %d ranges: 1 to %d are accepted", use, len(texts), most)
		return nil
	}
	for _, text := range texts {
		if p, err := parseRange(text); err != nil {
			out.Add("%s: %s", use, err)
		} else {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// parseRange returns a range that a cluster may have of its own. There is one way to write
// it.
func parseRange(text networkingv1beta1.CIDR) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(string(text))
	if err != nil {
		return p, fmt.Errorf("%.64q is no range: one such as 10.42.0.0/16 is accepted", text)
	}
	if is := Overlap(p, special); is != "" {
		return p, fmt.Errorf("%s has addresses of %s: ordinary addresses are accepted", p, is)
	}
	if err := (plan.Map{Own: p, View: p}).Check(); err != nil {
		return p, err
	}
	if p.String() != string(text) {
		return p, fmt.Errorf("%.64q is accepted when written as %s", text, p)
	}
	return p, nil
}

// CheckView returns the reason why this cluster may not see a peer's own range under view.
func (s Surroundings) CheckView(own, view netip.Prefix) error {
	if err := (plan.Map{Own: own, View: view}).Check(); err != nil {
		return err
	}
	for _, taken := range [][]ipamv1alpha1.NamedRange{special, metadata, s.inside(), Named("a reserved range of "+s.ClusterID, s.Own.Reserved), s.Views} {
		if is := Overlap(view, taken); is != "" {
			return fmt.Errorf("%s overlaps %s", view, is)
		}
	}
	return nil
}

// CheckGateways adds the mistakes in the gateways of a cluster to out.
func (s Surroundings) CheckGateways(peer string, gateways []networkingv1beta1.Gateway, out *Problems) {
	if len(gateways) > maxGateways {
		out.Add("it has %d gateways: %d are accepted", len(gateways), maxGateways)
		return
	}
	names, numbers, keys := map[string]bool{}, map[int32]bool{}, map[string]bool{}
	for _, g := range gateways {
		bad := func(format string, args ...any) { out.Add("gateway %.64q: "+format, append([]any{g.Name}, args...)...) }
		switch {
		case len(validation.IsDNS1123Label(g.Name)) > 0:
			bad("a DNS label is accepted as a name")
		case names[g.Name]:
			bad("there are two of that name")
		}
		if g.Number < 1 || g.Number > plan.MaxReplicas || numbers[g.Number] {
			bad("number %d is not accepted: one of its own from 1 to %d is", g.Number, plan.MaxReplicas)
		}
		for i, key := range g.Keys() {
			field := []string{"publicKey", "nextPublicKey"}[i]
			if err := s.CheckKey(key); err != nil {
				bad("%s: %s", field, err)
			} else if keys[key] {
				bad("%s is that of another gateway of %s", field, peer)
			}
			keys[key] = true
		}
		if !slices.Contains([]networkingv1beta1.WireGuard{"", networkingv1beta1.WireGuardKernel, networkingv1beta1.WireGuardUserspace}, g.WireGuard) {
			bad("wireGuard is %.64q: %s and %s are accepted", g.WireGuard, networkingv1beta1.WireGuardKernel, networkingv1beta1.WireGuardUserspace)
		}
		if len(g.Proofs) > maxProofs {
			bad("it has %d proofs: %d are accepted", len(g.Proofs), maxProofs)
		}
		names[g.Name], numbers[g.Number] = true, true
		if len(g.Endpoints) > MaxEndpoints {
			bad("it has %d endpoints: %d are accepted", len(g.Endpoints), MaxEndpoints)
			continue
		}
		for _, e := range g.Endpoints {
			if err := s.CheckEndpoint(e); err != nil {
				bad("endpoint: %s", err)
			}
		}
	}
}

// CheckKey returns the reason why a peer's gateway may not have this public key: two peers
// with one key would receive each other's packets.
func (s Surroundings) CheckKey(text string) error {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 32 || base64.StdEncoding.EncodeToString(raw) != text {
		return fmt.Errorf("%.64q is not accepted: the base64 of 32 bytes is", text)
	}
	if !usableKey(raw) {
		return fmt.Errorf("%q is a key that anybody can compute the secret of", text)
	}
	if whose, ok := s.Keys[text]; ok {
		return fmt.Errorf("%q is the key of %s", text, whose)
	}
	return nil
}

// usableKey reports whether a Curve25519 key is of a point that keeps a secret: RFC 7748,
// section 6.1, lists those that give the same result with every other key.
func usableKey(raw []byte) bool {
	any32 := [32]byte{1}
	private, err := ecdh.X25519().NewPrivateKey(any32[:])
	public, unreadable := ecdh.X25519().NewPublicKey(raw)
	if err != nil || unreadable != nil {
		return false
	}
	_, err = private.ECDH(public)
	return err == nil
}

// CheckEndpoint returns the reason why the gateways of this cluster may not send to an
// endpoint.
func (s Surroundings) CheckEndpoint(e networkingv1beta1.Endpoint) error {
	if e.Port < 1 || e.Port > 65535 {
		return fmt.Errorf("port %d is not accepted: 1 to 65535 are", e.Port)
	}
	if addr, err := netip.ParseAddr(e.Address); err == nil {
		return s.CheckEndpointAddr(addr)
	}
	return ipamv1alpha1.HostName(e.Address)
}

// CheckEndpointAddr returns the reason why the gateways of this cluster may not send to an
// address: else a peer could make them send to machines that it does not reach itself.
func (s Surroundings) CheckEndpointAddr(addr netip.Addr) error {
	if addr.Zone() != "" || addr.Is4In6() {
		return fmt.Errorf("%.64q: plain IPv4 and IPv6 addresses are accepted", addr)
	}
	for _, no := range [][]ipamv1alpha1.NamedRange{special, metadata, s.inside(), s.Views} {
		if is := Overlap(plan.Single(addr), no); is != "" {
			return fmt.Errorf("%s is of %s: an address outside of %s is accepted", addr, is, s.ClusterID)
		}
	}
	return nil
}

// Answer returns the views that a peer has of this cluster's own ranges, as far as they
// can be used, and what is wrong with the others.
func Answer(views []networkingv1beta1.View) (good []networkingv1beta1.View, err error) {
	var errs []error
	for _, v := range views {
		if bad := (plan.Map{Own: v.Own, View: v.View}).Check(); bad != nil {
			errs = append(errs, bad)
			continue
		}
		if i := slices.IndexFunc(good, func(g networkingv1beta1.View) bool { return g.View.Overlaps(v.View) }); i >= 0 {
			errs = append(errs, fmt.Errorf("%s, the view of %s, overlaps %s, that of %s", v.View, v.Own, good[i].View, good[i].Own))
			continue
		}
		good = append(good, v)
	}
	return good, errors.Join(errs...)
}
