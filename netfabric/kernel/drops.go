package kernel

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/liqod/liqod/netfabric/plan"
)

// Drops returns how many packets our nftables table has dropped since it was written, by
// chain. Without the table it is empty.
func (k *Kernel) Drops() (map[string]uint64, error) {
	s, err := k.open()
	if err != nil {
		return nil, err
	}
	defer s.close()
	chains, err := s.nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("listing chains: %w", err)
	}
	out := map[string]uint64{}
	for _, c := range chains {
		if c.Table.Name != plan.TableName {
			continue
		}
		rules, err := s.nft.GetRules(table(plan.TableName), &nftables.Chain{Name: c.Name})
		if err != nil {
			return nil, fmt.Errorf("listing the rules of chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if n, ok := e.(*expr.Counter); ok {
					out[c.Name] += n.Packets
				}
			}
		}
	}
	return out, nil
}
