package site

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMerge(t *testing.T) {
	into := map[string]any{"lease": map[string]any{"duration": "4s", "retryPeriod": "1s"}, "log": map[string]any{"level": "debug"}}
	first := map[string]any{"lease": map[string]any{"duration": "3s"}, "sharing": map[string]any{"limits": map[string]any{"pods": 5}}}
	second := map[string]any{"log": map[string]any{}, "sharing": map[string]any{"limits": map[string]any{"cpu": 2}, "mode": "Manual"}}
	merge(into, first)
	merge(into, second)
	require.Equal(t, map[string]any{
		"lease":   map[string]any{"duration": "3s", "retryPeriod": "1s"},
		"log":     map[string]any{}, // an empty section: the defaults
		"sharing": map[string]any{"limits": map[string]any{"pods": 5, "cpu": 2}, "mode": "Manual"},
	}, into)
	require.Equal(t, map[string]any{"limits": map[string]any{"pods": 5}}, first["sharing"], "what was merged stays as it was")
}
