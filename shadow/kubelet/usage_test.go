package kubelet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"
)

func at(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0) }

func localPod(name string, start int, containers ...string) *corev1.Pod {
	began := metav1.NewTime(at(start))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &began},
	}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}})
	}
	return pod
}

func usageOf(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func sample(seconds int, containers ...metricsv1beta1.ContainerMetrics) *metricsv1beta1.PodMetrics {
	return &metricsv1beta1.PodMetrics{Timestamp: metav1.NewTime(at(seconds)), Containers: containers}
}

func measurements(name string, s *metricsv1beta1.PodMetrics) map[types.UID]*metricsv1beta1.PodMetrics {
	return map[types.UID]*metricsv1beta1.PodMetrics{types.UID("uid-" + name): s}
}

func app(cpu string) metricsv1beta1.ContainerMetrics {
	return metricsv1beta1.ContainerMetrics{Name: "app", Usage: usageOf(cpu, "64Mi")}
}

const core = 1_000_000_000 // nano cores, and core nanoseconds in a core second

func TestCounter(t *testing.T) {
	t.Parallel()
	old := counter{start: at(-1000), at: at(0), nanoCores: 1, coreNanos: 5 * core}
	for name, tc := range map[string]struct {
		have      counter
		start, at time.Time
		rate      uint64
		want      float64
	}{
		"first of an old container":          {counter{}, at(-1000), at(0), core, firstCount},
		"first of a young container":         {counter{}, at(-20), at(0), core / 2, firstCount + 10*core},
		"first of one of unknown age":        {counter{}, time.Time{}, at(0), core, firstCount},
		"first, begun after it was measured": {counter{}, at(5), at(0), core, firstCount},
		"a newer measurement":                {old, at(-1000), at(15), core / 10, 6.5 * core},
		"the same measurement":               {old, at(-1000), at(0), core, 5 * core},
		"an older measurement":               {old, at(-1000), at(-15), core, 5 * core},
		"idle":                               {old, at(-1000), at(15), 0, 5 * core},
		"a long gap":                         {old, at(-1000), at(1000), core, 1005 * core},
		"its start is not told":              {old, time.Time{}, at(15), core, 20 * core},
		"started again":                      {old, at(10), at(15), core, firstCount + 5*core},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tc.have.next(tc.start, tc.at, tc.rate)
			require.InDelta(t, tc.want, got.coreNanos, 1)
			require.Equal(t, got, got.next(tc.start, tc.at, tc.rate), "the same measurement twice counts once")
		})
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	m := newNodeCounters("milan", at(-500))
	pods := []*corev1.Pod{localPod("web", -1000, "app", "side"), localPod("db", -20, "db"), localPod("new", 0, "app")}
	all := measurements("web", sample(-5, app("250m"), metricsv1beta1.ContainerMetrics{Name: "side", Usage: usageOf("50m", "1Mi")},
		metricsv1beta1.ContainerMetrics{Name: "injected-there", Usage: usageOf("9", "9Gi")}))
	all["uid-db"] = sample(-10, metricsv1beta1.ContainerMetrics{Name: "db", Usage: usageOf("1", "1Gi")})
	all["uid-somebody"] = sample(-10, app("7"))
	got := m.summary(at(0), pods, all, true)

	require.Equal(t, "milan", got.Node.NodeName)
	require.Equal(t, at(-500), got.Node.StartTime.Time)
	require.Equal(t, at(0), got.Node.CPU.Time.Time)
	require.EqualValues(t, 13*core/10, *got.Node.CPU.UsageNanoCores)
	require.EqualValues(t, 1<<30+65<<20, *got.Node.Memory.WorkingSetBytes)
	require.Len(t, got.Pods, 2, "what was not measured is not reported")
	db, web := got.Pods[0], got.Pods[1]
	require.Equal(t, statsv1alpha1.PodReference{Name: "web", Namespace: "shop", UID: "uid-web"}, web.PodRef)
	require.Equal(t, at(-1000), web.StartTime.Time)
	require.Len(t, web.Containers, 2, "what the provider adds to the pod is its own affair")
	require.Equal(t, "app", web.Containers[0].Name)
	require.Equal(t, at(-1000), web.Containers[0].StartTime.Time)
	require.EqualValues(t, core/4, *web.Containers[0].CPU.UsageNanoCores)
	require.EqualValues(t, 64<<20, *web.Containers[0].Memory.WorkingSetBytes)
	require.EqualValues(t, 3*core/10, *web.CPU.UsageNanoCores)
	require.EqualValues(t, 65<<20, *web.Memory.WorkingSetBytes)
	require.EqualValues(t, firstCount+10*core, *db.Containers[0].CPU.UsageCoreNanoSeconds)
}

// rate is computed as metrics-server does it from two scrapes.
func rate(t *testing.T, before, after *statsv1alpha1.CPUStats) float64 {
	t.Helper()
	require.GreaterOrEqual(t, *after.UsageCoreNanoSeconds, *before.UsageCoreNanoSeconds, "a counter does not fall")
	return float64(*after.UsageCoreNanoSeconds-*before.UsageCoreNanoSeconds) / after.Time.Sub(before.Time.Time).Seconds()
}

func TestReadersSeeTheProvidersRates(t *testing.T) {
	t.Parallel()
	m := newNodeCounters("milan", at(0))
	pods := []*corev1.Pod{localPod("web", -1000, "app")}
	before := m.summary(at(2), pods, measurements("web", sample(0, app("100m"))), true)
	for i, cpu := range []string{"100m", "900m", "0", "3"} {
		now := 15 * (i + 1)
		after := m.summary(at(now+2), pods, measurements("web", sample(now, app(cpu))), true)
		quantity := resource.MustParse(cpu)
		want := float64(quantity.ScaledValue(resource.Nano))
		require.InDelta(t, want, rate(t, before.Pods[0].Containers[0].CPU, after.Pods[0].Containers[0].CPU), 1)
		require.InDelta(t, want, rate(t, before.Pods[0].CPU, after.Pods[0].CPU), 1)
		require.InDelta(t, want, rate(t, before.Node.CPU, after.Node.CPU), 1)
		before = after
	}
	require.NotZero(t, *before.Pods[0].Containers[0].CPU.UsageCoreNanoSeconds)
}

func TestCountersSurviveGapsAndGoWithThePod(t *testing.T) {
	t.Parallel()
	m := newNodeCounters("milan", at(0))
	pods := []*corev1.Pod{localPod("web", -1000, "app")}
	m.summary(at(2), pods, measurements("web", sample(0, app("1"))), true)
	m.summary(at(17), pods, measurements("web", sample(15, app("1"))), true)
	empty := m.summary(at(30), pods, nil, true)
	require.Empty(t, empty.Pods)
	again := m.summary(at(47), pods, measurements("web", sample(45, app("1"))), true)
	require.EqualValues(t, firstCount+45*core, *again.Pods[0].Containers[0].CPU.UsageCoreNanoSeconds)

	node := *again.Node.CPU.UsageCoreNanoSeconds
	gone := m.summary(at(60), nil, nil, true)
	require.GreaterOrEqual(t, *gone.Node.CPU.UsageCoreNanoSeconds, node, "the node's counter does not fall with its pods")
	require.Empty(t, m.counters)
}

func TestNodeWithoutPods(t *testing.T) {
	t.Parallel()
	m := newNodeCounters("milan", at(0))
	got := m.summary(at(1), nil, nil, true)
	require.NotZero(t, *got.Node.CPU.UsageCoreNanoSeconds)
	require.NotZero(t, *got.Node.Memory.WorkingSetBytes)
	require.NotNil(t, got.Pods, "an empty list, not null")
	got = m.summary(at(2), nil, nil, false)
	require.Nil(t, got.Node.CPU, "nothing is known")
	require.Nil(t, got.Node.Memory)
}

func TestHostileMeasurements(t *testing.T) {
	t.Parallel()
	m := newNodeCounters("milan", at(0))
	pods := []*corev1.Pod{localPod("web", -1000, "app")}
	require.Empty(t, m.summary(at(0), pods, measurements("web", sample(3600, app("1"))), true).Pods, "from the future")
	got := m.summary(at(0), pods, measurements("web", sample(0, app("-5"))), true)
	require.Zero(t, *got.Pods[0].CPU.UsageNanoCores)
	got = m.summary(at(15), pods, measurements("web", sample(15, app("1000000"))), true)
	require.EqualValues(t, firstCount+15*1_000_000*core, *got.Pods[0].CPU.UsageCoreNanoSeconds)
	require.Empty(t, m.summary(at(16), pods, measurements("web", sample(16)), true).Pods)
}

func TestCollector(t *testing.T) {
	t.Parallel()
	m := newNodeCounters("milan", at(0))
	pod := localPod("web", -1000, "app")
	pod.Status.StartTime = nil
	summary := m.summary(at(0), []*corev1.Pod{pod}, measurements("web", sample(0, app("1"))), true)
	want := strings.NewReader(`# HELP container_cpu_usage_seconds_total Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} 1e-06 1800000000000
# HELP container_memory_working_set_bytes Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="app",namespace="shop",pod="web"} 6.7108864e+07 1800000000000
# HELP container_start_time_seconds Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",namespace="shop",pod="web"} 1.799999e+09
# HELP node_cpu_usage_seconds_total Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 1e-06 1800000000000
# HELP node_memory_working_set_bytes Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 6.7108864e+07 1800000000000
# HELP pod_cpu_usage_seconds_total Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 1e-06 1800000000000
# HELP pod_memory_working_set_bytes Current working set of the pod in bytes
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="shop",pod="web"} 6.7108864e+07 1800000000000
# HELP resource_scrape_error 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
`)
	require.NoError(t, testutil.CollectAndCompare(resourceMetrics{Summary: summary}, want))
	require.NoError(t, testutil.CollectAndCompare(resourceMetrics{Failed: true}, strings.NewReader(
		"# HELP resource_scrape_error 1 if there was an error while getting container metrics, 0 otherwise\n# TYPE resource_scrape_error gauge\nresource_scrape_error 1\n")))
}

const oneList = `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[
{"metadata":{"name":"web","namespace":"shop-twin","labels":{"offloading.liqo.io/local-pod-uid":"uid-1"}},"timestamp":"2027-01-15T08:00:00Z","window":"15s",
 "containers":[{"name":"app","usage":{"cpu":"250m","memory":"64Mi"}}]},
{"metadata":{"name":"other","namespace":"shop-twin"},"timestamp":"2027-01-15T08:00:00Z","window":"15s","containers":[{"name":"app","usage":{"cpu":"9","memory":"9Gi"}}]}]}`

// metricsAPI is a provider's, or what stands in its place.
type metricsAPI struct {
	mu    sync.Mutex
	code  int
	body  string
	asked []string
}

func (m *metricsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, r.URL.String())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(m.code)
	fmt.Fprint(w, m.body)
}

func (m *metricsAPI) set(code int, body string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.code, m.body = code, body
}

func (m *metricsAPI) requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.asked)
}

func runningPod(p podMap) podMap {
	p["shop/web"].Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", Image: "web:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	return p
}

func TestStats(t *testing.T) {
	api := &metricsAPI{code: 200, body: oneList}
	clock := clocktesting.NewFakePassiveClock(time.Date(2027, 1, 15, 8, 0, 2, 0, time.UTC))
	rig := newRigOf(t, api, func(c *Config) { c.Clock, c.Pods = clock, runningPod(onePod()) })
	summary := rig.summary(t)
	require.Equal(t, "milan", summary.Node.NodeName)
	require.Len(t, summary.Pods, 1, "what has no local pod is not shown")
	require.Equal(t, statsv1alpha1.PodReference{Namespace: "shop", Name: "web", UID: "uid-1"}, summary.Pods[0].PodRef)
	require.EqualValues(t, 250_000_000, *summary.Pods[0].CPU.UsageNanoCores)
	require.EqualValues(t, 250_000_000, *summary.Node.CPU.UsageNanoCores)
	require.Equal(t, []string{"/apis/metrics.k8s.io/v1beta1/namespaces/shop-twin/pods?labelSelector=offloading.liqo.io%2Fnodename%3Dmilan"}, api.asked)

	code, text := rig.do(t, "GET", "/metrics/resource", "good", nil)
	require.Equal(t, 200, code, text)
	require.Contains(t, text, `container_memory_working_set_bytes{container="app",namespace="shop",pod="web"} 6.7108864e+07 1800000000000`)
	require.Contains(t, text, "resource_scrape_error 0")
	require.Equal(t, 1, api.requests(), "one reading serves all within some seconds")
	clock.SetTime(clock.Now().Add(usageTTL))
	rig.summary(t)
	require.Equal(t, 2, api.requests())
}

func (r *rig) summary(t *testing.T) statsv1alpha1.Summary {
	t.Helper()
	code, body := r.do(t, "GET", "/stats/summary", "good", nil)
	require.Equal(t, 200, code, body)
	var summary statsv1alpha1.Summary
	require.NoError(t, json.Unmarshal([]byte(body), &summary))
	return summary
}

func TestStatsWithoutMetricsAPI(t *testing.T) {
	for name, tc := range map[string]struct {
		code int
		body string
	}{
		"no such API":      {404, "404 page not found"},
		"its server away":  {503, "service unavailable"},
		"no right to it":   {403, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`},
		"it talks rubbish": {200, "<html>"},
	} {
		t.Run(name, func(t *testing.T) {
			api := &metricsAPI{code: tc.code, body: tc.body}
			clock := clocktesting.NewFakePassiveClock(time.Date(2027, 1, 15, 8, 0, 2, 0, time.UTC))
			core, logged := observer.New(zap.InfoLevel)
			rig := newRigOf(t, api, func(c *Config) { c.Clock, c.Pods, c.Log = clock, runningPod(onePod()), zap.New(core) })
			for range 3 {
				summary := rig.summary(t)
				require.Empty(t, summary.Pods)
				require.Nil(t, summary.Node.CPU, "what is not known is not 0")
				code, text := rig.do(t, "GET", "/metrics/resource", "good", nil)
				require.Equal(t, 200, code, text)
				require.Contains(t, text, "resource_scrape_error 1")
				require.NotContains(t, text, "node_cpu")
				clock.SetTime(clock.Now().Add(usageTTL))
			}
			require.Equal(t, 1, logged.FilterMessage("no metrics of pods from the provider").Len())
			api.set(200, oneList)
			require.Len(t, rig.summary(t).Pods, 1)
			require.Equal(t, 1, logged.FilterMessage("metrics of pods from the provider are back").Len())
		})
	}
}

func TestNobodyIsAskedForNothing(t *testing.T) {
	api := &metricsAPI{code: 200, body: oneList}
	rig := newRig(t, api) // its pod does not run
	require.Empty(t, rig.summary(t).Pods)
	require.Zero(t, api.requests())
}

func TestManyReadersOneReading(t *testing.T) {
	var asked atomic.Int32
	release := make(chan struct{})
	rig := newRigOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		<-release
		fmt.Fprint(w, oneList)
	}), func(c *Config) { c.Pods = runningPod(onePod()) })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { rig.do(t, "GET", "/stats/summary", "good", nil) })
	}
	require.Eventually(t, func() bool { return asked.Load() == 1 }, time.Minute, time.Millisecond)
	close(release)
	all.Wait()
	require.EqualValues(t, 1, asked.Load())
}

func TestPodLists(t *testing.T) {
	rig := newRigOf(t, http.NotFoundHandler(), func(c *Config) { c.Pods = runningPod(onePod()) })
	for path, want := range map[string]string{
		"/pods":         `"name":"setup"`,
		"/runningpods/": `"containers":[{"name":"app","image":"web:1"`,
	} {
		code, body := rig.do(t, "GET", path, "good", nil)
		require.Equal(t, 200, code, body)
		require.Contains(t, body, want, path)
	}
	code, body := newRig(t, http.NotFoundHandler()).do(t, "GET", "/runningpods/", "good", nil)
	require.Equal(t, 200, code)
	require.Contains(t, strings.ReplaceAll(body, " ", ""), `"items":[]`)
}
