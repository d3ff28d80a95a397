package timed

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

func TestAnarchySchedule(t *testing.T) {
	for nodes := 1; nodes <= 2; nodes++ {
		r := targets{clusters: []string{"rome", "milan", "turin"}, nodes: nodes, consumers: []string{"rome", "milan"}, atOnce: 3}
		kinds := map[string]int{}
		for seed := range uint64(50) {
			const length = 5 * time.Minute
			list := r.schedule(rand.New(rand.NewPCG(seed, 0)), length)
			require.Equal(t, list, r.schedule(rand.New(rand.NewPCG(seed, 0)), length), "a seed repeats the choice")
			require.NotEmpty(t, list)
			for i, s := range list {
				kinds[s.kind]++
				require.LessOrEqual(t, s.at+s.lasts, length)
				require.NotEmpty(t, s.hits)
				now := 1
				for _, b := range list[:i] {
					if b.at+b.lasts > s.at {
						now++
						require.False(t, b.meets(s), "%s and %s", b, s)
					}
				}
				require.LessOrEqual(t, now, r.atOnce)
				if s.kind == partition {
					require.NotEqual(t, s.cluster, s.peer)
					require.NotEmpty(t, s.peer)
				}
			}
		}
		for _, m := range faultKinds() {
			if m.spare && nodes == 1 {
				require.Zero(t, kinds[m.name], "a cluster keeps a node")
			} else {
				require.Positive(t, kinds[m.name], m.name)
			}
		}
	}
}

func TestAnarchySameHit(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{"rome/api", "rome/api", true}, {"rome/api", "milan/api", false}, {"rome/api", "rome/node", false},
		{"rome/*", "rome/node", true}, {"rome/api", "rome/*", true}, {"rome/*", "milan/*", false},
	} {
		require.Equal(t, row.want, clusterFault{hits: []string{row.a}}.meets(clusterFault{hits: []string{row.b}}), row)
	}
}

// at is a moment of an imagined course of events.
func at(seconds int) time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func death(node string, from, to int) pastFault {
	return pastFault{clusterFault: clusterFault{kind: nodeKilled, cluster: clusterOf(node)}, span: span{at(from), at(to)}, node: node}
}

func TestAnarchyRuns(t *testing.T) {
	const pod = "rome-milan-5f-x"
	once := map[string][]time.Time{"rome-milan": {at(0)}}
	for name, row := range map[string]struct {
		runs    []run
		revised map[string][]time.Time
		faults  []pastFault
		want    podFindings
	}{
		"runs":                     {runs: []run{{"a", "milan-1", 0, at(1), at(100)}}},
		"its node died":            {runs: []run{{"a", "milan-1", 0, at(1), at(50)}, {"b", "milan-1", 0, at(70), at(100)}}, faults: []pastFault{death("milan-1", 50, 65)}},
		"all of it died":           {runs: []run{{"a", "milan-1", 0, at(1), at(50)}, {"b", "milan-1", 0, at(70), at(100)}}, faults: []pastFault{{clusterFault: clusterFault{kind: allKilled, cluster: "milan"}, span: span{at(50), at(65)}}}},
		"rolled out":               {runs: []run{{"a", "milan-1", 0, at(1), at(50)}}, revised: map[string][]time.Time{"rome-milan": {at(0), at(49)}}},
		"rolled out, and left":     {runs: []run{{"a", "milan-1", 0, at(1), at(99)}}, revised: map[string][]time.Time{"rome-milan": {at(0), at(49)}}, want: podFindings{left: []string{""}}},
		"gone before":              {runs: []run{{"a", "milan-1", 0, at(1), at(20)}}, revised: map[string][]time.Time{"rome-milan": {at(0), at(60)}}, want: podFindings{lost: []string{""}}},
		"gone":                     {runs: []run{{"a", "milan-1", 0, at(1), at(50)}}, want: podFindings{lost: []string{""}}},
		"gone with its node":       {runs: []run{{"a", "milan-1", 0, at(1), at(50)}}, faults: []pastFault{death("milan-1", 50, 65)}},
		"gone, another died":       {runs: []run{{"a", "milan-1", 0, at(1), at(50)}}, faults: []pastFault{death("milan-2", 50, 65)}, want: podFindings{lost: []string{""}}},
		"run again":                {runs: []run{{"b", "milan-1", 0, at(60), at(100)}, {"a", "milan-1", 0, at(1), at(50)}}, want: podFindings{again: []string{""}}},
		"again, died long ago":     {runs: []run{{"a", "milan-1", 0, at(30), at(50)}, {"b", "milan-1", 0, at(60), at(100)}}, faults: []pastFault{death("milan-1", 5, 20)}, want: podFindings{again: []string{""}}},
		"ended, then it died":      {runs: []run{{"a", "milan-1", 0, at(1), at(20)}, {"b", "milan-1", 0, at(70), at(100)}}, faults: []pastFault{death("milan-1", 50, 65)}, want: podFindings{again: []string{""}}},
		"again, died later":        {runs: []run{{"a", "milan-1", 0, at(1), at(50)}, {"b", "milan-1", 0, at(52), at(100)}}, faults: []pastFault{death("milan-1", 60, 70)}, want: podFindings{again: []string{""}}},
		"twice at a time":          {runs: []run{{"a", "milan-1", 0, at(1), at(100)}, {"b", "milan-2", 0, at(50), at(100)}}, want: podFindings{twice: []string{""}}},
		"twice, another node":      {runs: []run{{"a", "milan-1", 0, at(1), at(100)}, {"b", "milan-2", 0, at(50), at(100)}}, faults: []pastFault{death("milan-1", 40, 60)}, want: podFindings{twice: []string{""}}},
		"reported after its death": {runs: []run{{"a", "milan-1", 0, at(1), at(51)}, {"b", "milan-1", 0, at(50), at(100)}}, faults: []pastFault{death("milan-1", 48, 50)}},
	} {
		t.Run(name, func(t *testing.T) {
			revised := row.revised
			if revised == nil {
				revised = once
			}
			got := checkRuns(map[string][]run{pod: row.runs}, revised, row.faults, at(100))
			require.Len(t, got.lost, len(row.want.lost), "%v", got)
			require.Len(t, got.twice, len(row.want.twice), "%v", got)
			require.Len(t, got.again, len(row.want.again), "%v", got)
			require.Len(t, got.left, len(row.want.left), "%v", got)
		})
	}
}

func TestAnarchyEndpoints(t *testing.T) {
	e := endpoint{"rome", "10.0.0.1:8080", "rome-milan-5f-x"}
	runs := map[string][]run{e.pod: {{"a", "milan-1", 0, at(0), at(100)}}}
	ended := map[string][]run{e.pod: {{"a", "milan-1", 0, at(0), at(10)}}}
	home := map[string][]run{e.pod: {{"a", "rome-1", 0, at(0), at(100)}}}
	of := func(kind, cluster string, from, to int) []pastFault {
		return []pastFault{{clusterFault: clusterFault{kind: kind, cluster: cluster}, span: span{at(from), at(to)}}}
	}
	dead := func(from, to, lasts int) []pastFault {
		return []pastFault{{clusterFault: clusterFault{kind: allKilled, cluster: "milan", lasts: time.Duration(lasts) * time.Second}, span: span{at(from), at(to)}}}
	}
	again := func(from int) map[string][]run {
		return map[string][]run{e.pod: {{"a", "milan-1", 0, at(0), at(10)}, {"b", "milan-1", 0, at(from), at(200)}}}
	}
	for name, row := range map[string]struct {
		ready, silent span
		runs          map[string][]run
		faults        []pastFault
		want          int
	}{
		"short":                      {span{at(0), at(100)}, span{at(10), at(14)}, runs, nil, 0},
		"long":                       {span{at(0), at(100)}, span{at(10), at(15)}, runs, nil, 1},
		"out in time":                {span{at(0), at(14)}, span{at(10), at(50)}, runs, nil, 0},
		"tunnel":                     {span{at(0), at(100)}, span{at(10), at(50)}, runs, of("tunnel-cut", "rome", 10, 50), 1},
		"API server at home":         {span{at(0), at(100)}, span{at(10), at(50)}, runs, of(apiKilled, "rome", 9, 40), 0},
		"API server of it":           {span{at(0), at(100)}, span{at(10), at(50)}, runs, of(apiKilled, "milan", 9, 40), 1},
		"controller at home, paused": {span{at(0), at(100)}, span{at(10), at(50)}, runs, of("controller-paused", "rome", 9, 40), 0},
		"controller of it":           {span{at(0), at(100)}, span{at(10), at(50)}, runs, of("controller-paused", "milan", 9, 40), 1},
		"gateway at home":            {span{at(0), at(100)}, span{at(10), at(49)}, runs, of("gateway-paused", "rome", 9, 40), 0},
		"gateway at home, after it":  {span{at(0), at(100)}, span{at(10), at(55)}, runs, of("gateway-paused", "rome", 9, 40), 1},
		"gateway of it":              {span{at(0), at(100)}, span{at(10), at(50)}, runs, of("gateway-paused", "milan", 9, 40), 1},
		"gateway, pod at home":       {span{at(0), at(100)}, span{at(10), at(50)}, home, of("gateway-paused", "rome", 9, 40), 1},
		"controller, pod at home":    {span{at(0), at(100)}, span{at(10), at(50)}, home, of("controller-paused", "rome", 9, 40), 1},
		"API server, pod at home":    {span{at(0), at(100)}, span{at(10), at(50)}, home, of(apiPaused, "rome", 9, 40), 0},
		"node, within the grace":     {span{at(0), at(50)}, span{at(10), at(90)}, runs, []pastFault{death("milan-1", 10, 90)}, 0},
		"node, never reported":       {span{at(0), at(100)}, span{at(10), at(90)}, runs, []pastFault{death("milan-1", 10, 90)}, 1},
		"all of it, noticed":         {span{at(0), at(13)}, span{at(10), at(60)}, runs, dead(10, 60, 15), 0},
		"all of it, not noticed":     {span{at(0), at(16)}, span{at(10), at(60)}, runs, dead(10, 60, 15), 1},
		"all of it, back":            {span{at(30), at(79)}, span{at(10), at(90)}, runs, dead(10, 60, 15), 0},
		"all of it, started late":    {span{at(30), at(150)}, span{at(10), at(152)}, again(150), dead(10, 60, 15), 0},
		"all of it, back and silent": {span{at(30), at(160)}, span{at(10), at(160)}, again(70), dead(10, 60, 15), 1},
		"apart":                      {span{at(0), at(100)}, span{at(10), at(50)}, runs, of(apiCut, "milan", 9, 40), 1},
		"ended while apart":          {span{at(0), at(100)}, span{at(10), at(50)}, ended, of(apiCut, "milan", 9, 40), 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := tooLong(falselyReady(map[endpoint]endpointTimes{e: {ready: []span{row.ready}, silent: []span{row.silent}}}, row.runs, row.faults))
			require.Len(t, got, row.want, "%v", got)
		})
	}
}

func TestDeploymentOf(t *testing.T) {
	require.Equal(t, "rome-milan", deploymentOf("rome-milan-5f-x"))
	require.Empty(t, deploymentOf("x"))
	require.Equal(t, "milan", clusterOf("milan-2"))
	require.Empty(t, clusterOf(""))
}

// TestReportServer: reports and EndpointSlices become runs and spans.
func TestReportServer(t *testing.T) {
	b := &reportServer{
		runs: map[string]map[string]*run{}, asked: map[string]int{},
		slices: map[string]map[string]*discoveryv1.EndpointSlice{"rome": {}}, ends: map[endpoint]*endpointState{},
	}
	slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](8080)}}}
	e := endpoint{"rome", "10.0.0.1:8080", "rome-milan-5f-x"}
	from := podReport{Pod: "rome-rome-5f-y", Node: "rome-1", Revision: "2", Run: "b"}
	set := func(ready bool) {
		slice.Endpoints = []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: &corev1.ObjectReference{Name: e.pod},
		}}
		b.slices["rome"]["anarchy/all-1"] = slice
	}
	requested := func(second int, by string) []string {
		from.Asked = map[string]string{e.address: by}
		return b.record(at(second), from)
	}
	require.Empty(t, b.record(at(0), podReport{Pod: e.pod, Node: "milan-1", Run: "a"}))
	set(true)
	b.list(at(1), "rome")
	require.Equal(t, []string{e.address}, b.record(at(1), from))
	requested(2, e.pod)
	requested(3, "")
	requested(4, "another pod")
	requested(7, e.pod)
	requested(8, "")
	set(false)
	b.list(at(9), "rome")
	require.Empty(t, requested(10, e.pod), "an endpoint that is not ready is not requested")
	set(true)
	b.list(at(11), "rome")
	pods, ends := b.collected(at(20))
	require.Equal(t, []run{{"b", "rome-1", 2, at(1), at(10)}}, pods[from.Pod])
	require.Equal(t, map[endpoint]endpointTimes{e: {
		ready: []span{{at(1), at(9)}, {at(11), at(20)}}, silent: []span{{at(3), at(7)}, {at(8), at(9)}},
	}}, ends)
	require.Equal(t, map[string]int{"rome → milan": 3}, b.traffic())

	requested(21, "")
	requested(22, "")
	requested(60, "")
	requested(61, e.pod)
	_, ends = b.collected(at(70))
	require.Equal(t, []span{{at(21), at(22)}, {at(60), at(61)}}, ends[e].silent[2:], "a time without requests does not count")
}
