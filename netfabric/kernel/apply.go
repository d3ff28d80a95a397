//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// attempts bounds how often one Apply starts over after another program changed the host
// between a read and a write.
const attempts = 3

// Kernel is the network of one host. Its methods may be called concurrently, and run one
// after the other, except Watch.
type Kernel struct {
	cfg     Config
	mu      sync.Mutex
	process *process // the WireGuard device in this process; nil: there is none
}

// New returns a Kernel. It reads and writes nothing.
func New(cfg Config) *Kernel { return &Kernel{cfg: cfg} }

// SetKey replaces the private key of the tunnel device, from the next Apply on.
func (k *Kernel) SetKey(key Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cfg.Key = key
}

// Apply brings the host to want. It adds and changes in the order of the fields of State,
// and then deletes the rest in the reverse order. A state that is in place costs no write.
// The error joins all failures. One failure does not stop the others, except that Apply sets
// no rule and no route if it cannot set the nftables table, which guards them. It is safe to
// call Apply again after any error.
//
// The zero State deletes everything of ours from the host: routes, rules, the nftables table, the
// connection tracking entries that it has translated, and devices with everything on them. Kernel
// settings stay, because their former values are not known.
func (k *Kernel) Apply(ctx context.Context, want plan.State) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	for range attempts {
		if err = k.pass(ctx, want); !raced(err) {
			return err
		}
	}
	return err
}

// raced reports whether err may come from a change of the host between a read and a write,
// for example a route that another program has already deleted. The next pass reads again.
func raced(err error) bool {
	var gone netlink.LinkNotFoundError
	return errors.As(err, &gone) || slices.ContainsFunc(
		[]error{unix.EEXIST, unix.ENOENT, unix.ESRCH, unix.ENODEV, unix.EINTR, fs.ErrNotExist}, func(e error) bool { return errors.Is(err, e) })
}

// pass reads and writes everything once.
func (k *Kernel) pass(ctx context.Context, want plan.State) error {
	s, err := k.open()
	if err != nil {
		return err
	}
	defer s.close()

	var errs []error
	var deletions []func() error
	for _, stage := range s.stages(want) {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		deletion, err := stage.up()
		errs = append(errs, err)
		if deletion != nil {
			deletions = append(deletions, deletion)
		}
		if err != nil && stage.guards {
			break
		}
	}
	for _, deletion := range slices.Backward(deletions) {
		errs = append(errs, deletion())
	}
	return errors.Join(errs...)
}

// stage applies one field of State. up adds and changes, and returns the deletion of the
// rest.
type stage struct {
	up     func() (deletion func() error, err error)
	guards bool // the stages after it must not run if it fails
}

func (s *session) stages(want plan.State) []stage {
	return []stage{
		{up: func() (func() error, error) { return nil, s.sysctls(want.Sysctls) }},
		{up: func() (func() error, error) { return s.setLinks(want.Links) }},
		{up: func() (func() error, error) { return s.addrs().up(want.Addrs) }},
		{up: func() (func() error, error) { return s.neighs().up(want.Neighs) }},
		{up: func() (func() error, error) { return s.fdb().up(want.FDB) }},
		// Before the tunnel: connection tracking translates a flow by its first packet or never. One
		// that came in before the table would later go back into the tunnel as it came, and, where
		// both clusters see each other under one range, to a pod that it was not sent to.
		{up: func() (func() error, error) { return s.setTable(want.Table) }, guards: true},
		{up: func() (func() error, error) { return s.setDevice(want.Device) }},
		{up: func() (func() error, error) { return s.rules().up(want.Rules) }},
		{up: func() (func() error, error) { return s.routes().up(want.Routes) }},
	}
}

// session holds the sockets of one pass, and the links as the pass has read them.
type session struct {
	*Kernel
	nl     *netlink.Handle
	strict *netlink.Handle         // the kernel filters its dumps of routes
	nft    *nftables.Conn          // for reading
	links  map[string]netlink.Link // ours, by name
}

func (k *Kernel) open() (*session, error) {
	s := &session{Kernel: k}
	var err error
	if s.nl, err = netlink.NewHandleAt(k.namespace(), unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER); err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	if s.strict, err = netlink.NewHandleAt(k.namespace(), unix.NETLINK_ROUTE); err != nil {
		s.close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	// Kernels before 4.20 lack this option and dump all routes; the filter then runs here.
	_ = s.strict.SetStrictCheck(true)
	if s.nft, err = nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(k.cfg.Namespace)); err != nil {
		s.close()
		return nil, fmt.Errorf("opening an nftables socket: %w", err)
	}
	return s, nil
}

// reading calls f with a session that has read the links.
func (k *Kernel) reading(f func(*session) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, err := k.open()
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.readLinks(); err != nil {
		return err
	}
	return f(s)
}

func (s *session) close() {
	s.nl.Close()
	if s.strict != nil {
		s.strict.Close()
	}
	if s.nft != nil {
		_ = s.nft.CloseLasting()
	}
}

func (k *Kernel) namespace() netns.NsHandle {
	if k.cfg.Namespace > 0 {
		return netns.NsHandle(k.cfg.Namespace)
	}
	return netns.None()
}

// inside runs f on a thread in the namespace.
func (k *Kernel) inside(f func() error) error {
	if k.cfg.Namespace <= 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(k.cfg.Namespace, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering the network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// write runs f and reports its success to Wrote.
func (k *Kernel) write(kind string, f func() error) error {
	err := f()
	if err == nil && k.cfg.Wrote != nil {
		k.cfg.Wrote(kind)
	}
	return err
}

// list dumps a table of the kernel, and repeats a dump that a change interrupted.
func list[T any](read func() ([]T, error)) ([]T, error) {
	for range attempts {
		out, err := read()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return read()
}

// kind reads and writes the objects of one kind. T is an object of the plan, R is one of the
// kernel.
type kind[T comparable, R any] struct {
	*session
	name string
	list func() ([]R, error) // our objects
	read func(R) (T, bool)   // false: R has a field that T lacks, so no plan made it
	id   func(T) T           // T with only the fields that identify it
	del  func(R) error

	// set adds t. If replaces is true, it changes the object with the same id instead.
	set func(t T, replaces bool) error
}

// up adds and changes objects until the kernel has all of want.
func (k kind[T, R]) up(want []T) (deletion func() error, err error) {
	found, err := list(k.list)
	if err != nil {
		return nil, fmt.Errorf("reading each %s: %w", k.name, err)
	}
	var have []T
	var old []R
	raw, there, kept := map[T]R{}, map[T]bool{}, map[T]bool{}
	for _, r := range found {
		t, ok := k.read(r)
		if !ok {
			old = append(old, r)
			continue
		}
		have = append(have, t)
		raw[t], there[k.id(t)] = r, true
	}

	add, del := plan.Diff(want, have)
	var errs []error
	for _, t := range add {
		if err := k.write(k.name, func() error { return k.set(t, there[k.id(t)]) }); err != nil {
			errs = append(errs, fmt.Errorf("setting %s %v: %w", k.name, t, err))
		}
	}
	for _, t := range want {
		kept[k.id(t)] = true
	}
	for _, t := range del {
		if !kept[k.id(t)] {
			old = append(old, raw[t])
		}
	}
	return func() error { return k.delete(old) }, errors.Join(errs...)
}

func (k kind[T, R]) delete(old []R) error {
	var errs []error
	for _, r := range old {
		if err := k.write(k.name, func() error { return k.del(r) }); err != nil {
			errs = append(errs, fmt.Errorf("deleting %s %+v: %w", k.name, r, err))
		}
	}
	return errors.Join(errs...)
}
