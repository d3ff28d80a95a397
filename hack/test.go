package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// sampleVariable names the variable with the number of the sample: tests of long tables
// play a part of their cases that depends on it.
const sampleVariable = "LAB_SAMPLE"

// runTest runs the tests of the project as `make test` and `make test-all` do: the
// packages beside each other, those on clusters first. It prints the output of failed
// tests only, and at the end a table of the packages, the tests that were skipped, and
// what the run left to `make test-all`. It returns the exit code.
func runTest(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	packages := flags.String("packages", "./...", "which packages, separated by spaces, in the order in which they start")
	sample := flags.String("sample", os.Getenv(sampleVariable), "number of the sample; default: from the content of the tree")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if *sample == "" {
		*sample = treeSample(ctx)
	}
	args = append([]string{"test", "-json"}, flags.Args()...)
	args = append(args, strings.Fields(*packages)...)
	code, err := goTest(ctx, args, *sample)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
	}
	return code
}

// goTest runs the Go command and returns its exit code.
func goTest(ctx context.Context, args []string, sample string) (int, error) {
	begin := time.Now()
	fmt.Printf("sample %s (%s=%s repeats it)\n", sample, sampleVariable, sample)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), sampleVariable+"="+sample)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 2, fmt.Errorf("running the tests: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 2, fmt.Errorf("running the tests: %w", err)
	}
	s := newSummary(os.Stdout)
	readErr := s.read(out)
	err = cmd.Wait()
	s.print(time.Since(begin))
	if cmd.ProcessState.ExitCode() != 0 {
		return max(cmd.ProcessState.ExitCode(), 1), err
	}
	return 0, readErr
}

// treeSample is a digit that follows from the content of the tree, so that changes after
// one another play different samples.
func treeSample(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD^{tree}").Output()
	if err != nil || len(out) == 0 {
		return "0"
	}
	sum := 0
	for _, b := range out {
		sum += int(b)
	}
	return fmt.Sprint(sum % 10)
}
