package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// KubectlOptions say how kubectl runs. The zero value is useful.
type KubectlOptions struct {
	// Stdin of the command; nil is empty.
	Stdin io.Reader
	// Env has further variables, as NAME=value.
	Env []string
}

// Kubectl runs kubectl as the cluster's administrator and returns its output. The error
// carries what it said besides, and is an *exec.ExitError if it ended with another code
// than 0.
func (c *Cluster) Kubectl(ctx context.Context, opts KubectlOptions, args ...string) (string, error) {
	cmd := c.KubectlCommand(ctx, args...)
	var out, problem bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = opts.Stdin, &out, &problem
	cmd.Env = append(cmd.Env, opts.Env...)
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problem.String()))
	}
	return out.String(), nil
}

// KubectlCommand is what Kubectl runs, for those that need more than its output.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.lab.kubelab, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	cmd.Args[0] = "kubectl"                       // kubelab is kubectl under this name
	cmd.Env = append(os.Environ(), "HOME="+c.Dir) // its caches go with the cluster
	return cmd
}
