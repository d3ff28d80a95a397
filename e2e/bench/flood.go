package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	// floodPeer is a consumer of milan that is no cluster, only credentials.
	floodPeer = "oslo"
	// floodTwin is its twin namespace, of its namespace "flood".
	floodTwin = "flood-" + floodPeer
	// floodEvery is the time between two pods of the quiet consumer.
	floodEvery = 500 * time.Millisecond
	// floodGoal is how many times as long a pod's start may take during the flood.
	floodGoal = 2.0
	// knockPatience ends a connection that milan neither accepts nor refuses.
	knockPatience = 10 * time.Second
	knocks        = 5
)

// floodOptions is what one consumer floods milan with while another one works.
type floodOptions struct {
	shadows, namespaces, connections int
	// pods of the quiet consumer in each round.
	pods int
}

func (o *floodOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.shadows, "flood-shadows", 20000, "ShadowPods of the consumer that floods, which wait for its Quota")
	flags.IntVar(&o.namespaces, "flood-namespaces", 2000, "namespaces that it maps and unmaps again and again")
	flags.IntVar(&o.connections, "flood-connections", 10000, "idle TLS connections that it opens to the authentication endpoint")
	flags.IntVar(&o.pods, "flood-pods", 30, "pods of the quiet consumer in each round")
}

func (o *floodOptions) check() error {
	return errors.Join(atLeast("flood-shadows", o.shadows, 1), atLeast("flood-namespaces", o.namespaces, 1),
		atLeast("flood-connections", o.connections, 0), atLeast("flood-pods", o.pods, 1))
}

// flood is how the pods of a quiet consumer start before, during and after a flood of
// requests, and while what it has left behind waits.
type flood struct {
	Shadows     int   `json:"shadowPods"` // that were accepted
	Namespaces  int   `json:"namespaces"`
	Accepted    int   `json:"acceptedConnections"`
	Connections int   `json:"connections"` // that were open at the end
	Toggles     int   `json:"toggles"`
	Quiet       phase `json:"quiet"`
	Flooding    phase `json:"flooding"`
	Waiting     phase `json:"waiting"`
	// Knock are the milliseconds until the authentication endpoint answers a new connection,
	// the slowest of a few; -1: it did not.
	QuietKnock float64 `json:"quietKnockMilliseconds"`
	FloodKnock float64 `json:"floodKnockMilliseconds"`
}

// measureFlood measures rome's pods while oslo floods milan.
func measureFlood(ctx context.Context, all options) (err error) {
	o := all.flood
	w, err := newWorld(ctx, worldOptions{pods: o.pods, noPolicies: all.noPolicies})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	hostile, err := w.hostile(ctx)
	if err != nil {
		return err
	}
	result := &flood{Namespaces: o.namespaces}
	if result.Quiet, err = w.startsOf(ctx, o, "quiet"); err != nil {
		return err
	}
	if result.QuietKnock, err = w.knock(ctx); err != nil {
		return err
	}
	if err := w.during(ctx, o, hostile, result); err != nil {
		return err
	}
	result.print(os.Stdout)
	return writeJSON(all.out, result)
}

// startsOf starts pods of rome, one after the other.
func (w *world) startsOf(ctx context.Context, o floodOptions, name string) (phase, error) {
	w.lab.Logf("%s: %d pods", name, o.pods)
	r, err := w.round(ctx, w.offloading, load{pods: o.pods, every: floodEvery, name: name})
	return r.Create, err
}

// during measures while the flood lasts, which begins with a tenth of the ShadowPods, and ends it.
func (w *world) during(ctx context.Context, o floodOptions, hostile versioned.Interface, result *flood) (err error) {
	names := load{pods: o.shadows, name: "flood"}.names()
	first := createShadows(ctx, hostile, names[:o.shadows/10])
	flooding, stop := context.WithCancel(ctx)
	var creating, parts sync.WaitGroup
	var rest created
	var open []net.Conn
	creating.Go(func() { rest = createShadows(flooding, hostile, names[o.shadows/10:]) })
	parts.Go(func() { result.Toggles = w.toggle(flooding, hostile, o.namespaces) })
	parts.Go(func() { open = w.connect(flooding, o.connections) })
	defer func() {
		stop()
		creating.Wait()
		parts.Wait()
		result.Accepted = len(open)
		for _, c := range open {
			if stands(c) {
				result.Connections++
			}
			_ = c.Close() // milan may have closed it before
		}
	}()
	if result.Flooding, err = w.startsOf(ctx, o, "flooding"); err != nil {
		return err
	}
	creating.Wait()
	result.Shadows = first.n + rest.n
	switch err := errors.Join(first.err, rest.err); {
	case rest.n == 0:
		return fmt.Errorf("creating ShadowPods of %s: %w", floodPeer, err)
	case err != nil:
		w.lab.Logf("%d of %d ShadowPods of %s were refused, for instance: %v", o.shadows-result.Shadows, o.shadows, floodPeer, err)
	}
	if err := w.waits(ctx, rest.last); err != nil {
		return err
	}
	if result.Waiting, err = w.startsOf(ctx, o, "waiting"); err != nil {
		return err
	}
	result.FloodKnock, err = w.knock(ctx)
	return err
}

// stands reports whether milan keeps a connection on which nothing was sent.
func stands(c net.Conn) bool {
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return false
	}
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// floodManifests describe oslo in milan: it may use one CPU.
const floodManifests = `
apiVersion: v1
kind: Namespace
metadata:
  name: %[2]s
  labels: {liqo.io/remote-cluster-id: %[1]s, liqo.io/tenant-namespace: "true"}
---
apiVersion: core.liqo.io/v1beta1
kind: ForeignCluster
metadata: {name: %[1]s}
spec:
  clusterID: %[1]s
  userName: %[3]s
---
apiVersion: offloading.liqo.io/v1beta1
kind: Quota
metadata: {name: flood, namespace: %[2]s}
spec:
  user: %[1]s
  resources: {cpu: "1"}
`

// hostile makes oslo a consumer of milan with one twin namespace, and returns its client.
func (w *world) hostile(ctx context.Context) (versioned.Interface, error) {
	tenant := corev1beta1.TenantNamespace(floodPeer)
	user := site.PeerUser(floodPeer)
	if err := w.milan.Apply(ctx, fmt.Appendf(nil, floodManifests, floodPeer, tenant, user)); err != nil {
		return nil, fmt.Errorf("describing %s: %w", floodPeer, err)
	}
	kubeconfig, err := w.milan.KubeconfigForUser(user, corev1beta1.PeersGroup)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", floodPeer, err)
	}
	config.QPS = -1
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", floodPeer, err)
	}
	maps := client.OffloadingV1beta1().NamespaceMaps(tenant)
	err = lab.Eventually(ctx, func(ctx context.Context) error { // its rights are on their way
		_, err := maps.Create(ctx, &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Name: w.milan.Name, Labels: map[string]string{
				offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: floodPeer, corev1beta1.RemoteClusterIDLabel: floodPeer,
			}},
			Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"flood": floodTwin}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("mapping a namespace of %s: %w", floodPeer, err)
	}
	return client, lab.Eventually(ctx, func(ctx context.Context) error {
		nm, err := maps.Get(ctx, w.milan.Name, metav1.GetOptions{})
		have := nm.Status.CurrentMapping["flood"]
		return lab.Wrong(err, have.Phase != offloadingv1beta1.MappingAccepted, "the answer is %+v", have)
	})
}

// created are the ShadowPods that milan accepted.
type created struct {
	n    int
	last string
	err  error // of the first that it refused
}

func createShadows(ctx context.Context, client versioned.Interface, names []string) (all created) {
	shadows := client.OffloadingV1beta1().ShadowPods(floodTwin)
	var mu sync.Mutex
	_, all.err = sendAll(ctx, names, 0, func(ctx context.Context, name string) error {
		_, err := shadows.Create(ctx, floodPod(name), metav1.CreateOptions{})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			all.n, all.last = all.n+1, name
		}
		return err
	})
	return all
}

// floodPod needs half of oslo's Quota: all but two wait.
func floodPod(name string) *offloadingv1beta1.ShadowPod {
	return &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			offloadingv1beta1.OriginLabel: floodPeer, offloadingv1beta1.DestinationLabel: "milan", offloadingv1beta1.LocalPodUIDLabel: name,
		}},
		Spec: offloadingv1beta1.ShadowPodSpec{Pod: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "sim/bench:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}},
		}}}},
	}
}

// waits returns once milan's controller has judged the last ShadowPod of oslo.
func (w *world) waits(ctx context.Context, last string) error {
	return lab.Within(ctx, phasePatience, func(ctx context.Context) error {
		s, err := w.milan.Liqod().OffloadingV1beta1().ShadowPods(floodTwin).Get(ctx, last, metav1.GetOptions{})
		return lab.Wrong(err, len(s.Status.Conditions) == 0, "ShadowPod %s has no condition yet", last)
	})
}

// toggle maps and unmaps namespaces of oslo until ctx is done or milan refuses it. It waits
// each time until the map is answered, for a minute at most. It returns how often it did.
func (w *world) toggle(ctx context.Context, client versioned.Interface, n int) (times int) {
	maps := client.OffloadingV1beta1().NamespaceMaps(corev1beta1.TenantNamespace(floodPeer))
	for ; ctx.Err() == nil; times++ {
		nm, err := maps.Patch(ctx, w.milan.Name, types.MergePatchType, mapping(n-1, times%2 == 0), metav1.PatchOptions{})
		if err != nil {
			w.lab.Logf("mapping %d namespaces: %v", n, err)
			return times
		}
		// An answer that has not come yet is no reason to stop: the next change comes then.
		_ = lab.Within(ctx, time.Minute, func(ctx context.Context) error {
			have, err := maps.Get(ctx, w.milan.Name, metav1.GetOptions{})
			return lab.Wrong(err, have.Status.ObservedGeneration < nm.Generation, "the map is not answered")
		})
	}
	return times
}

// mapping is a merge patch that adds n entries to a map, or removes them.
func mapping(n int, add bool) []byte {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(`"t-%d":null`, i)
		if add {
			entries[i] = fmt.Sprintf(`"t-%d":"t-%[1]d-%s"`, i, floodPeer)
		}
	}
	return []byte(`{"spec":{"desiredMapping":{` + strings.Join(entries, ",") + `}}}`)
}

// connect opens idle TLS connections to milan's authentication endpoint, and returns those
// that it accepted.
func (w *world) connect(ctx context.Context, n int) (open []net.Conn) {
	var mu sync.Mutex
	// Refused connections are what the endpoint may answer: they are not counted.
	_, _ = sendAll(ctx, load{pods: n, name: "connection"}.names(), 0, func(ctx context.Context, _ string) error {
		ctx, cancel := context.WithTimeout(ctx, knockPatience)
		defer cancel()
		c, err := w.door().DialContext(ctx, "tcp", strings.TrimPrefix(w.milan.AuthURL, "https://"))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
		return nil
	})
	return open
}

// door dials as a stranger: it does not verify the authority of the endpoint's certificate.
func (w *world) door() *tls.Dialer {
	return &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}} //nolint:gosec // it sends nothing that is secret
}

// knock returns the time in milliseconds in which the authentication endpoint answers a
// request on a new connection, of the slowest of a few; -1 if one of them has no answer.
func (w *world) knock(ctx context.Context) (slowest float64, err error) {
	client := &http.Client{Timeout: knockPatience, Transport: &http.Transport{DialTLSContext: w.door().DialContext, DisableKeepAlives: true}}
	for range knocks {
		begin := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.milan.AuthURL+"/", nil)
		if err != nil {
			return 0, fmt.Errorf("requesting %s: %w", w.milan.AuthURL, err)
		}
		answer, err := client.Do(req)
		if err != nil {
			w.lab.Logf("no answer of the authentication endpoint: %v", err)
			return -1, ctx.Err()
		}
		if err := answer.Body.Close(); err != nil {
			return 0, fmt.Errorf("closing an answer: %w", err)
		}
		slowest = max(slowest, float64(time.Since(begin).Microseconds())/1000)
	}
	return slowest, nil
}

func (f *flood) print(out io.Writer) {
	fmt.Fprintf(out, "\nA consumer's flood: %d ShadowPods, %d namespaces toggled %d times, %d connections accepted, %d of them open at the end; goal: another one's pods start within %.0f times their quiet time\n",
		f.Shadows, f.Namespaces, f.Toggles, f.Accepted, f.Connections, floodGoal)
	rows := [][]string{{"", "P50 MS", "P99 MS", "P50 BY QUIET", "ANSWER AT THE DOOR"}}
	for _, line := range []struct {
		name, knock string
		phase
	}{{"quiet", knockText(f.QuietKnock), f.Quiet}, {"flooding", "", f.Flooding}, {"waiting", knockText(f.FloodKnock), f.Waiting}} {
		rows = append(rows, []string{line.name, fmt.Sprintf("%.0f", line.P50), fmt.Sprintf("%.0f", line.P99), fmt.Sprintf("%.2f", line.P50/f.Quiet.P50), line.knock})
	}
	table(out, rows)
	fmt.Fprintf(out, "CPU, quiet: %s\nCPU, flooding: %s\nCPU, waiting: %s\n", used(f.Quiet.CPU), used(f.Flooding.CPU), used(f.Waiting.CPU))
}

func knockText(ms float64) string {
	if ms < 0 {
		return "none"
	}
	return fmt.Sprintf("%.0f ms", ms)
}
