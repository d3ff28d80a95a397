package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrClosed is returned by a lab that has been closed.
var ErrClosed = errors.New("the lab is closed")

const killSignal = syscall.SIGKILL

// ProcessOptions say how a process is started.
type ProcessOptions struct {
	// Name for people, and of the log file: unique in the lab, DIR/NAME is allowed.
	Name string
	// Path of the program.
	Path string
	// Args are the arguments, without the program's name.
	Args []string
	// Env is added to this process's environment, less KUBECONFIG and KUBERNETES_*.
	Env []string
	// Dir is the working directory. Default: the directory of the run.
	Dir string
	// Netns is the network namespace to run in. Default: this process's own.
	Netns string
	// MayExit says that an end of its own is no failure.
	MayExit bool
	// ClockAhead is by how much its clock differs from this machine's, in whole seconds; see
	// CanShiftClocks. Not in another Netns.
	ClockAhead time.Duration
}

// Process is a running program of the lab, leader of its own process group. It dies
// with this process. Its methods may be called concurrently.
type Process struct {
	// Name as given.
	Name string
	// Log is the path of the file with its output.
	Log string
	// PID of the process.
	PID int

	// Options that it was started with: Lab.Process starts it again with them.
	Options ProcessOptions

	cmd      *exec.Cmd
	done     chan struct{}
	mu       sync.Mutex
	expected bool
	err      error
}

// Process starts a program. An end that nobody asked for is reported to
// Options.Exited. The output goes to a log file, which a second start appends to.
func (l *Lab) Process(opts ProcessOptions) (*Process, error) {
	p := &Process{Name: opts.Name, Log: filepath.Join(l.run.dir, opts.Name+".log"), Options: opts, done: make(chan struct{}), expected: opts.MayExit}
	if err := os.MkdirAll(filepath.Dir(p.Log), 0o755); err != nil {
		return nil, fmt.Errorf("making the log directory of %s: %w", p.Name, err)
	}
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", p.Name, err)
	}
	defer out.Close()
	if opts.ClockAhead != 0 && opts.Netns != "" {
		return nil, fmt.Errorf("starting %s with a clock of its own in the network of %s: it has this process's own network", p.Name, opts.Netns)
	}
	p.cmd = l.command(opts, out)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if err := l.starter.start(p.cmd, opts.ClockAhead); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.Name, err)
	}
	p.PID = p.cmd.Process.Pid
	l.procs = append(l.procs, p)
	go l.wait(p)
	return p, nil
}

func (l *Lab) command(opts ProcessOptions, out *os.File) *exec.Cmd {
	path, args := opts.Path, opts.Args
	if opts.Netns != "" {
		path, args = "ip", append([]string{"netns", "exec", opts.Netns, opts.Path}, opts.Args...)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = opts.Dir
	setDefault(&cmd.Dir, l.run.dir)
	cmd.Env = append(append(cleanEnviron(os.Environ()), opts.Env...), l.run.mark())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// cleanEnviron removes what would send a process to some other cluster of the user.
func cleanEnviron(environ []string) []string {
	kept := make([]string, 0, len(environ))
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "KUBECONFIG=") && !strings.HasPrefix(entry, "KUBERNETES_") {
			kept = append(kept, entry)
		}
	}
	return kept
}

func (l *Lab) wait(p *Process) {
	err := p.cmd.Wait()
	p.mu.Lock()
	p.err = err
	expected := p.expected
	p.mu.Unlock()
	close(p.done)
	if expected {
		return
	}
	l.Logf("%s ended unexpectedly (%v): see %s", p.Name, p.cmd.ProcessState, p.Log)
	if l.opts.Exited != nil {
		l.opts.Exited(p)
	}
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Running says whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err says how the process ended: nil with exit code 0, else an *exec.ExitError. It
// is nil while the process runs.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// ExitCode is the code that the process ended with, -1 if it runs or was killed.
func (p *Process) ExitCode() int {
	if p.Running() {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// Flag returns the value of the argument --name=value; the last one wins. It is empty if
// there is none.
func (p *Process) Flag(name string) (value string) {
	for _, arg := range p.Options.Args {
		if have, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			value = have
		}
	}
	return value
}

// Kill ends the process and its group at once, and returns when it has ended.
func (p *Process) Kill() {
	p.expectExit()
	p.signalGroup(killSignal)
	<-p.done
}

// Stop asks the process to end (SIGTERM) and returns when it has. An error says
// that it had to be killed after the grace, or when ctx ended.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	p.expectExit()
	p.signalGroup(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	p.Kill()
	return fmt.Errorf("%s did not end within %s of SIGTERM", p.Name, grace)
}

// Pause freezes the process and its group (SIGSTOP): its connections stay open and
// nothing answers.
func (p *Process) Pause() { p.signalGroup(syscall.SIGSTOP) }

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() { p.signalGroup(syscall.SIGCONT) }

// Signal sends a signal to the process and its group.
func (p *Process) Signal(signal syscall.Signal) { p.signalGroup(signal) }

// Tail is the end of the process's output, at most n bytes.
func (p *Process) Tail(n int) string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return ""
	}
	return string(data[max(0, len(data)-n):])
}

func (p *Process) expectExit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = true
}

// signalGroup does nothing once the process was waited for: its number may be
// somebody else's by then.
func (p *Process) signalGroup(signal syscall.Signal) {
	if p.Running() {
		_ = syscall.Kill(-p.PID, signal)
	}
}

// starter starts processes from one thread that lives as long as the lab: a parent
// death signal is sent when the thread that started the process ends, and Go ends
// threads as it likes.
type starter struct {
	requests chan startRequest
}

type startRequest struct {
	cmd    *exec.Cmd
	ahead  time.Duration
	result chan error
}

func newStarter() *starter {
	s := &starter{requests: make(chan startRequest)}
	go s.loop()
	return s
}

func (s *starter) loop() {
	runtime.LockOSThread()
	for request := range s.requests {
		if request.ahead != 0 {
			request.result <- startAhead(request.cmd, request.ahead)
			continue
		}
		request.result <- request.cmd.Start()
	}
}

func (s *starter) start(cmd *exec.Cmd, ahead time.Duration) error {
	request := startRequest{cmd: cmd, ahead: ahead, result: make(chan error, 1)}
	s.requests <- request
	return <-request.result
}

func (s *starter) close() { close(s.requests) }
