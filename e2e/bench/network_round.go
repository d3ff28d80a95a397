package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// traffic is what is sent over each path.
type traffic struct {
	name string // with the unit of its rate
	senderOptions
}

func trafficLoads() []traffic {
	return []traffic{
		{"TCP 1 stream, Gbit/s", senderOptions{kind: kindTCP, streams: 1}},
		{"TCP 8 streams, Gbit/s", senderOptions{kind: kindTCP, streams: 8}},
		{fmt.Sprintf("UDP %d bytes, 1000/s", smallPacket), senderOptions{kind: kindUDP, streams: 1}},
		{"RTT, µs", senderOptions{kind: kindRTT, streams: 1}},
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
			t.each = n.opts.each
			f, err := p.measure(ctx, t)
			if err != nil {
				return nil, fmt.Errorf("measuring %s on path %s: %w", t.name, p.name, err)
			}
			out[t.name][p.name] = f
		}
	}
	return out, nil
}

func (p path) measure(ctx context.Context, t traffic) (f flow, err error) {
	before, err := p.receiver.ask(struct{}{})
	if err != nil {
		return f, err
	}
	cpuBefore, err := p.cpu()
	if err != nil {
		return f, err
	}
	if err := p.resetPeaks(); err != nil {
		return f, err
	}
	s, err := p.send(ctx, t.senderOptions)
	if err != nil {
		return f, err
	}
	arrived, err := p.settled(ctx)
	if err != nil {
		return f, err
	}
	cpu, err := p.cpu()
	if err != nil {
		return f, err
	}
	if f.PeakMB, err = p.peak(); err != nil {
		return f, err
	}
	cpu -= cpuBefore
	packets := float64(arrived - before.Packets)
	switch t.kind {
	case kindTCP:
		f.Rate, f.CPU = s.Bytes*8/1e9/s.Seconds, cpu/(s.Bytes/1e9)
	case kindUDP:
		f.Rate = packets / 1e3 / s.Seconds
		if packets > 0 {
			f.Packet = cpu * 1e6 / packets
		}
	case kindRTT:
		f.Rate, f.Rare, f.Missed = s.RTT, s.RTT99, s.Missed
	}
	return f, nil
}

// settled waits until no more packets arrive, and returns how many have.
func (p path) settled(ctx context.Context) (uint64, error) {
	const quiet = 200 * time.Millisecond
	last, err := p.receiver.ask(struct{}{})
	for err == nil {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(quiet):
		}
		next, e := p.receiver.ask(struct{}{})
		if e == nil && next.Packets == last.Packets {
			return next.Packets, nil
		}
		last, err = next, e
	}
	return 0, err
}

// cpu is the seconds of CPU that the ends of the tunnel have used.
func (p path) cpu() (total float64, err error) {
	for _, c := range p.ends {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil {
			return 0, fmt.Errorf("reading the times of %s: %w", c.name, err)
		}
		seconds, err := cpuSeconds(string(text))
		if err != nil {
			return 0, fmt.Errorf("reading the times of %s: %w", c.name, err)
		}
		total += seconds
	}
	return total, nil
}

// resetPeaks lets the peaks of the ends begin at what they have now.
func (p path) resetPeaks() error {
	for _, c := range p.ends {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.cmd.Process.Pid), []byte("5"), 0); err != nil {
			return fmt.Errorf("resetting the peak memory of %s: %w", c.name, err)
		}
	}
	return nil
}

// peak is the highest resident memory of an end.
func (p path) peak() (peak float64, err error) {
	for _, c := range p.ends {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
		if err != nil {
			return 0, fmt.Errorf("reading the memory of %s: %w", c.name, err)
		}
		mb, err := statusMB(string(text), peakLine)
		if err != nil {
			return 0, fmt.Errorf("reading the memory of %s: %w", c.name, err)
		}
		peak = max(peak, mb)
	}
	return peak, nil
}
