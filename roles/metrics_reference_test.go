package roles

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

const metricsPath = "../docs/metrics.md"

const metricsHead = `<!-- Generated from the registered metrics: go test ./roles -run TestMetricsReference -update -->

# Metrics

Every role serves its metrics at ` + "`/metrics`" + ` of ` + "`server.address`" + ` (in the chart: port ` + "`health`" + `, 8080; of role route
` + "`networking.route.healthPort`" + `). [monitoring.md](monitoring.md) says how to scrape them, and which alerts and
dashboards the chart has.

- A name begins with ` + "`liqod_`" + `, its end is the unit. Besides, each role serves the metrics of the Go runtime (` + "`go_…`" + `) and of
  the process (` + "`process_…`" + `).
- A counter begins again at 0 when the process starts again. A histogram has the series ` + "`_bucket`, `_sum` and `_count`" + `.
- Label ` + "`peer`" + ` is the id of a cluster, as in ` + "`spec.clusterID`" + ` of its ForeignCluster.
- A label whose values other clusters or users choose has at most 256 values. Further ones are counted as ` + "`(rest)`" + `, or left out
  where a sum has no meaning.
- The state of peers, virtual nodes and pods comes from the active replica only. So a sum over all replicas is right.
`

// metric is one registered metric.
type metric struct {
	name, kind, help string
	labels           []string
	roles            []string
}

// recorder records the metrics that are registered.
type recorder struct {
	*prometheus.Registry

	have map[string]metric
}

func newRecorderOfMetrics() *recorder {
	return &recorder{Registry: prometheus.NewRegistry(), have: map[string]metric{}}
}

var description = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}\}$`)

func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 1000)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		match := description.FindStringSubmatch(d.String())
		if match == nil {
			return fmt.Errorf("%s is not understood", d)
		}
		name, _ := strconv.Unquote(match[1])
		help, _ := strconv.Unquote(match[2])
		m := metric{name: name, help: help, kind: kindOf(c, name)}
		if match[3] != "" {
			m.labels = strings.Split(match[3], ",")
		}
		r.have[name] = m
	}
	return r.Registry.Register(c)
}

// kindOf returns the type of a metric. The collectors of this repository send gauges, and
// counters whose names end in _total.
func kindOf(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// registered returns the metrics that the process and its roles register, by name.
func registered(t *testing.T) map[string]metric {
	t.Helper()
	t.Setenv("POD_NAME", "liqod-0")
	process := newRecorderOfMetrics()
	newMetrics(&registry{Registerer: process}, "v1", func() map[string]time.Duration { return nil })
	all := map[string]metric{}
	for name, m := range process.have {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue // the collectors of Prometheus' client
		}
		m.roles = []string{"every role"}
		all[name] = m
	}
	for _, role := range allRoles() {
		env := hostEnv(t, role.Name, map[string][]string{
			"controller": {"--controller.vkubelet.image=liqod:v1", "--discovery.dns.domain=example.com", "--authentication.address=:8443"},
			"vkubelet":   {"--vkubelet.virtualNode=liqo-tenant-milan/milan", "--vkubelet.nodeAddress=192.0.2.7", "--vkubelet.certificateDirectory=" + t.TempDir()},
			"gateway":    {"--gateway.mtu=1500", "--gateway.stateDir=" + filepath.Join(t.TempDir(), "state")},
		}[role.Name]...)
		own := newRecorderOfMetrics()
		env.Registry = &registry{Registerer: own}
		_, err := role.Build(t.Context(), env)
		require.NoError(t, errors.Join(err, env.Registry.failed), role.Name)
		for name, m := range own.have {
			require.NotContains(t, process.have, name, "role %s registers a metric of the process", role.Name)
			m.roles = append(all[name].roles, role.Name)
			if before, ok := all[name]; ok && before.help != m.help {
				t.Fatalf("%s has two meanings", name)
			}
			all[name] = m
		}
	}
	return all
}

// TestMetricsReference: docs/metrics.md lists the metrics that the roles register. Each has a
// name of liqod's own, with a unit, and a meaning.
func TestMetricsReference(t *testing.T) {
	all := registered(t)
	groups := map[string][]metric{}
	for _, m := range all {
		require.Regexp(t, `^liqod_[a-z]+(_[a-z]+)*$`, m.name)
		require.Equal(t, m.kind == "counter", strings.HasSuffix(m.name, "_total"), m.name)
		require.Regexp(t, `^[A-Z0-9].*\.$`, m.help, m.name)
		require.LessOrEqual(t, len(m.help), 160, m.name)
		slices.Sort(m.roles)
		where := strings.Join(m.roles, ", ")
		groups[where] = append(groups[where], m)
	}
	var b strings.Builder
	b.WriteString(metricsHead)
	titles := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		return cmp.Or(-cmp.Compare(truth(a == "every role"), truth(b == "every role")), cmp.Compare(a, b))
	})
	for _, where := range titles {
		title := "Roles " + where
		if !strings.Contains(where, ",") {
			title = "Role " + where
		}
		if where == "every role" {
			title = "Every role"
		}
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", title)
		slices.SortFunc(groups[where], func(a, b metric) int { return cmp.Compare(a.name, b.name) })
		for _, m := range groups[where] {
			labels := ""
			if len(m.labels) > 0 {
				labels = "`" + strings.Join(m.labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(metricsPath, []byte(b.String()), 0o644))
	}
	have := must(os.ReadFile(metricsPath))
	require.Equal(t, b.String(), string(have), "docs/metrics.md is out of date: go test ./roles -run TestMetricsReference -update")
}
