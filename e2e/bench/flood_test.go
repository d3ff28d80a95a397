package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFloodMapping(t *testing.T) {
	require.Equal(t, `{"spec":{"desiredMapping":{"t-0":"t-0-oslo","t-1":"t-1-oslo"}}}`, string(mapping(2, true)))
	require.JSONEq(t, `{"spec":{"desiredMapping":{"t-0":null,"t-1":null}}}`, string(mapping(2, false)))
}

func TestFloodReport(t *testing.T) {
	_, err := parse([]string{"--flood-shadows=0"}, &strings.Builder{})
	require.ErrorContains(t, err, "--flood-shadows is 0")
	o, err := parse([]string{"--only=flood", "--flood-shadows=500", "--flood-namespaces=20", "--flood-connections=0", "--flood-pods=3", "--out=x"}, &strings.Builder{})
	require.NoError(t, err)
	require.Equal(t, floodOptions{shadows: 500, namespaces: 20, pods: 3, out: "x"}, o.flood)
	var out strings.Builder
	(&flood{Shadows: 500, Namespaces: 20, Toggles: 4, Accepted: 9, Connections: 7, Quiet: phase{P50: 400, P99: 500}, Flooding: phase{P50: 600, P99: 900},
		Waiting: phase{P50: 400, P99: 480}, QuietKnock: 3, FloodKnock: -1}).print(&out)
	require.Contains(t, out.String(), "500 ShadowPods, 20 namespaces toggled 4 times, 9 connections accepted, 7 of them open at the end")
	require.Regexp(t, `flooding +600 ms +900 ms +1\.50`, out.String())
	require.Regexp(t, `waiting .* none`, out.String())
}
