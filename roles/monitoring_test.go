package roles

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const monitoringPath = "../charts/liqod/monitoring"

// alert is one rule of charts/liqod/monitoring/alerts.yaml.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	data := must(os.ReadFile(filepath.Join(monitoringPath, "alerts.yaml")))
	var file struct {
		Groups []struct {
			Name  string  `json:"name"`
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	require.NoError(t, yaml.UnmarshalStrict(data, &file))
	require.Len(t, file.Groups, 1)
	return file.Groups[0].Rules
}

// dashboard has the parts of a Grafana dashboard that refer to metrics.
type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID          int    `json:"id"`
		Title       string `json:"title"`
		Description string `json:"description"`
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

var (
	selector = regexp.MustCompile(`\b(liqod_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-zA-Z_]+)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"`)
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]+)\)`)
	labelOf  = regexp.MustCompile(`\$labels\.([a-z_]+)`)
	legendOf = regexp.MustCompile(`\{\{\s*([a-z_]+)\s*\}\}`)
	variable = regexp.MustCompile(`^label_values\((liqod_[a-z_]+)(?:\{cluster=~"\$cluster"\})?, ([a-z_]+)\)$`)
)

// targetLabels are those that a monitor adds to each metric of a pod, and the one that a Prometheus
// of several clusters has of each.
var targetLabels = []string{"namespace", "pod", "cluster"}

// checkExpr returns what an expression refers to and does not exist. visible are the labels of
// its result: those of its groupings, or else those of its metrics.
func checkExpr(all map[string]metric, expr string) (visible []string, err error) {
	known := slices.Clone(targetLabels)
	used := selector.FindAllStringSubmatch(expr, -1)
	if len(used) == 0 {
		return nil, fmt.Errorf("%s: it has no metric", expr)
	}
	for _, match := range used {
		m, ok := seriesOf(all, match[1])
		if !ok {
			return nil, fmt.Errorf("%s: there is no %s", expr, match[1])
		}
		labels := slices.Concat(m.labels, targetLabels)
		if strings.HasSuffix(match[1], "_bucket") {
			labels = append(labels, "le")
		}
		known = append(known, labels...)
		rest := matcher.ReplaceAllString(match[2], "")
		if strings.Trim(rest, ", ") != "" {
			return nil, fmt.Errorf("%s: {%s} is not understood", expr, match[2])
		}
		for _, name := range matcher.FindAllStringSubmatch(match[2], -1) {
			if !slices.Contains(labels, name[1]) {
				return nil, fmt.Errorf("%s: %s has no label %s", expr, match[1], name[1])
			}
		}
	}
	groups := grouping.FindAllStringSubmatch(expr, -1)
	for _, group := range groups {
		for name := range strings.SplitSeq(group[1], ",") {
			name = strings.TrimSpace(name)
			if !slices.Contains(known, name) {
				return nil, fmt.Errorf("%s: no metric has the label %s", expr, name)
			}
			visible = append(visible, name)
		}
	}
	if len(groups) == 0 {
		visible = known
	}
	return visible, nil
}

// seriesOf returns the metric of a series. A histogram has series of other names only.
func seriesOf(all map[string]metric, series string) (metric, bool) {
	if m, ok := all[series]; ok {
		return m, m.kind != "histogram"
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, ok := strings.CutSuffix(series, suffix); ok && all[name].kind == "histogram" {
			return all[name], true
		}
	}
	return metric{}, false
}

// TestAlerts: every metric and label of an alert exists, and docs/runbooks.md has a section
// for each alert, and no other.
func TestAlerts(t *testing.T) {
	all := registered(t)
	page := must(os.ReadFile("../docs/runbooks.md"))
	var sections []string
	parts := strings.Split(string(page), "\n## ")
	for _, section := range parts[1:] {
		title, body, _ := strings.Cut(section, "\n")
		sections = append(sections, title)
		for _, part := range []string{"**Meaning.** ", "**Look.** ", "**Do.** "} {
			require.Contains(t, body, "\n"+part, title)
		}
	}
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		visible, err := checkExpr(all, a.Expr)
		require.NoError(t, err, a.Alert)
		require.Regexp(t, `^[0-9]+[mh]$`, a.For, a.Alert)
		require.Contains(t, []string{"critical", "warning", "info"}, a.Labels["severity"], a.Alert)
		require.True(t, strings.HasSuffix(a.Annotations["runbook_url"], "/docs/runbooks.md#"+strings.ToLower(a.Alert)), a.Alert)
		require.NotEmpty(t, a.Annotations["summary"], a.Alert)
		for _, label := range labelOf.FindAllStringSubmatch(a.Annotations["summary"], -1) {
			require.Contains(t, visible, label[1], "%s: its summary", a.Alert)
		}
	}
	require.Equal(t, slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(sections)))
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(names))), len(names), "an alert occurs twice")
}

// TestDashboards: every metric and label of a dashboard exists, and each panel says what it
// shows and overlaps no other.
func TestDashboards(t *testing.T) {
	all := registered(t)
	paths := must(filepath.Glob(filepath.Join(monitoringPath, "dashboards", "*.json")))
	shown := map[string]bool{}
	var titles []string
	for _, path := range paths {
		data := must(os.ReadFile(path))
		var d dashboard
		require.NoError(t, json.Unmarshal(data, &d), path)
		titles = append(titles, strings.TrimSuffix(filepath.Base(path), ".json"))
		require.Equal(t, "liqod-"+titles[len(titles)-1], d.UID)
		variables := map[string]bool{"datasource": true}
		for _, v := range d.Templating.List {
			variables[v.Name] = true
			if v.Name == "datasource" {
				continue
			}
			match := variable.FindStringSubmatch(v.Query)
			require.NotNil(t, match, "%s: %s", path, v.Query)
			require.Contains(t, slices.Concat(all[match[1]].labels, targetLabels), match[2], "%s: %s", path, v.Query)
		}
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			require.NotEmpty(t, p.Description, "%s: %s", path, p.Title)
			require.NotEmpty(t, p.Targets, "%s: %s", path, p.Title)
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					require.Less(t, x, 24, "%s: %s", path, p.Title)
					require.Empty(t, taken[[2]int{x, y}], "%s: %s", path, p.Title)
					taken[[2]int{x, y}] = p.Title
				}
			}
			for _, target := range p.Targets {
				visible, err := checkExpr(all, target.Expr)
				require.NoError(t, err, "%s: %s", path, p.Title)
				for _, label := range legendOf.FindAllStringSubmatch(target.LegendFormat, -1) {
					require.Contains(t, visible, label[1], "%s: the legend of %s", path, p.Title)
				}
				for _, name := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
					require.True(t, variables[name[1]], "%s: %s has no variable %s", path, p.Title, name[1])
				}
				for _, match := range selector.FindAllStringSubmatch(target.Expr, -1) {
					m, _ := seriesOf(all, match[1])
					shown[m.name] = true
				}
			}
		}
	}
	require.Equal(t, []string{"fabric", "namespace", "overview", "peer"}, titles)
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !shown[name] && !slices.Contains(notShown, name) {
			missing = append(missing, name)
		}
	}
	require.Empty(t, missing, "no dashboard shows it: add a panel, or an entry to notShown")
}

// notShown are metrics for a close look at one process, and those that alerts alone read.
var notShown = []string{
	"liqod_authentication_requests_total", "liqod_client_request_seconds", "liqod_discovery_clusters", "liqod_discovery_ignored_total",
	"liqod_loop_adds_total", "liqod_loop_depth", "liqod_loop_longest_running_seconds", "liqod_loop_retries_total", "liqod_loop_sync_seconds",
	"liqod_loop_unfinished_seconds", "liqod_loop_wait_seconds", "liqod_server_connections_closed_total", "liqod_tunnel_probe_received_total",
	"liqod_virtual_node_reflection_refused", "liqod_volumes_kept", "liqod_volumes_moving", "liqod_webhook_refused_total",
}

// TestExpressionsAreChecked: the check of expressions finds what does not exist.
func TestExpressionsAreChecked(t *testing.T) {
	t.Parallel()
	all := map[string]metric{
		"liqod_a":         {name: "liqod_a", kind: "gauge", labels: []string{"peer"}},
		"liqod_b_seconds": {name: "liqod_b_seconds", kind: "histogram", labels: []string{"loop"}},
	}
	for expr, says := range map[string]string{
		`max by (peer, pod) (liqod_a{peer=~"x|y", namespace!=""}) > 1`: "",
		`rate(liqod_b_seconds_bucket{le="1"}[5m])`:                     "",
		`sum(liqod_c)`:                          "there is no liqod_c",
		`sum(liqod_b_seconds)`:                  "there is no liqod_b_seconds",
		`sum(liqod_a_bucket)`:                   "there is no liqod_a_bucket",
		`liqod_a{node="x"}`:                     "liqod_a has no label node",
		`liqod_a{peer="x", node=~"y.*"}`:        "liqod_a has no label node",
		`liqod_a{peer}`:                         "is not understood",
		`sum by (node) (liqod_a)`:               "no metric has the label node",
		`liqod_a * on (node) liqod_a`:           "no metric has the label node",
		`sum by (le) (liqod_b_seconds_sum)`:     "no metric has the label le",
		`up{job="liqod"}`:                       "it has no metric",
		`liqod_b_seconds_sum{le="1"} > liqod_a`: "liqod_b_seconds_sum has no label le",
	} {
		_, err := checkExpr(all, expr)
		if says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says, expr)
	}
}
