// Package binary builds the program as it is shipped: static and stripped.
package binary

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Options of Build.
type Options struct {
	// Dir of the repository.
	Dir string
	// Out is the file to write.
	Out string
	// OS and Arch to build for, as Go names them. Default: this machine's.
	OS, Arch string
}

// Build builds the program; the version that it tells is the one that the Go command finds
// in git. The error carries the compiler's output.
func Build(ctx context.Context, o Options) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=auto", "-ldflags", "-s -w", "-o", o.Out, ".")
	cmd.Dir, cmd.Env = o.Dir, append(os.Environ(), "CGO_ENABLED=0")
	if o.OS != "" {
		cmd.Env = append(cmd.Env, "GOOS="+o.OS)
	}
	if o.Arch != "" {
		cmd.Env = append(cmd.Env, "GOARCH="+o.Arch)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building liqod in %s: %w\n%s", o.Dir, err, out)
	}
	return nil
}
