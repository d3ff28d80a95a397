package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// networkReport is all that was measured of the network.
type networkReport struct {
	Begin       time.Time                         `json:"begin"`
	Took        float64                           `json:"tookSeconds"`
	Machine     machine                           `json:"machine"`
	Each        float64                           `json:"secondsOfEachLoad"`
	MemoryLimit int                               `json:"memoryLimitMiB"`
	Summary     map[string]map[string]flowSpreads `json:"summary"` // by load and path
	Goals       []goal                            `json:"goals"`
	Pairs       []networkPair                     `json:"pairs"`
}

// flowSpreads are the figures of one load on one path. A ratio is by the bare tunnel of the
// same pair.
type flowSpreads struct {
	Rate        spread `json:"rate"`
	Ratio       spread `json:"ratio"`
	CPU         spread `json:"cpuSecondsPerGB"`
	CPURatio    spread `json:"cpuRatio"`
	Packet      spread `json:"cpuMicrosecondsPerPacket"`
	PacketRatio spread `json:"packetRatio"`
	PeakMB      spread `json:"peakMB"`
	PeakRatio   spread `json:"peakRatio"`
	Rare        spread `json:"p99"`
}

// goal is a median ratio that the fabric is to reach.
type goal struct {
	Text  string  `json:"text"`
	Load  string  `json:"load"`
	Value float64 `json:"value"`
	Met   bool    `json:"met"`
}

// The goals, of TCP beside the bare tunnel.
const (
	leastGateways  = 0.9
	mostGatewayCPU = 1.25
	leastPods      = 0.8
)

func pathNames() []string { return []string{pathRaw, pathBare, pathGateways, pathPods} }

func (r *networkReport) summarize() {
	r.Summary = map[string]map[string]flowSpreads{}
	for _, t := range trafficLoads() {
		r.Summary[t.name] = map[string]flowSpreads{}
		for _, name := range pathNames() {
			of := func(figure func(flow) float64) spread { return r.spread(t.name, name, figure, false) }
			by := func(figure func(flow) float64) spread { return r.spread(t.name, name, figure, true) }
			rate, cpu := func(f flow) float64 { return f.Rate }, func(f flow) float64 { return f.CPU }
			packet, peak := func(f flow) float64 { return f.Packet }, func(f flow) float64 { return f.PeakMB }
			r.Summary[t.name][name] = flowSpreads{
				Rate: of(rate), Ratio: by(rate), CPU: of(cpu), CPURatio: by(cpu),
				Packet: of(packet), PacketRatio: by(packet), PeakMB: of(peak), PeakRatio: by(peak),
				Rare: of(func(f flow) float64 { return f.Rare }),
			}
		}
		if t.kind == kindTCP {
			r.judge(t.name)
		}
	}
}

// spread spreads a figure over the pairs, divided by that of the bare tunnel if ratio is true.
func (r *networkReport) spread(load, name string, figure func(flow) float64, ratio bool) spread {
	var values []float64
	for _, p := range r.Pairs {
		v, bare := figure(p[load][name]), figure(p[load][pathBare])
		switch {
		case !ratio:
			values = append(values, v)
		case bare > 0:
			values = append(values, v/bare)
		}
	}
	return newSpread(values)
}

func (r *networkReport) judge(load string) {
	gateways, pods := r.Summary[load][pathGateways], r.Summary[load][pathPods]
	r.Goals = append(r.Goals,
		goal{fmt.Sprintf("gateways: at least %.2f of the rate", leastGateways), load, gateways.Ratio.Median, gateways.Ratio.Median >= leastGateways},
		goal{fmt.Sprintf("gateways: at most %.2f of the CPU per GB", mostGatewayCPU), load, gateways.CPURatio.Median, gateways.CPURatio.Median <= mostGatewayCPU},
		goal{fmt.Sprintf("pods: at least %.2f of the rate", leastPods), load, pods.Ratio.Median, pods.Ratio.Median >= leastPods},
	)
}

// print writes the report for people.
func (r *networkReport) print(out io.Writer) {
	fmt.Fprintf(out, "\nNetwork: %d pairs, %g s for each load on each path; %d CPUs (%s), Linux %s, %s; medians, and from least to most\n",
		len(r.Pairs), r.Each, r.Machine.CPUs, r.Machine.Model, r.Machine.Kernel, r.Machine.Go)
	table(out, r.rows("%.2f", []string{kindTCP, kindUDP, kindRTT}, func(s flowSpreads) (spread, spread) { return s.Rate, s.Ratio }))
	fmt.Fprintln(out, "\nCPU seconds of both ends of the tunnel, for 10^9 bytes that arrived")
	table(out, r.rows("%.2f", []string{kindTCP}, func(s flowSpreads) (spread, spread) { return s.CPU, s.CPURatio }))
	fmt.Fprintln(out, "\nCPU microseconds of both ends of the tunnel, for a packet that arrived")
	table(out, r.rows("%.1f", []string{kindUDP}, func(s flowSpreads) (spread, spread) { return s.Packet, s.PacketRatio }))
	fmt.Fprintf(out, "\nPeak memory of the larger end of the tunnel (VmHWM), MB, with %s\n", r.limit())
	table(out, r.rows("%.0f", []string{kindTCP, kindUDP, kindRTT}, func(s flowSpreads) (spread, spread) { return s.PeakMB, s.PeakRatio }))
	fmt.Fprintln(out, "\nMedian ratios to the bare tunnel")
	rows := [][]string{{"", "GOAL", "MEASURED", ""}}
	for _, g := range r.Goals {
		rows = append(rows, []string{g.Load, g.Text, fmt.Sprintf("%.2f", g.Value), map[bool]string{true: "reached", false: "NOT reached"}[g.Met]})
	}
	table(out, rows)
}

func (r *networkReport) limit() string {
	if r.MemoryLimit == 0 {
		return "no GOMEMLIMIT"
	}
	return fmt.Sprintf("GOMEMLIMIT=%dMiB", r.MemoryLimit)
}

// rows has a line for each load of these kinds.
func (r *networkReport) rows(format string, kinds []string, of func(flowSpreads) (value, ratio spread)) [][]string {
	rows := [][]string{{"", "RAW", "BARE WIREGUARD-GO", "GATEWAYS", "PODS", "GATEWAYS / BARE", "PODS / BARE"}}
	for _, t := range trafficLoads() {
		if !slices.Contains(kinds, t.kind) {
			continue
		}
		row := []string{t.name}
		var ratios []string
		for _, name := range pathNames() {
			value, ratio := of(r.Summary[t.name][name])
			row = append(row, shown(value, format))
			if name == pathGateways || name == pathPods {
				ratios = append(ratios, shown(ratio, "%.2f"))
			}
		}
		rows = append(rows, append(row, ratios...))
	}
	return rows
}

// shown is empty for figures that were not measured.
func shown(s spread, format string) string {
	if s == (spread{}) {
		return ""
	}
	return s.text(format)
}
