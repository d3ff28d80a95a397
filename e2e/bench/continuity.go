package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// continuityOptions say what breaks, and how often.
type continuityOptions struct {
	pairs    int
	patience time.Duration
	// faults, hits and ways are lists with commas between; empty: all.
	faults, hits, ways string
	out                string
}

// continuityPairs are the rounds of each case without --pairs: the worst of few says little.
const continuityPairs = 10

// The cluster that a fault hits. The other one lives, and is looked at.
const (
	hitProvider = "provider"
	hitConsumer = "consumer"
)

// Ways of peering.
const (
	oneWay = "one-way"
	twoWay = "two-way"
)

func (o *continuityOptions) flags(flags *flag.FlagSet) {
	flags.StringVar(&o.faults, "faults", "", "with commas between, of "+strings.Join(faultNames(), ", ")+"; empty: all")
	flags.StringVar(&o.hits, "hit", "", hitProvider+" or "+hitConsumer+": the cluster that a fault hits; empty: both, in turns")
	flags.StringVar(&o.ways, "ways", "", oneWay+" or "+twoWay+" peering; empty: both")
	flags.DurationVar(&o.patience, "patience", 30*time.Second, "what has not come so long after a fault never comes")
	flags.StringVar(&o.out, "continuity-out", filepath.Join("bin", "bench-continuity.json"), "file for the figures of continuity")
}

func (o *continuityOptions) check() error {
	if o.patience < 5*time.Second {
		return fmt.Errorf("--patience is %s: at least 5s is accepted", o.patience)
	}
	var errs []error
	for _, list := range []struct {
		flag, value string
		all         []string
	}{{"faults", o.faults, faultNames()}, {"hit", o.hits, hitNames()}, {"ways", o.ways, wayNames()}} {
		_, err := chosen(list.flag, list.value, list.all)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func hitNames() []string { return []string{hitProvider, hitConsumer} }

func wayNames() []string { return []string{oneWay, twoWay} }

// chosen are the names of a list with commas between, in the order of all; all if it is empty.
func chosen(flag, list string, all []string) ([]string, error) {
	if list == "" {
		return all, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("--%s names %q: %s are accepted, with commas between", flag, name, strings.Join(all, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !slices.Contains(names, name) }), nil
}

// plan lists the cases in the order in which they are measured: of each way of peering all
// faults, in one cluster and then in the other.
func (o *continuityOptions) plan() (cases []continuityCase, err error) {
	faults, err := chosen("faults", o.faults, faultNames())
	if err != nil {
		return nil, err
	}
	hits, err := chosen("hit", o.hits, hitNames())
	if err != nil {
		return nil, err
	}
	ways, err := chosen("ways", o.ways, wayNames())
	if err != nil {
		return nil, err
	}
	for _, way := range ways {
		for _, fault := range faults {
			for _, hit := range hits {
				cases = append(cases, continuityCase{Way: way, Fault: fault, Hit: hit})
			}
		}
	}
	return cases, nil
}

// measureContinuity breaks one of two clusters of real nodes in each way and looks, from
// the other one, how long it takes until that is known and until no client notices any more.
// What was measured before an error is reported, too.
func measureContinuity(ctx context.Context, o continuityOptions) (err error) {
	cases, err := o.plan()
	if err != nil {
		return err
	}
	r := continuityReport{Machine: thisMachine(), Begin: time.Now(), Rounds: o.pairs, Patience: o.patience.Seconds()}
	w, err := newContinuity(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, c := range cases {
		result := continuityResult{continuityCase: c}
		for i := 0; i < o.pairs && err == nil; i++ {
			logf("continuity: %s, %s, the %s is hit: round %d of %d", c.Way, c.Fault, c.Hit, i+1, o.pairs)
			var round continuityRound
			if round, err = w.round(ctx, c); err == nil {
				logf("continuity: %s", round)
				result.Rounds = append(result.Rounds, round)
			}
		}
		if len(result.Rounds) > 0 {
			r.Results = append(r.Results, result)
		}
		if err != nil {
			err = fmt.Errorf("%s, %s, the %s is hit: %w", c.Way, c.Fault, c.Hit, err)
			break
		}
	}
	r.Took = time.Since(r.Begin).Seconds()
	r.summarize()
	r.print(os.Stdout)
	return errors.Join(err, writeJSON(o.out, r))
}
