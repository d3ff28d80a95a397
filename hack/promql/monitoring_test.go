package promql

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const monitoring = "../../charts/liqod/monitoring"

// alert is a rule of charts/liqod/monitoring/alerts.yaml.
type alert struct {
	Alert string `json:"alert"`
	Expr  string `json:"expr"`
	For   string `json:"for"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(monitoring, "alerts.yaml"))
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(data, &file))
	require.Len(t, file.Groups, 1)
	return file.Groups[0].Rules
}

// fault is what an alert is to say: recorded in clusters, or the healthy recording with the
// changes that make the fault.
type fault struct {
	recording string
	changes   []change
}

// faults are those of the alerts.
var faults = map[string]fault{
	"LiqodPeerDown":                 {recording: "provider-down-rome"},
	"LiqodVirtualNodeNotReady":      {recording: "provider-down-rome"},
	"LiqodRequestsFail":             {recording: "provider-down-rome"},
	"LiqodNoActiveController":       {recording: "controller-down-rome"},
	"LiqodTunnelLoss":               {recording: "tunnel-down-rome"},
	"LiqodTunnelSilent":             {recording: "tunnel-down-rome"},
	"LiqodPodsNotReady":             {recording: "tunnel-down-rome"},
	"LiqodNetworkUnknown":           {recording: "gateway-down-rome"},
	"LiqodPeerUnknown":              {recording: "identity-unknown-rome"},
	"LiqodPeerNotAuthenticated":     {recording: "identity-revoked-rome"},
	"LiqodPeerContested":            {recording: "id-contested-milan"},
	"LiqodPeerMisbehaves":           {recording: "peer-misbehaves-rome"},
	"LiqodVirtualNodeFull":          {recording: "node-full-rome"},
	"LiqodProviderControllerSilent": {changes: []change{{series: `liqod_virtual_node_controller_silent{peer="milan",virtual_node="milan"}`, value: 1}}},
	"LiqodReflectionRefused":        {changes: []change{{series: `liqod_virtual_node_reflection_refused{peer="milan",virtual_node="milan"}`, value: 1}}},
	"LiqodMoveUnfinished":           {changes: []change{{series: `liqod_volumes_moving{}`, value: 1}}},
	"LiqodDataKept":                 {changes: []change{{series: `liqod_volumes_kept{peer="milan"}`, value: 3}}},
	"LiqodRoleAway":                 {changes: []change{{series: `liqod_lease_leading{role="webhook"}`, value: 1, rate: -0.001}}}, // both replicas led, and none does
	"LiqodPodsPending":              {recording: "pods-refused-rome"},
	"LiqodNamespaceNotMapped":       {recording: "namespace-taken-rome"},
	"LiqodOfferWaiting":             {recording: "offer-unapproved-milan"},
	"LiqodQuotaWaiting":             {recording: "quota-full-milan"},
	"LiqodLoopBehind":               {recording: "rights-taken-rome"},
	"LiqodCertificateExpiring":      {recording: "renewal-fails-rome"},
	"LiqodWebhookSlow":              {recording: "webhook-slow-rome"},
	"LiqodHostContested":            {recording: "host-contested-rome"},
}

// TestAlertsFire: each alert is silent while all is well, and fires in its fault, which lasts
// as long as the alert waits. No alert of a fault is left when the fault is another one's.
func TestAlertsFire(t *testing.T) {
	all := alerts(t)
	well := healthy(t)
	known := slices.Sorted(maps.Keys(faults))
	var names []string
	for _, a := range all {
		names = append(names, a.Alert)
		t.Run(a.Alert, func(t *testing.T) {
			for _, r := range well {
				for _, ms := range r.times {
					require.Empty(t, r.query(t, a.Expr, time.UnixMilli(ms)), "nothing is wrong")
				}
				require.Empty(t, firing(t, a, r), "and that lasts")
			}
			require.NotEmpty(t, firing(t, a, faults[a.Alert].load(t)))
		})
	}
	require.Equal(t, known, slices.Sorted(slices.Values(names)))
}

// load is the recording of a fault.
func (f fault) load(t *testing.T) recording {
	t.Helper()
	if f.recording != "" {
		return read(t, f.recording).changed(t, f.changes)
	}
	return read(t, "healthy-rome").changed(t, f.changes)
}

// firing are the results that the expression of an alert has all the time that it waits for, at
// the end of a fault that lasts a quarter of an hour longer than that.
func firing(t *testing.T, a alert, r recording) []string {
	t.Helper()
	waits, err := time.ParseDuration(a.For)
	require.NoError(t, err)
	const before = 15 * time.Minute
	r = r.continued(before + waits)
	end := r.end()
	still := slices.Collect(maps.Keys(r.query(t, a.Expr, end.Add(-waits))))
	for at := end.Add(-waits); !at.After(end) && len(still) > 0; at = at.Add(interval) {
		now := r.query(t, a.Expr, at)
		still = slices.DeleteFunc(still, func(result string) bool { _, ok := now[result]; return !ok })
	}
	return still
}

// misbehaved fires for an hour, so also in the faults that were recorded after its own.
const misbehaved = "LiqodPeerMisbehaves"

// said are all alerts that a fault leads to: a person gets no others.
var said = map[string][]string{
	"controller-down-rome":   {"LiqodNoActiveController"},
	"gateway-down-rome":      {"LiqodNetworkUnknown", "LiqodPodsNotReady"},
	"host-contested-rome":    {"LiqodHostContested"},
	"identity-revoked-rome":  {"LiqodPeerNotAuthenticated"},
	"identity-unknown-rome":  {"LiqodPeerUnknown", misbehaved},
	"namespace-taken-rome":   {"LiqodNamespaceNotMapped"},
	"offer-unaccepted-rome":  {"LiqodOfferWaiting"},
	"offer-unapproved-milan": {"LiqodOfferWaiting"},
	"peer-misbehaves-rome":   {"LiqodPeerMisbehaves"},
	"pods-refused-rome":      {"LiqodPodsPending"},
	"provider-down-rome":     {"LiqodPeerDown", "LiqodVirtualNodeNotReady", "LiqodPodsNotReady", "LiqodRequestsFail"},
	"quota-full-milan":       {"LiqodQuotaWaiting"},
	"rights-taken-rome":      {"LiqodLoopBehind", misbehaved, "LiqodCertificateExpiring"}, // of a life of 10 minutes, without a renewal in what is continued
	"tunnel-down-rome":       {"LiqodPeerDown", "LiqodPodsNotReady", "LiqodTunnelSilent", "LiqodTunnelLoss"},
	"webhook-slow-rome":      {"LiqodWebhookSlow", misbehaved},
}

// TestFaultsLeadToAlerts: a recorded fault leads to the alerts in said.
func TestFaultsLeadToAlerts(t *testing.T) {
	for name, want := range said {
		t.Run(name, func(t *testing.T) {
			r := read(t, name)
			var have []string
			for _, a := range alerts(t) {
				if len(firing(t, a, r)) > 0 {
					have = append(have, a.Alert)
				}
			}
			require.ElementsMatch(t, want, have)
		})
	}
}

// dashboard has the parts of a Grafana dashboard that are queries.
type dashboard struct {
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

// panel has the queries of a panel, and the colours of their values.
type panel struct {
	Title       string `json:"title"`
	FieldConfig struct {
		Defaults struct {
			Thresholds struct {
				Steps []threshold `json:"steps"`
			} `json:"thresholds"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// threshold is the colour of values from one on; without a value, of all others.
type threshold struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// color is the one in which Grafana shows a value; empty if the panel has no thresholds.
func (p panel) color(value float64) (name string) {
	for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			name = step.Color
		}
	}
	return name
}

// dashboards are those of the chart, by name.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(monitoring, "dashboards", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	all := map[string]dashboard{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(data, &d), path)
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = d
	}
	return all
}

// quiet are the panels that show nothing while all is well, with the recording or the changes
// that fill them.
var quiet = map[string]fault{
	"fabric: Packets that are no probes":                       {changes: []change{{series: `liqod_tunnel_probe_garbage_total{reason="size"}`, value: 1}}},
	"namespace: Pods that are not ready":                       {recording: "tunnel-down-rome"},
	"namespace: Events that were not written home":             {changes: []change{{series: `liqod_events_dropped_total{reason="stale"}`, value: 1}}},
	"overview: Offers that wait for a decision":                {recording: "offer-unaccepted-rome"},
	"overview: Providers without an active controller":         {changes: []change{{series: `liqod_virtual_node_controller_silent{peer="milan",virtual_node="milan"}`, value: 1}}},
	"overview: Loops: oldest object without a successful sync": {recording: "rights-taken-rome"},
	"overview: Webhook: denied":                                {changes: []change{{series: `liqod_webhook_seconds_count{result="denied",webhook="/mutate/pod"}`, value: 1}}},
	"peer: Refused of the peer":                                {recording: "peer-misbehaves-rome"},
	"peer: Refused of the peer (2)":                            {changes: []change{{series: `liqod_consumer_refused_total{consumer="milan",reason="Quota"}`, value: 1}}},
}

// TestPanels: with the metrics of two healthy clusters each query of a dashboard has a value in
// at least one of them. Those in quiet have one in their fault instead, and none before.
func TestPanels(t *testing.T) {
	well := healthy(t)
	var found []string
	for name, d := range dashboards(t) {
		for _, v := range d.Templating.List {
			if v.Name != "datasource" {
				require.True(t, shows(t, well, variable.ReplaceAllString(v.Query, "count by ($2) ($1)")), "%s: variable %s has no value", name, v.Name)
			}
		}
		for _, p := range d.Panels {
			for i, target := range p.Targets {
				key := fmt.Sprintf("%s: %s", name, p.Title)
				if i > 0 {
					key += fmt.Sprintf(" (%d)", i+1)
				}
				f, isQuiet := quiet[key]
				if isQuiet {
					found = append(found, key)
					require.True(t, shows(t, map[string]recording{"milan": f.load(t)}, target.Expr), "%s has no value in its fault: %s", key, target.Expr)
				}
				if got := shows(t, well, target.Expr); got == isQuiet {
					t.Errorf("%s: has a value while all is well: %v; it is in quiet: %v; %s", key, got, isQuiet, target.Expr)
				}
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(quiet)), found, "a panel in quiet does not exist")
}

var (
	variable = regexp.MustCompile(`^label_values\((\w+(?:\{.*\})?), (\w+)\)$`)
	named    = regexp.MustCompile(`\$\w+`)
)

// TestNothingIsRed: no panel shows a value in red while all is well, and the peer that is down
// is red.
func TestNothingIsRed(t *testing.T) {
	down := read(t, "provider-down-rome")
	red := map[string]bool{}
	for name, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				for peer, r := range healthy(t) {
					for labels, v := range r.values(t, target.Expr, peer) {
						require.NotEqual(t, "red", p.color(v), "%s: %s: %s is %v: %s", name, p.Title, labels, v, target.Expr)
					}
				}
				for _, v := range down.values(t, target.Expr, "milan") {
					if p.color(v) == "red" {
						red[name+": "+p.Title] = true
					}
				}
			}
		}
	}
	require.Subset(t, slices.Collect(maps.Keys(red)), []string{"overview: Peers", "overview: Virtual nodes", "peer: Conditions"})
}

// healthy are the recordings of healthy clusters, by their peer.
func healthy(t *testing.T) map[string]recording {
	t.Helper()
	return map[string]recording{"milan": read(t, "healthy-rome"), "rome": read(t, "healthy-milan")}
}

// values are the numbers that a query of a dashboard has at the last scrape, by their labels.
func (r recording) values(t *testing.T, expr, peer string) map[string]float64 {
	t.Helper()
	query := named.ReplaceAllString(strings.ReplaceAll(expr, "$peer", peer), ".*")
	all := r.query(t, query, r.end())
	maps.DeleteFunc(all, func(_ string, v float64) bool { return math.IsNaN(v) })
	return all
}

// shows says whether a query has a number in one of the recordings, by peer.
func shows(t *testing.T, all map[string]recording, expr string) bool {
	t.Helper()
	for peer, r := range all {
		if len(r.values(t, expr, peer)) > 0 {
			return true
		}
	}
	return false
}
