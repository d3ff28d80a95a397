package main

import (
	"fmt"
	"io"
	"time"
)

// continuityReport is all that was measured of continuity.
type continuityReport struct {
	Begin    time.Time          `json:"begin"`
	Took     float64            `json:"tookSeconds"`
	Machine  machine            `json:"machine"`
	Rounds   int                `json:"roundsOfEach"`
	Patience float64            `json:"patienceSeconds"`
	Results  []continuityResult `json:"results"`
	Goals    []continuityGoal   `json:"goals"`
}

// continuityResult is one case.
type continuityResult struct {
	continuityCase
	Summary continuitySummary `json:"summary"`
	Rounds  []continuityRound `json:"rounds"`
}

// continuitySummary sums several rounds up.
type continuitySummary struct {
	Condition  latency `json:"condition"`
	Node       latency `json:"nodeNotReady"`
	Endpoint   latency `json:"endpointOut"`
	After      latency `json:"endpointAfterCondition"`
	LastFailed latency `json:"lastFailedRequest"`
	Requests   int     `json:"requests"`
	Failed     int     `json:"failedRequests"`
	// The return.
	Undone          float64 `json:"undoneSecondsWorst"`
	ConditionBack   latency `json:"conditionBack"`
	NodeBack        latency `json:"nodeReady"`
	EndpointBack    latency `json:"endpointReady"`
	LastFailedAgain latency `json:"lastFailedRequestAfterUndoing"`
	Whole           latency `json:"whole"`
	Changed         int     `json:"changedPods"`
}

// continuityGoal is a worst case that a case is to keep.
type continuityGoal struct {
	continuityCase
	Text  string `json:"text"`
	Value string `json:"value"`
	Met   bool   `json:"met"`
}

// The goals, in seconds, of the worst round.
const (
	worstCondition = 3.0
	worstEndpoint  = 1.0 // after the condition
)

func (r *continuityReport) summarize() {
	for i := range r.Results {
		r.Results[i].summarize()
		r.Goals = append(r.Goals, r.Results[i].judge()...)
	}
}

func (c *continuityResult) summarize() {
	of := func(get func(continuityRound) delay) latency {
		delays := make([]delay, 0, len(c.Rounds))
		for _, round := range c.Rounds {
			delays = append(delays, get(round))
		}
		return newLatency(delays)
	}
	c.Summary = continuitySummary{
		Condition:       of(func(r continuityRound) delay { return r.Condition }),
		Node:            of(func(r continuityRound) delay { return r.Node }),
		Endpoint:        of(func(r continuityRound) delay { return r.Endpoint }),
		After:           of(func(r continuityRound) delay { return r.After }),
		LastFailed:      of(func(r continuityRound) delay { return r.LastFailed }),
		ConditionBack:   of(func(r continuityRound) delay { return r.Return.Condition }),
		NodeBack:        of(func(r continuityRound) delay { return r.Return.Node }),
		EndpointBack:    of(func(r continuityRound) delay { return r.Return.Endpoint }),
		LastFailedAgain: of(func(r continuityRound) delay { return r.Return.LastFailed }),
		Whole:           of(func(r continuityRound) delay { return r.Return.Whole }),
	}
	for _, round := range c.Rounds {
		c.Summary.Requests += round.Requests
		c.Summary.Failed += round.Failed
		c.Summary.Changed += len(round.Changed)
		c.Summary.Undone = max(c.Summary.Undone, round.Return.Undone)
	}
}

// judge compares a case with the goals. Where no condition tells of a fault, Kubernetes'
// own patience with a node counts, and only that nothing is made twice is a goal.
func (c *continuityResult) judge() []continuityGoal {
	s := c.Summary
	var goals []continuityGoal
	for _, g := range []struct {
		text string
		l    latency
		most float64
	}{{"condition: at most %g s", s.Condition, worstCondition}, {"endpoint out: at most %g s after it", s.After, worstEndpoint}} {
		if g.l.Of > 0 {
			goals = append(goals, continuityGoal{c.continuityCase, fmt.Sprintf(g.text, g.most), g.l.Worst.String(), g.l.Worst.State == came && g.l.Worst.Seconds <= g.most})
		}
	}
	return append(goals, continuityGoal{c.continuityCase, "no pod made or started again", fmt.Sprint(s.Changed), s.Changed == 0})
}

// text is the median and the worst, and of how many there was none.
func (l latency) text() string {
	if l.Of == 0 {
		return "-"
	}
	text := l.Median.String() + " / " + l.Worst.String()
	if l.Never > 0 && l.Never < l.Of {
		text += fmt.Sprintf(" (%d of %d)", l.Never, l.Of)
	}
	return text
}

// print writes the report for people.
func (r *continuityReport) print(out io.Writer) {
	fmt.Fprintf(out, "\nContinuity: %d rounds of each; %d CPUs (%s), Linux %s, %s; seconds, median / worst\n",
		r.Rounds, r.Machine.CPUs, r.Machine.Model, r.Machine.Kernel, r.Machine.Go)
	for _, f := range faults() {
		fmt.Fprintf(out, "  %s: %s\n", f.name, f.text)
	}
	fmt.Fprintf(out, "\nFrom the fault, seen from the cluster that lives; never: not within %g s, or %g s where a node dies, with which Kubernetes has patience; -: not to come\n",
		r.Patience, r.Patience+nodeGrace.Seconds())
	rows := [][]string{{"PEERING", "FAULT", "HIT", "CONDITION", "NODE NOT READY", "ENDPOINT OUT", "AFTER CONDITION", "LAST FAILED REQUEST", "FAILED"}}
	for _, c := range r.Results {
		s := c.Summary
		rows = append(rows, []string{c.Way, c.Fault, c.Hit, s.Condition.text(), s.Node.text(), s.Endpoint.text(), s.After.text(),
			s.LastFailed.text(), fmt.Sprintf("%d of %d", s.Failed, s.Requests)})
	}
	table(out, rows)
	fmt.Fprintln(out, "\nFrom the beginning of its undoing")
	rows = [][]string{{"PEERING", "FAULT", "HIT", "UNDONE (WORST)", "CONDITION", "NODE READY", "ENDPOINT READY", "LAST FAILED REQUEST", "ALL WELL", "PODS CHANGED"}}
	for _, c := range r.Results {
		s := c.Summary
		rows = append(rows, []string{c.Way, c.Fault, c.Hit, fmt.Sprintf("%.2f", s.Undone), s.ConditionBack.text(), s.NodeBack.text(),
			s.EndpointBack.text(), s.LastFailedAgain.text(), s.Whole.text(), fmt.Sprint(s.Changed)})
	}
	table(out, rows)
	r.printChanged(out)
	r.printGoals(out)
}

// printGoals lists the goals that are missed; the figures have the others, too.
func (r *continuityReport) printGoals(out io.Writer) {
	rows := [][]string{{"PEERING", "FAULT", "HIT", "GOAL", "MEASURED", ""}}
	for _, g := range r.Goals {
		if !g.Met {
			rows = append(rows, []string{g.Way, g.Fault, g.Hit, g.Text, g.Value, "NOT reached"})
		}
	}
	missed := len(rows) - 1
	fmt.Fprintf(out, "\nGoals, of the worst round: condition at most %g s after the fault, endpoint out at most %g s after the condition, no pod made or started again.\n%d of %d are reached\n",
		worstCondition, worstEndpoint, len(r.Goals)-missed, len(r.Goals))
	if missed > 0 {
		table(out, rows)
	}
}

// printChanged names the pods that were made or started again.
func (r *continuityReport) printChanged(out io.Writer) {
	for _, c := range r.Results {
		for i, round := range c.Rounds {
			for _, what := range round.Changed {
				fmt.Fprintf(out, "  %s, %s, %s, round %d: %s\n", c.Way, c.Fault, c.Hit, i+1, what)
			}
		}
	}
}
