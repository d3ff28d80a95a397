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

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	clocktesting "k8s.io/utils/clock/testing"
)

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
