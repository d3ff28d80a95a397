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
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// attempts bounds how often one Apply begins again because something else changed the host
// under its hands.
const attempts = 3

// Config says which network a Kernel works on.
type Config struct {
	// Namespace is an open file of a network namespace; 0 is the one of the process. In a
	// namespace that is not the one of the process there is no WireGuard without that of the
	// kernel, because the threads of wireguard-go live in the process.
	Namespace int
	Key       Key         // of the tunnel device; not needed for states without one
	Log       *zap.Logger // messages of wireguard-go

	// Wrote is called after each write, with the kind of what was written: link, address,
	// neighbour … If the number of writes grows while nothing is planned anew, something
	// else on the host undoes them. It may be nil.
	Wrote func(kind string)
}

// Kernel is the network of one host. Its methods may be called concurrently; those that
// write wait for each other.
type Kernel struct {
	cfg     Config
	mu      sync.Mutex
	process *process // the WireGuard device in this process, if there is one
}

// New returns a Kernel. Nothing is read or written before its methods are called.
func New(cfg Config) *Kernel { return &Kernel{cfg: cfg} }

// Apply makes the host look like want. It first adds and changes, in the order of the fields
// of State, and then deletes what is not in want in the reverse order. What is in place
// already costs reads only. An error says what could not be done; all else has been done,
// except that nothing is routed anew while the nftables table is not in place. Calling Apply
// again is always right.
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

// raced reports whether err may mean no more than that the host changed between reading and
// writing. A second look tells.
func raced(err error) bool {
	for _, e := range []error{unix.EEXIST, unix.ENOENT, unix.ESRCH, unix.ENODEV, unix.EINTR, fs.ErrNotExist} {
		if errors.Is(err, e) {
			return true
		}
	}
	var gone netlink.LinkNotFoundError
	return errors.As(err, &gone)
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

// stage is one field of State. up adds and changes, and returns what deletes the rest.
type stage struct {
	up     func() (deletion func() error, err error)
	guards bool // without it the stages after it must not open any way
}

func (s *session) stages(want plan.State) []stage {
	return []stage{
		{up: func() (func() error, error) { return nil, s.sysctls(want.Sysctls) }},
		{up: func() (func() error, error) { return s.setLinks(want.Links) }},
		{up: func() (func() error, error) { return s.addrs().up(want.Addrs) }},
		{up: func() (func() error, error) { return s.neighs().up(want.Neighs) }},
		{up: func() (func() error, error) { return s.fdb().up(want.FDB) }},
		{up: func() (func() error, error) { return s.setDevice(want.Device) }},
		{up: func() (func() error, error) { return s.setTable(want.Table) }, guards: true},
		{up: func() (func() error, error) { return s.rules().up(want.Rules) }},
		{up: func() (func() error, error) { return s.routes().up(want.Routes) }},
	}
}

// session holds what one pass needs: sockets, and the links as they are now.
type session struct {
	*Kernel
	nl     *netlink.Handle
	strict *netlink.Handle         // lets the kernel choose among routes
	nft    *nftables.Conn          // for reading
	links  map[string]netlink.Link // ours, by name
}

func (k *Kernel) open() (*session, error) {
	s := &session{Kernel: k}
	var err error
	if s.nl, err = netlink.NewHandleAt(k.namespace()); err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	if s.strict, err = netlink.NewHandleAt(k.namespace(), unix.NETLINK_ROUTE); err != nil {
		s.close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	// A kernel older than 4.20 has no such option, and sends all routes.
	_ = s.strict.SetStrictCheck(true)
	if s.nft, err = nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(k.cfg.Namespace)); err != nil {
		s.close()
		return nil, fmt.Errorf("opening an nftables socket: %w", err)
	}
	return s, nil
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

// write runs f, and counts it if it did something.
func (k *Kernel) write(kind string, f func() error) error {
	err := f()
	if err == nil && k.cfg.Wrote != nil {
		k.cfg.Wrote(kind)
	}
	return err
}

// list reads a table of the kernel. One that changed while it was read is read again.
func list[T any](read func() ([]T, error)) ([]T, error) {
	for range attempts {
		out, err := read()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return read()
}

// kind is how things of one kind are read and written: T is what the plan says of one, R
// what the kernel does.
type kind[T comparable, R any] struct {
	name string
	list func() ([]R, error) // what is ours
	read func(R) (T, bool)   // false: the plan has no words for it, so it was not planned
	id   func(T) T           // without what changes in place
	del  func(R) error

	// set adds it, or if replaces is true changes what there is with its id.
	set func(t T, replaces bool) error
}

// up adds to the kernel what it lacks of want.
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
		if err := k.set(t, there[k.id(t)]); err != nil {
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
		if err := k.del(r); err != nil {
			errs = append(errs, fmt.Errorf("deleting %s %+v: %w", k.name, r, err))
		}
	}
	return errors.Join(errs...)
}
