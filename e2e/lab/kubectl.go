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
// than 0. The first call on a machine builds it.
func (c *Cluster) Kubectl(ctx context.Context, opts KubectlOptions, args ...string) (string, error) {
	cmd, err := c.KubectlCommand(ctx, args...)
	if err != nil {
		return "", err
	}
	var out, problem bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = opts.Stdin, &out, &problem
	cmd.Env = append(cmd.Env, opts.Env...)
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problem.String()))
	}
	return out.String(), nil
}

// KubectlCommand is what Kubectl runs, for those that need more than its output.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := c.lab.BuildKubectl(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+c.Dir) // its caches go with the cluster
	return cmd, nil
}

// BuildKubectl returns the path of kubectl, of the version of the clusters. The first call
// on a machine builds it.
func (l *Lab) BuildKubectl(ctx context.Context) (string, error) {
	source, err := toolDir(ctx, "kubectl")
	if err != nil {
		return "", err
	}
	return BuildTool(ctx, ToolOptions{Source: source, Name: "kubectl", LDFlags: versionFlags(), Log: l.Logf})
}
