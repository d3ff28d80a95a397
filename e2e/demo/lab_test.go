package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseLab(t *testing.T) {
	tests := map[string]struct {
		args []string
		want labOptions
		err  string
	}{
		"defaults": {want: labOptions{clusters: []string{"rome", "milan"}, nodes: 1, tier: tierSimulated}},
		"all": {
			args: []string{"--clusters", "a", "--nodes=3", "--tier", "full", "--audit"},
			want: labOptions{clusters: []string{"a"}, nodes: 3, tier: tierFull, audit: true},
		},
		"tier":     {args: []string{"--tier=half"}, err: `--tier is "half": simulated and full are accepted`},
		"nodes":    {args: []string{"--nodes=-1"}, err: "--nodes is -1"},
		"clusters": {args: []string{"--clusters=a,,b"}, err: `--clusters is "a,,b"`},
		"argument": {args: []string{"up"}, err: `argument "up"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseLab(test.args, io.Discard)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}
