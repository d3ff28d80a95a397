package health

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Checks is a list of named conditions for traffic to be sent here. With none, the
// process is ready. Its zero value is usable, and safe for concurrent use.
type Checks struct {
	mu     sync.Mutex
	checks []check
}

type check struct {
	name string
	run  func() error
}

// Add appends a check. run must return soon: nil when traffic is welcome, otherwise an
// error that says why not.
func (c *Checks) Add(name string, run func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks = append(c.checks, check{name, run})
}

// Report runs all checks, and returns one line for each and the errors of those that fail.
func (c *Checks) Report() (string, error) {
	c.mu.Lock()
	checks := append([]check(nil), c.checks...)
	c.mu.Unlock()
	var lines strings.Builder
	var errs []error
	for _, one := range checks {
		err := one.run()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", one.name, err))
			fmt.Fprintf(&lines, "[-] %s: %v\n", one.name, err)
			continue
		}
		fmt.Fprintf(&lines, "[+] %s\n", one.name)
	}
	if len(errs) == 0 {
		lines.WriteString("ok\n")
	}
	return lines.String(), errors.Join(errs...)
}
