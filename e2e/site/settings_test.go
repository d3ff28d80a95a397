package site

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiffering(t *testing.T) {
	defaults := map[string]any{
		"image":      map[string]any{"tag": "", "pullPolicy": "IfNotPresent"},
		"networking": map[string]any{"enabled": true, "externalCIDRs": []any{"10.70.0.0/16"}},
		"config":     map[string]any{"lease": map[string]any{"duration": "8s", "retryPeriod": "1.5s"}},
	}
	values := map[string]any{
		"image":      map[string]any{"tag": "lab", "pullPolicy": "IfNotPresent"},
		"networking": map[string]any{"enabled": true, "externalCIDRs": []string{"10.70.0.0/16"}, "new": 3},
		"config":     map[string]any{"lease": map[string]any{"duration": "4s"}},
	}
	have, err := differing("", values, defaults)
	require.NoError(t, err)
	require.Equal(t, []Setting{
		{Name: "config.lease.duration", Here: "4s", Default: "8s"},
		{Name: "image.tag", Here: "lab", Default: `""`},
		{Name: "networking.new", Here: "3", Default: "null"},
	}, have)
}

// TestDefaultsOfTheChart: the files that the defaults are read from have them.
func TestDefaultsOfTheChart(t *testing.T) {
	s := &Site{sites: &Sites{root: "../.."}, chart: map[string]any{"config": map[string]any{"lease": map[string]any{"duration": "1s"}}}}
	have, err := s.Settings()
	require.NoError(t, err)
	require.Len(t, have, 1)
	require.Equal(t, "config.lease.duration", have[0].Name)
	require.NotEqual(t, "null", have[0].Default)
}
