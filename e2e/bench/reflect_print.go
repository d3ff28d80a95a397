package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// print writes the report for people.
func (r *objectReport) print(out io.Writer) {
	fmt.Fprintf(out, "\nReflection: %d each of %s, %d pairs; %d CPUs (%s), Linux %s, %s; medians, and from least to most\n",
		r.Each, strings.Join(r.Kinds, ", "), len(r.Pairs), r.Machine.CPUs, r.Machine.Model, r.Machine.Kernel, r.Machine.Go)
	table(out, speedRows(r.Summary.Steps))
	if len(r.Paced) > 0 {
		fmt.Fprintf(out, "\nAt %d changes a second, %d pairs\n", r.Rate, len(r.Paced))
		table(out, speedRows(r.Summary.Paced))
	}
	if len(r.InTurn) > 0 {
		fmt.Fprintf(out, "\nWith %d changes under way at any time, %d pairs\n", senders, len(r.InTurn))
		table(out, speedRows(r.Summary.InTurn))
	}
	if r.Stream != nil {
		printSingle(out, fmt.Sprintf("While the provider tells %d events a second (%d told, %d came home)", r.Stream.PerSecond, r.Stream.Written, r.Stream.Home), r.Events)
	}
	fmt.Fprintf(out, "\nCPU seconds for the creation, update and deletion of %d objects\n", r.Each*len(r.Kinds))
	table(out, cpuRows(r.Summary.CPU))
	fmt.Fprintln(out, "\nPeak memory (VmHWM), MB")
	table(out, numbers(r.Peaks, "%.1f"))
	fmt.Fprintln(out, "\nWrites in the provider for one change of one object; in brackets those of the provider's own controller")
	table(out, r.writeRows())
	fmt.Fprintln(out, "\nRequests of the roles at both API servers")
	table(out, r.requestRows())
	if r.Idle != nil {
		fmt.Fprintf(out, "\nIdle for %.0f s with %d objects, %.0f s after the load, when nothing was written any more: percent of a core\n",
			r.Idle.Seconds, r.Idle.Pods, r.Idle.Settled)
		table(out, numbers(r.Idle.CPU, "%.2f"))
	}
	if r.Restart != nil {
		fmt.Fprintf(out, "\nRestart of the vkubelet with %d objects: caught up after %.2f s, %d writes (leases aside), %d objects changed, peak %.1f MB\n",
			r.Restart.Pods, r.Restart.Seconds, r.Restart.Writes, r.Restart.Changed, r.Restart.PeakMB)
		printRequests(out, r.Restart.Requests)
	}
	if r.Spread != nil {
		r.Spread.print(out)
	}
}

func speedRows(steps []objectComparison) [][]string {
	rows := [][]string{{"", "", "", "LIQOD", "MIRROR", "LIQOD / MIRROR"}}
	for _, c := range steps {
		for _, line := range []struct {
			name string
			of   func(objectSpreads) spread
		}{
			{"objects/s", func(s objectSpreads) spread { return s.PerSecond }},
			{"p50 ms", func(s objectSpreads) spread { return s.P50 }},
			{"p99 ms", func(s objectSpreads) spread { return s.P99 }},
		} {
			rows = append(rows, []string{
				c.Step, cmp.Or(c.Kind, "all"), line.name, line.of(c.Offloading).text("%.0f"), line.of(c.Mirror).text("%.0f"), line.of(c.Ratio).text("%.2f"),
			})
		}
	}
	return rows
}

// printSingle is for one round of each.
func printSingle(out io.Writer, title string, p *objectPair) {
	if p == nil {
		return
	}
	fmt.Fprintf(out, "\n%s, ms from the change at home to the provider\n", title)
	rows := [][]string{{"", "", "OBJECTS/S", "P50", "P99", "MAX"}}
	for _, step := range objectStepPhases() {
		for _, line := range []struct {
			name string
			r    objectRound
		}{{"liqod", p.Offloading}, {mirrorName, p.Mirror}} {
			f := step.of(line.r).objectFigures
			rows = append(rows, []string{step.name, line.name, fmt.Sprintf("%.0f", f.PerSecond), fmt.Sprintf("%.0f", f.P50), fmt.Sprintf("%.0f", f.P99), fmt.Sprintf("%.0f", f.Max)})
		}
	}
	table(out, rows)
}

func (r *objectReport) writeRows() [][]string {
	rows := [][]string{{"", "KIND", "CREATE", "UPDATE", "DELETE"}}
	text := func(own, real float64) string {
		if real == 0 {
			return fmt.Sprintf("%.3f", own)
		}
		return fmt.Sprintf("%.3f (%.3f)", own, real)
	}
	for _, w := range r.Writes {
		rows = append(rows, []string{w.Contestant, w.Kind, text(w.Create, w.RealCreate), text(w.Update, w.RealUpdate), text(w.Delete, w.RealDelete)})
	}
	return rows
}

func (r *objectReport) requestRows() [][]string {
	rows := [][]string{{"WITH", "AT", "WHO", "VERB", "RESOURCE", "CREATE", "UPDATE", "DELETE", "PER OBJECT"}}
	for _, name := range []string{"liqod", mirrorName} {
		rest := 0.0
		for _, c := range r.Requests {
			switch {
			case c.Contestant != name:
			case c.PerObject < rare/float64(len(r.Kinds)):
				rest += c.PerObject
			default:
				rows = append(rows, []string{name, c.Cluster, c.Who, c.Verb, c.Resource, fmt.Sprint(c.Create), fmt.Sprint(c.Update), fmt.Sprint(c.Delete), fmt.Sprintf("%.2f", c.PerObject)})
			}
		}
		rows = append(rows,
			[]string{name, "both", "", "", "all that is rarer", "", "", "", fmt.Sprintf("%.2f", rest)},
			[]string{name, "both", "", "", "all of these", "", "", "", fmt.Sprintf("%.2f", r.Summary.RequestsPerObject[name])})
	}
	return rows
}

func (s *spreadOut) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d namespaces with %d each of %s, %d objects: all in the provider after %.1f s; the vkubelet restarts in %.2f s\n",
		s.Namespaces, s.Each, strings.Join(s.Kinds, ", "), s.Objects, s.Opening, s.AgainSeconds)
	rows := [][]string{{"", "MB: ONE NAMESPACE", "MANY", "AFTER A RESTART", "IDLE % OF A CORE: ONE", "MANY", "AFTER A RESTART"}}
	for _, name := range slices.Sorted(maps.Keys(s.Many.MB)) {
		row := []string{name}
		for _, f := range []footprint{s.One, s.Many, s.Again} {
			row = append(row, fmt.Sprintf("%.1f", f.MB[name]))
		}
		for _, f := range []footprint{s.One, s.Many, s.Again} {
			row = append(row, fmt.Sprintf("%.2f", f.Idle.CPU[name]))
		}
		rows = append(rows, row)
	}
	table(out, rows)
	fmt.Fprintf(out, "Requests of the roles while idle with many, in %.0f s\n", s.Many.Idle.Seconds)
	printRequests(out, s.Many.Idle.Requests)
}
