package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

func TestParseContinuity(t *testing.T) {
	o, err := parse([]string{"--only=continuity"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, continuityPairs, o.continuity.pairs)
	require.Equal(t, 30*time.Second, o.continuity.patience)
	cases, err := o.continuity.plan()
	require.NoError(t, err)
	require.Len(t, cases, 2*2*len(faultNames()))
	require.Equal(t, continuityCase{Way: oneWay, Fault: "api-killed", Hit: hitProvider}, cases[0])
	o, err = parse([]string{"--only=continuity", "--pairs=3", "--faults=tunnel-cut,api-killed", "--hit=consumer", "--ways=two-way"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 3, o.continuity.pairs)
	cases, err = o.continuity.plan()
	require.NoError(t, err)
	require.Equal(t, []continuityCase{{twoWay, "api-killed", hitConsumer}, {twoWay, "tunnel-cut", hitConsumer}}, cases)
	for args, want := range map[string]string{
		"--faults=flood": `--faults names "flood": api-killed, `,
		"--hit=both":     `--hit names "both": provider, consumer are accepted, with commas between`,
		"--ways=two":     `--ways names "two": one-way, two-way are accepted`,
		"--patience=1s":  "--patience is 1s: at least 5s is accepted",
	} {
		_, err := parse([]string{args}, io.Discard)
		require.ErrorContains(t, err, want)
	}
}

// Each fault says what it is and can be undone.
func TestFaults(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range faults() {
		require.NotEmpty(t, f.text, f.name)
		require.NotNil(t, f.inflict, f.name)
		require.NotNil(t, f.undo, f.name)
		require.Contains(t, []string{"", byAPIServer, byNetwork, byEither}, f.condition, f.name)
		require.False(t, seen[f.name], "%s is there twice", f.name)
		seen[f.name] = true
		require.Equal(t, f.text, faultOf(f.name).text)
	}
	require.Contains(t, frontRules("6443", "172.31.0.254", "7443"), `iifname "eth0" ip saddr != 172.31.0.254 tcp dport 6443 dnat to 172.31.0.254:7443;`)
}

func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func seriesOf(turns ...turn) *series {
	s := &series{}
	for _, t := range turns {
		s.note(t.at, t.well)
	}
	return s
}

func TestSeries(t *testing.T) {
	s := seriesOf(turn{at(0), true}, turn{at(1), true}, turn{at(2), false}, turn{at(3), false}, turn{at(4), true})
	require.Len(t, s.changes, 3, "only changes count")
	for name, test := range map[string]struct {
		since float64
		well  bool
		want  float64 // 0: not
	}{
		"down":             {1, false, 2},
		"down just then":   {2, false, 2},
		"was down already": {2.5, false, 0},
		"up again":         {2.5, true, 4},
		"not up again":     {4.5, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			have, found := s.turned(at(test.since), test.well)
			require.Equal(t, test.want != 0, found)
			if found {
				require.Equal(t, at(test.want), have)
			}
		})
	}
	since, well := s.wellSince()
	require.True(t, well)
	require.Equal(t, at(4), since)
	for name, s := range map[string]*series{"empty": {}, "down": seriesOf(turn{at(0), true}, turn{at(1), false})} {
		_, well := s.wellSince()
		require.False(t, well, name)
	}
}

func TestDown(t *testing.T) {
	o := &lookout{}
	for _, s := range []*series{&o.api, &o.network} {
		s.note(at(0), true)
	}
	o.network.note(at(2), false)
	for by, want := range map[string]bool{byAPIServer: false, byNetwork: true, byEither: true, "": false} {
		have, found := o.down(by, at(1))
		require.Equal(t, want, found, by)
		if found {
			require.Equal(t, at(2), have, by)
		}
	}
	o.api.note(at(3), false)
	have, _ := o.down(byEither, at(1))
	require.Equal(t, at(2), have, "the first of both")
	have, _ = o.down(byEither, at(2.5))
	require.Equal(t, at(3), have)
}

func TestBack(t *testing.T) {
	well := seriesOf(turn{at(0), true})
	early := seriesOf(turn{at(0), false}, turn{at(5), true})
	late := seriesOf(turn{at(0), true}, turn{at(4), false}, turn{at(6), true})
	for name, test := range map[string]struct {
		things []*series
		want   float64 // 0: none
	}{
		"was never unwell":   {[]*series{well}, 0},
		"not there":          {[]*series{nil}, 0},
		"back":               {[]*series{well, early}, 5},
		"the last counts":    {[]*series{late, early}, 6},
		"one is not well":    {[]*series{early, seriesOf(turn{at(1), false})}, 0},
		"before it all":      {[]*series{seriesOf(turn{at(0), false}, turn{at(2), true})}, 0},
		"one was never seen": {[]*series{early, {}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			have, found := back(at(3), test.things...)
			require.Equal(t, test.want != 0, found)
			if found {
				require.Equal(t, at(test.want), have)
			}
		})
	}
}

func TestLastFailed(t *testing.T) {
	for name, test := range map[string]struct {
		asked asked
		want  delay
	}{
		"all were answered":    {asked{Requests: 9}, delay{State: none}},
		"some failed":          {asked{Failed: 2, LastFailed: at(12)}, delay{came, 2}},
		"was on its way":       {asked{Failed: 1, LastFailed: at(9.9)}, delay{State: came}},
		"they fail to the end": {asked{Failed: 90, LastFailed: at(19)}, delay{State: never}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, test.asked.lastFailed(at(10), at(20))) })
	}
}

func TestAskedTwice(t *testing.T) {
	first := asked{Requests: 3, Failed: 2, LastFailed: at(2), Failures: map[string]int{"refused": 2}}
	require.Equal(t, first, asked{}.and(first))
	require.Equal(t, first, first.and(asked{}))
	require.Equal(t, asked{Requests: 8, Failed: 4, LastFailed: at(3), Failures: map[string]int{"refused": 3, "late": 1}},
		first.and(asked{Requests: 5, Failed: 2, LastFailed: at(3), Failures: map[string]int{"refused": 1, "late": 1}}))
	require.Equal(t, map[string]int{"refused": 2}, first.Failures, "it is left as it is")
}

func TestLatency(t *testing.T) {
	c := func(seconds float64) delay { return delay{came, seconds} }
	nothing, lost := delay{State: none}, delay{State: never}
	for name, test := range map[string]struct {
		delays []delay
		want   latency
		text   string
	}{
		"none":           {nil, latency{Median: nothing, Worst: nothing}, "-"},
		"not to come":    {[]delay{nothing, nothing}, latency{Median: nothing, Worst: nothing}, "-"},
		"one":            {[]delay{c(2)}, latency{c(2), c(2), 0, 1}, "2.00 / 2.00"},
		"odd":            {[]delay{c(3), c(1), c(2)}, latency{c(2), c(3), 0, 3}, "2.00 / 3.00"},
		"one is never":   {[]delay{c(3), lost, c(2)}, latency{c(3), lost, 1, 3}, "3.00 / never (1 of 3)"},
		"most are never": {[]delay{lost, lost, c(2)}, latency{lost, lost, 2, 3}, "never / never (2 of 3)"},
		"all are never":  {[]delay{lost, lost}, latency{lost, lost, 2, 2}, "never / never"},
		"some are none":  {[]delay{nothing, c(2), c(4), nothing}, latency{c(4), c(4), 0, 2}, "4.00 / 4.00"},
	} {
		t.Run(name, func(t *testing.T) {
			have := newLatency(test.delays)
			require.Equal(t, test.want, have)
			require.Equal(t, test.text, have.text())
		})
	}
}

func TestSaw(t *testing.T) {
	o := &lookout{node: &series{}}
	for _, s := range []*series{&o.api, &o.network, &o.endpoint, o.node} {
		s.note(at(0), true)
	}
	o.api.note(at(12), false)
	o.endpoint.note(at(12.5), false)
	var r continuityRound
	r.saw(faultOf("api-killed"), o, at(10), asked{Requests: 20})
	require.Equal(t, delay{came, 2}, r.Condition)
	require.Equal(t, delay{State: never}, r.Node)
	require.Equal(t, delay{came, 2.5}, r.Endpoint)
	require.Equal(t, delay{came, 0.5}, r.After)
	require.Equal(t, delay{State: none}, r.LastFailed)
	r = continuityRound{}
	r.saw(faultOf("node-killed"), o, at(10), asked{})
	require.Equal(t, delay{State: none}, r.Condition, "no condition tells of it")
	require.Equal(t, delay{State: none}, r.Node)
	require.Equal(t, delay{State: none}, r.After)
	o.node = nil
	r.saw(faultOf("tunnel-cut"), o, at(10), asked{})
	require.Equal(t, delay{State: never}, r.Condition)
	require.Equal(t, delay{State: none}, r.Node)
}

func TestReturn(t *testing.T) {
	o := &lookout{}
	for _, s := range []*series{&o.api, &o.network, &o.endpoint} {
		s.note(at(0), true)
	}
	o.api.note(at(5), false)
	o.api.note(at(12), true)
	o.endpoint.note(at(6), false)
	o.endpoint.note(at(13), true)
	var r recovered
	r.of(o, at(10), asked{})
	require.Equal(t, recovered{
		Condition: delay{came, 2}, Node: delay{State: none}, Endpoint: delay{came, 3}, LastFailed: delay{State: none}, Whole: delay{came, 3},
	}, r)
}

func TestEndpointReady(t *testing.T) {
	slice := func(pod string, ready *bool) any {
		return &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{
			{}, {TargetRef: &corev1.ObjectReference{Name: pod}, Conditions: discoveryv1.EndpointConditions{Ready: ready}},
		}}
	}
	for name, test := range map[string]struct {
		slices []any
		want   bool
	}{
		"none":           {nil, false},
		"ready":          {[]any{slice("x", ptr.To(true)), slice("p", ptr.To(true))}, true},
		"said nothing":   {[]any{slice("p", nil)}, true},
		"not ready":      {[]any{slice("x", ptr.To(true)), slice("p", ptr.To(false))}, false},
		"one is ready":   {[]any{slice("p", ptr.To(false)), slice("p", ptr.To(true))}, true},
		"something else": {[]any{&corev1.Node{}}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, endpointReady(test.slices, "p")) })
	}
}

func TestLifeChanges(t *testing.T) {
	before := map[string]life{
		"rome cont/here-1": {"a", 0}, "rome cont/there-1": {"b", 0}, "milan cont-rome/there-1": {"c", 0}, "milan liqod/controller": {"d", 1},
		"rome liqod/controller": {"e", 0},
	}
	milan := &victim{site: siteNamed("milan"), pod: "there-1"}
	changed, restarted := lifeChanges(before, before, faultOf("api-killed"), milan)
	require.Empty(t, changed)
	require.Zero(t, restarted)
	after := map[string]life{
		"rome cont/here-1": {"a", 2}, "rome cont/there-1": {"b", 1}, "milan cont-rome/there-1": {"c", 1}, "milan liqod/controller": {"x", 0},
		"milan liqod/other": {"f", 0},
	}
	changed, restarted = lifeChanges(before, after, faultOf("node-killed"), milan)
	require.Equal(t, []string{
		"milan liqod/controller was made again", "milan liqod/other is new", "rome cont/here-1 was restarted 2 times", "rome liqod/controller is gone",
	}, changed)
	require.Equal(t, 2, restarted, "the pod of the dead node, there and at home")
	changed, _ = lifeChanges(before, after, faultOf("api-killed"), milan)
	require.Len(t, changed, 6, "no node died")
}

func TestTokenIn(t *testing.T) {
	token, err := tokenIn("give this:\n\n  liqod1.abc\n")
	require.NoError(t, err)
	require.Equal(t, "liqod1.abc", token)
	_, err = tokenIn("none\n")
	require.Error(t, err)
}

func TestContinuityReport(t *testing.T) {
	c := continuityCase{oneWay, "api-killed", hitProvider}
	good := continuityRound{
		Condition: delay{came, 2}, Node: delay{came, 2.1}, Endpoint: delay{came, 2.5}, After: delay{came, 0.5}, LastFailed: delay{State: none}, Requests: 100,
	}
	bad := continuityRound{
		Condition: delay{came, 4}, Node: delay{State: never}, Endpoint: delay{State: never}, After: delay{State: never}, LastFailed: delay{State: never},
		Requests: 100, Failed: 40, Changed: []string{"rome cont/p was made again"},
	}
	quiet := continuityRound{Condition: delay{State: none}, After: delay{State: none}, Endpoint: delay{came, 7}}
	r := continuityReport{Rounds: 2, Patience: 30, Results: []continuityResult{
		{continuityCase: c, Rounds: []continuityRound{good, bad}},
		{continuityCase: continuityCase{twoWay, "node-killed", hitConsumer}, Rounds: []continuityRound{quiet, quiet}},
	}}
	r.summarize()
	require.Equal(t, []continuityGoal{
		{c, "condition: at most 3 s", "4.00", false}, {c, "endpoint out: at most 1 s after it", never, false},
		{c, "no pod made or started again", "1", false},
		{r.Results[1].continuityCase, "no pod made or started again", "0", true},
	}, r.Goals)
	var out bytes.Buffer
	r.print(&out)
	require.Contains(t, out.String(), "never / never (1 of 2)")
	require.Contains(t, out.String(), "40 of 200")
	require.Contains(t, out.String(), "1 of 4 are reached")
	require.Equal(t, 3, strings.Count(out.String(), "NOT reached"))
	require.Contains(t, out.String(), "one-way, api-killed, provider, round 2: rome cont/p was made again")
}

func siteNamed(name string) *site.Site { return &site.Site{Cluster: &lab.Cluster{Name: name}} }
