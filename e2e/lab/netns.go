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
}

// Network is the lab's Internet: a bridge in a network namespace of its own, with a
// port for each machine and one for this process's namespace. Its methods may be
// called concurrently.
type Network struct {
	lab    *Lab
	opts   NetworkOptions
	prefix netip.Prefix
	wan    string

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

	cluster  string
	podRange netip.Prefix // of the cluster
	pods     netip.Prefix // of this machine
}

const (
	wanGateway = 1   // host number of the bridge: the machines' default route
	firstHost  = 10  // host number of the first machine
	lastHost   = 250 // host number of the last machine
	rootHost   = 254 // host number of this process's namespace
)

// NewNetwork makes an empty network. It needs root. It goes when the lab is closed.
func (l *Lab) NewNetwork(ctx context.Context, opts NetworkOptions) (*Network, error) {
	prefix, err := freePrefix(l.ID())
	if err != nil {
		return nil, err
	}
	n := &Network{lab: l, opts: opts, prefix: prefix, wan: "lq" + l.ID() + "-wan"}
	root := "lq" + l.ID() + "r"
	for _, undo := range [][]string{{"netns", "del", n.wan}, {"link", "del", root}} {
		if err := l.Undo("ip", undo...); err != nil {
			return nil, err
		}
	}
	if _, err := command(ctx, "", "ip", "netns", "add", n.wan); err != nil {
		return nil, err
	}
	if err := ipBatch(ctx, "", "link add "+root+" type veth peer name root netns "+n.wan,
		"addr add "+n.host(rootHost)+"/24 dev "+root, "link set "+root+" up"); err != nil {
		return nil, err
	}
	if err := ipBatch(ctx, n.wan, "link set lo up", "link add wan0 type bridge", "addr add "+n.host(wanGateway)+"/24 dev wan0",
		"link set wan0 up", "link set root master wan0", "link set root up"); err != nil {
		return nil, err
	}
	return n, nil
}

// HostAddress is this process's own address on the network.
func (n *Network) HostAddress() string { return n.host(rootHost) }

// Range of the machines' addresses, as a CIDR.
func (n *Network) Range() string { return n.prefix.String() }

func (n *Network) host(number byte) string {
	address := n.prefix.Addr().As4()
	address[3] = number
	return netip.AddrFrom4(address).String()
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
	return m, ipBatch(ctx, m.Netns, "link set lo up", "addr add "+m.Address+"/24 dev eth0", "link set eth0 up",
		"route add default via "+n.host(wanGateway))
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
	return ipBatch(ctx, m.Netns, "link set eth0 down", "link set eth0 up", "route replace default via "+n.host(wanGateway))
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
	m := &Machine{Name: name, Netns: "lq" + n.lab.ID() + "-" + name, Address: n.host(byte(firstHost + n.ports))}
	n.machines = append(n.machines, m)
	n.ports++
	return m, n.ports, nil
}

// announce tells the network which pods live on a machine: nodes of the same cluster,
// and of others unless isolated, get a route there, and pods reach each other under
// their own addresses. Everything else that pods send leaves with the node's address.
func (n *Network) announce(ctx context.Context, m *Machine, cluster string, podRange, pods netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	m.cluster, m.podRange, m.pods = cluster, podRange, pods
	for _, other := range n.machines {
		if other == m || !other.pods.IsValid() {
			continue
		}
		if other.cluster != cluster && (n.opts.Isolated || other.podRange.Overlaps(podRange)) {
			continue
		}
		if err := ipBatch(ctx, m.Netns, "route replace "+other.pods.String()+" via "+other.Address); err != nil {
			return err
		}
		if err := ipBatch(ctx, other.Netns, "route replace "+pods.String()+" via "+m.Address); err != nil {
			return err
		}
	}
	for _, each := range n.machines {
		if !each.pods.IsValid() {
			continue
		}
		if err := n.masquerade(ctx, each); err != nil {
			return err
		}
	}
	return nil
}

// masquerade replaces a machine's translation rules in one transaction.
func (n *Network) masquerade(ctx context.Context, m *Machine) error {
	direct := []string{"224.0.0.0/4", m.podRange.String()}
	for _, other := range n.machines {
		if theirs := other.podRange; !n.opts.Isolated && other.pods.IsValid() && !theirs.Overlaps(m.podRange) && !slices.Contains(direct, theirs.String()) {
			direct = append(direct, theirs.String())
		}
	}
	leaving := `oifname "eth0" `
	if n.opts.Isolated { // as CNI plugins do: they know no device by which pods reach pods elsewhere
		leaving = ""
	}
	rules := fmt.Sprintf(`table ip labmasq
delete table ip labmasq
table ip labmasq {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %s ip daddr != { %s } %smasquerade
	}
}
`, m.podRange, strings.Join(direct, ", "), leaving)
	_, err := command(ctx, rules, "ip", "netns", "exec", m.Netns, "nft", "-f", "-")
	return err
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
