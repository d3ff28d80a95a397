package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is a network namespace without a name: it goes when nobody holds it any more.
type space struct {
	name string
	fd   int
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// space makes a namespace.
func (n *network) space(ctx context.Context, name string) (*space, error) {
	s := &space{name: name}
	err := onThread(func() error {
		ns, err := netns.New()
		s.fd = int(ns)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making network namespace %s, which needs root: %w", name, err)
	}
	n.closers = append(n.closers, func() error { return unix.Close(s.fd) })
	return s, s.run(ctx, "ip link set lo up")
}

// do runs f on a thread in the namespace.
func (s *space) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(s.fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering network namespace %s: %w", s.name, err)
		}
		return f()
	})
}

// run runs a script in the namespace.
func (s *space) run(ctx context.Context, script string) error {
	return s.do(func() error {
		out, err := exec.CommandContext(ctx, "sh", "-ec", script).CombinedOutput()
		if err != nil {
			return fmt.Errorf("running %q in %s: %w: %s", script, s.name, err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// cable connects two namespaces, whose ends get a name and an address.
func cable(ctx context.Context, a *space, deviceA, addressA string, b *space, deviceB, addressB string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Namespace = deviceA, netlink.NsFd(a.fd)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: deviceB, PeerNamespace: netlink.NsFd(b.fd)}); err != nil {
		return fmt.Errorf("connecting %s with %s: %w", a.name, b.name, err)
	}
	up := "ip address add %s dev %s; ip link set %[2]s up"
	return errors.Join(a.run(ctx, fmt.Sprintf(up, addressA, deviceA)), b.run(ctx, fmt.Sprintf(up, addressB, deviceB)))
}

// child is a command of the bench in a process of its own, which answers requests. It ends
// when its input is closed, so it does not outlive this process.
type child struct {
	name string
	cmd  *exec.Cmd
	in   *json.Encoder
	out  *json.Decoder
}

// answer is what a child says to a request.
type answer struct {
	Error   string  `json:"error,omitempty"`
	Packets uint64  `json:"packets,omitempty"` // of a receiver
	Seconds float64 `json:"seconds,omitempty"`
	Bytes   float64 `json:"bytes,omitempty"`  // that the receiver has taken, of TCP
	RTT     float64 `json:"rtt,omitempty"`    // median, in microseconds
	RTT99   float64 `json:"rtt99,omitempty"`  // 99th percentile, in microseconds
	Missed  int     `json:"missed,omitempty"` // answers that have not come
}

// start starts a command of the bench in a namespace.
func (n *network) start(s *space, command string, env ...string) (*child, error) {
	c := &child{name: command + " in " + s.name, cmd: exec.Command("/proc/self/exe", command)}
	c.cmd.Env, c.cmd.Stderr = append(os.Environ(), env...), os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	if err := s.do(c.cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	n.closers = append(n.closers, func() error { return errors.Join(stdin.Close(), c.cmd.Wait()) })
	c.in, c.out = json.NewEncoder(stdin), json.NewDecoder(stdout)
	return c, nil
}

func (c *child) call(request any) (a answer, err error) {
	if err := c.in.Encode(request); err != nil {
		return a, fmt.Errorf("sending a request to %s: %w", c.name, err)
	}
	if err := c.out.Decode(&a); err != nil {
		return a, fmt.Errorf("waiting for %s: %w", c.name, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", c.name, a.Error)
	}
	return a, nil
}

// answerAll is the child's side: it answers what comes in until the input ends.
func answerAll[T any](do func(T) (answer, error)) error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var request T
		if err := in.Decode(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		a, err := do(request)
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return fmt.Errorf("answering: %w", err)
		}
	}
}
