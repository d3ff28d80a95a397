package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// BuildOptions are what Build needs to know.
type BuildOptions struct {
	// Dir of the repository.
	Dir string
	// Out is the file to write.
	Out string
	// OS and Arch to build for, as Go names them. Default: this machine's.
	OS, Arch string
}

// Build builds the program, static and stripped; the version that it tells is the one that the Go command finds
// in git. The error carries the compiler's output.
func Build(ctx context.Context, o BuildOptions) error {
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
