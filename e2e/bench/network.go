package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// networkOptions say how the network fabric is measured.
type networkOptions struct {
	each   time.Duration
	memory int // MiB
	out    string
}

// networkPairs are the pairs without --pairs: network figures vary more than the others.
const networkPairs = 10

func (o *networkOptions) flags(flags *flag.FlagSet) {
	flags.DurationVar(&o.each, "network-for", 5*time.Second, "how long each load runs on each path")
	flags.IntVar(&o.memory, "network-memory", 230, "GOMEMLIMIT of each end of a tunnel, in MiB; 0: none. 230 leaves room in a container of 256 MiB")
	flags.StringVar(&o.out, "network-out", filepath.Join("bin", "bench-network.json"), "file for the figures of the network")
}

func (o *networkOptions) check() error {
	if o.each < 100*time.Millisecond {
		return fmt.Errorf("--network-for is %s: at least 100ms is accepted", o.each)
	}
	return atLeast("network-memory", o.memory, 0)
}

// measureNetwork measures two clusters of one node each beside a bare tunnel, in network
// namespaces, without API servers: the plans and their executor are those of the roles.
func measureNetwork(ctx context.Context, all options) (err error) {
	o, pairs := all.network, cmp.Or(all.pairs, networkPairs)
	r := networkReport{Machine: thisMachine(), Begin: time.Now(), Each: o.each.Seconds(), MemoryLimit: o.memory}
	w, err := newNetwork(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for i := range pairs {
		logf("network: pair %d of %d", i+1, pairs)
		p, err := w.pair(ctx, i%2 == 1)
		if err != nil {
			return err
		}
		r.Pairs = append(r.Pairs, p)
	}
	r.Took = time.Since(r.Begin).Seconds()
	r.summarize()
	r.print(os.Stdout)
	return writeJSON(o.out, r)
}

// traffic is what is sent over each path.
type traffic struct {
	name    string // with the unit of its rate
	kind    string
	streams int
}

func trafficLoads() []traffic {
	return []traffic{
		{"TCP 1 stream, Gbit/s", kindTCP, 1}, {"TCP 8 streams, Gbit/s", kindTCP, 8},
		{fmt.Sprintf("UDP %d bytes, 1000/s", smallPacket), kindUDP, 1}, {"RTT, µs", kindRTT, 1},
	}
}

// flow is one load on one path.
type flow struct {
	Rate   float64 `json:"rate"`                      // in the unit of the load
	Rare   float64 `json:"p99,omitempty"`             // of RTT: 99th percentile, in the same unit
	CPU    float64 `json:"cpuSecondsPerGB,omitempty"` // of TCP: both ends of the tunnel
	Packet float64 `json:"cpuMicrosecondsPerPacket"`  // of UDP: the same for each packet that arrived
	PeakMB float64 `json:"peakMB,omitempty"`          // VmHWM of the larger end during the load
	Missed int     `json:"missedAnswers,omitempty"`   // of RTT
}

// networkPair has the loads on each path, by load and path.
type networkPair map[string]map[string]flow

// pair runs each load on each path, one after the other; the order of the paths is turned
// round from one pair to the next.
func (n *network) pair(ctx context.Context, turned bool) (networkPair, error) {
	order := slices.Clone(n.paths)
	if turned {
		slices.Reverse(order)
	}
	out := networkPair{}
	for _, t := range trafficLoads() {
		out[t.name] = map[string]flow{}
		for _, p := range order {
			f, err := p.measure(ctx, t, n.opts.each)
			if err != nil {
				return nil, fmt.Errorf("measuring %s on path %s: %w", t.name, p.name, err)
			}
			out[t.name][p.name] = f
		}
	}
	return out, nil
}

func (p path) measure(ctx context.Context, t traffic, each time.Duration) (f flow, err error) {
	for _, c := range p.ends { // peaks begin at what the ends have now
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.cmd.Process.Pid), []byte("5"), 0); err != nil {
			return f, fmt.Errorf("resetting the peak memory of %s: %w", c.name, err)
		}
	}
	before, err := p.look()
	if err != nil {
		return f, err
	}
	sent, err := p.sender.call(sendRequest{To: p.to, Kind: t.kind, Streams: t.streams, Each: each})
	if err != nil {
		return f, err
	}
	after, err := p.settled(ctx)
	if err != nil {
		return f, err
	}
	cpu, packets := after.cpu-before.cpu, float64(after.packets-before.packets)
	f.PeakMB = after.peak
	switch t.kind {
	case kindTCP:
		f.Rate, f.CPU = sent.Bytes*8/1e9/sent.Seconds, cpu/(sent.Bytes/1e9)
	case kindUDP:
		f.Rate = packets / 1e3 / sent.Seconds
		if packets > 0 {
			f.Packet = cpu * 1e6 / packets
		}
	case kindRTT:
		f.Rate, f.Rare, f.Missed = sent.RTT, sent.RTT99, sent.Missed
	}
	return f, nil
}

// look is what the receiver has counted, the seconds of CPU that the ends of the tunnel have
// used, and the highest resident memory of one of them.
type look struct {
	packets   uint64
	cpu, peak float64
}

func (p path) look() (l look, err error) {
	a, err := p.receiver.call(struct{}{})
	l.packets = a.Packets
	for _, c := range p.ends {
		cpu, err1 := cpuOf(c.cmd.Process.Pid)
		peak, err2 := memoryOf(c.cmd.Process.Pid, peakLine)
		err = errors.Join(err, err1, err2)
		l.cpu, l.peak = l.cpu+cpu, max(l.peak, peak)
	}
	return l, err
}

// settled looks until no more packets arrive.
func (p path) settled(ctx context.Context) (look, error) {
	const quiet = 200 * time.Millisecond
	last, err := p.look()
	for err == nil {
		if err := pause(ctx, quiet); err != nil {
			return last, err
		}
		var next look
		if next, err = p.look(); err == nil && next.packets == last.packets {
			return next, nil
		}
		last = next
	}
	return last, err
}
