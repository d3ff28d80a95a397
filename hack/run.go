package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// scenariosOfTwoCores is the number of scenarios beside each other for two cores: on a slow machine a
	// third one makes each take longer than three after one another.
	scenariosOfTwoCores = 2
	// stopPatience is how long a test may clean up after an interrupt.
	stopPatience = 2 * time.Minute
)

// scenarios builds what the scenarios of the list need, and then runs each as a process of its own,
// several at a time, in the order of the list.
func (r *testRun) scenarios(ctx context.Context, list []scenario) {
	if len(list) == 0 {
		return
	}
	builders := slices.DeleteFunc(scenarios(), func(s scenario) bool { return s.when != first })
	for _, s := range append(slices.Clone(builders), list...) {
		if err := r.build(ctx, s.folder); err != nil {
			r.breaks(err)
			return
		}
	}
	for _, s := range builders {
		r.scenario(ctx, s)
	}
	beside := scenariosOfTwoCores
	if r.set == setCore {
		beside = 1 // they compute more than they wait, and requests of an application that is starved fail
	}
	room := make(chan struct{}, max(1, beside*runtime.GOMAXPROCS(0)/2))
	var running sync.WaitGroup
	for _, s := range list {
		room <- struct{}{}
		if r.startBy > 0 && time.Now().Unix() > r.startBy {
			<-room
			r.summary.late(s)
			continue
		}
		running.Go(func() {
			defer func() { <-room }()
			r.scenario(ctx, s)
		})
	}
	running.Wait()
}

// binary is the path of the tests of a folder.
func (r *testRun) binary(folder string) string {
	return filepath.Join(r.dir, path.Base(folder)+".test")
}

// build builds the tests of a folder, once.
func (r *testRun) build(ctx context.Context, folder string) error {
	if _, err := os.Stat(r.binary(folder)); err == nil {
		return nil
	}
	begin := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", r.binary(folder), "./"+folder)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the tests of %s: %w", folder, err)
	}
	fmt.Printf("built the tests of %s in %.0fs\n", folder, time.Since(begin).Seconds())
	return nil
}

// scenario runs one scenario and notes its duration.
func (r *testRun) scenario(ctx context.Context, s scenario) {
	args := []string{"tool", "test2json", "-t", "-p", importPath(s.folder) + "." + s.test, r.binary(s.folder),
		"-test.v=test2json", "-test.run=^" + s.test + "$", "-test.timeout=60m", "-test.parallel=64"}
	if r.set == setAll && s.folder == scenariosFolder { // make chaos, soak and alarm run those of e2e/timed
		args = append(args, "-all")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begin := time.Now()
	used, err := r.follow(cmd)
	if err != nil {
		r.breaks(fmt.Errorf("running %s: %w", s.name(), err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.summary.cpu(importPath(s.folder)+"."+s.test, used)
	if ctx.Err() == nil {
		r.history.Took[s.name()] = time.Since(begin).Round(time.Second)
	}
}

// follow runs a command that prints what `go test -json` prints, and gives that to the
// summary. It returns the CPU time of the command and of its children. It returns no error
// for an exit code, because the summary has the tests that failed.
func (r *testRun) follow(cmd *exec.Cmd) (time.Duration, error) {
	cmd.Env = append(os.Environ(), sampleVariable+"="+r.sample)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = stopPatience
	cmd.Cancel = func() error {
		if cmd.SysProcAttr != nil && cmd.SysProcAttr.Setpgid {
			return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		}
		return cmd.Process.Signal(os.Interrupt)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	failures, readErr := r.summary.read(out)
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && failures > 0 {
		err = nil
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), errors.Join(err, readErr)
}

// again runs each failed test once more, alone, and notes as flaky those that pass.
func (r *testRun) again(ctx context.Context) {
	failed := r.summary.failedTests()
	if len(failed) == 0 || ctx.Err() != nil {
		return
	}
	if len(failed) > mostFlakes {
		fmt.Printf("\n%d tests failed: more than %d do not run again\n", len(failed), mostFlakes)
		return
	}
	for _, f := range failed {
		fmt.Printf("\nonce more, alone: %s %s\n", f.pkg, f.test)
		output := r.summary.retry(f)
		if s, ok := scenarioOf(f); ok {
			r.scenario(ctx, s)
		} else {
			r.goTest(ctx, againArgs(f)...)
		}
		r.summary.passedAgain(f, output)
	}
}

// againArgs returns the arguments of go test for a failed test, or for a whole package.
func againArgs(f failedTest) []string {
	args := []string{"-count=1", "-timeout=30m"}
	if f.test != "" {
		args = append(args, "-run", "^"+f.test+"$")
	}
	return append(args, f.pkg)
}

// scenarioOf returns the scenario of a failed test, if it is one.
func scenarioOf(f failedTest) (scenario, bool) {
	for _, s := range scenarios() {
		if f.pkg == importPath(s.folder)+"."+s.test {
			return s, true
		}
	}
	return scenario{}, false
}
