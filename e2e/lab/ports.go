package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// The ports lie below those that the kernel gives to outgoing connections: a
// stopped API server finds its port free when it starts again.
const (
	firstPort = 20000
	portCount = 12000
)

// ports are the TCP ports of a lab, reserved among all labs of the same directory by
// locked files.
type ports struct {
	dir   string
	mu    sync.Mutex
	locks []*os.File
}

func newPorts(root string) *ports { return &ports{dir: filepath.Join(root, "ports")} }

// take reserves n free ports of this host until the lab is closed.
func (p *ports) take(n int) ([]int, error) {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the ports: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var taken []int
	start := rand.IntN(portCount)
	for i := 0; i < portCount && len(taken) < n; i++ {
		port := firstPort + (start+i)%portCount
		reserved, err := p.reserve(port)
		if err != nil {
			return nil, err
		}
		if reserved {
			taken = append(taken, port)
		}
	}
	if len(taken) < n {
		return nil, fmt.Errorf("no %d ports are free between %d and %d", n, firstPort, firstPort+portCount)
	}
	return taken, nil
}

func (p *ports) reserve(port int) (bool, error) {
	lock, err := tryLock(filepath.Join(p.dir, strconv.Itoa(port)))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reserving port %d: %w", port, err)
	}
	if !free(port) {
		lock.Close()
		return false, nil
	}
	p.locks = append(p.locks, lock)
	return true, nil
}

// free says whether nobody listens at a port. No process may be forked meanwhile: until it
// executes its program it would hold the listener, and the port with it.
func free(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	return err == nil && listener.Close() == nil
}

func (p *ports) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lock := range p.locks {
		lock.Close()
	}
	p.locks = nil
}
