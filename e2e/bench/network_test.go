package main

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test be the processes of the bench, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && processes()[os.Args[1]] != nil {
		if err := command(context.Background(), os.Args[1:]); err != nil {
			logf("%v", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A ratio is by the bare tunnel of the same pair, not of the medians.
func TestNetworkSummary(t *testing.T) {
	load := trafficLoads()[0].name
	r := networkReport{}
	for _, p := range [][4]float64{{8, 1, 0.9, 0.9}, {10, 2, 1.9, 1.5}, {9, 4, 3.2, 2}} {
		r.Pairs = append(r.Pairs, networkPair{load: {
			pathRaw: {Rate: p[0]}, pathBare: {Rate: p[1], CPU: 4}, pathGateways: {Rate: p[2], CPU: 5.2, PeakMB: 90}, pathPods: {Rate: p[3], CPU: 6},
		}})
	}
	r.summarize()
	s := r.Summary[load]
	require.Equal(t, spread{9, 8, 10}, s[pathRaw]["rate"])
	require.InDelta(t, 0.9, s[pathGateways]["ratio"].Median, 1e-9)
	require.InDelta(t, 0.8, s[pathGateways]["ratio"].Min, 1e-9)
	require.InDelta(t, 1.3, s[pathGateways]["cpuRatio"].Median, 1e-9)
	require.InDelta(t, 0.75, s[pathPods]["ratio"].Median, 1e-9)
	require.Equal(t, spread{}, s[pathGateways]["peakRatio"], "the bare tunnel has no figure")
	require.Len(t, r.Goals, 6)
	require.Equal(t, []bool{true, false, false}, []bool{r.Goals[0].Met, r.Goals[1].Met, r.Goals[2].Met})

	var out bytes.Buffer
	r.print(&out)
	require.Regexp(t, `TCP 1 stream, Gbit/s +9\.00 \(8\.00 - 10\.00\) +2\.00 .* 0\.90 \(0\.80 - 0\.95\)`, out.String())
	require.Regexp(t, `gateways: at most 1\.25 of the CPU per GB +1\.30 +NOT reached`, out.String())
	require.Contains(t, out.String(), "GOMEMLIMIT of an end (0: none): 0 MiB")
}

// Everything passes every path, and is counted.
func TestNetwork(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED: this test needs root, to make network namespaces")
	}
	n, err := newNetwork(t.Context(), networkOptions{each: 100 * time.Millisecond, memory: 100})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.close()) }()
	p, err := n.pair(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, p, len(trafficLoads()))
	for load, flows := range p {
		require.Len(t, flows, len(pathNames()), load)
		for name, f := range flows {
			if load != trafficLoads()[2].name { // a busy machine may drop all of the small packets
				require.Positive(t, f.Rate, "%s: %s", load, name)
			}
			require.Equal(t, name == pathRaw, f.PeakMB == 0, "%s: %s", load, name)
		}
	}
}
