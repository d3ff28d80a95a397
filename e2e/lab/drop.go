package lab

import (
	"context"
	"fmt"
	"strings"
)

// dropTable is the nftables table by which packets are dropped.
const dropTable = "labdrop"

// Packets are those of a machine that match an expression of nftables, at one of its hooks.
type Packets struct {
	// Hook is input, output, forward, prerouting or postrouting.
	Hook string
	// Match is the expression: udp dport 51840.
	Match string
}

// Received are packets to the machine itself that match.
func Received(match string) Packets { return Packets{Hook: "input", Match: match} }

// Sent are packets of the machine itself that match.
func Sent(match string) Packets { return Packets{Hook: "output", Match: match} }

// Leaving are packets that match and leave the machine, those of its pods too. Their source
// is not yet translated.
func Leaving(match string) Packets { return Packets{Hook: "postrouting", Match: match} }

// Drop drops packets before anything else sees them, until Pass. What the machine dropped
// before passes.
func (m *Machine) Drop(ctx context.Context, packets ...Packets) error {
	_, err := m.Command(ctx, "nft", dropRules(packets))
	return err
}

// Pass lets through what Drop dropped; it may be called without it.
func (m *Machine) Pass(ctx context.Context) error {
	_, err := m.Command(ctx, "nft", dropRules(nil)+"delete table inet "+dropTable+"\n")
	return err
}

// dropRules replace the table, in one transaction.
func dropRules(packets []Packets) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {}\ndelete table inet %[1]s\ntable inet %[1]s {\n", dropTable)
	for i, p := range packets {
		fmt.Fprintf(&b, "chain drop%d { type filter hook %s priority -300; %s drop; }\n", i, p.Hook, p.Match)
	}
	b.WriteString("}\n")
	return b.String()
}
