//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/liqod/liqod/netfabric/plan"
)

// Describe writes our objects of the host as they are, in the notation of plan.State, with
// the peers of the tunnel device and the counters. It has no private key. It goes on after an
// error, and returns all of them. now is for the ages of handshakes.
//
// Another process cannot see the peers of a device in the process of role gateway.
func (k *Kernel) Describe(ctx context.Context, out io.Writer, now time.Time) error {
	var errs []error
	section := func(title string, lines []string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", title, err))
		}
		_, err = fmt.Fprintf(out, "%s: %d\n%s", title, len(lines), indent(lines))
		errs = append(errs, err)
	}
	errs = append(errs, k.reading(func(s *session) error {
		s.describeObjects(section)
		return nil
	}))
	lines, err := k.describeTunnel(now)
	section("peers of the tunnel", lines, err)
	counters, err := k.Counters(ctx)
	lines = nil
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		lines = append(lines, fmt.Sprintf("%s %d", name, counters[name]))
	}
	section("dropped packets", lines, err)
	return errors.Join(errs...)
}

func indent(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

// describeObjects describes links, addresses, neighbours, rules and routes.
func (s *session) describeObjects(section func(string, []string, error)) {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(s.links)) {
		lines = append(lines, describeLink(s.links[name]))
	}
	section("links", lines, nil)
	describe(section, "addresses", s.addrs())
	describe(section, "neighbours", s.neighs())
	describe(section, "forwarding entries", s.fdb())
	describe(section, "rules", s.rules())
	describe(section, "routes", s.routes())
}

func describeLink(l netlink.Link) string {
	a := l.Attrs()
	text := fmt.Sprintf("%s %s mtu %d %s", a.Name, l.Type(), a.MTU, a.OperState)
	if a.Statistics != nil {
		text += fmt.Sprintf(" received %d sent %d errors %d/%d dropped %d/%d", a.Statistics.RxBytes, a.Statistics.TxBytes,
			a.Statistics.RxErrors, a.Statistics.TxErrors, a.Statistics.RxDropped, a.Statistics.TxDropped)
	}
	return text
}

// describe describes the objects of a kind. An object that no plan made is shown as the kernel
// has it.
func describe[T comparable, R any](section func(string, []string, error), title string, k kind[T, R]) {
	found, err := list(k.list)
	lines := make([]string, 0, len(found))
	for _, r := range found {
		if t, ok := k.read(r); ok {
			lines = append(lines, fmt.Sprint(t))
			continue
		}
		lines = append(lines, fmt.Sprintf("(not of a plan) %v", r))
	}
	slices.Sort(lines)
	section(title, lines, err)
}

func (k *Kernel) describeTunnel(now time.Time) ([]string, error) {
	mode, peers, err := k.Tunnel()
	if errors.Is(err, fs.ErrNotExist) {
		return k.elsewhere()
	}
	lines := make([]string, 0, len(peers))
	for _, key := range slices.Sorted(maps.Keys(peers)) {
		p, handshake := peers[key], "never"
		if !p.Handshake.IsZero() {
			handshake = now.Sub(p.Handshake).Round(time.Second).String() + " ago"
		}
		lines = append(lines, fmt.Sprintf("%s (%s, %s) endpoint %s handshake %s received %d sent %d", key, plan.TunnelDevice, mode, p.Endpoint, handshake, p.Received, p.Sent))
	}
	return lines, err
}

// elsewhere says where the peers are if the host has a tunnel device that is not one of the
// kernel or of this process.
func (k *Kernel) elsewhere() (lines []string, err error) {
	err = k.reading(func(s *session) error {
		if _, ok := s.links[plan.TunnelDevice]; ok {
			lines = []string{"(not known: " + plan.TunnelDevice + " is in the process of role gateway; see its metrics, and the Connections)"}
		}
		return nil
	})
	return lines, err
}
