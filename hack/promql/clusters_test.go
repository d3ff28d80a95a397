package promql

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// mixing returns an error for each part of an expression that takes the metrics of several clusters
// together. In a dashboard each metric must also be one of the chosen clusters.
func mixing(expr string, dashboard bool) error {
	tree, err := parse().ParseExpr(expr)
	if err != nil {
		return err
	}
	var found []error
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		if node != nil && mixes(node, path, dashboard) {
			found = append(found, fmt.Errorf("%s: without the label cluster", node))
		}
		return nil
	})
	return errors.Join(found...)
}

// mixes says whether one part of an expression does.
func mixes(node parser.Node, path []parser.Node, dashboard bool) bool {
	switch n := node.(type) {
	case *parser.AggregateExpr:
		return n.Without == slices.Contains(n.Grouping, "cluster")
	case *parser.BinaryExpr:
		m := n.VectorMatching
		return m != nil && !isDefault(n) && m.On != slices.Contains(m.MatchingLabels, "cluster")
	case *parser.Call:
		return strings.HasPrefix(n.Func.Name, "absent") && !slices.ContainsFunc(path, isDefault)
	case *parser.VectorSelector:
		return dashboard && !slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == "cluster" && m.Type == labels.MatchRegexp && m.Value == "$cluster"
		})
	}
	return false
}

// isDefault says whether a part is "… or on () …": what holds while no cluster has a value.
func isDefault(node parser.Node) bool {
	b, ok := node.(*parser.BinaryExpr)
	return ok && b.Op == parser.LOR && b.VectorMatching.On && len(b.VectorMatching.MatchingLabels) == 0
}

// TestMixing: the check finds each way to take clusters together.
func TestMixing(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string][2]bool{ // in an alert, in a dashboard
		`max by (cluster, peer) (a) == 0`:                            {false, true},
		`max by (cluster, peer) (a{cluster=~"$cluster"}) == 0`:       {false, false},
		`max by (cluster) (a{cluster=~"$cluster"}) / b`:              {false, true},
		`rate(a{cluster="$cluster"}[5m])`:                            {false, true},
		`max by (peer) (a{cluster=~"$cluster"})`:                     {true, true},
		`max(a{cluster=~"$cluster"})`:                                {true, true},
		`max without (pod) (a{cluster=~"$cluster"})`:                 {false, false},
		`max without (cluster) (a{cluster=~"$cluster"})`:             {true, true},
		`a{cluster=~"$cluster"} / a{cluster=~"$cluster"}`:            {false, false},
		`a unless on (peer) b`:                                       {true, true},
		`a unless on (cluster, peer) b`:                              {false, true},
		`a / ignoring (pod) b`:                                       {false, true},
		`a / ignoring (cluster) b`:                                   {true, true},
		`absent(a{cluster=~"$cluster"})`:                             {true, true},
		`absent_over_time(a{cluster=~"$cluster"}[5m])`:               {true, true},
		`a{cluster=~"$cluster"} or on () absent(b)`:                  {false, true},
		`a{cluster=~"$cluster"} or on () vector(0)`:                  {false, false},
		`a and on () b`:                                              {true, true},
		`histogram_quantile(0.9, sum by (le) (a{cluster="x"})) > 1`:  {true, true},
		`sum by (cluster) (max by (pod) (a{cluster=~"$cluster"}))`:   {true, true},
		`min by (cluster) (a{cluster=~"$cluster"} - time()) < 7 * 2`: {false, false},
	} {
		require.Equal(t, want[0], mixing(expr, false) != nil, "alert: %s", expr)
		require.Equal(t, want[1], mixing(expr, true) != nil, "dashboard: %s", expr)
	}
}

// of is the recording as a store of several clusters has it.
func (r recording) of(cluster string) recording {
	out := recording{times: r.times}
	for _, s := range r.series {
		b := labels.NewBuilder(s.labels)
		b.Set("cluster", cluster)
		out.series = append(out.series, series{b.Labels(), s.points})
	}
	return out
}

// beside has the series of another recording too, as if both had ended at once.
func (r recording) beside(other recording) recording {
	later := r.end().Sub(other.end())
	out := recording{times: r.times, series: slices.Clone(r.series)}
	for _, s := range other.series {
		moved := series{labels: s.labels}
		for _, p := range s.points {
			if strings.HasSuffix(s.labels.Get(labels.MetricName), "_timestamp_seconds") {
				p.value += later.Seconds()
			}
			moved.points = append(moved.points, point{p.ms + later.Milliseconds(), p.value})
		}
		out.series = append(out.series, moved)
	}
	return out
}

// TestAlertsKeepClusters: each alert fires for the cluster that has its fault, and for no other, with
// healthy clusters beside it that have the same peer.
func TestAlertsKeepClusters(t *testing.T) {
	well := read(t, "healthy-rome").of("well").beside(read(t, "healthy-milan").of("fine"))
	for _, a := range alerts(t) {
		require.NoError(t, mixing(a.Expr, false), a.Alert)
		fired := firing(t, a, faults[a.Alert].load(t).of("ill").beside(well))
		require.NotEmpty(t, fired, a.Alert)
		for _, result := range fired {
			require.Contains(t, result, `cluster="ill"`, a.Alert)
		}
	}
}

// TestNoActiveControllerAtAll: without any metric the alert fires once; the first cluster with a
// controller ends it, and one without is named.
func TestNoActiveControllerAtAll(t *testing.T) {
	all := alerts(t)
	a := all[slices.IndexFunc(all, func(a alert) bool { return a.Alert == "LiqodNoActiveController" })]
	down := read(t, "controller-down-rome")
	at := down.end().Add(time.Hour)
	nothing := recording{times: down.times}
	require.Len(t, nothing.query(t, a.Expr, at), 1)
	gone := down.of("ill").beside(read(t, "healthy-rome").of("gone")) // an hour ago
	require.ElementsMatch(t, []string{`{cluster="gone"}`, `{cluster="ill"}`}, slices.Collect(maps.Keys(gone.query(t, a.Expr, at))))
}

// TestDashboardsKeepClusters: each query shows of a chosen cluster what it shows where there is no
// other, and with all clusters chosen the same beside the others.
func TestDashboardsKeepClusters(t *testing.T) {
	one, other := read(t, "healthy-rome").of("one"), read(t, "provider-down-rome").of("other")
	both := one.beside(other)
	for name, d := range dashboards(t) {
		require.Equal(t, "cluster", d.Templating.List[1].Name, name)
		for _, v := range d.Templating.List[2:] {
			require.Contains(t, v.Query, `{cluster=~"$cluster"}`, name)
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				require.NoError(t, mixing(target.Expr, true), "%s: %s", name, p.Title)
				want := one.values(t, target.Expr, "milan")
				chosen := strings.ReplaceAll(target.Expr, "$cluster", "one")
				require.Equal(t, want, both.values(t, chosen, "milan"), "%s: %s: %s", name, p.Title, target.Expr)
				all := both.values(t, target.Expr, "milan")
				for result, v := range want {
					if strings.Contains(result, `cluster="one"`) {
						require.Equal(t, v, all[result], "%s: %s: %s: %s", name, p.Title, result, target.Expr)
					}
				}
			}
		}
	}
}
