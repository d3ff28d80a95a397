package v1beta1

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommand: what is no name becomes no part of a command.
func TestCommand(t *testing.T) {
	t.Parallel()
	require.Equal(t, "kubectl get node milan.example-1", Command("kubectl get node %s", "milan.example-1"))
	for _, text := range []string{"", "milan; reboot", "milan\nreboot", "$(reboot)", "`reboot`", "-o", "--kubeconfig=x", "a b", "a|b", "a&b", "a>b", "*", "~", "a/b", "é"} {
		require.Empty(t, Command("kubectl get node %s", text), text)
	}
}
