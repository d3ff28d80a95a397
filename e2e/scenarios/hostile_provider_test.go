package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/site"
)

const (
	loudPods = 300
	// loudQuiet is how long the growth of etcd without the attack is measured before. loudBurst is
	// how long the provider writes until what is free for each pod is used up, and loudFor the time
	// in which the growth is measured after that.
	loudQuiet, loudBurst, loudFor = time.Minute, 3 * time.Minute, 3 * time.Minute
	// loudGrowth is how many bytes a minute the attack may add to the growth of the consumer's
	// etcd, and loudMemory the peak of a role in MB.
	loudGrowth, loudMemory = 1_000_000, 512
)

// TestLoudProvider: a provider changes the statuses of 300 pods, its events and its answers as
// fast as it can, each as large as it may be. The consumer's etcd and memory stay bounded, and
// a new pod runs meanwhile.
func TestLoudProvider(t *testing.T) {
	if !*all {
		t.Log("left to make test-all: TestLoudProvider: all of it")
		return
	}
	w := newWorld(t)
	w.offload(t, "flooded", offloadingv1beta1.NamespaceOffloadingSpec{})
	_, err := w.rome.Client().AppsV1().Deployments("flooded").Create(t.Context(), deployment("web", loudPods), metav1.CreateOptions{})
	require.NoError(t, err)
	within(t, longest, "its pods run", w.available("web", "flooded", loudPods))

	before := w.stored(t, w.rome)
	pass(t, loudQuiet)
	unhurt := (w.stored(t, w.rome) - before) / loudQuiet.Minutes()

	ctx, cancel := context.WithCancel(t.Context())
	written := map[string]int{}
	var parts sync.WaitGroup
	var mu sync.Mutex
	loop := func(what string, write func(n int) error) {
		parts.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := write(n)
				if ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
				mu.Lock()
				written[what]++
				mu.Unlock()
			}
		})
	}
	pods, err := w.milan.Client().CoreV1().Pods("flooded-rome").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, loudPods)
	for range 4 {
		loop("statuses", func(int) error { return w.shoutStatus(ctx, pods.Items[rand.IntN(loudPods)].Name) })
	}
	loop("events", func(n int) error { return w.shoutEvent(ctx, &pods.Items[n%loudPods], n) })
	loop("answers", func(n int) error { return w.shoutAnswer(ctx, n) })

	pass(t, loudBurst)
	before = w.stored(t, w.rome)
	wrote := w.requests(t, w.rome)
	quiet := bare("quiet", corev1.RestartPolicyAlways)
	_, err = w.rome.Client().CoreV1().Pods("flooded").Create(t.Context(), quiet, metav1.CreateOptions{})
	require.NoError(t, err)
	begin := time.Now()
	within(t, longest, "a new pod runs", w.podReady("flooded", "quiet"))
	t.Logf("a new pod was Ready after %s", time.Since(begin).Round(time.Millisecond))
	pass(t, loudFor-time.Since(begin))
	growth := (w.stored(t, w.rome) - before) / loudFor.Minutes()
	cancel()
	parts.Wait()
	for what, n := range w.requests(t, w.rome) {
		if n -= wrote[what]; n > 0 {
			t.Logf("writes of %s: %.0f a minute", what, n/loudFor.Minutes())
		}
	}
	t.Logf("written by the provider: %v; growth of the consumer's etcd: %.0f bytes a minute, %.0f without the attack", written, growth, unhurt)
	for name, pid := range map[string]int{"controller": w.rome.Controller.PID, "vkubelet": (*w.rome.VKubelet("milan")).PID} {
		peak, err := peakMB(pid)
		require.NoError(t, err)
		t.Logf("peak memory of the %s: %.0f MB", name, peak)
		require.Less(t, peak, float64(loudMemory), name)
	}
	require.Less(t, growth-unhurt, float64(loudGrowth))
}

// pass waits for a time that is part of what is measured.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

func (w *world) shoutStatus(ctx context.Context, pod string) error {
	loud := fmt.Sprint(rand.Int64(), strings.Repeat("x", 4<<10))
	body, err := json.Marshal(map[string]any{"status": map[string]any{"message": loud, "containerStatuses": []any{
		map[string]any{"name": "c", "lastState": map[string]any{"terminated": map[string]any{"exitCode": 1, "message": loud, "reason": loud[:1<<10]}}},
	}}})
	if err != nil {
		return err
	}
	_, err = w.milan.Client().CoreV1().Pods("flooded-rome").Patch(ctx, pod, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

func (w *world) shoutEvent(ctx context.Context, pod *corev1.Pod, n int) error {
	_, err := w.milan.Client().CoreV1().Events("flooded-rome").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "flooded-"}, Type: corev1.EventTypeWarning, Reason: "Loud", Message: fmt.Sprint(n, strings.Repeat("y", 900)),
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}, metav1.CreateOptions{})
	return err
}

func (w *world) shoutAnswer(ctx context.Context, n int) error {
	body := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Loud","status":"True","reason":"Loud","message":"%d%s","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		n, strings.Repeat("z", 2<<10))
	_, err := w.milan.Liqod().OffloadingV1beta1().NamespaceMaps(tenantOfRome).Patch(ctx, "milan", types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// stored is the size of a cluster's etcd, by its API server.
func (w *world) stored(t *testing.T, s *site.Site) (bytes float64) {
	t.Helper()
	for name, value := range w.planeMetrics(t, s) {
		if strings.HasPrefix(name, "apiserver_storage_size_bytes{") {
			return value
		}
	}
	require.Fail(t, "the API server does not tell the size of its storage")
	return 0
}

var (
	requestVerb     = regexp.MustCompile(`verb="(POST|PUT|PATCH|APPLY|DELETE)"`)
	requestResource = regexp.MustCompile(`[{,]resource="([^"]*)".*subresource="([^"]*)"`)
)

// requests counts the requests that have written in a cluster, by verb and resource.
func (w *world) requests(t *testing.T, s *site.Site) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for name, value := range w.planeMetrics(t, s) {
		verb, resource := requestVerb.FindStringSubmatch(name), requestResource.FindStringSubmatch(name)
		if strings.HasPrefix(name, "apiserver_request_total{") && verb != nil && resource != nil {
			out[verb[1]+" "+resource[1]+" "+resource[2]] += value
		}
	}
	return out
}

// planeMetrics are the metrics of a cluster's API server, by name with labels.
func (w *world) planeMetrics(t *testing.T, s *site.Site) map[string]float64 {
	t.Helper()
	text, err := s.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	out := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		at := strings.LastIndex(line, " ")
		var value float64
		if _, err := fmt.Sscan(line[at+1:], &value); err == nil && !strings.HasPrefix(line, "#") {
			out[line[:max(at, 0)]] = value
		}
	}
	return out
}
