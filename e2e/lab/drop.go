package lab

import (
	"context"
	"fmt"
	"strings"
)

// Drops are the packets that a machine drops without telling their sender: those that match
// one of the expressions of nftables (udp dport 51840).
type Drops struct {
	// Arriving packets are for the machine itself or to be forwarded; they are dropped before
	// anything else sees them.
	Arriving []string
	// Received packets are for the machine itself; an address of a Service in them has been
	// replaced by that of the pod or host behind it.
	Received []string
	// Leaving packets are of the machine itself or forwarded.
	Leaving []string
}

// Drop drops packets until Pass is called with the same name. Drops of different names are
// independent; another call with a name replaces the Drops of that name.
func (m *Machine) Drop(ctx context.Context, name string, drops Drops) error {
	_, err := m.Command(ctx, "nft", dropRules(name, drops))
	return err
}

// Pass ends the Drops of a name, if there are any.
func (m *Machine) Pass(ctx context.Context, name string) error {
	_, err := m.Command(ctx, "nft", noDropRules(name))
	return err
}

// noDropRules remove the table of a name, which need not exist.
func noDropRules(name string) string {
	return fmt.Sprintf("table inet labdrop-%s {}\ndelete table inet labdrop-%[1]s\n", name)
}

// dropRules replace the table of a name, in one transaction.
func dropRules(name string, drops Drops) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%stable inet labdrop-%s {\n", noDropRules(name), name)
	for _, chain := range []struct {
		hook    string
		matches []string
	}{{"prerouting", drops.Arriving}, {"input", drops.Received}, {"output", drops.Leaving}, {"forward", drops.Leaving}} {
		if len(chain.matches) == 0 {
			continue
		}
		fmt.Fprintf(&b, "chain %s {\ntype filter hook %[1]s priority -300;\n", chain.hook)
		for _, match := range chain.matches {
			fmt.Fprintf(&b, "%s drop\n", match)
		}
		b.WriteString("}\n")
	}
	b.WriteString("}\n")
	return b.String()
}
