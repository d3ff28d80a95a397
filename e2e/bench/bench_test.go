package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"--pods=100", "--pairs=1", "--only=network", "--network-for=1s", "--no-policies", "--scale-pods=2000", "--scale-service=false"}, io.Discard)
	require.NoError(t, err)
	require.True(t, o.noPolicies && o.pods == 100 && o.pairs == 1 && o.network.each == time.Second)
	require.Equal(t, []string{"pods=4000", "count/pods=4000", "count/shadowpods.offloading.liqo.io=4000"}, o.scale.limits())
	for arg, want := range map[string]string{
		"--pods=0":            "--pods is 0: at least 1 is accepted",
		"--large=-1":          "--large is -1: at least 0 is accepted",
		"--pairs=-1":          "--pairs is -1: 0 or more is accepted",
		"--objects=0":         "--objects is 0",
		"--outage-pods=0":     "--outage-pods is 0: at least 1 is accepted",
		"--flood-shadows=0":   "--flood-shadows is 0: at least 1 is accepted",
		"--scale-pods=0":      "--scale-pods is 0: at least 1 is accepted",
		"--network-for=1ms":   "--network-for is 1ms: at least 100ms is accepted",
		"--network-memory=-1": "--network-memory is -1: at least 0 is accepted",
		"--against=HEAD":      `--against is "HEAD": only --only pods compares`,
		"--only=all":          `--only is "all": pods, reflection, network, outage, flood, scale, peers or nothing is accepted`,
		"now":                 `argument "now" is not understood`,
	} {
		_, err := parse([]string{arg}, io.Discard)
		require.ErrorContains(t, err, want)
	}
	m, err := parseMirror([]string{"--node=n", "--workers=3"})
	require.NoError(t, err)
	require.Equal(t, mirrorOptions{node: "n", workers: 3}, m)
	require.ErrorContains(t, command(t.Context(), []string{mirrorCommand, "--home=" + filepath.Join(t.TempDir(), "none")}), "mirror: reading a kubeconfig")
}

// The figures of an outage do not replace those of the pods.
func TestOutageFile(t *testing.T) {
	o, err := parse([]string{"--out=d/f.json"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, filepath.Join("d", outageFile), o.outageOut())
	o.only = "outage"
	require.Equal(t, "d/f.json", o.outageOut())
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
		"vkubelet away":       {"milan", "liqo.io:peer:rome:peer-1", "liqod/dev vkubelet", "rome vkubelet"},
		"controller of milan": {"milan", "system:serviceaccount:liqod:liqod-controller", "liqod/dev controller", "milan controller"},
		"controller away":     {"milan", "liqo.io:peer:rome:peer-1", "liqod/dev controller", "rome controller"},
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

func TestCounts(t *testing.T) {
	vkubelet := request{Cluster: "milan", Who: "rome vkubelet", Verb: "create", Resource: "shadowpods"}
	other := request{Cluster: "milan", Who: mirrorName, Verb: "create", Resource: "pods"}
	cluster := request{Cluster: "milan", Who: whoKubernetes, Verb: "patch", Resource: "pods/status"}
	counts := map[string]map[request]int{stepCreate: {vkubelet: 10, other: 10, cluster: 10}, stepDelete: {vkubelet: 5, cluster: 20}}
	require.Equal(t, []requestCount{
		{Contestant: "liqod", request: cluster, Create: 10, Delete: 20}, {Contestant: "liqod", request: vkubelet, Create: 10, Delete: 5},
	}, countsOf(&contestant{name: "liqod", shadows: true}, counts))
	require.Equal(t, []requestCount{
		{Contestant: "mirror", request: cluster, Create: 10, Delete: 20}, {Contestant: "mirror", request: other, Create: 10},
	}, countsOf(&contestant{name: "mirror"}, counts))
}

func TestPhase(t *testing.T) {
	home, away := newView("home", nil, running), newView("away", nil, one)
	begin := time.Unix(100, 0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	home.see(pod, false, begin)
	away.see(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, false, begin)
	require.Equal(t, []int{0, 1}, []int{home.sum, away.sum})
	_, err := newPhase(begin, map[string]time.Time{"a": begin}, []*view{home}, nil)
	require.ErrorContains(t, err, "pod a has not arrived")
	pod.Status.Phase = corev1.PodRunning
	home.see(pod, false, begin.Add(2*time.Second))
	home.see(pod, false, begin.Add(3*time.Second))
	p, err := newPhase(begin, map[string]time.Time{"a": begin.Add(time.Second)}, []*view{home}, nil)
	require.NoError(t, err)
	require.Equal(t, phase{Seconds: 2, PodsPerSecond: 0.5, P50: 1000, P99: 1000, Max: 1000}, p)

	home.see(pod, true, begin.Add(4*time.Second))
	away.see(pod, true, begin.Add(5*time.Second))
	require.Equal(t, []int{0, 0}, []int{home.sum, away.sum})
	p, err = newPhase(begin, map[string]time.Time{"a": begin}, []*view{home, away}, nil)
	require.NoError(t, err)
	require.Equal(t, phase{Seconds: 5, PodsPerSecond: 0.2, P50: 4000, P99: 4000, Max: 4000}, p)
}

func TestReport(t *testing.T) {
	at := func(perSecond float64) round {
		p := phase{Seconds: 1, PodsPerSecond: perSecond, P50: 1, P99: 2, CPU: map[string]float64{"rome vkubelet": 0.5}}
		return round{Create: p, Delete: p}
	}
	r := report{
		Pods: 10, Pairs: []pair{{at(6), at(10)}, {at(7), at(10)}, {at(9), at(10)}},
		Requests: []requestCount{
			{Contestant: "liqod", request: request{Who: "rome vkubelet", Verb: "create", Resource: "shadowpods"}, Create: 10, PerPod: 1},
			{Contestant: "liqod", request: request{Who: whoKubernetes}, PerPod: 4},
			{Contestant: "liqod", request: request{Cluster: "rome", Who: "rome vkubelet", Verb: "patch", Resource: "pods/status"}, PerPod: 2},
		},
		Large: &report{Pods: 30},
	}
	r.summarize()
	require.Equal(t, spread{Median: 0.7, Min: 0.6, Max: 0.9}, r.Summary.Create.Ratio["podsPerSecond"])
	require.Equal(t, spread{1, 1, 1}, r.Summary.CPU["liqod"]["rome vkubelet"])
	require.Equal(t, map[string]float64{"liqod": 3}, r.Summary.RequestsPerPod)
	var out strings.Builder
	r.print(&out)
	require.Contains(t, out.String(), "0.70 (0.60 - 0.90)")
	require.Contains(t, out.String(), "30 pods, 0 pairs")
	require.Equal(t, spread{1, 1, 1}, r.Summary.Create.Ratio["cpuSeconds"])
	path := filepath.Join(t.TempDir(), "new", "bench.json")
	require.NoError(t, writeJSON(path, r))
	require.FileExists(t, path)
}

// TestAgainst: CPU has risen where every pair shows it and the median is above the noise; processes
// that use next to nothing are not judged.
func TestAgainst(t *testing.T) {
	at := func(vkubelet, controller, etcd float64) round {
		p := phase{Seconds: 1, CPU: map[string]float64{"rome vkubelet": vkubelet, "milan controller": controller, "milan etcd": etcd, benchProcess: 9}}
		return round{Create: p, Delete: p}
	}
	v := versus{
		Commit: "0123456789abcdef", Pods: 10, This: requests{"rome vkubelet": 3, "milan controller": 1}, That: requests{"rome vkubelet": 2.5, "milan controller": 1},
		Pairs: []turns{{at(1.2, 1, 0.1), at(1, 1, 0.01)}, {at(1.1, 1.2, 0.1), at(1, 1, 0.01)}, {at(1.3, 0.9, 0.1), at(1, 1, 0.01)}},
	}
	err := v.judge()
	require.ErrorContains(t, err, "create: CPU of rome vkubelet is 1.20 (1.10 - 1.30) times that of 0123456789ab")
	require.ErrorContains(t, err, "4.00 requests per pod, and 3.50 at 0123456789ab")
	require.NotContains(t, err.Error(), "controller is", "one pair shows less")
	require.NotContains(t, err.Error(), "etcd")
	var out strings.Builder
	v.print(&out)
	require.Regexp(t, `create +rome vkubelet +1\.20 \(1\.10 - 1\.30\)`, out.String())
	require.Regexp(t, `all +4\.00 +3\.50`, out.String())

	_, err = commitOf(t.Context(), "no-such-commit")
	require.ErrorContains(t, err, `--against is "no-such-commit": a commit of this repository is accepted`)
}

func TestPatience(t *testing.T) {
	require.Equal(t, 10*time.Minute+200*time.Millisecond, load{pods: 1}.patience())
	require.Greater(t, load{pods: scaleGoalPods}.patience(), 30*time.Minute)
}

func TestPhaseCPU(t *testing.T) {
	require.InDelta(t, 3, phase{CPU: map[string]float64{"a": 1, "b": 2, benchProcess: 4}}.cpu(), 1e-9)
}

func TestScaleReport(t *testing.T) {
	p := phase{Seconds: 100, PodsPerSecond: 100, P50: 5, P99: 9, CPU: map[string]float64{"rome vkubelet": 20, benchProcess: 7}}
	memory := map[string]float64{"rome vkubelet": 240.5, benchProcess: 30}
	r := scaled{
		Pods: scaleGoalPods, Service: true, Limits: []string{"pods=20000"}, Create: p, Delete: p, Running: memory, Peak: memory, Cleared: 1.25,
		Guards: []guards{{Cluster: "rome", Policies: 9, Webhooks: 4}, {Cluster: "milan", Webhooks: 4}},
	}
	var out strings.Builder
	r.print(&out)
	for _, want := range []string{
		"rome: the chart's RBAC, 9 admission policies, 4 webhooks", "milan: the chart's RBAC, no admission policies (--no-policies), 4 webhooks",
		"sharing.twinLimits is set to pods=20000", "A Service has all pods", "all but the bench", "it has needed 240.5 MB", "Nothing was left in either cluster 1.2 s",
	} {
		require.Contains(t, out.String(), want)
	}
	require.Contains(t, r.processRows(), []string{"rome vkubelet", "2.00", "2.00", "240.5", "240.5"})
	require.Contains(t, r.processRows(), []string{"all but the bench", "2.00", "2.00", "", ""})
	require.NoError(t, writeJSON(filepath.Join(t.TempDir(), "r.json"), r))
}

func TestOutageReport(t *testing.T) {
	require.Equal(t, []float64{1, 8}, []float64{outageGoal(300), outageGoal(301)})
	var out strings.Builder
	(&outage{Pods: 3000, Lost: swing{Verdict: 3.2, Pods: 7, Endpoints: 7.5}, Back: swing{Verdict: 1, Pods: 6, Endpoints: 6.5}}).print(&out)
	require.Contains(t, out.String(), "with 3000 pods; goals after the verdict: 8 s; pods that are others afterwards: 0")
	require.Regexp(t, `lost +3\.20 +7\.00 +7\.50\n +back +1\.00 +6\.00 +6\.50`, out.String())
	require.Equal(t, 3, changed(map[string]string{"a": "1", "b": "1", "c": "1"}, map[string]string{"a": "1", "b": "2", "d": "1"}))
}

func TestFloodMapping(t *testing.T) {
	require.Equal(t, `{"spec":{"desiredMapping":{"t-0":"t-0-oslo","t-1":"t-1-oslo"}}}`, string(mapping(2, true)))
	require.JSONEq(t, `{"spec":{"desiredMapping":{"t-0":null,"t-1":null}}}`, string(mapping(2, false)))
}

func TestFloodReport(t *testing.T) {
	var out strings.Builder
	(&flood{Shadows: 500, Namespaces: 20, Toggles: 4, Accepted: 9, Connections: 7, Quiet: phase{P50: 400, P99: 500}, Flooding: phase{P50: 600, P99: 900},
		Waiting: phase{P50: 400, P99: 480}, QuietKnock: 3, FloodKnock: -1}).print(&out)
	require.Contains(t, out.String(), "500 ShadowPods, 20 namespaces toggled 4 times, 9 connections accepted, 7 of them open at the end")
	require.Regexp(t, `flooding +600 +900 +1\.50`, out.String())
	require.Regexp(t, `waiting .* none`, out.String())
}

func TestPeersReport(t *testing.T) {
	var out strings.Builder
	shares := map[string]float64{allVKubelets: 0.4, benchProcess: 1}
	(&peering{PerSecond: 5, Steps: []withPeers{
		{Peers: 1, P50: 5, P99: 20, VKubeletMB: 40, VKubeletCore: 0.5, Idle: shares, Changing: shares},
		{Peers: 10, P50: 9, P99: 30, VKubeletMB: 41, VKubeletCore: 0.6, Idle: shares, Changing: map[string]float64{allVKubelets: 7, benchProcess: 2}},
	}}).print(&out)
	require.Regexp(t, `10 +9 +30 +41\.0 +0\.60`, out.String())
	require.Regexp(t, `vkubelets +0\.4 / 0\.4 +0\.4 / 7\.0`, out.String())
	require.Contains(t, out.String(), "p99 with 10 providers is 1.50 times that with 1 (goals: 1.5, and 989 ms)")
}
