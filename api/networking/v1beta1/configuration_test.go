package v1beta1

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestViews(t *testing.T) {
	t.Parallel()
	view := func(own, seen string) View { return View{netip.MustParsePrefix(own), netip.MustParsePrefix(seen)} }
	for name, tc := range map[string]struct {
		spec, own, seen []CIDR
		want            []View
	}{
		"no answer":              {[]CIDR{"10.1.0.0/16"}, nil, nil, nil},
		"one":                    {[]CIDR{"10.1.0.0/16"}, []CIDR{"10.1.0.0/16"}, []CIDR{"10.80.0.0/16"}, []View{view("10.1.0.0/16", "10.80.0.0/16")}},
		"both families":          {[]CIDR{"10.1.0.0/16", "fd01::/48"}, []CIDR{"fd01::/48", "10.1.0.0/16"}, []CIDR{"fd80::/48", "10.1.0.0/16"}, []View{view("10.1.0.0/16", "10.1.0.0/16"), view("fd01::/48", "fd80::/48")}},
		"not answered yet":       {[]CIDR{"10.1.0.0/16", "10.2.0.0/16"}, []CIDR{"10.2.0.0/16"}, []CIDR{"10.80.0.0/16"}, []View{view("10.2.0.0/16", "10.80.0.0/16")}},
		"answered, and gone":     {[]CIDR{"10.2.0.0/16"}, []CIDR{"10.1.0.0/16", "10.2.0.0/16"}, []CIDR{"10.80.0.0/16", "10.81.0.0/16"}, []View{view("10.2.0.0/16", "10.81.0.0/16")}},
		"fewer views":            {[]CIDR{"10.1.0.0/16", "10.2.0.0/16"}, []CIDR{"10.1.0.0/16", "10.2.0.0/16"}, []CIDR{"10.80.0.0/16"}, []View{view("10.1.0.0/16", "10.80.0.0/16")}},
		"another size":           {[]CIDR{"10.1.0.0/16"}, []CIDR{"10.1.0.0/16"}, []CIDR{"10.80.0.0/17"}, nil},
		"another family":         {[]CIDR{"10.0.0.0/8"}, []CIDR{"10.0.0.0/8"}, []CIDR{"fd00::/8"}, nil},
		"host bits in the view":  {[]CIDR{"10.1.0.0/16"}, []CIDR{"10.1.0.0/16"}, []CIDR{"10.80.0.1/16"}, nil},
		"no range in the answer": {[]CIDR{"10.1.0.0/16"}, []CIDR{"10.1.0.0/16"}, []CIDR{"x"}, nil},
		"no range in the spec":   {[]CIDR{"x"}, []CIDR{"x"}, []CIDR{"10.80.0.0/16"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Configuration{}
			c.Spec.Local.CIDR = ClusterCIDR{Pod: tc.spec, External: tc.spec, Transit: tc.spec, Service: tc.spec}
			if tc.own != nil {
				c.Status.Local = &MappedNetwork{CIDR: MappedCIDR{Pod: tc.own, External: tc.own, Transit: tc.own, Service: tc.own}}
				c.Status.Remote = &MappedNetwork{CIDR: MappedCIDR{Pod: tc.seen, External: tc.seen, Transit: tc.seen, Service: tc.seen}}
			}
			for _, use := range RangeUses() {
				require.Equal(t, tc.want, c.Views(use), use)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for text, good := range map[CIDR]bool{
		"10.0.0.0/8": true, "fd00::/48": true, "10.0.0.7/32": true, "10.0.0.7/8": false, "10.0.0.0": false, "": false, "::ffff:10.0.0.0/104": false,
	} {
		_, ok := text.Prefix()
		require.Equal(t, good, ok, text)
	}
	for text, good := range map[IP]bool{"10.0.0.7": true, "fd00::7": true, "10.0.0.0/8": false, "fe80::1%eth0": false, "": false, "::ffff:10.0.0.7": false} {
		_, ok := text.Addr()
		require.Equal(t, good, ok, text)
	}
}
