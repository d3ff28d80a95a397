package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
)

// Processes are the numbers, inside the node, of the processes whose command line has text
// in it, such as the flag by which a role is started.
func (n *Node) Processes(ctx context.Context, text string) ([]string, error) {
	out, err := n.Exec(ctx, "pgrep", "-f", "--", regexp.QuoteMeta(text))
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // there is none
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for processes of node %s: %w", n.Name, err)
	}
	return strings.Fields(out), nil
}

// Signal sends a signal to processes of the node, by their numbers there.
func (n *Node) Signal(ctx context.Context, signal syscall.Signal, processes ...string) error {
	if len(processes) == 0 {
		return nil
	}
	_, err := n.Exec(ctx, "kill", append([]string{fmt.Sprintf("-%d", int(signal))}, processes...)...)
	return err
}
