//go:build linux

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"

	"github.com/liqod/liqod/netfabric/plan"
)

// Counters of packets that the tunnel device has dropped.
const (
	DropTunnelSource  = "tunnel_source"  // of a peer, with a source outside of its AllowedIPs
	DropTunnelGarbage = "tunnel_garbage" // no WireGuard packet, or a handshake that nobody may have; only InProcess
)

// drops counts what wireguard-go drops. It tells of that in its log only.
type drops struct{ source, garbage atomic.Uint64 }

// count counts a message of wireguard-go. TestNetnsHostilePeer fails if the messages change.
func (d *drops) count(format string, _ ...any) {
	switch format {
	case "IPv4 packet with disallowed source address from %v", "IPv6 packet with disallowed source address from %v":
		d.source.Add(1)
	case "Received message with unknown type", "Received packet with invalid mac1", "Packet with invalid IP version from %v",
		"Received invalid initiation message from %s", "Received invalid response message from %s",
		"Failed to decode cookie reply", "Could not decrypt invalid cookie response":
		d.garbage.Add(1)
	}
}

// Counters returns how many packets our table has dropped, by plan.Match.Name, and the
// tunnel device, by DropTunnelSource and DropTunnelGarbage. Rules of one name are added up.
// A counter begins at zero again when Apply replaces the table or the device. What the host
// does not have has no counters.
func (k *Kernel) Counters(ctx context.Context) (map[string]uint64, error) {
	out := map[string]uint64{}
	err := k.reading(func(s *session) error {
		s.countTunnel(out)
		return s.countTable(ctx, out)
	})
	return out, err
}

// countTunnel adds the counters of the tunnel device.
func (s *session) countTunnel(out map[string]uint64) {
	l, ok := s.links[plan.TunnelDevice]
	switch {
	case !ok:
	case s.inProcess(l):
		out[DropTunnelSource], out[DropTunnelGarbage] = s.process.drops.source.Load(), s.process.drops.garbage.Load()
	case l.Type() == string(plan.WireGuard) && l.Attrs().Statistics != nil:
		out[DropTunnelSource] = l.Attrs().Statistics.RxFrameErrors // the kernel counts nothing else there
	}
}

// countTable adds the counters of our table.
func (s *session) countTable(ctx context.Context, out map[string]uint64) error {
	chains, err := s.nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("reading the chains of table %s: %w", plan.TableName, err)
	}
	for _, c := range chains {
		if c.Table.Name != plan.TableName {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rules, err := s.nft.GetRules(table(plan.TableName), &nftables.Chain{Name: c.Name})
		if err != nil {
			return fmt.Errorf("reading the rules of chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			if name := comment(r); name != "" {
				out[name] += packets(r)
			}
		}
	}
	return nil
}

// Refused returns how many packets our table has dropped for the peer that they came from, by the
// range of the peer. They are among Counters, and begin at zero again with them, or with the range.
func (k *Kernel) Refused() (map[netip.Prefix]uint64, error) {
	out := map[netip.Prefix]uint64{}
	err := k.reading(func(s *session) error { return s.countRefused(out) })
	return out, err
}

// countRefused adds the counters of the ranges of peers.
func (s *session) countRefused(out map[netip.Prefix]uint64) error {
	tables, err := s.nft.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == plan.TableName }) {
		return err
	}
	sets, err := s.nft.GetSets(table(plan.TableName))
	if err != nil {
		return fmt.Errorf("reading the sets of table %s: %w", plan.TableName, err)
	}
	for _, set := range sets {
		if !strings.HasPrefix(set.Name, plan.Refused) {
			continue
		}
		raw, err := s.nft.GetSetElements(set)
		if err != nil {
			return fmt.Errorf("reading the elements of set %s: %w", set.Name, err)
		}
		for _, r := range closed(raw) {
			if e, ok := decode(r, set); ok && r.Counter != nil {
				out[e.A] = r.Counter.Packets
			}
		}
	}
	return nil
}

// comment returns the comment of a rule, as nft shows it.
func comment(r *nftables.Rule) string {
	text, _ := userdata.GetString(r.UserData, userdata.TypeComment)
	return strings.TrimRight(text, "\x00")
}

func packets(r *nftables.Rule) (n uint64) {
	for _, e := range r.Exprs {
		if c, ok := e.(*expr.Counter); ok {
			n += c.Packets
		}
	}
	return n
}

// note returns the user data that nft shows as the comment of a rule; nil without a name.
func note(name string) []byte {
	if name == "" {
		return nil
	}
	return userdata.AppendString(nil, userdata.TypeComment, name)
}
