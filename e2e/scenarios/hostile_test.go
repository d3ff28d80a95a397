package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
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
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// testHostileConsumer attacks the provider with the credentials of its consumer, where the
// provider has the defaults of the chart. It leaves the provider as it was.
func testHostileConsumer(t *testing.T, w *world) {
	before := lives(t, w.milan.Cluster, twinOfRome)
	p := attacker{world: w}
	p.core, p.liqod = clients(t, holder{in: w.milan, namespace: tenantOfRome, account: "peer-1"}.config(t))
	specs := refusedSpecs()
	delete(specs, "claim") // of a class that is shared by default
	t.Run("pods", func(t *testing.T) { refused(t, p, specs) })
	own := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.DestinationLabel: "elsewhere"}}
	}
	kubetest.Create(t, p.core.CoreV1().Services(twinOfRome), &corev1.Service{ObjectMeta: own("own"), Spec: service("own").Spec})
	tries := serviceAttempts(p, own)
	maps.Copy(tries, hostAttempts(t, p, own))
	maps.Copy(tries, objectAttempts(p.core))
	guests := w.milan.Client().CoreV1().Pods(twinOfRome)
	kubetest.Create(t, guests, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "guest"}, Spec: podSpec("sim/web:1")})
	t.Run("sessions", func(t *testing.T) {
		allRefused(t, sessionAttempts(p.core, "guest"))
		requireSessions(t, p.core, slices.Sorted(maps.Keys(before))[0])
	})
	within(t, soon, "the refusals are counted", measures(w.milan.Webhook, `liqod_consumer_refused_total{consumer="rome",reason="Session"} [1-9][0-9]*`))
	t.Run("objects", func(t *testing.T) { allRefused(t, tries) })
	require.NoError(t, guests.Delete(t.Context(), "guest", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	within(t, soon, "the provider's pod is gone", isGone(guests, "guest"))

	services, ingresses := w.milan.Client().CoreV1().Services(twinOfRome), w.milan.Client().NetworkingV1().Ingresses(twinOfRome)
	require.NoError(t, services.Delete(t.Context(), "own", metav1.DeleteOptions{}))
	require.NoError(t, ingresses.Delete(t.Context(), "store", metav1.DeleteOptions{}))
	require.NoError(t, w.milan.Client().NetworkingV1().Ingresses("default").Delete(t.Context(), "bank", metav1.DeleteOptions{}))
	shadows := w.milan.Liqod().OffloadingV1beta1().ShadowPods(twinOfRome)
	within(t, longest, "the ShadowPods of the attacks are gone", func(ctx context.Context) error {
		list, err := shadows.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := 0
		for _, s := range list.Items {
			if !strings.HasPrefix(s.Name, "refused-") {
				continue
			}
			left++
			if err := shadows.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return lab.Wrong(nil, left > 0, "%d are left", left)
	})
	requireLiving(t, before, lives(t, w.milan.Cluster, twinOfRome))
}

// hostileMemory is the most memory that a role may use, in MB, and hostileGrowth how many
// bytes a minute the attack may add to the growth of the consumer's etcd.
const hostileMemory, hostileGrowth = 512, 1_000_000

// hostileLoad is how many pods the provider has, how long the growth of etcd without the
// attack is measured before, how long the provider writes until what is free for each pod is
// used up, and how long the growth is measured after that.
type hostileLoad struct {
	pods                int
	quiet, burst, after time.Duration
}

// testHostileProvider: a provider changes the statuses of pods, its events and its answers as
// fast as it can, each as large as it may be. The consumer's memory stays bounded, and a new
// pod runs meanwhile. With -all its etcd is shown to stay bounded too.
func testHostileProvider(t *testing.T, w *world) {
	load := hostileLoad{pods: 30, burst: 20 * time.Second, after: 10 * time.Second}
	if *all {
		load = hostileLoad{pods: 300, quiet: time.Minute, burst: 3 * time.Minute, after: 3 * time.Minute}
	} else {
		t.Log("left to make test-all: TestPeerRights/HostileProvider: the growth of etcd")
	}
	w.offload(t, "flooded", offloadingv1beta1.NamespaceOffloadingSpec{})
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("flooded"), deployment("web", int32(load.pods)))
	within(t, longest, "its pods run", w.available("web", "flooded", int32(load.pods)))

	before := w.stored(t, w.rome)
	pass(t, load.quiet)
	unhurt := w.stored(t, w.rome) - before
	stop := w.flood(t, load.pods)
	pass(t, load.burst)
	before = w.stored(t, w.rome)
	wrote := w.requests(t, w.rome)
	kubetest.Create(t, w.rome.Client().CoreV1().Pods("flooded"), bare("quiet", corev1.RestartPolicyAlways))
	begin := time.Now()
	within(t, longest, "a new pod runs", w.podReady("flooded", "quiet"))
	pass(t, load.after-time.Since(begin))
	growth := w.stored(t, w.rome) - before
	written := stop()
	for what, n := range w.requests(t, w.rome) {
		if n -= wrote[what]; n > 0 {
			t.Logf("writes of %s: %.0f a minute", what, n/load.after.Minutes())
		}
	}
	t.Logf("written by the provider: %v", written)
	for name, pid := range map[string]int{"controller": w.rome.Controller.PID, "vkubelet": (*w.rome.VKubelet("milan")).PID} {
		peak := must(peakMB(pid))(t)
		t.Logf("peak memory of the %s: %.0f MB", name, peak)
		require.Less(t, peak, float64(hostileMemory), name)
	}
	for _, what := range []string{"statuses", "events", "answers"} {
		require.Positive(t, written[what], what)
	}
	if *all {
		growth, unhurt = growth/load.after.Minutes(), unhurt/load.quiet.Minutes()
		t.Logf("growth of the consumer's etcd: %.0f bytes a minute, %.0f without the attack", growth, unhurt)
		require.Less(t, growth-unhurt, float64(hostileGrowth))
	}
	require.NoError(t, w.rome.Client().CoreV1().Pods("flooded").Delete(t.Context(), "quiet", metav1.DeleteOptions{}))
	w.removeDeployment(t, "flooded", "web")
}

// flood writes to the provider as fast as it can until the function that it returns is called,
// which returns how often.
func (w *world) flood(t *testing.T, count int) (stop func() map[string]int) {
	t.Helper()
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
	pods := kubetest.List(t, w.milan.Client().CoreV1().Pods("flooded-rome"))
	require.Len(t, pods.Items, count)
	for range 4 {
		loop("statuses", func(int) error { return w.floodStatus(ctx, pods.Items[rand.IntN(count)].Name) })
	}
	loop("events", func(n int) error { return w.floodEvent(ctx, &pods.Items[n%count], n) })
	loop("answers", func(n int) error { return w.floodAnswer(ctx, n) })
	return func() map[string]int {
		cancel()
		parts.Wait()
		return written
	}
}

// pass waits for a time that is part of what is measured.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

func (w *world) floodStatus(ctx context.Context, pod string) error {
	long := fmt.Sprint(rand.Int64(), strings.Repeat("x", 4<<10))
	body, err := json.Marshal(map[string]any{"status": map[string]any{"message": long, "containerStatuses": []any{
		map[string]any{"name": "c", "lastState": map[string]any{"terminated": map[string]any{"exitCode": 1, "message": long, "reason": long[:1<<10]}}},
	}}})
	if err != nil {
		return err
	}
	return second(w.milan.Client().CoreV1().Pods("flooded-rome").Patch(ctx, pod, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"))
}

func (w *world) floodEvent(ctx context.Context, pod *corev1.Pod, n int) error {
	_, err := w.milan.Client().CoreV1().Events("flooded-rome").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "flooded-"}, Type: corev1.EventTypeWarning, Reason: "Loud", Message: fmt.Sprint(n, strings.Repeat("y", 900)),
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}, metav1.CreateOptions{})
	return err
}

func (w *world) floodAnswer(ctx context.Context, n int) error {
	body := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Loud","status":"True","reason":"Loud","message":"%d%s","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		n, strings.Repeat("z", 2<<10))
	return second(w.milan.Liqod().OffloadingV1beta1().NamespaceMaps(tenantOfRome).Patch(ctx, "milan", types.MergePatchType, body, metav1.PatchOptions{}, "status"))
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
	text := must(s.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()))(t)
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

// triesVariable is the environment variable with the tries of a process of this program, which
// does nothing else.
const triesVariable = "LIQOD_TEST_TRIES"

// tries are connections that a process with root on a gateway opens.
type tries struct {
	Connect []string // host:port
}

// tryAll writes the problems of the connections, by their addresses. An empty one is none.
func tryAll(text string, out io.Writer) error {
	var what tries
	if err := json.Unmarshal([]byte(text), &what); err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	problems := map[string]string{}
	for _, address := range what.Connect {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			problem := ""
			if err != nil {
				problem = err.Error()
			} else {
				_ = c.Close()
			}
			mu.Lock()
			problems[address] = problem
			mu.Unlock()
		})
	}
	wg.Wait()
	return json.NewEncoder(out).Encode(problems)
}
