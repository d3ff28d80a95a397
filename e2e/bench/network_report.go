package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// networkReport is all that was measured of the network.
type networkReport struct {
	Begin       time.Time `json:"begin"`
	Took        float64   `json:"tookSeconds"`
	Machine     machine   `json:"machine"`
	Each        float64   `json:"secondsOfEachLoad"`
	MemoryLimit int       `json:"memoryLimitMiB"`
	// Summary has the figures by load, path and name.
	Summary map[string]map[string]map[string]spread `json:"summary"`
	Goals   []goal                                  `json:"goals"`
	Pairs   []networkPair                           `json:"pairs"`
}

// flowFigure is a figure of the loads of some kinds. A ratio is by the bare tunnel of the same
// pair.
type flowFigure struct {
	name, ratio   string // in JSON
	title, format string // of its table
	kinds         []string
	of            func(flow) float64
}

func flowFigures() []flowFigure {
	all := []string{kindTCP, kindUDP, kindRTT}
	return []flowFigure{
		{"rate", "ratio", "Rate", "%.2f", all, func(f flow) float64 { return f.Rate }},
		{"p99", "p99Ratio", "99th percentile", "%.2f", []string{kindRTT}, func(f flow) float64 { return f.Rare }},
		{"cpuSecondsPerGB", "cpuRatio", "CPU seconds of both ends of the tunnel, for 10^9 bytes that arrived", "%.2f", []string{kindTCP}, func(f flow) float64 { return f.CPU }},
		{"cpuMicrosecondsPerPacket", "packetRatio", "CPU microseconds of both ends of the tunnel, for a packet that arrived", "%.1f", []string{kindUDP}, func(f flow) float64 { return f.Packet }},
		{"peakMB", "peakRatio", "Peak memory of the larger end of the tunnel (VmHWM), MB", "%.0f", all, func(f flow) float64 { return f.PeakMB }},
	}
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
	r.Summary = map[string]map[string]map[string]spread{}
	for _, t := range trafficLoads() {
		r.Summary[t.name] = map[string]map[string]spread{}
		for _, path := range pathNames() {
			r.Summary[t.name][path] = map[string]spread{}
			for _, f := range flowFigures() {
				r.add(t.name, path, f)
			}
		}
		if t.kind == kindTCP {
			r.judge(t.name)
		}
	}
}

// add spreads a figure over the pairs.
func (r *networkReport) add(load, path string, f flowFigure) {
	var values, ratios []float64
	for _, p := range r.Pairs {
		value, bare := f.of(p[load][path]), f.of(p[load][pathBare])
		values = append(values, value)
		if bare > 0 {
			ratios = append(ratios, value/bare)
		}
	}
	r.Summary[load][path][f.name], r.Summary[load][path][f.ratio] = newSpread(values), newSpread(ratios)
}

func (r *networkReport) judge(load string) {
	gateways, pods := r.Summary[load][pathGateways], r.Summary[load][pathPods]
	rate, cpu, podRate := gateways["ratio"].Median, gateways["cpuRatio"].Median, pods["ratio"].Median
	r.Goals = append(r.Goals,
		goal{fmt.Sprintf("gateways: at least %.2f of the rate", leastGateways), load, rate, rate >= leastGateways},
		goal{fmt.Sprintf("gateways: at most %.2f of the CPU per GB", mostGatewayCPU), load, cpu, cpu <= mostGatewayCPU},
		goal{fmt.Sprintf("pods: at least %.2f of the rate", leastPods), load, podRate, podRate >= leastPods},
	)
}

// print writes the report for people.
func (r *networkReport) print(out io.Writer) {
	fmt.Fprintf(out, "\nNetwork: %d pairs, %g s for each load on each path; %s; medians, and from least to most; GOMEMLIMIT of an end (0: none): %d MiB\n",
		len(r.Pairs), r.Each, r.Machine, r.MemoryLimit)
	for _, f := range flowFigures() {
		fmt.Fprintf(out, "\n%s\n", f.title)
		table(out, r.rows(f))
	}
	fmt.Fprintln(out, "\nMedian ratios to the bare tunnel")
	rows := [][]string{{"", "GOAL", "MEASURED", ""}}
	for _, g := range r.Goals {
		rows = append(rows, []string{g.Load, g.Text, fmt.Sprintf("%.2f", g.Value), map[bool]string{true: "reached", false: "NOT reached"}[g.Met]})
	}
	table(out, rows)
}

// rows has a line for each load of the figure's kinds.
func (r *networkReport) rows(f flowFigure) [][]string {
	rows := [][]string{{"", "RAW", "BARE WIREGUARD-GO", "GATEWAYS", "PODS", "GATEWAYS / BARE", "PODS / BARE"}}
	for _, t := range trafficLoads() {
		if !slices.Contains(f.kinds, t.kind) {
			continue
		}
		row := []string{t.name}
		for _, path := range pathNames() {
			row = append(row, shown(r.Summary[t.name][path][f.name], f.format))
		}
		for _, path := range []string{pathGateways, pathPods} {
			row = append(row, shown(r.Summary[t.name][path][f.ratio], "%.2f"))
		}
		rows = append(rows, row)
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
