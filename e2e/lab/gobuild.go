package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

const (
	// buildReport is the time between two reports of a build.
	buildReport = 15 * time.Second
	// buildTail is how much of the compiler's last output an error carries, in bytes.
	buildTail = 4 << 10
)

// goBuild builds a tool and reports its progress. opts.Log is set.
func goBuild(ctx context.Context, opts ToolOptions, binary string) error {
	begin, history := time.Now(), filepath.Join(filepath.Dir(filepath.Dir(binary)), opts.Name+".took")
	opts.Log("building %s: %s", opts.Name, expectation(history))
	partial := binary + ".part"
	setDefault(&opts.Package, ".")
	// -v prints a line for each package that is compiled; go test has no such flag.
	args := []string{"build", "-C", opts.Source, "-v"}
	if opts.Tests {
		args = []string{"test", "-C", opts.Source, "-c", "-vet=off"} // the tests are not ours
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-trimpath", "-ldflags", opts.LDFlags, "-o", partial, opts.Package)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var out buildOutput
	cmd.Stdout, cmd.Stderr = &out, &out
	ended := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(buildReport):
				opts.Log("building %s: %s so far, %d packages compiled", opts.Name, time.Since(begin).Round(time.Second), out.count())
			}
		}
	})
	err := cmd.Run()
	close(ended)
	reporting.Wait()
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", opts.Name, err, out.tail())
	}
	if err := os.Rename(partial, binary); err != nil {
		return fmt.Errorf("keeping %s: %w", opts.Name, err)
	}
	took := time.Since(begin).Round(time.Second)
	opts.Log("built %s in %s", opts.Name, took)
	if err := os.WriteFile(history, []byte(took.String()), 0o644); err != nil {
		return fmt.Errorf("noting how long %s took to build: %w", opts.Name, err)
	}
	return nil
}

// expectation says how long a build will take, by the file that has the time of the last one.
func expectation(history string) string {
	data, err := os.ReadFile(history)
	if err != nil {
		return "minutes with a cold cache"
	}
	took, err := time.ParseDuration(string(data))
	if err != nil {
		return "minutes with a cold cache"
	}
	return fmt.Sprintf("it took %s the last time on this machine", took)
}

// buildOutput counts the lines of a build, and keeps the last of them.
type buildOutput struct {
	mu    sync.Mutex
	lines int
	last  []byte
}

func (o *buildOutput) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines += bytes.Count(data, []byte("\n"))
	o.last = append(o.last, data...)
	o.last = o.last[max(0, len(o.last)-buildTail):]
	return len(data), nil
}

func (o *buildOutput) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lines
}

func (o *buildOutput) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.last)
}
