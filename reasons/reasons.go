// Package reasons has all reasons that conditions, pods and events of liqod give: reasons.yaml
// lists them, each with its meaning and what to do about it. The constants are generated from it.
package reasons

import "time"

// Reason is an entry of reasons.yaml, as far as commands need it. The file says what the fields mean.
type Reason struct {
	Waits               bool
	Warning, Problem    time.Duration // the longest for a level that is missing; both are equal if there are no levels
	Because, Least, Fix string        // the check that explains it, and the least level at which it does
}

// Entry returns the entry of a reason of a kind. It is empty if reasons.yaml says no more of it than what it means.
func Entry(kind, code string) Reason { return table[kind][code] }
