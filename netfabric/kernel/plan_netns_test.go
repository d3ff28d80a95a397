package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

// cluster is a random cluster with up to three peers, each of which is one of few.
func (p part) cluster() plan.Input {
	in := plan.Input{
		Self:     "host-0",
		Pods:     prefixes("10.244.0.0/16", "fd00:10:244::/56"),
		External: prefixes("10.70.0.0/16", "fd00:70::/64"),
		Ports:    plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort},
		MTU:      1450 + 50*p.IntN(2),
	}
	for i := range 1 + p.IntN(3) {
		in.Nodes = append(in.Nodes, plan.Host{
			Name:  fmt.Sprintf("host-%d", i),
			Addrs: addrs(fmt.Sprintf("192.168.0.%d", 10+i), fmt.Sprintf("fd00:1::%d", 10+i)),
			Pods:  prefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i)),
		})
	}
	for i := range 1 + p.IntN(3) {
		in.Gateways = append(in.Gateways, plan.Replica{
			Name: fmt.Sprintf("host-%d", i), Number: 1 + i, Addrs: addrs(fmt.Sprintf("192.168.1.%d", 10+i)),
		})
	}
	if n := p.IntN(len(in.Gateways) + 1); n < len(in.Gateways) {
		in.Via = in.Gateways[n].Name
	}
	for i := range 3 {
		if p.yes() {
			in.Peers = append(in.Peers, p.peer(i))
		}
	}
	for i := range p.IntN(3) {
		ip := plan.IP{
			External: addr(fmt.Sprintf("10.70.0.%d", 20+i)), Real: addr(fmt.Sprintf("172.16.5.%d", p.IntN(2))),
			Peer: []string{"", "peer-0", "peer-1"}[p.IntN(3)],
		}
		if p.yes() {
			ip.External, ip.Real = addr(fmt.Sprintf("fd00:70::%d", 20+i)), addr(fmt.Sprintf("fd00:5::%d", p.IntN(2)))
		}
		for n := range p.IntN(3) {
			ip.Ports = append(ip.Ports, plan.Service{Proto: []string{"tcp", "udp"}[n], Port: uint16(80 + p.IntN(2))})
		}
		in.IPs = append(in.IPs, ip)
	}
	return in
}

func (p part) peer(i int) plan.Peer {
	view := 100 + 10*i + p.IntN(2)
	out := plan.Peer{
		ID:     fmt.Sprintf("peer-%d", i),
		Theirs: plan.Ranges{Pods: prefixes(fmt.Sprintf("10.%d.0.0/16", 1+i)), External: prefixes(fmt.Sprintf("10.%d.0.0/16", 11+i))},
		Ours: plan.Maps{
			{Own: prefix("10.244.0.0/16"), View: prefix(fmt.Sprintf("10.%d.0.0/16", view))},
			{Own: prefix("10.70.0.0/16"), View: prefix(fmt.Sprintf("10.%d.0.0/16", view+2))},
		},
		MTU: 1370 * p.IntN(2),
	}
	if p.yes() {
		out.Theirs.Pods = append(out.Theirs.Pods, prefix(fmt.Sprintf("fd00:a%d::/56", i)))
		out.Theirs.External = append(out.Theirs.External, prefix(fmt.Sprintf("fd00:b%d::/64", i)))
		out.Ours = append(out.Ours,
			plan.Map{Own: prefix("fd00:10:244::/56"), View: prefix(fmt.Sprintf("fd00:c%d::/56", i))},
			plan.Map{Own: prefix("fd00:70::/64"), View: prefix(fmt.Sprintf("fd00:d%d::/64", i))})
	}
	for n := range 1 + p.IntN(2) {
		g := plan.Remote{Number: 1 + n, Key: publicKey(10*i + n)}
		if i > 0 {
			g.Endpoint = netip.AddrPortFrom(addr(fmt.Sprintf("203.0.113.%d", 10*i+n)), 51840)
		}
		out.Gateways = append(out.Gateways, g)
	}
	out.Use = p.IntN(len(out.Gateways) + 1)
	for n := range p.IntN(3) {
		out.Reach = append(out.Reach, prefix(fmt.Sprintf("10.244.1.%d/32", 10+i+n)), prefix(fmt.Sprintf("fd00:10:244:1::%d/128", 10+i+n)))
	}
	return out
}

func publicKey(n int) string {
	key := Key{1, byte(n)}
	return key.Public()
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, addr(s))
	}
	return out
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, prefix(s))
	}
	return out
}

// walkPlans applies what is planned for random clusters, whose overlay is over IPv4 or IPv6, and now and then nothing.
func walkPlans(t *testing.T, k *Kernel, c counter, build func(plan.Input) (plan.State, error)) {
	p := part{rand.New(rand.NewPCG(3, 4))}
	for range 40 {
		var want plan.State
		if p.IntN(10) > 0 {
			in, err := p.cluster(), error(nil)
			if p.yes() {
				for i := range in.Nodes {
					in.Nodes[i].Addrs = in.Nodes[i].Addrs[1:]
				}
				for i := range in.Gateways {
					in.Gateways[i].Addrs = addrs(fmt.Sprintf("fd00:2::%d", 10+i))
				}
			}
			want, err = build(in)
			require.NoError(t, err)
		}
		applied(t, k, c, want)
	}
}

func TestNetnsPlansOfGateways(t *testing.T) {
	t.Parallel()
	if !alone(t) {
		return
	}
	here(t)
	k, c := kernelAt(t, 0)
	walkPlans(t, k, c, plan.Gateway)
}

// The table is the one that nft makes of the text of the plan. TestNetnsForgedErrors sends
// packets to the rules that nft does not read.
func TestNetnsTableAsNftWritesIt(t *testing.T) {
	t.Parallel()
	p := part{rand.New(rand.NewPCG(5, 6))}
	everything := plan.Table{Name: plan.TableName, Sets: everySet(), Chains: everyRule(), Elements: p.elements()}
	for name, build := range map[string]func() (plan.State, error){
		"node":       func() (plan.State, error) { return plan.Node(p.cluster()) },
		"gateway":    func() (plan.State, error) { return plan.Gateway(p.cluster()) },
		"everything": func() (plan.State, error) { return plan.State{Table: everything}, nil },
	} {
		want, err := build()
		require.NoError(t, err)
		want = plan.State{Table: readable(want.Table)}

		s := newSpace(t)
		k, c := kernelAt(t, s.FD)
		applied(t, k, c, want)
		got := listing(s.run(t, "nft", "-n", "list", "table", "inet", plan.TableName))

		other := newSpace(t)
		require.Equal(t, listing(other.run(t, "sh", "-c", "nft -f - <<'EOF'\n"+want.Table.String()+"\nEOF\nnft -n list table inet "+plan.TableName)), got, name)
	}
}

// readable is a table without the rules that nft can list, but not read.
func readable(t plan.Table) plan.Table {
	t.Chains = slices.Clone(t.Chains)
	for i := range t.Chains {
		t.Chains[i].Rules = slices.DeleteFunc(slices.Clone(t.Chains[i].Rules), func(m plan.Match) bool { return m.Set.Key == plan.SrcInner })
	}
	return t
}

// listing is a listing of nft without the marker, with elements and conditions in one order.
func listing(text string) string {
	text = regexp.MustCompile(`elements = {[^}]*}`).ReplaceAllStringFunc(text, func(list string) string {
		var out []string
		for one := range strings.SplitSeq(list[len("elements = {"):len(list)-1], ",") {
			out = append(out, strings.TrimSpace(one))
		}
		slices.Sort(out)
		return strings.Join(out, "\n")
	})
	text = regexp.MustCompile(`\tchain schema_\w+ {\n\t}\n`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`(udp dport \d+) (fib daddr type \w+)`).ReplaceAllString(text, "$2 $1")
	return regexp.MustCompile(`\n+`).ReplaceAllString(text, "\n")
}
