//go:build linux

package kernel

import (
	"fmt"
	"slices"

	"github.com/google/nftables"

	"github.com/liqod/liqod/netfabric/plan"
)

// message is the maximum of elements in one netlink message. The attribute that holds them
// has at most 64 KiB, an element of IPv6 prefixes has up to 180 bytes.
const message = 200

// patient is the maximum, for one transaction, of deleted elements times elements of their
// set. Measured on Linux 6.18: a deletion takes 2.5 µs (IPv4) to 9 µs (IPv6) times the size
// of the set, a new table with 4000 elements takes 0.06 to 0.3 s.
const patient = 100_000

// found is our table as it is in the kernel.
type found struct {
	exists   bool
	intact   bool // the sets, chains and rules are as planned
	elements []plan.Element
}

// setTable brings the table to want, in one transaction. It changes elements only, if the
// sets and chains are as planned, and else replaces the table. The deletion deletes a table
// that is not planned.
func (s *session) setTable(want plan.Table) (deletion func() error, err error) {
	have, err := s.readTable(want)
	if err != nil {
		return nil, fmt.Errorf("reading table %s: %w", plan.TableName, err)
	}
	if want.Name == "" {
		return func() error { return s.deleteTable(have) }, nil
	}
	add, del := plan.Diff(want.Elements, have.elements)
	if !have.intact || slow(want.Sets, have.elements, del) {
		err = s.replaceTable(want)
	} else {
		err = s.setElements(want, add, del)
	}
	if err != nil {
		return nil, fmt.Errorf("setting table %s: %w", want.Name, err)
	}
	return nil, s.forget(want.Elements, del)
}

// slow reports whether the deletion of del takes longer than a new table. For each deleted
// element of a set with two keys the kernel rewrites the whole set.
func slow(sets []plan.Set, have, del []plan.Element) bool {
	size, gone := map[string]int{}, map[string]int{}
	for _, e := range have {
		size[e.Set]++
	}
	for _, e := range del {
		gone[e.Set]++
	}
	steps := 0
	for _, s := range sets {
		if s.Keys == 2 {
			steps += size[s.Name] * gone[s.Name]
		}
	}
	return steps > patient
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

// readTable reads our table. A table with a part that cannot be read is not intact: no plan
// made that part.
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

// chainsIntact reports whether the table has the marker of want and its chains, each with
// the planned number of rules.
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

// replaceTable deletes the table and writes it again in one transaction. The first addition
// lets the deletion succeed if there is no table.
func (s *session) replaceTable(want plan.Table) error {
	tx, err := s.transaction()
	if err != nil {
		return err
	}
	t := tx.AddTable(table(want.Name))
	tx.DelTable(t)
	tx.AddTable(t)
	for _, w := range want.Sets {
		tx.rates[w.Name] = w.Rate
		if err := tx.AddSet(newSet(t, w), nil); err != nil {
			return fmt.Errorf("adding set %s: %w", w.Name, err)
		}
	}
	if err := inChunks(want, want.Elements, tx.SetAddElements); err != nil {
		return err
	}
	for _, c := range want.Chains {
		chain := tx.AddChain(newChain(t, c))
		for i, m := range c.Rules {
			exprs, err := render(m)
			if err != nil {
				return fmt.Errorf("rendering rule %d of chain %s: %w", i+1, c.Name, err)
			}
			tx.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: exprs, UserData: note(m.Name)})
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
	if err := queue(tx.Conn, want, add, del); err != nil {
		return err
	}
	return s.write("element", tx.commit)
}

// queue adds the changes of elements to a transaction.
func queue(tx *nftables.Conn, want plan.Table, add, del []plan.Element) error {
	if err := inChunks(want, del, tx.SetDeleteElements); err != nil {
		return err
	}
	return inChunks(want, add, tx.SetAddElements)
}

// inChunks calls f with the elements of each set of t, at most message elements at a time.
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
