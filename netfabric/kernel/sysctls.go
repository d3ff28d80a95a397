//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// Prepare writes the settings that have another value, and nothing else: for a process that
// runs ahead of one that may not.
func (k *Kernel) Prepare(want []plan.Sysctl) error {
	return (&session{Kernel: k}).sysctls(want)
}

// sysctls writes the settings with a different value. A gateway's container may usually not
// write them; then its init container has.
func (s *session) sysctls(want []plan.Sysctl) error {
	if len(want) == 0 {
		return nil
	}
	return s.inside(func() error {
		var errs []error
		for _, w := range want {
			errs = append(errs, s.sysctl(w))
		}
		return errors.Join(errs...)
	})
}

func (s *session) sysctl(want plan.Sysctl) error {
	path := "/proc/sys/" + want.Name
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) { // those of connection tracking exist from its first use on
		_, _ = netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		have, err = os.ReadFile(path)
	}
	if err != nil {
		return fmt.Errorf("reading a kernel setting: %w", err)
	}
	if strings.TrimSpace(string(have)) == want.Value {
		return nil
	}
	err = s.write("sysctl", func() error { return os.WriteFile(path, []byte(want.Value), 0) })
	if err != nil {
		return fmt.Errorf("setting %s from %s to %s: %w", want.Name, strings.TrimSpace(string(have)), want.Value, err)
	}
	return nil
}
