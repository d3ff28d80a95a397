package kernel

import (
	"fmt"
	"slices"

	"github.com/google/nftables"

	"github.com/liqod/liqod/netfabric/plan"
)

// message is how many elements go into one netlink message: their attribute has 64 KiB, and
// an element with three IPv6 prefixes takes 180 bytes.
const message = 200

// found is what there is of our table.
type found struct {
	exists   bool
	intact   bool // it has the sets, chains and rules that are wanted
	elements []plan.Element
}

// setTable makes the table have what want says. A table with other sets or chains is
// replaced in one transaction, so that no packet passes between two tables; else only
// elements change. The deletion deletes a table that is not wanted.
func (s *session) setTable(want plan.Table) (deletion func() error, err error) {
	have, err := s.readTable(want)
	if err != nil {
		return nil, fmt.Errorf("reading table %s: %w", plan.TableName, err)
	}
	if want.Name == "" {
		return func() error { return s.deleteTable(have) }, nil
	}
	add, del := plan.Diff(want.Elements, have.elements)
	if !have.intact {
		err = s.replaceTable(want)
	} else {
		err = s.setElements(want, add, del)
	}
	if err != nil {
		return nil, fmt.Errorf("setting table %s: %w", want.Name, err)
	}
	return nil, s.forget(want.Elements, del)
}

func (s *session) deleteTable(have found) error {
	if !have.exists {
		return nil
	}
	tx, err := s.transaction()
	if err != nil {
		return err
	}
	tx.DelTable(table(plan.TableName))
	if err := s.write("table", tx.commit); err != nil {
		return fmt.Errorf("deleting table %s: %w", plan.TableName, err)
	}
	return s.forget(nil, have.elements)
}

func table(name string) *nftables.Table {
	return &nftables.Table{Name: name, Family: nftables.TableFamilyINet}
}

// readTable reads the table of our name, whether it is like want or not. What it cannot read
// of a table was not planned, so that the table is not intact.
func (s *session) readTable(want plan.Table) (have found, err error) {
	tables, err := s.nft.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return found{}, err
	}
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == plan.TableName })
	if i < 0 {
		return found{}, nil
	}
	have.exists = true
	sets, err := s.nft.GetSets(table(plan.TableName))
	if err != nil {
		return have, nil
	}
	have.intact = tables[i].Flags == 0 && len(sets) == len(want.Sets)
	for _, set := range sets {
		elements, ok := s.readSet(set)
		have.intact = have.intact && ok
		have.elements = append(have.elements, elements...)
	}
	have.intact = have.intact && s.chainsIntact(want)
	return have, nil
}

// chainsIntact reports whether the table has the chains of want, by the marker, with as many
// rules as want has: rules that somebody flushed are missing, and so are chains.
func (s *session) chainsIntact(want plan.Table) bool {
	all, err := s.nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false
	}
	names := map[string]bool{}
	for _, c := range all {
		if c.Table.Name == plan.TableName {
			names[c.Name] = true
		}
	}
	if len(names) != len(want.Chains)+1 || !names[want.Marker()] {
		return false
	}
	for _, c := range want.Chains {
		rules, err := s.nft.GetRules(table(plan.TableName), &nftables.Chain{Name: c.Name})
		if err != nil || len(rules) != len(c.Rules) {
			return false
		}
	}
	return true
}

// replaceTable writes the whole table in one transaction, in the place of one that there may
// be: deleting is an error if there is none, hence the addition before it.
func (s *session) replaceTable(want plan.Table) error {
	tx, err := s.transaction()
	if err != nil {
		return err
	}
	t := tx.AddTable(table(want.Name))
	tx.DelTable(t)
	tx.AddTable(t)
	for _, w := range want.Sets {
		if err := tx.AddSet(newSet(t, w), nil); err != nil {
			return fmt.Errorf("adding set %s: %w", w.Name, err)
		}
	}
	if err := inChunks(want, want.Elements, tx.SetAddElements); err != nil {
		return err
	}
	for _, c := range want.Chains {
		chain := tx.AddChain(baseChain(t, c))
		for i, m := range c.Rules {
			exprs, err := render(m)
			if err != nil {
				return fmt.Errorf("rendering rule %d of chain %s: %w", i+1, c.Name, err)
			}
			tx.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: exprs})
		}
	}
	tx.AddChain(&nftables.Chain{Name: want.Marker(), Table: t})
	return s.write("table", tx.commit)
}

func (s *session) setElements(want plan.Table, add, del []plan.Element) error {
	if len(add)+len(del) == 0 {
		return nil
	}
	tx, err := s.transaction()
	if err != nil {
		return err
	}
	if err := inChunks(want, del, tx.SetDeleteElements); err != nil {
		return err
	}
	if err := inChunks(want, add, tx.SetAddElements); err != nil {
		return err
	}
	return s.write("element", tx.commit)
}

// inChunks gives f the elements of each set of t, no more at a time than a message holds.
func inChunks(t plan.Table, all []plan.Element, f func(*nftables.Set, []nftables.SetElement) error) error {
	bySet := map[string][]plan.Element{}
	for _, e := range all {
		bySet[e.Set] = append(bySet[e.Set], e)
	}
	for _, w := range t.Sets {
		set := newSet(table(t.Name), w)
		for chunk := range slices.Chunk(bySet[w.Name], message) {
			var raw []nftables.SetElement
			for _, e := range chunk {
				raw = append(raw, encode(e, w.Value)...)
			}
			if err := f(set, raw); err != nil {
				return fmt.Errorf("encoding elements of set %s: %w", w.Name, err)
			}
		}
		delete(bySet, w.Name)
	}
	for name := range bySet {
		return fmt.Errorf("there is no set %s", name)
	}
	return nil
}
