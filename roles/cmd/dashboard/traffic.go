package dashboard

import (
	"fmt"
	"strconv"
	"time"

	"github.com/liqod/liqod/roles/cmd/report"
)

// Traffic is what passes the tunnels with a peer, and what was refused of the peer. A figure that is
// not known is empty.
type Traffic struct {
	Peer string `json:"peer"`
	// Sent and Received are bytes per second since the state before.
	Sent     string `json:"sent"`
	Received string `json:"received"`
	// Latency is the mean of the round trip times since the state before, or the one that the
	// Connection has, which was measured at Measured.
	Latency  string    `json:"latency"`
	Measured time.Time `json:"measured,omitzero"`
	// Lost is the share of the probes that were lost since the state before.
	Lost string `json:"lost"`
	// Packets and Requests of the peer that were refused.
	Packets  string `json:"packets"`
	Requests string `json:"requests"`
}

// traffic has the peers with a tunnel, and those of which something was refused.
func traffic(p *picture, peers []report.Peer) []Traffic {
	out := []Traffic{}
	for i := range peers {
		id := peers[i].ClusterID
		row := Traffic{Peer: id, Packets: peers[i].Refused.String()}
		if n := p.counted.total(id)[requestsRefused]; n > 0 {
			row.Requests = strconv.FormatFloat(n, 'f', 0, 64)
		}
		c := p.Connection(id)
		if c == nil && row.Packets == "" && row.Requests == "" {
			continue
		}
		if c != nil && c.Status.Latency != nil {
			row.Latency, row.Measured = c.Status.Latency.Value, c.Status.Latency.Timestamp.UTC()
		}
		row.figures(p.counted.since(p.before, id))
		out = append(out, row)
	}
	return out
}

// figures fills in what was counted in some seconds.
func (t *Traffic) figures(n counters, seconds float64) {
	if seconds <= 0 {
		return
	}
	t.Sent, t.Received = speed(n[sentBytes]/seconds), speed(n[receivedBytes]/seconds)
	if n[probesAnswered] > 0 {
		mean := time.Duration(n[probeSeconds] / n[probesAnswered] * float64(time.Second))
		t.Latency, t.Measured = mean.Round(10*time.Microsecond).String(), time.Time{}
	}
	if n[probesSent] > 0 {
		t.Lost = fmt.Sprintf("%.0f %%", min(n[probesLost]/n[probesSent], 1)*100)
	}
}

// speed writes bytes per second with three digits.
func speed(bytes float64) string {
	units := []string{"B/s", "kB/s", "MB/s", "GB/s"}
	i := 0
	for ; bytes >= 999.5 && i < len(units)-1; i++ {
		bytes /= 1000
	}
	return fmt.Sprintf("%.3g %s", bytes, units[i])
}
