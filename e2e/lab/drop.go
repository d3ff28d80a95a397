package lab

import (
	"context"
	"fmt"
	"strings"
)

// dropTable is the nftables table by which packets are dropped.
const dropTable = "labdrop"

// Drop drops the packets that arrive at the machine, for itself or to be forwarded, and match
// one of the expressions of nftables (udp dport 51840), before anything else sees them: those
// who send them are not told. It replaces what was dropped before; Pass ends it.
func (m *Machine) Drop(ctx context.Context, matches ...string) error {
	_, err := m.Command(ctx, "nft", dropRules(matches))
	return err
}

// Pass lets through what Drop dropped; it may be called without it.
func (m *Machine) Pass(ctx context.Context) error {
	_, err := m.Command(ctx, "nft", dropRules(nil)+"delete table inet "+dropTable+"\n")
	return err
}

// dropRules replace the table, in one transaction.
func dropRules(matches []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {}\ndelete table inet %[1]s\ntable inet %[1]s {\nchain drops {\ntype filter hook prerouting priority -300;\n", dropTable)
	for _, match := range matches {
		fmt.Fprintf(&b, "%s drop\n", match)
	}
	b.WriteString("}\n}\n")
	return b.String()
}
