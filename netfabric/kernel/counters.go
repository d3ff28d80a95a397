package kernel

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"

	"github.com/liqod/liqod/netfabric/plan"
)

// Counters returns how many packets our table has dropped, by plan.Match.Name. Rules of one
// name are added up. A counter begins at zero again when Apply replaces the table. Without a
// table there are no counters.
func (k *Kernel) Counters(ctx context.Context) (map[string]uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]uint64{}
	s, err := k.open()
	if err != nil {
		return nil, err
	}
	defer s.close()
	chains, err := s.nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("reading the chains of table %s: %w", plan.TableName, err)
	}
	for _, c := range chains {
		if c.Table.Name != plan.TableName {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rules, err := s.nft.GetRules(table(plan.TableName), &nftables.Chain{Name: c.Name})
		if err != nil {
			return nil, fmt.Errorf("reading the rules of chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			if name := comment(r); name != "" {
				out[name] += packets(r)
			}
		}
	}
	return out, nil
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
