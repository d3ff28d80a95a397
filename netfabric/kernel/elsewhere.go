//go:build !linux

package kernel

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"time"

	"github.com/liqod/liqod/netfabric/plan"
)

// Kernel is the network of a host that has none of Linux. Each method that reads or writes it returns an
// error: this build is for the commands of people, which work on clusters.
type Kernel struct{}

// New returns a Kernel.
func New(Config) *Kernel { return &Kernel{} }

// elsewhere returns the error of each method.
func elsewhere() error {
	return fmt.Errorf("the network of a %s host: liqod knows that of Linux hosts only", runtime.GOOS)
}

// Leads returns false.
func Leads([]netip.Addr) (bool, []netip.Addr) { return false, nil }

// SetKey does nothing.
func (*Kernel) SetKey(Key) {}

// Apply returns an error.
func (*Kernel) Apply(context.Context, plan.State) error { return elsewhere() }

// Counters returns an error.
func (*Kernel) Counters(context.Context) (map[string]uint64, error) { return nil, elsewhere() }

// Refused returns an error.
func (*Kernel) Refused() (map[netip.Prefix]uint64, error) { return nil, elsewhere() }

// Describe returns an error.
func (*Kernel) Describe(context.Context, io.Writer, time.Time) error { return elsewhere() }

// Tunnel returns an error.
func (*Kernel) Tunnel() (Mode, map[string]Peer, error) { return "", nil, elsewhere() }

// Redial returns an error.
func (*Kernel) Redial(plan.Device, string) error { return elsewhere() }

// Prepare returns an error.
func (*Kernel) Prepare([]plan.Sysctl) error { return elsewhere() }

// Watch returns an error.
func (*Kernel) Watch(context.Context, func()) error { return elsewhere() }
