package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// rare is how few requests per pod are put together in one line.
const rare = 0.05

// print writes the report for people.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d pods, %d pairs; %d CPUs (%s), Linux %s, %s; medians, and from least to most\n",
		r.Pods, len(r.Pairs), r.Machine.CPUs, r.Machine.Model, r.Machine.Kernel, r.Machine.Go)
	printGuards(out, r.Guards)
	table(out, r.speedRows())
	r.printPaced(out)
	fmt.Fprintf(out, "\nCPU seconds for the creation and deletion of %d pods\n", r.Pods)
	table(out, cpuRows(r.Summary.CPU))
	fmt.Fprintln(out, "\nPeak memory (VmHWM), MB")
	table(out, numbers(r.Peaks, "%.1f"))
	fmt.Fprintln(out, "\nRequests per pod, creation to end, at both API servers")
	table(out, r.requestRows())
	fmt.Fprintf(out, "\nStatus per pod: written %.2f times at home, changed %.2f times in the provider\n", r.Summary.Statuses.Home, r.Summary.Statuses.Remote)
	r.printIdle(out)
	r.printRestart(out)
	if r.Large != nil {
		r.Large.print(out)
	}
}

func table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	// What cannot be printed cannot be told of either.
	_ = w.Flush()
}

func (r *report) speedRows() [][]string {
	rows := [][]string{{"", "LIQOD", "MIRROR", "LIQOD / MIRROR"}}
	for _, p := range []struct {
		name string
		c    comparison
	}{{"creation", r.Summary.Create}, {"deletion", r.Summary.Delete}} {
		for _, line := range []struct {
			name, format string
			of           func(figures) spread
		}{
			{"pods/s", "%.0f", func(f figures) spread { return f.PodsPerSecond }},
			{"seconds", "%.2f", func(f figures) spread { return f.Seconds }},
			{"p50 ms", "%.0f", func(f figures) spread { return f.P50 }},
			{"p99 ms", "%.0f", func(f figures) spread { return f.P99 }},
			{"CPU s", "%.2f", func(f figures) spread { return f.CPU }},
		} {
			rows = append(rows, []string{
				p.name + " " + line.name, line.of(p.c.Offloading).text(line.format), line.of(p.c.Mirror).text(line.format), line.of(p.c.Ratio).text("%.2f"),
			})
		}
	}
	return rows
}

func (s spread) text(format string) string {
	return fmt.Sprintf(format+" ("+format+" - "+format+")", s.Median, s.Min, s.Max)
}

func (r *report) printPaced(out io.Writer) {
	if r.Paced == nil {
		return
	}
	fmt.Fprintf(out, "\nAt %d pods a second, ms from creation to Running\n", pacedRate)
	rows := [][]string{{"", "P50", "P99", "MAX"}}
	for _, line := range []struct {
		name string
		p    phase
	}{{"liqod", r.Paced.Offloading.Create}, {mirrorName, r.Paced.Mirror.Create}} {
		rows = append(rows, []string{line.name, fmt.Sprintf("%.0f", line.p.P50), fmt.Sprintf("%.0f", line.p.P99), fmt.Sprintf("%.0f", line.p.Max)})
	}
	table(out, rows)
	fmt.Fprintf(out, "P99 of liqod by that of the mirror: %.2f\n", r.Paced.Offloading.Create.P99/r.Paced.Mirror.Create.P99)
}

// cpuRows begin with the processes that use most.
func cpuRows(cpu map[string]map[string]spread) [][]string {
	liqod, mirror := cpu["liqod"], cpu[mirrorName]
	names := slices.SortedFunc(maps.Keys(liqod), func(a, b string) int {
		return cmp.Or(cmp.Compare(liqod[b].Median, liqod[a].Median), strings.Compare(a, b))
	})
	rows := [][]string{{"", "WITH LIQOD", "WITH MIRROR"}}
	sums := [2]float64{}
	for _, name := range names {
		rows = append(rows, []string{name, liqod[name].text("%.2f"), mirror[name].text("%.2f")})
		sums[0] += liqod[name].Median
		sums[1] += mirror[name].Median
	}
	return append(rows, []string{"all", fmt.Sprintf("%.2f", sums[0]), fmt.Sprintf("%.2f", sums[1])})
}

func numbers(values map[string]float64, format string) (rows [][]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		rows = append(rows, []string{name, fmt.Sprintf(format, values[name])})
	}
	return rows
}

// requestRows have a line for each kind of request of a role, and one for all of the rest.
func (r *report) requestRows() [][]string {
	rows := [][]string{{"WITH", "AT", "WHO", "VERB", "RESOURCE", "CREATION", "DELETION", "PER POD"}}
	for _, name := range []string{"liqod", mirrorName} {
		rest, others := 0.0, map[string]float64{}
		for _, c := range r.Requests {
			switch {
			case c.Contestant != name:
			case !isRole(c.Who):
				others[c.Who] += c.PerPod
			case c.PerPod < rare:
				rest += c.PerPod
			default:
				rows = append(rows, []string{name, c.Cluster, c.Who, c.Verb, c.Resource, fmt.Sprint(c.Create), fmt.Sprint(c.Delete), fmt.Sprintf("%.2f", c.PerPod)})
			}
		}
		rows = append(rows,
			[]string{name, "both", "", "", "all that is rarer", "", "", fmt.Sprintf("%.2f", rest)},
			[]string{name, "both", "", "", "all of these", "", "", fmt.Sprintf("%.2f", r.Summary.RequestsPerPod[name])})
		for _, who := range slices.Sorted(maps.Keys(others)) {
			if others[who] < rare {
				continue
			}
			rows = append(rows, []string{name, "both", who, "", "not counted above", "", "", fmt.Sprintf("%.2f", others[who])})
		}
	}
	return rows
}

func (r *report) printIdle(out io.Writer) {
	if r.Idle == nil {
		return
	}
	fmt.Fprintf(out, "\nIdle for %.0f s with %d pods, %.0f s after the load, when nothing was written any more: percent of a core\n",
		r.Idle.Seconds, r.Idle.Pods, r.Idle.Settled)
	table(out, numbers(r.Idle.CPU, "%.2f"))
	fmt.Fprintln(out, "Requests of the roles in that time")
	printRequests(out, r.Idle.Requests)
}

func (r *report) printRestart(out io.Writer) {
	if r.Restart == nil {
		return
	}
	fmt.Fprintf(out, "\nRestart of the vkubelet with %d pods: caught up after %.2f s, %d writes (leases aside), %d pods changed, peak %.1f MB\n",
		r.Restart.Pods, r.Restart.Seconds, r.Restart.Writes, r.Restart.Changed, r.Restart.PeakMB)
	printRequests(out, r.Restart.Requests)
}

func printRequests(out io.Writer, requests []idleRequest) {
	rows := [][]string{{"AT", "WHO", "VERB", "RESOURCE", "COUNT"}}
	for _, x := range requests {
		rows = append(rows, []string{x.Cluster, x.Who, x.Verb, x.Resource, fmt.Sprint(x.Count)})
	}
	table(out, rows)
}
