package main

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/liqod/liqod/e2e/lab"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"nothing":       {},
		"pods":          {args: []string{"--pods=100", "--pairs=1"}},
		"no pods":       {args: []string{"--pods=0"}, want: "--pods is 0 and --pairs is 5: at least 1 is accepted"},
		"negative many": {args: []string{"--large=-1"}, want: "--large is -1"},
		"negative pace": {args: []string{"--paced=-1"}, want: "--paced is -1"},
		"negative time": {args: []string{"--idle=-1s"}, want: "--idle is -1s"},
		"argument":      {args: []string{"now"}, want: `argument "now" is not understood`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(test.args, io.Discard)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

// TestMirrorCommands: the bench is the mirrors, too, and each reads its own flags.
func TestMirrorCommands(t *testing.T) {
	for name := range mirrors() {
		err := command(t.Context(), []string{name, "--home=" + filepath.Join(t.TempDir(), "none")})
		require.ErrorContains(t, err, name+": reading a kubeconfig")
	}
	o, err := parseMirror([]string{"--node=n", "--workers=3"})
	require.NoError(t, err)
	require.Equal(t, mirrorOptions{node: "n", workers: 3}, o)
	c, err := parseCopier([]string{"--home=h"})
	require.NoError(t, err)
	require.Equal(t, copierOptions{home: "h", selector: "app=bench", workers: 10}, c)
}

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	require.InDelta(t, 2.5, quantile(values, 0.5), 1e-9)
	require.InDelta(t, 1, quantile(values, 0), 1e-9)
	require.InDelta(t, 4, quantile(values, 1), 1e-9)
	require.InDelta(t, 3.97, quantile(values, 0.99), 1e-9)
	require.Zero(t, quantile(nil, 0.5))
	require.Equal(t, []float64{4, 1, 3, 2}, values)
}

func TestProcFiles(t *testing.T) {
	seconds, err := cpuSeconds("42 (a b) c) S 1 42 42 0 -1 4194560 2050 0 0 0 150 25 0 0 20 0 9 0 1000 1 1")
	require.NoError(t, err)
	require.InDelta(t, 1.75, seconds, 1e-9)
	_, err = cpuSeconds("42 (a) S 1")
	require.Error(t, err)
	peak, err := statusMB("Name:\tliqod\nVmPeak:\t 9 kB\nVmHWM:\t   50000 kB\n", peakLine)
	require.NoError(t, err)
	require.InDelta(t, 51.2, peak, 1e-9)
	_, err = statusMB("Name:\tliqod\n", peakLine)
	require.ErrorContains(t, err, "no VmHWM")
}

func TestWho(t *testing.T) {
	for name, test := range map[string]struct{ cluster, user, agent, want string }{
		"controller at home":  {"rome", "system:serviceaccount:liqod:liqod-controller", "liqod/dev controller", "rome controller"},
		"vkubelet at home":    {"rome", "system:serviceaccount:liqo-tenant-milan:vk-milan", "liqod/dev vkubelet", "rome vkubelet"},
		"vkubelet away":       {"milan", "system:serviceaccount:liqo-tenant-rome:peer-1", "liqod/dev vkubelet", "rome vkubelet"},
		"controller of milan": {"milan", "system:serviceaccount:liqod:liqod-controller", "liqod/dev controller", "milan controller"},
		"controller away":     {"milan", "system:serviceaccount:liqo-tenant-rome:peer-1", "liqod/dev controller", "rome controller"},
		"mirror":              {"milan", "system:serviceaccount:mirror-rome:bench", "mirror", mirrorName},
		"bench":               {"milan", "admin", "lab", whoBench},
		"scheduler":           {"milan", "system:kube-scheduler", "kubelab/v1", "kubernetes kube-scheduler"},
	} {
		t.Run(name, func(t *testing.T) {
			r := lab.AuditRecord{UserAgent: test.agent}
			r.User.Username = test.user
			require.Equal(t, test.want, who(test.cluster, r))
		})
	}
}

func TestPerPod(t *testing.T) {
	vkubelet := request{Cluster: "milan", Who: "rome vkubelet", Verb: "create", Resource: "shadowpods"}
	other := request{Cluster: "milan", Who: mirrorName, Verb: "create", Resource: "pods"}
	cluster := request{Cluster: "milan", Who: whoKubernetes, Verb: "patch", Resource: "pods/status"}
	created := map[request]int{vkubelet: 10, other: 10, cluster: 10}
	deleted := map[request]int{vkubelet: 5, cluster: 20}
	require.Equal(t, []requestCount{
		{Contestant: "liqod", request: cluster, Create: 10, Delete: 20, PerPod: 3},
		{Contestant: "liqod", request: vkubelet, Create: 10, Delete: 5, PerPod: 1.5},
	}, perPod(&contestant{name: "liqod", shadows: true}, 10, created, deleted))
	require.Equal(t, []requestCount{
		{Contestant: "mirror", request: cluster, Create: 10, Delete: 20, PerPod: 3},
		{Contestant: "mirror", request: other, Create: 10, PerPod: 1},
	}, perPod(&contestant{name: "mirror"}, 10, created, deleted))
}

func TestMetric(t *testing.T) {
	text := []byte("# HELP a b\nliqod_loop_depth{loop=\"pods\"} 3\nliqod_loop_depth{loop=\"pods2\"} 4\n")
	require.InDelta(t, 3, metric(text, `liqod_loop_depth{loop="pods"}`), 1e-9)
	require.Zero(t, metric(text, `liqod_loop_depth{loop="other"}`))
}

func TestTracker(t *testing.T) {
	tr := &tracker{news: make(chan struct{}, 1), there: []map[string]bool{{}, {}}, running: map[string]time.Time{}, gone: map[string]time.Time{}}
	begin := time.Unix(100, 0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	away := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	tr.see(0, pod, false, begin)
	tr.see(1, away, false, begin)
	require.Zero(t, tr.runningNow())
	running := pod.DeepCopy()
	running.Status.Phase = corev1.PodRunning
	tr.see(0, running, false, begin.Add(2*time.Second))
	tr.see(0, running, false, begin.Add(3*time.Second))
	require.Equal(t, 1, tr.runningNow())
	p, err := newPhase(begin, map[string]time.Time{"a": begin.Add(time.Second)}, tr, nil)
	require.NoError(t, err)
	require.Equal(t, phase{Seconds: 2, PodsPerSecond: 0.5, P50: 1000, P99: 1000, Max: 1000}, p)

	tr.see(0, running, true, begin.Add(4*time.Second))
	require.False(t, tr.empty())
	tr.see(1, away, true, begin.Add(5*time.Second))
	require.True(t, tr.empty())
	p, err = newPhase(begin, map[string]time.Time{"a": begin}, tr, nil)
	require.NoError(t, err)
	require.Equal(t, phase{Seconds: 5, PodsPerSecond: 0.2, P50: 4000, P99: 4000, Max: 4000}, p)
}

func TestReport(t *testing.T) {
	at := func(perSecond float64) round {
		p := phase{Seconds: 1, PodsPerSecond: perSecond, P50: 1, P99: 2, CPU: map[string]float64{"rome vkubelet": 0.5}}
		return round{Create: p, Delete: p}
	}
	r := report{
		Pods: 10, Pairs: []pair{{at(6), at(10)}, {at(7), at(10)}, {at(9), at(10)}}, Paced: &pair{at(5), at(5)},
		Idle: &idleness{Requests: []idleRequest{{request{Who: "rome vkubelet", Verb: "get"}, 60}}}, Restart: &restarted{Pods: 10, Seconds: 1.5},
		Requests: []requestCount{
			{Contestant: "liqod", request: request{Who: "rome vkubelet", Verb: "create", Resource: "shadowpods"}, Create: 10, PerPod: 1},
			{Contestant: "liqod", request: request{Who: whoKubernetes}, PerPod: 4},
			{Contestant: "liqod", request: request{Cluster: "rome", Who: "rome vkubelet", Verb: "patch", Resource: "pods/status"}, PerPod: 2},
			{Contestant: "liqod", request: request{Cluster: "milan", Who: whoKubernetes + "sim", Verb: "patch", Resource: "pods/status"}, PerPod: 1.5},
			{Contestant: "liqod", request: request{Cluster: "milan", Who: whoKubernetes + "scheduler", Verb: "create", Resource: "pods/binding"}, PerPod: 1},
			{Contestant: mirrorName, request: request{Cluster: "milan", Who: whoKubernetes + "sim", Verb: "patch", Resource: "pods/status"}, PerPod: 2},
		},
		Large: &report{Pods: 30},
	}
	r.summarize()
	require.Equal(t, spread{Median: 0.7, Min: 0.6, Max: 0.9}, r.Summary.Create.Ratio.PodsPerSecond)
	require.Equal(t, spread{1, 1, 1}, r.Summary.CPU["liqod"]["rome vkubelet"])
	require.Equal(t, map[string]float64{"liqod": 3}, r.Summary.RequestsPerPod)
	require.Equal(t, statuses{Remote: 2.5, Home: 2}, r.Summary.Statuses)
	var out bytes.Buffer
	r.print(&out)
	require.Contains(t, out.String(), "0.70 (0.60 - 0.90)")
	require.Contains(t, out.String(), "30 pods, 0 pairs")
	require.Equal(t, spread{1, 1, 1}, r.Summary.Create.Ratio.CPU)
	require.Contains(t, out.String(), "P99 of liqod by that of the mirror: 1.00")
	require.Contains(t, out.String(), "caught up after 1.50 s, 0 writes")
	path := filepath.Join(t.TempDir(), "new", "bench.json")
	require.NoError(t, r.write(path))
	require.FileExists(t, path)
}

func TestParseReflection(t *testing.T) {
	o, err := parse([]string{"--only=reflection", "--kinds=secret,ingress", "--pairs=2", "--no-events"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 2, o.objects.pairs)
	require.True(t, o.objects.noEvents)
	require.Len(t, o.objects.measured(true), 1)
	require.Len(t, o.objects.measured(false), 2)
	for name, test := range map[string]struct{ arg, want string }{
		"only":       {"--only=nodes", `--only is "nodes": pods, reflection, network, outage, flood, scale or nothing is accepted`},
		"kinds":      {"--kinds=secret,pods", `--kinds has "pods": configmap, secret, service, endpointslice, ingress are accepted`},
		"no objects": {"--objects=0", "--objects is 0: at least 1 is accepted"},
		"no rate":    {"--rate=0", "--rate is 0"},
		"namespaces": {"--namespaces=-1", "--namespaces is -1: at least 0 is accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]string{test.arg}, io.Discard)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// TestObjectKinds makes, changes and deletes an object of each kind.
func TestObjectKinds(t *testing.T) {
	for _, k := range objectKinds() {
		t.Run(k.name, func(t *testing.T) {
			c := fake.NewClientset()
			version := func() int32 {
				list, err := k.source(c, "bench").list(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				v := int32(0)
				each(list, func(o metav1.Object) { v = k.version(o) })
				return v
			}
			require.NoError(t, k.create(t.Context(), c, "bench", "a", 1))
			require.EqualValues(t, 1, version())
			require.NoError(t, k.update(t.Context(), c, "bench", "a", 2))
			require.EqualValues(t, 2, version())
			require.NoError(t, k.delete(t.Context(), c, "bench", "a"))
			require.Zero(t, version())
			require.Zero(t, k.version(&corev1.Pod{}))
		})
	}
}

func TestArrivals(t *testing.T) {
	k := configMapKind()
	object := func(version string) metav1.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"v": version}}
	}
	_, a := newArrivals(t.Context(), 2, 1)
	early := a.arrival("configmap/a")
	begin := time.Unix(100, 0)
	a.see(k, object("1"), false, begin)
	a.see(k, object("2"), true, begin)
	require.Empty(t, a.seen)
	a.see(k, object("2"), false, begin.Add(2*time.Second))
	a.see(k, object("2"), false, begin.Add(3*time.Second))
	<-early
	require.NoError(t, a.waitFor("configmap/a"), "it is there")
	a.cancel(errors.New("not followed any more"))
	require.EqualError(t, a.waitFor("configmap/b"), "not followed any more")
	seen, err := a.wait()
	require.NoError(t, err)
	p, err := newObjectPhase(begin, map[string]time.Time{"configmap/a": begin.Add(time.Second)}, seen, nil)
	require.NoError(t, err)
	want := objectFigures{Seconds: 2, PerSecond: 0.5, P50: 1000, P99: 1000, Max: 1000}
	require.Equal(t, objectPhase{objectFigures: want, Kinds: map[string]objectFigures{"configmap": want}}, p)
	_, err = newObjectPhase(begin, map[string]time.Time{"configmap/b": begin}, seen, nil)
	require.ErrorContains(t, err, "configmap/b has not arrived")
}

func TestWritesOf(t *testing.T) {
	vkubelet := request{Cluster: "milan", Who: "rome vkubelet", Verb: "create", Resource: "shadowendpointslices"}
	controller := request{Cluster: "milan", Who: "milan controller", Verb: "create", Resource: "endpointslices"}
	reads := request{Cluster: "milan", Who: "rome vkubelet", Verb: "get", Resource: "shadowendpointslices"}
	other := request{Cluster: "milan", Who: mirrorName, Verb: "create", Resource: "endpointslices"}
	counts := map[string]map[request]int{"create": {vkubelet: 10, controller: 20, reads: 5, other: 10}, "delete": {reads: 5}}
	kinds := []objectKind{endpointSliceKind()}
	require.Equal(t, []objectWrites{{Contestant: "liqod", Kind: "endpointslice", Create: 1, RealCreate: 2}},
		writesOf("liqod", perObject(&contestant{name: "liqod", shadows: true}, 10, counts), kinds, 10))
	mirror := perObject(&contestant{name: mirrorName}, 10, counts)
	require.Equal(t, []objectRequest{{Contestant: mirrorName, request: other, Create: 10, PerObject: 1}}, mirror)
	require.Equal(t, []objectWrites{{Contestant: mirrorName, Kind: "endpointslice", Create: 1}}, writesOf(mirrorName, mirror, kinds, 10))
}

func TestObjectReport(t *testing.T) {
	at := func(perSecond float64) objectRound {
		f := objectFigures{Seconds: 1, PerSecond: perSecond, P50: 1, P99: 2}
		p := objectPhase{objectFigures: f, Kinds: map[string]objectFigures{"secret": f}, CPU: map[string]float64{"rome vkubelet": 0.5}}
		return objectRound{Create: p, Update: p, Delete: p}
	}
	f := footprint{MB: map[string]float64{"rome vkubelet": 50}, Idle: &idleness{CPU: map[string]float64{"rome vkubelet": 1}}}
	r := objectReport{
		Each: 10, Kinds: []string{"secret"}, Pairs: []objectPair{{at(6), at(10)}, {at(7), at(10)}, {at(9), at(10)}},
		Paced: []objectPair{{at(5), at(5)}, {at(5), at(10)}, {at(5), at(5)}}, Rate: 50,
		InTurn: []objectPair{{at(3), at(4)}},
		Events: &objectPair{at(5), at(5)}, Stream: &streamResult{PerSecond: 100, Written: 30, Home: 20}, Restart: &restarted{Pods: 10, Seconds: 1.5}, Idle: &idleness{},
		Requests: []objectRequest{{Contestant: "liqod", request: request{Who: "rome vkubelet"}, Create: 10, PerObject: 1}},
		Writes:   []objectWrites{{Contestant: "liqod", Kind: "secret", Create: 1}},
		Spread:   &spreadOut{Namespaces: 100, Kinds: []string{"secret"}, One: f, Many: f, Again: f},
	}
	r.summarize()
	require.Equal(t, spread{Median: 0.7, Min: 0.6, Max: 0.9}, r.Summary.Steps[0].Ratio.PerSecond)
	require.Equal(t, spread{1.5, 1.5, 1.5}, r.Summary.CPU["liqod"]["rome vkubelet"])
	var out bytes.Buffer
	r.print(&out)
	require.Contains(t, out.String(), "0.70 (0.60 - 0.90)")
	require.Contains(t, out.String(), "At 50 changes a second, 3 pairs")
	require.Contains(t, out.String(), "1.00 (0.50 - 1.00)")
	require.Contains(t, out.String(), "With 32 changes under way at any time, 1 pairs")
	require.Contains(t, out.String(), "0.75 (0.75 - 0.75)")
	require.Contains(t, out.String(), "30 told, 20 came home")
	require.Contains(t, out.String(), "100 namespaces")
	require.NoError(t, writeJSON(filepath.Join(t.TempDir(), "r.json"), r))
}
