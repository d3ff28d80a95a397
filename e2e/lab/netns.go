package lab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// NetworkOptions of a Network. The zero value is a usable one.
type NetworkOptions struct {
	// Isolated keeps pods of different clusters apart, as on the Internet: only machines
	// reach each other, and what a pod sends out of its cluster's range gets the address of
	// its node, whichever device it leaves by. Otherwise the pod ranges of all clusters are
	// routed to each other without translation, as far as they do not overlap.
	Isolated bool
	// IPv6 gives the machines addresses of IPv6, too.
	IPv6 bool
}

// Network is the lab's Internet: a bridge in a network namespace of its own, with a
// port for each machine and one for this process's namespace. Its methods may be
// called concurrently.
type Network struct {
	lab     *Lab
	opts    NetworkOptions
	prefix  netip.Prefix
	prefix6 netip.Prefix // a /64
	wan     string

	mu       sync.Mutex
	ports    int
	machines []*Machine
}

// Machine is a network namespace with an address on the Network: an empty computer.
type Machine struct {
	// Name, unique in the Network.
	Name string
	// Netns is the name of its network namespace.
	Netns string
	// Address on the Network, reachable from this process too.
	Address string
	// Address6 is its address of IPv6. Empty: the Network has no IPv6.
	Address6 string

	cluster  string
	podRange []netip.Prefix // of the cluster
	pods     []netip.Prefix // of this machine
}

const (
	wanGateway = 1   // host number of the bridge: the machines' default route
	firstHost  = 10  // host number of the first machine
	lastHost   = 250 // host number of the last machine
	rootHost   = 254 // host number of this process's namespace

	podMTU = 1450 // of the devices of pods
)

// NewNetwork makes an empty network. It needs root. It goes when the lab is closed.
func (l *Lab) NewNetwork(ctx context.Context, opts NetworkOptions) (*Network, error) {
	prefix, err := freePrefix(l.ID())
	if err != nil {
		return nil, err
	}
	n := &Network{lab: l, opts: opts, prefix: prefix, wan: "lq" + l.ID() + "-wan"}
	if opts.IPv6 {
		n.prefix6 = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 31, 7: prefix.Addr().As4()[2]}), 64)
	}
	root := "lq" + l.ID() + "r"
	for _, undo := range [][]string{{"netns", "del", n.wan}, {"link", "del", root}} {
		if err := l.Undo("ip", undo...); err != nil {
			return nil, err
		}
	}
	if _, err := command(ctx, "", "ip", "netns", "add", n.wan); err != nil {
		return nil, err
	}
	if err := ipBatch(ctx, "", slices.Concat([]string{"link add " + root + " type veth peer name root netns " + n.wan},
		n.assign(n.root(), root), []string{"link set " + root + " up"})...); err != nil {
		return nil, err
	}
	if err := ipBatch(ctx, n.wan, slices.Concat([]string{"link set lo up", "link add wan0 type bridge"}, n.assign(n.machine(wanGateway), "wan0"),
		[]string{"link set wan0 up", "link set root master wan0", "link set root up"})...); err != nil {
		return nil, err
	}
	return n, nil
}

// HostAddress is this process's own address on the network.
func (n *Network) HostAddress() string { return n.root().Address }

// Ranges of the machines' addresses, as CIDRs, one of each family.
func (n *Network) Ranges() []string {
	if n.opts.IPv6 {
		return []string{n.prefix.String(), n.prefix6.String()}
	}
	return []string{n.prefix.String()}
}

// root stands for this process's namespace.
func (n *Network) root() *Machine { return n.machine(rootHost) }

// machine has the addresses of a host number.
func (n *Network) machine(number byte) *Machine {
	address := n.prefix.Addr().As4()
	address[3] = number
	m := &Machine{Address: netip.AddrFrom4(address).String()}
	if n.opts.IPv6 {
		address := n.prefix6.Addr().As16()
		address[15] = number
		m.Address6 = netip.AddrFrom16(address).String()
	}
	return m
}

// AddressFor is the machine's address of the family of a range. Of several ranges, with commas
// between them, the first one counts.
func (m *Machine) AddressFor(cidrs string) string {
	if isIPv6(cidrs) {
		return m.Address6
	}
	return m.Address
}

// assign returns the commands of ip that give a device the addresses of a machine. No other
// machine has them, so that IPv6 need not look for duplicates.
func (n *Network) assign(m *Machine, device string) []string {
	out := []string{"addr replace " + m.Address + "/24 dev " + device}
	if n.opts.IPv6 {
		out = append(out, "addr replace "+m.Address6+"/64 dev "+device+" nodad")
	}
	return out
}

// connect returns the commands of ip that set eth0 of a machine up and give it its addresses and
// default routes.
func (n *Network) connect(m *Machine) []string {
	out := append([]string{"link set eth0 up"}, n.assign(m, "eth0")...)
	out = append(out, "route replace default via "+n.machine(wanGateway).Address)
	if n.opts.IPv6 {
		out = append(out, "route replace ::/0 via "+n.machine(wanGateway).Address6)
	}
	return out
}

// AddMachine plugs a new machine into the network.
func (n *Network) AddMachine(ctx context.Context, name string) (*Machine, error) {
	m, port, err := n.reserve(name)
	if err != nil {
		return nil, err
	}
	if err := n.lab.Undo("ip", "netns", "del", m.Netns); err != nil {
		return nil, err
	}
	if _, err := command(ctx, "", "ip", "netns", "add", m.Netns); err != nil {
		return nil, err
	}
	plug := fmt.Sprintf("p%d", port)
	if err := ipBatch(ctx, n.wan, "link add "+plug+" type veth peer name eth0 netns "+m.Netns,
		"link set "+plug+" master wan0", "link set "+plug+" up"); err != nil {
		return nil, err
	}
	return m, ipBatch(ctx, m.Netns, append([]string{"link set lo up"}, n.connect(m)...)...)
}

// Command runs a program in the machine's network namespace, and returns its output.
func (m *Machine) Command(ctx context.Context, name string, args ...string) (string, error) {
	return command(ctx, "", "ip", append([]string{"netns", "exec", m.Netns, name}, args...)...)
}

// Restart leaves a machine as it was when it was plugged in, as after a power failure: no
// device, route, rule or nftables table that somebody made there since. What runs there
// is not ended.
func (n *Network) Restart(ctx context.Context, m *Machine) error {
	links, err := m.Command(ctx, "ip", "-o", "link", "show")
	if err != nil {
		return err
	}
	var batch []string
	for _, link := range linkNames(links) {
		if link != "lo" && link != "eth0" {
			batch = append(batch, "link del "+link)
		}
	}
	for _, family := range []string{"-4", "-6"} {
		if _, err := m.Command(ctx, "ip", family, "rule", "flush"); err != nil { // all but the one with priority 0
			return err
		}
		for _, table := range [][2]string{{"32766", "main"}, {"32767", "default"}} {
			if _, err := m.Command(ctx, "ip", family, "rule", "add", "priority", table[0], "lookup", table[1]); err != nil {
				return err
			}
		}
	}
	// A veth goes with its other end, which may be among them.
	for _, line := range batch {
		if err := ipBatch(ctx, m.Netns, line); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
			return err
		}
	}
	if _, err := m.Command(ctx, "nft", "flush", "ruleset"); err != nil {
		return err
	}
	if _, err := m.Command(ctx, "ip", "route", "flush", "table", "all", "scope", "global"); err != nil {
		return err
	}
	return ipBatch(ctx, m.Netns, append([]string{"link set eth0 down"}, n.connect(m)...)...)
}

// linkNames are the names of the links in what `ip -o link` prints.
func linkNames(printed string) (names []string) {
	for line := range strings.Lines(printed) {
		if parts := strings.SplitN(line, ": ", 3); len(parts) == 3 {
			name, _, _ := strings.Cut(parts[1], "@")
			names = append(names, name)
		}
	}
	return names
}

func (n *Network) reserve(name string) (*Machine, int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.ContainsFunc(n.machines, func(m *Machine) bool { return m.Name == name }) {
		return nil, 0, fmt.Errorf("machine %s exists already: choose another name", name)
	}
	if n.ports == lastHost-firstHost {
		return nil, 0, fmt.Errorf("the network is full: it has room for %d machines", n.ports)
	}
	m := n.machine(byte(firstHost + n.ports))
	m.Name, m.Netns = name, "lq"+n.lab.ID()+"-"+name
	n.machines = append(n.machines, m)
	n.ports++
	return m, n.ports, nil
}

// announce tells the network which pods live on a machine: nodes of the same cluster,
// and of others unless isolated, get a route there, and pods reach each other under
// their own addresses. Everything else that pods send leaves with the node's address.
func (n *Network) announce(ctx context.Context, m *Machine, cluster string, podRange, pods []string) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m.cluster = cluster
	if m.podRange, err = prefixes(podRange); err != nil {
		return err
	}
	if m.pods, err = prefixes(pods); err != nil {
		return err
	}
	for _, other := range n.machines {
		if other == m || len(other.pods) == 0 {
			continue
		}
		if other.cluster != cluster && (n.opts.Isolated || overlap(other.podRange, m.podRange)) {
			continue
		}
		if err := ipBatch(ctx, m.Netns, other.routes()...); err != nil {
			return err
		}
		if err := ipBatch(ctx, other.Netns, m.routes()...); err != nil {
			return err
		}
	}
	for _, each := range n.machines {
		if len(each.pods) == 0 {
			continue
		}
		if err := n.masquerade(ctx, each); err != nil {
			return err
		}
	}
	return nil
}

// routes are the commands of ip that lead to the pods of the machine.
func (m *Machine) routes() (out []string) {
	for _, pods := range m.pods {
		route := "route replace " + pods.String() + " via " + m.AddressFor(pods.String())
		if pods.Addr().Is6() {
			// With br_netfilter, a node joins the fragments of a packet and forgets their size: it
			// would send them in one piece that is too large for the device of the pod.
			route += fmt.Sprintf(" mtu %d", podMTU)
		}
		out = append(out, route)
	}
	return out
}

func prefixes(list []string) (out []netip.Prefix, err error) {
	for _, text := range list {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		out = append(out, prefix)
	}
	return out, nil
}

// overlap reports whether a range of one list overlaps one of the other.
func overlap(a, b []netip.Prefix) bool {
	return slices.ContainsFunc(a, func(p netip.Prefix) bool { return slices.ContainsFunc(b, p.Overlaps) })
}

// masquerade replaces a machine's translation rules in one transaction.
func (n *Network) masquerade(ctx context.Context, m *Machine) error {
	ranges := slices.Clone(m.podRange)
	for _, other := range n.machines {
		if !n.opts.Isolated && len(other.pods) > 0 && !overlap(other.podRange, ranges) {
			ranges = append(ranges, other.podRange...)
		}
	}
	direct := map[string][]string{"ip": {"224.0.0.0/4"}, "ip6": {"ff00::/8"}}
	for _, each := range ranges {
		direct[familyOf(each)] = append(direct[familyOf(each)], each.String())
	}
	leaving := `oifname "eth0" `
	if n.opts.Isolated { // as CNI plugins do: they know no device by which pods reach pods elsewhere
		leaving = ""
	}
	rules := ""
	for _, pods := range m.podRange {
		family := familyOf(pods)
		rules += fmt.Sprintf(`table %[1]s labmasq
delete table %[1]s labmasq
table %[1]s labmasq {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		%[1]s saddr %[2]s %[1]s daddr != { %[3]s } %[4]smasquerade
	}
}
`, family, pods, strings.Join(direct[family], ", "), leaving)
	}
	_, err := command(ctx, rules, "ip", "netns", "exec", m.Netns, "nft", "-f", "-")
	return err
}

// familyOf is the name that nft has for the family of a range.
func familyOf(p netip.Prefix) string {
	if p.Addr().Is6() {
		return "ip6"
	}
	return "ip"
}

// freePrefix chooses a /24 that no interface here is part of.
func freePrefix(id string) (netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("listing the addresses of this machine: %w", err)
	}
	var used []netip.Prefix
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			used = append(used, prefix.Masked())
		}
	}
	start := 0
	for _, c := range []byte(id) {
		start = (start*31 + int(c)) % 256
	}
	for i := range 256 {
		candidate := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 31, byte(start + i), 0}), 24)
		if !slices.ContainsFunc(used, candidate.Overlaps) {
			return candidate, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("every part of 172.31.0.0/16 is in use on this machine: the lab needs a free /24 there")
}

// ipBatch runs commands of ip in a namespace, or in this process's own if that is "".
func ipBatch(ctx context.Context, netns string, commands ...string) error {
	args := []string{"-batch", "-"}
	if netns != "" {
		args = append([]string{"-n", netns}, args...)
	}
	_, err := command(ctx, strings.Join(commands, "\n")+"\n", "ip", args...)
	return err
}

// command runs a program to its end; the error carries what it said.
func command(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("running %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(problem.String()+out.String()))
	}
	return out.String(), nil
}
