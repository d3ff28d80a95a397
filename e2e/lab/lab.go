// Package lab runs any number of real Kubernetes clusters on one machine, for
// tests, demonstrations and benchmarks. Every control plane is etcd, API server,
// controller manager and scheduler, each a process of its own; nodes are simulated
// or real. The lab may break a cluster in many ways, and removes every trace of
// itself: at Close, and of a crashed run at the next New. It may import kube and
// api, and nothing of the daemon's roles.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Options of a lab. The zero value is a usable one.
type Options struct {
	// Dir is where runs keep their files, one directory for each run. Empty: a
	// directory of this user in the directory for temporary files.
	Dir string
	// Kubelab is the path of a ready kubelab binary. Empty: it is built once and
	// kept in the user's cache directory.
	Kubelab string
	// Clusters is how many clusters the lab will start: New waits until that many more may
	// run on this machine; first come, first served. 0: it does not wait.
	Clusters int
	// PlaneEnv is added to the environment of the control planes' processes.
	PlaneEnv []string
	// Log is called with progress, concurrently. Nil: nobody listens.
	Log func(format string, args ...any)
	// Exited is called, concurrently, for each process that ended without having
	// been stopped through the lab. Nil: it is only logged.
	Exited func(p *Process)
}

// Lab is a set of clusters on this machine. Its methods may be called concurrently.
type Lab struct {
	opts     Options
	run      *run
	kubelab  string
	starter  *starter
	ports    *ports
	seats    *seats
	mu       sync.Mutex
	clusters map[string]*Cluster
	procs    []*Process
	closed   bool
}

// New makes an empty lab. It first removes what crashed runs under the same
// directory left behind, then finds or builds the kubelab binary; a cold build
// takes minutes.
func New(ctx context.Context, opts Options) (*Lab, error) {
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	if opts.Dir == "" {
		opts.Dir = filepath.Join(os.TempDir(), fmt.Sprintf("liqod-lab-%d", os.Getuid()))
	}
	if err := sweep(opts.Dir, opts.Log); err != nil {
		return nil, err
	}
	kubelab, err := findKubelab(ctx, opts)
	if err != nil {
		return nil, err
	}
	seats, err := takeSeats(ctx, opts.Dir, opts.Clusters)
	if err != nil {
		return nil, err
	}
	r, err := newRun(opts.Dir)
	if err != nil {
		seats.close()
		return nil, err
	}
	return &Lab{opts: opts, run: r, kubelab: kubelab, starter: newStarter(), ports: newPorts(opts.Dir), seats: seats, clusters: map[string]*Cluster{}}, nil
}

// ID is a short name unique among the runs on this machine, fit for a part of the
// name of a network namespace, a device or a cgroup.
func (l *Lab) ID() string { return l.run.id }

// Dir is the directory of this run. It goes at Close.
func (l *Lab) Dir() string { return l.run.dir }

// Kubelab is the path of the binary with all of Kubernetes in it.
func (l *Lab) Kubelab() string { return l.kubelab }

// Logf reports progress to whoever made the lab.
func (l *Lab) Logf(format string, args ...any) { l.opts.Log(format, args...) }

// Undo notes a command that removes something outside of the run's directory, such
// as a network namespace, before that thing is made. The command runs at Close, or
// at the next New if this process dies, when all processes of the run are gone;
// last in, first out. Its failure is not an error: the thing may never have been made.
func (l *Lab) Undo(name string, args ...string) error {
	return l.run.undo(append([]string{name}, args...))
}

// TakePorts reserves n free TCP ports of this host until Close, for processes that
// have to be told theirs.
func (l *Lab) TakePorts(n int) ([]int, error) { return l.ports.take(n) }

// Cluster returns a started cluster by name, or nil.
func (l *Lab) Cluster(name string) *Cluster {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clusters[name]
}

// Close ends every process of the lab, runs the undo commands and removes the
// directory of the run. It may be called again; no Start may be under way.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	procs, clusters := l.procs, l.clusters
	l.mu.Unlock()
	for _, p := range procs {
		p.expectExit()
	}
	for _, p := range procs {
		p.signalGroup(killSignal)
	}
	errs := []error{}
	for _, c := range clusters {
		errs = append(errs, c.close())
	}
	for _, p := range procs {
		<-p.Exited()
	}
	l.starter.close()
	l.ports.close()
	err := errors.Join(append(errs, l.run.remove())...)
	l.seats.close()
	return err
}
