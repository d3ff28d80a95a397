package v1alpha1

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpecialAddresses: what all domains refuse in ranges and endpoints of peers.
func TestSpecialAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0.0.0.0": "addresses of this host", "0.1.2.3": "addresses of this host", "127.0.0.53": "loopback", "::1": "loopback", "::": "loopback",
		"::127.0.0.1": "IPv4-mapped", "::ffff:127.0.0.1": "127.0.0.0/8: loopback addresses", "::ffff:169.254.169.254": "link-local",
		"169.254.169.254": "link-local", "169.254.20.10": "link-local", "fe80::1": "link-local", "fe80::a9fe:a9fe": "link-local",
		"224.0.0.1": "multicast", "239.255.255.250": "multicast", "ff02::1": "multicast", "255.255.255.255": "broadcast", "240.0.0.1": "reserved",
		"64:ff9b::a9fe:a9fe": "NAT64", "64:ff9b:1::1": "NAT64", "2002:a9fe:a9fe::1": "6to4", "192.88.99.1": "6to4", "2001::1": "Teredo", "100::1": "discard",
		"192.0.0.192": "IETF", "100.100.100.200": "metadata", "168.63.129.16": "metadata", "fd00:ec2::254": "metadata", "fd00:ec2::253": "metadata",
		"fd00:42::42": "metadata", "fd20:ce::254": "metadata",

		"10.0.0.1": "", "192.168.1.1": "", "100.64.0.1": "", "100.100.100.201": "", "168.63.129.17": "", "8.8.8.8": "", "192.0.1.1": "",
		"fd00::1": "", "fd00:42::43": "", "2001:db8::1": "", "2600::1": "", "fd20:ce::253": "",
	} {
		got := SpecialAddress(netip.MustParseAddr(text))
		require.Equal(t, want == "", got == "", "%s: %s", text, got)
		require.Contains(t, got, want, text)
	}
	for _, r := range append(SpecialRanges(), MetadataServices()...) {
		require.Equal(t, r.Prefix.Masked(), r.Prefix)
	}
}
