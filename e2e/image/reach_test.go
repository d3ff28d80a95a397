package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReach(t *testing.T) {
	server := httptest.NewServer(handler())
	defer server.Close()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer conn.Close()
	go answerUDP(conn)
	host, err := os.Hostname()
	require.NoError(t, err)
	tcp, udp := "tcp://"+server.Listener.Addr().String(), "udp://"+conn.LocalAddr().String()
	for target, want := range map[string]arrival{
		tcp:            {Name: host, Seen: "127.0.0.1"},
		tcp + "/20000": {Name: host, Seen: "127.0.0.1"},
		udp:            {Name: host, Seen: "127.0.0.1"},
		udp + "/3000":  {Name: host, Seen: "127.0.0.1"},
		udp + "/many":  {Problem: "is not a number from 0"},
		"x://h":        {Problem: "none of tcp, udp, icmp"},

		"connect://" + server.Listener.Addr().String(): {},
		"connect://127.0.0.1:1":                        {Problem: "refused"},
	} {
		var out bytes.Buffer
		require.NoError(t, reach(t.Context(), []string{target}, &out))
		var have []arrival
		require.NoError(t, json.Unmarshal(out.Bytes(), &have))
		require.Len(t, have, 1)
		require.Equal(t, target, have[0].Target)
		require.Equal(t, want.Name, have[0].Name, target)
		require.Equal(t, want.Seen, have[0].Seen, target)
		require.Contains(t, have[0].Problem, want.Problem, target)
	}
}

func TestReachICMP(t *testing.T) {
	if os.Geteuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED: this test needs root, for raw sockets")
	}
	have := tryTarget(t.Context(), "icmp://127.0.0.1/3000")
	require.Equal(t, arrival{Target: "icmp://127.0.0.1/3000", Name: "127.0.0.1"}, have)
}

func TestChecksum(t *testing.T) {
	message := echoMessage(icmpEchoRequest, 7, []byte("odd"))
	require.Zero(t, checksum(message), "of a message with its checksum")
}
