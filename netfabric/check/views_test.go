package check

import (
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/netfabric/plan"
)

func prefixList(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// gatewayKey is the public key number n.
func gatewayKey(n byte) string {
	raw := [32]byte{n, 9, 9}
	return base64.StdEncoding.EncodeToString(raw[:])
}

// rome is the cluster that checks.
func romeSurroundings() Surroundings {
	return Surroundings{
		ClusterID: "rome",
		Own: Own{Pods: prefixList("10.244.0.0/16", "fd00:10:244::/56"), External: prefixList("10.70.0.0/16"),
			Services: prefixList("10.96.0.0/12"), Reserved: prefixList("172.20.0.0/16"),
			Nodes: []netip.Addr{netip.MustParseAddr("192.168.0.11"), netip.MustParseAddr("fd00:1::11")}, APIServer: []netip.Addr{netip.MustParseAddr("172.21.0.5")}},
		Keys:  map[string]string{gatewayKey(1): "a gateway of rome", gatewayKey(77): "a gateway of paris"},
		Views: []ipamv1alpha1.NamedRange{{Prefix: netip.MustParsePrefix("10.81.0.0/16"), Name: "a range under which paris is seen"}},
	}
}

// milanSays is the copy of a Configuration that milan has written for rome.
func milanSays() *networkingv1beta1.Configuration {
	c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace("milan"), Name: "rome",
		Labels: map[string]string{offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: "milan"}}}
	c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: []networkingv1beta1.CIDR{"10.244.0.0/16"}, External: []networkingv1beta1.CIDR{"10.70.0.0/16"}}
	c.Spec.Gateways = []networkingv1beta1.Gateway{{Name: "gw-1", Number: 1, PublicKey: gatewayKey(11),
		Endpoints: []networkingv1beta1.Endpoint{{Address: "203.0.113.20", Port: 51840}, {Address: "gw.milan.example", Port: 51840}}}}
	c.Spec.MTU = 1370
	return c
}

func TestCheckConfiguration(t *testing.T) {
	t.Parallel()
	type conf = networkingv1beta1.Configuration
	pods := func(texts ...networkingv1beta1.CIDR) func(*conf) {
		return func(c *conf) { c.Spec.Local.CIDR.Pod = texts }
	}
	external := func(texts ...networkingv1beta1.CIDR) func(*conf) {
		return func(c *conf) { c.Spec.Local.CIDR.External = texts }
	}
	transit := func(texts ...networkingv1beta1.CIDR) func(*conf) {
		return func(c *conf) { c.Spec.Local.CIDR.Transit = texts }
	}
	behind := func(edit func(*networkingv1beta1.Third)) func(*conf) {
		return func(c *conf) {
			transit("10.81.0.0/16")(c)
			c.Spec.Behind = []networkingv1beta1.Third{{ClusterID: "paris", Namespaces: []string{"shop"}, Ranges: []networkingv1beta1.Mapping{{Own: "10.244.0.0/16", View: "10.81.0.0/16", Use: networkingv1beta1.RangePod}}}}
			edit(&c.Spec.Behind[0])
		}
	}
	admits := func(thirds ...networkingv1beta1.Third) func(*conf) { return func(c *conf) { c.Spec.Admits = thirds } }
	paris := networkingv1beta1.Third{ClusterID: "paris", Namespaces: []string{"shop"}}
	gateway := func(edit func(*networkingv1beta1.Gateway)) func(*conf) {
		return func(c *conf) { edit(&c.Spec.Gateways[0]) }
	}
	endpoint := func(address string, port int32) func(*conf) {
		return gateway(func(g *networkingv1beta1.Gateway) {
			g.Endpoints = []networkingv1beta1.Endpoint{{Address: address, Port: port}}
		})
	}
	key := func(text string) func(*conf) {
		return gateway(func(g *networkingv1beta1.Gateway) { g.PublicKey = text })
	}
	mtu := func(n int32) func(*conf) { return func(c *conf) { c.Spec.MTU = n } }
	low := func(raw [32]byte) string { return base64.StdEncoding.EncodeToString(raw[:]) }
	for name, tc := range map[string]struct {
		edit func(*conf)
		want string // a part of what is wrong; empty: it is accepted
	}{
		"equal to own ranges":            {func(*conf) {}, ""},
		"transit":                        {func(c *conf) { transit("10.96.0.0/16", "10.81.0.0/16", "fd01::/48")(c); mtu(1280)(c) }, ""},
		"a cluster behind it":            {behind(func(*networkingv1beta1.Third) {}), ""},
		"a cluster that it admits for":   {admits(paris), ""},
		"own Services":                   {pods("10.96.0.0/16"), ""},
		"own nodes":                      {pods("192.168.0.0/16", "fd00:1::/64"), ""},
		"a view of another peer":         {pods("10.81.0.0/16"), ""},
		"a reserved range":               {pods("172.20.0.0/16"), ""},
		"both families":                  {func(c *conf) { pods("10.1.0.0/16", "fd01::/48")(c); external("10.2.0.0/24", "fd02::/64")(c) }, ""},
		"shared address space":           {func(c *conf) { pods("100.64.0.0/10")(c); mtu(65535)(c) }, ""},
		"as large as can be":             {func(c *conf) { pods("11.0.0.0/9", "fd00::/16")(c); mtu(0)(c) }, ""},
		"no gateways yet":                {func(c *conf) { c.Spec.Gateways = nil }, ""},
		"dials only":                     {gateway(func(g *networkingv1beta1.Gateway) { g.Endpoints, g.Number = nil, 14 }), ""},
		"endpoint on the nodes' network": {endpoint("192.168.0.12", 1), ""},
		"endpoint of IPv6":               {endpoint("2001:db8::7", 65535), ""},
		"endpoint in a reserved range":   {endpoint("172.20.0.9", 51840), ""},

		"much transit":            {transit(slices.Repeat([]networkingv1beta1.CIDR{"10.0.0.0/24"}, 17)...), "transit has 17 ranges: 1 to 16 are accepted"},
		"many behind it":          {func(c *conf) { c.Spec.Behind = slices.Repeat([]networkingv1beta1.Third{paris}, 17) }, "behind has 17 clusters: 16 are accepted"},
		"one behind it twice":     {admits(paris, paris), `admits: cluster "paris": it is there twice`},
		"no id":                   {behind(func(o *networkingv1beta1.Third) { o.ClusterID = "A b" }), `behind: cluster "A b": the id of a cluster is accepted`},
		"no namespaces":           {behind(func(o *networkingv1beta1.Third) { o.Namespaces = nil }), "0 namespaces: 1 to 64 are accepted"},
		"many namespaces":         {behind(func(o *networkingv1beta1.Third) { o.Namespaces = slices.Repeat([]string{"a"}, 65) }), "65 namespaces"},
		"no name of a namespace":  {behind(func(o *networkingv1beta1.Third) { o.Namespaces = []string{"a/b"} }), `"a/b" is not the name of a namespace`},
		"many ranges behind it":   {behind(func(o *networkingv1beta1.Third) { o.Ranges = slices.Repeat(o.Ranges, 9) }), "it has 9 ranges: 8 are accepted"},
		"not in transit":          {behind(func(o *networkingv1beta1.Third) { o.Ranges[0].View = "10.82.0.0/16" }), "a range, and one of its size in transit, are accepted"},
		"of another size":         {behind(func(o *networkingv1beta1.Third) { o.Ranges[0].Own = "10.0.0.0/8" }), "a range, and one of its size in transit, are accepted"},
		"ranges of an admission":  {admits(networkingv1beta1.Third{ClusterID: "paris", Namespaces: paris.Namespaces, Ranges: []networkingv1beta1.Mapping{{Own: "10.1.0.0/16", View: "10.2.0.0/16"}}}), "one of its size in transit"},
		"transit of own pods":     {transit("10.244.0.0/17"), "10.244.0.0/16 and 10.244.0.0/17 overlap"},
		"wide transit":            {transit("11.0.0.0/9", "11.128.0.0/9"), "the IPv4 ranges have"},
		"transit of special":      {transit("127.0.0.0/8"), "transit: 127.0.0.0/8 has addresses of"},
		"not replicated":          {func(c *conf) { delete(c.Labels, offloadingv1beta1.ReplicatedLabel) }, `its label liqo.io/replicated is "": "true" is accepted`},
		"of another cluster":      {func(c *conf) { c.Labels[offloadingv1beta1.OriginIDLabel] = "paris" }, `its label liqo.io/originID is "paris": "milan" is accepted`},
		"remote":                  {func(c *conf) { c.Spec.Remote = &networkingv1beta1.Unsupported{} }, "remote is not accepted"},
		"no pods":                 {pods(), "pod has 0 ranges: 1 to 8 are accepted"},
		"many pods":               {pods(slices.Repeat([]networkingv1beta1.CIDR{"10.0.0.0/24"}, 9)...), "pod has 9 ranges"},
		"no external":             {external(), "external has 0 ranges"},
		"two external":            {external("10.1.0.0/24", "10.2.0.0/24"), "external: 10.2.0.0/24 is the second of its family"},
		"small external":          {external("10.1.0.0/28"), "external: 10.1.0.0/28 is narrower than /27: the first 16 addresses"},
		"small external of IPv6":  {external("fd01::/124"), "external: fd01::/124 is narrower than /123"},
		"no range":                {pods("x"), `pod: "x" is no range`},
		"long text":               {pods(networkingv1beta1.CIDR(strings.Repeat("1", 1000))), `pod: "` + strings.Repeat("1", 64) + `" is no range`},
		"host bits":               {pods("10.1.0.1/16"), "10.1.0.1/16 has bits beyond its length: write 10.1.0.0/16"},
		"another way to write":    {pods("fd01:0::/48"), `"fd01:0::/48" is accepted when written as fd01::/48`},
		"all":                     {pods("0.0.0.0/0"), "addresses of this host"},
		"too large":               {pods("10.0.0.0/7"), "10.0.0.0/7 is wider than /8"},
		"too large, of IPv6":      {pods("fc00::/15"), "fc00::/15 is wider than /16"},
		"too large together":      {pods("11.0.0.0/8", "12.0.0.0/8"), "the IPv4 ranges have 33619968 addresses together: as many as a /8 has are accepted"},
		"overlapping":             {pods("10.0.0.0/8"), "10.0.0.0/8 and 10.70.0.0/16 overlap"},
		"loopback":                {pods("127.0.0.0/16"), "loopback addresses"},
		"link-local and metadata": {pods("169.254.169.0/24"), "link-local addresses"},
		"link-local of IPv6":      {pods("fe80::/64"), "link-local addresses"},
		"multicast":               {pods("224.0.0.0/8"), "multicast addresses"},
		"multicast of IPv6":       {pods("ff00::/16"), "multicast addresses"},
		"reserved class":          {pods("250.0.0.0/8"), "reserved and broadcast addresses"},
		"NAT64":                   {pods("64:ff9b::/96"), "IPv4 addresses behind a NAT64"},
		"local NAT64":             {pods("64:ff9b:1:2::/64"), "IPv4 addresses behind a NAT64"},
		"6to4":                    {pods("2002:a00::/32"), "IPv4 addresses behind 6to4"},
		"Teredo":                  {pods("2001:0:1::/48"), "IPv4 addresses behind Teredo"},
		"IPv4-mapped":             {pods("::ffff:10.0.0.0/104"), "loopback and IPv4-mapped addresses"},
		"small MTU":               {mtu(575), "mtu is 575: 576 to 65535 bytes are accepted, and 0"},
		"large MTU":               {mtu(65536), "mtu is 65536"},
		"small MTU of IPv6":       {func(c *conf) { pods("fd01::/48")(c); mtu(1279)(c) }, "mtu is 1279: 1280 to 65535"},

		"many gateways": {func(c *conf) { c.Spec.Gateways = slices.Repeat(c.Spec.Gateways, 9) }, "it has 9 gateways: 8 are accepted"},
		"two of a name": {func(c *conf) {
			c.Spec.Gateways = append(c.Spec.Gateways, networkingv1beta1.Gateway{Name: "gw-1", Number: 2, PublicKey: gatewayKey(12)})
		}, `gateway "gw-1": there are two of that name`},
		"two of a number": {func(c *conf) {
			c.Spec.Gateways = append(c.Spec.Gateways, networkingv1beta1.Gateway{Name: "gw-2", Number: 1, PublicKey: gatewayKey(12)})
		}, `gateway "gw-2": number 1 is not accepted`},
		"two of a key": {func(c *conf) {
			c.Spec.Gateways = append(c.Spec.Gateways, networkingv1beta1.Gateway{Name: "gw-2", Number: 2, PublicKey: gatewayKey(11)})
		}, `gateway "gw-2": publicKey is that of another gateway of milan`},
		"no name":                  {gateway(func(g *networkingv1beta1.Gateway) { g.Name = "" }), `gateway "": a DNS label is accepted`},
		"no number":                {gateway(func(g *networkingv1beta1.Gateway) { g.Number = 0 }), "number 0 is not accepted: one of its own from 1 to 14"},
		"large number":             {gateway(func(g *networkingv1beta1.Gateway) { g.Number = 15 }), "number 15"},
		"bad place of WireGuard":   {gateway(func(g *networkingv1beta1.Gateway) { g.WireGuard = "Moon" }), `wireGuard is "Moon"`},
		"the key as the next one":  {gateway(func(g *networkingv1beta1.Gateway) { g.NextPublicKey = g.PublicKey }), `nextPublicKey is that of another gateway of milan`},
		"a next key that is none":  {gateway(func(g *networkingv1beta1.Gateway) { g.NextPublicKey = "AAAA" }), `nextPublicKey: "AAAA" is not accepted`},
		"short key":                {key("AAAA"), `publicKey: "AAAA" is not accepted`},
		"key with line breaks":     {key(gatewayKey(11)[:20] + "\n" + gatewayKey(11)[20:]), "is not accepted: the base64 of 32 bytes is"},
		"key with stray bits":      {key(gatewayKey(11)[:42] + "B="), "is not accepted"},
		"zero key":                 {key(low([32]byte{})), "is a key that anybody can compute the secret of"},
		"key of low order":         {key(low([32]byte{1})), "is a key that anybody can compute the secret of"},
		"key of a gateway here":    {key(gatewayKey(1)), "is the key of a gateway of rome"},
		"key of another peer":      {key(gatewayKey(77)), "is the key of a gateway of paris"},
		"many endpoints":           {gateway(func(g *networkingv1beta1.Gateway) { g.Endpoints = slices.Repeat(g.Endpoints[:1], 9) }), "it has 9 endpoints: 8 are accepted"},
		"many proofs":              {gateway(func(g *networkingv1beta1.Gateway) { g.Proofs = slices.Repeat([]string{"x"}, 9) }), "it has 9 proofs"},
		"no port":                  {endpoint("203.0.113.20", 0), "port 0 is not accepted"},
		"large port":               {endpoint("203.0.113.20", 65536), "port 65536"},
		"endpoint loopback":        {endpoint("127.0.0.1", 1), "loopback addresses: an address outside of rome is accepted"},
		"endpoint metadata":        {endpoint("169.254.169.254", 80), "link-local addresses"},
		"endpoint other metadata":  {endpoint("100.100.100.200", 80), "a metadata service of a cloud"},
		"endpoint NAT64":           {endpoint("64:ff9b::a00:1", 80), "NAT64"},
		"endpoint broadcast":       {endpoint("255.255.255.255", 80), "broadcast"},
		"endpoint with a zone":     {endpoint("fe80::1%eth0", 80), "plain IPv4 and IPv6 addresses"},
		"endpoint mapped":          {endpoint("::ffff:203.0.113.20", 80), "plain IPv4 and IPv6 addresses"},
		"endpoint a node":          {endpoint("192.168.0.11", 10250), "a node of rome"},
		"endpoint a pod":           {endpoint("10.244.1.7", 80), "a pod range of rome"},
		"endpoint a Service":       {endpoint("10.96.0.1", 443), "a range of Services of rome"},
		"endpoint external":        {endpoint("10.70.0.20", 80), "an external range of rome"},
		"endpoint in another peer": {endpoint("10.81.0.20", 80), "a range under which paris is seen"},
		"endpoint without a name":  {endpoint("", 80), "is not accepted: an IP address or a full DNS name is"},
		"endpoint of one label":    {endpoint("localhost", 80), "a full DNS name"},
		"endpoint as a number":     {endpoint("2130706433", 80), "a full DNS name"},
		"endpoint cut short":       {endpoint("127.1", 80), "a full DNS name"},
		"endpoint in hexadecimal":  {endpoint("0x7f.0x1", 80), "a full DNS name"},
		"endpoint a service name":  {endpoint("kubernetes.default.svc", 443), "a name inside of a cluster"},
		"endpoint a cluster name":  {endpoint("kubernetes.default.svc.cluster.local", 443), "a name inside of a cluster"},
		"endpoint with a path":     {endpoint("milan.example/x", 443), "a full DNS name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := milanSays()
			tc.edit(c)
			got := romeSurroundings().CheckConfiguration("milan", c).String()
			if tc.want == "" {
				require.Empty(t, got)
			} else {
				require.Contains(t, got, tc.want)
			}
		})
	}
}

func TestProblemsAreListedShortly(t *testing.T) {
	t.Parallel()
	var p Problems
	for range 7 {
		p.Add("bad")
	}
	require.Equal(t, "bad; bad; bad; bad; bad; and 2 more", p.String())
}

func TestCheckView(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ Own, view, want string }{
		"free":                     {"10.244.0.0/16", "10.80.0.0/16", ""},
		"the same":                 {"10.9.0.0/16", "10.9.0.0/16", ""},
		"of IPv6":                  {"fd01::/48", "fd80::/48", ""},
		"another size":             {"10.9.0.0/16", "10.80.0.0/17", "are of different lengths"},
		"another family":           {"10.0.0.0/16", "fd00::/16", "are of different IP versions"},
		"special":                  {"10.9.0.0/16", "192.0.0.0/16", "addresses of IETF protocols"},
		"metadata":                 {"10.64.0.0/10", "100.64.0.0/10", "a metadata service of a cloud"},
		"own pods":                 {"10.9.0.0/24", "10.244.3.0/24", "a pod range of rome"},
		"own external":             {"10.9.0.0/24", "10.70.3.0/24", "an external range of rome"},
		"own Services":             {"10.9.0.0/16", "10.97.0.0/16", "a range of Services of rome"},
		"own node":                 {"10.9.0.0/16", "192.168.0.0/16", "192.168.0.11/32, a node of rome"},
		"reserved":                 {"10.9.0.0/16", "172.20.0.0/16", "a reserved range of rome"},
		"own API server":           {"10.9.0.0/16", "172.21.0.0/16", "172.21.0.5/32, an API server of rome"},
		"a view of another peer":   {"10.9.0.0/24", "10.81.7.0/24", "a range under which paris is seen"},
		"larger than another view": {"10.0.0.0/15", "10.80.0.0/15", "a range under which paris is seen"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := romeSurroundings().CheckView(netip.MustParsePrefix(tc.Own), netip.MustParsePrefix(tc.view))
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
			}
		})
	}
}

func TestCheckAnswer(t *testing.T) {
	t.Parallel()
	view := func(own, seen string) networkingv1beta1.View {
		return networkingv1beta1.View{Own: netip.MustParsePrefix(own), View: netip.MustParsePrefix(seen)}
	}
	a, b := view("10.244.0.0/16", "10.80.0.0/16"), view("10.70.0.0/16", "10.81.0.0/16")
	good, err := Answer([]networkingv1beta1.View{a, b})
	require.NoError(t, err)
	require.Equal(t, []networkingv1beta1.View{a, b}, good)

	good, err = Answer([]networkingv1beta1.View{view("10.244.0.0/16", "169.254.0.0/16"), b, view("10.1.0.0/17", "10.81.128.0/17")})
	require.ErrorContains(t, err, "169.254.0.0/16 holds addresses that no host can have")
	require.ErrorContains(t, err, "10.81.128.0/17, the view of 10.1.0.0/17, overlaps 10.81.0.0/16, that of 10.70.0.0/16")
	require.Equal(t, []networkingv1beta1.View{b}, good)
}

// FuzzConfiguration writes Configurations of any text. Of one that is accepted the planner
// accepts all, under views that are free.
func FuzzConfiguration(f *testing.F) {
	f.Add("10.244.0.0/16,fd01::/48", "10.70.0.0/16", "gw-1", gatewayKey(11), "203.0.113.20", int32(1), int32(51840), int32(1370))
	f.Add("10.244.0.0/16,10.200.0.0/16,10.201.0.0/16", "10.70.0.0/16", "transit", gatewayKey(11), "203.0.113.20", int32(1), int32(51840), int32(1370))
	f.Add("10.0.0.0/8", "fd02::/64", "a", gatewayKey(12), "gw.milan.example", int32(14), int32(1), int32(0))
	f.Add("169.254.0.0/16", "64:ff9b::/96", "", "AAAA", "127.1", int32(0), int32(0), int32(-1))
	f.Add("10.1.0.1/16,x", "10.1.0.0/28,10.2.0.0/24", "a b", gatewayKey(1), "::ffff:10.0.0.1", int32(15), int32(65536), int32(575))
	f.Fuzz(func(t *testing.T, pods, external, name, key, address string, number, port, mtu int32) {
		c := milanSays()
		c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: split(pods), External: split(external)}
		if name == "transit" {
			c.Spec.Local.CIDR.Pod, c.Spec.Local.CIDR.Transit = c.Spec.Local.CIDR.Pod[:1], c.Spec.Local.CIDR.Pod[1:]
		}
		c.Spec.Gateways = []networkingv1beta1.Gateway{{Name: name, Number: number, PublicKey: key, Endpoints: []networkingv1beta1.Endpoint{{Address: address, Port: port}}}}
		c.Spec.MTU = mtu
		s := romeSurroundings()
		if wrong := s.CheckConfiguration("milan", c); len(wrong) > 0 {
			require.LessOrEqual(t, len(wrong.String()), 4096)
			return
		}
		peer := plan.Peer{ID: "milan", MTU: int(mtu), Gateways: []plan.Remote{{Number: int(number), Key: key}}}
		if addr, err := netip.ParseAddr(address); err == nil {
			peer.Gateways[0].Endpoint = netip.AddrPortFrom(addr, uint16(port))
			require.False(t, s.Own.Pods[0].Contains(addr) || addr.IsLoopback() || addr.IsLinkLocalUnicast())
		}
		for _, r := range OwnRanges(c) {
			switch r.Use {
			case networkingv1beta1.RangePod:
				peer.Theirs.Pods = append(peer.Theirs.Pods, r.Prefix)
			case networkingv1beta1.RangeExternal:
				peer.Theirs.External = append(peer.Theirs.External, r.Prefix)
			case networkingv1beta1.RangeTransit:
				peer.Theirs.Transit = append(peer.Theirs.Transit, r.Prefix)
			}
		}
		require.Len(t, OwnRanges(c), len(c.Spec.Local.CIDR.Pod)+len(c.Spec.Local.CIDR.External)+len(c.Spec.Local.CIDR.Transit))
		in := plan.Input{Ports: plan.Ports{Overlay: 1, Tunnel: 2}, MTU: 1500, Peers: []plan.Peer{peer}}
		require.NoError(t, in.Check())
	})
}

// FuzzAnswer reads views of any text, as a peer writes them. Those that are accepted lead
// back to where they came from, and to nowhere else.
func FuzzAnswer(f *testing.F) {
	f.Add("10.244.0.0/16", "10.80.0.0/16", "10.70.0.0/16", "10.81.0.0/16", []byte{10, 244, 1, 10})
	f.Add("10.244.0.0/16", "10.80.0.0/16", "10.70.0.0/17", "10.80.128.0/17", []byte{10, 70, 0, 1})
	f.Add("fd01::/48", "fd80::/48", "10.70.0.0/16", "fd80::/16", netip.MustParseAddr("fd01::1").AsSlice())
	f.Add("10.1.0.1/16", "0.0.0.0/0", "::/0", "::ffff:10.0.0.0/112", []byte{10, 1, 0, 1})
	f.Fuzz(func(t *testing.T, own, view, own2, view2 string, raw []byte) {
		read := func(text string) netip.Prefix { p, _ := netip.ParsePrefix(text); return p }
		all := []networkingv1beta1.View{{Own: read(own), View: read(view)}, {Own: read(own2), View: read(view2)}}
		good, err := Answer(all)
		require.Equal(t, len(good) == len(all), err == nil)
		var maps plan.Maps
		for _, v := range good {
			require.Contains(t, all, v)
			m := plan.Map{Own: v.Own, View: v.View}
			require.NoError(t, m.Check())
			maps = append(maps, m)
		}
		a, _ := netip.AddrFromSlice(raw)
		for _, m := range maps {
			if out, ok := m.Out(a); ok {
				back, ok := maps.In(out)
				require.True(t, ok)
				require.Equal(t, a, back, "%s is %s for the peer", a, out)
			}
		}
	})
}

func split(list string) (out []networkingv1beta1.CIDR) {
	for text := range strings.SplitSeq(list, ",") {
		out = append(out, networkingv1beta1.CIDR(text))
	}
	return out
}
