// Package reasons has all reasons that conditions, pods and events of liqod give: reasons.yaml
// lists them, each with its meaning and what to do about it. The constants are generated from it.
package reasons

// reason is an entry of reasons.yaml, as far as commands need it.
type reason struct{ waits, fix string }

// Fix returns what to do about a reason of a kind, with arguments as os.Expand replaces them. It is
// empty if reasons.yaml has none.
func Fix(kind, code string) string { return table[kind][code].fix }

// Waits reports whether a Pending pod with a reason waits, and is not refused, and whether it waits
// for a person.
func Waits(code string) (waits, person bool) {
	w := table["Pod"][code].waits
	return w != "", w == "person"
}
