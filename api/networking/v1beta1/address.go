package v1beta1

import "net/netip"

// CIDR is a range of addresses of either family, without host bits.
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).masked() == cidr(self) && cidr(self).prefixLength() > 0",message="must be a CIDR without host bits, as 10.42.0.0/16 or fd00:42::/48"
type CIDR string

// IP is an address of either family, without a zone.
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address, as 10.42.0.7 or fd00:42::7"
type IP string

// Prefix returns the range, and false for text that is not a range without host bits. An
// object that was written past the API server's validation may hold such text.
func (c CIDR) Prefix() (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(string(c))
	if err != nil || p != p.Masked() || p.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return p, true
}

// Addr returns the address, and false for text that is not an address without a zone.
func (i IP) Addr() (netip.Addr, bool) {
	a, err := netip.ParseAddr(string(i))
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, false
	}
	return a, true
}
