package scenarios

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// recordings is where hack/promql reads what the roles measured.
	recordings = "../../hack/promql/testdata"
	// Of each recording: the scrapes, and the time between them.
	recordedScrapes = 5
	recordedEvery   = 5 * time.Second
)

// measured is a world whose roles are recorded.
type measured interface {
	// targets are the roles of a cluster.
	targets(context.Context, *site.Site) ([]target, error)
	// busy gives webhook and reflection something to do, under a name that is new each time.
	busy(t *testing.T, name string)
}

// target is a process of a role whose metrics are read as a Prometheus reads them.
type target struct {
	namespace, pod string
	read           func(context.Context) (string, error)
}

// recording is the series of a cluster, each with one value for each time of a scrape.
// An empty value says that the scrape did not have the series.
type recording struct {
	times  []string
	series map[string][]string
}

// partitionRecorded writes what the roles of both clusters measure while all is well, and what
// those of rome measure in each of five faults. It runs with -update alone.
func partitionRecorded(t *testing.T, w partitionWorld) {
	wanted := shownMetrics(t)
	for _, state := range []struct {
		name string
		run  func(*testing.T, partitionWorld, map[string]bool)
	}{
		{"healthy", recordHealthy}, {"host-contested", recordContested}, {"controller-down", recordNoController}, {"gateway-down", recordNoGateway},
		{"provider-down", recordNoProvider},
		// Last, since lost probes are counted for some time after the tunnel works again.
		{"tunnel-down", recordNoTunnel},
	} {
		t.Run(state.name, func(t *testing.T) { state.run(t, w, wanted) })
	}
}

func recordHealthy(t *testing.T, w partitionWorld, wanted map[string]bool) {
	for _, s := range []*site.Site{w.rome, w.milan} {
		record(t, w, s, wanted, "healthy")
	}
}

func recordContested(t *testing.T, w partitionWorld, wanted map[string]bool) {
	stop := w.contested(t)
	record(t, w, w.rome, wanted, "host-contested")
	stop()
	w.whole(t)
}

func recordNoController(t *testing.T, w partitionWorld, wanted map[string]bool) {
	w.controllers(t, 0)
	record(t, w, w.rome, wanted, "controller-down")
	w.controllers(t, 1)
	w.whole(t)
}

func recordNoGateway(t *testing.T, w partitionWorld, wanted map[string]bool) {
	w.rome.Fabric.Gateway().Kill()
	within(t, longest, "the gateway counts as gone", w.networkUnavailable(corev1.ConditionTrue, nil))
	record(t, w, w.rome, wanted, "gateway-down")
	require.NoError(t, w.rome.Fabric.RestartGateway())
	w.whole(t)
}

func recordNoProvider(t *testing.T, w partitionWorld, wanted map[string]bool) {
	w.milan.KillControlPlane()
	within(t, longest, "the provider counts as down", lab.Together(peerSays(w.rome, w.milan.Name, corev1beta1.ConditionAPIServer, no, ""),
		lab.Is(w.rome.Client().CoreV1().Nodes(), w.milan.Name, func(n *corev1.Node) bool { return readyOf(n).Status != corev1.ConditionTrue })))
	record(t, w, w.rome, wanted, "provider-down")
	require.NoError(t, w.milan.StartControlPlane(t.Context()))
	w.whole(t)
}

func recordNoTunnel(t *testing.T, w partitionWorld, wanted map[string]bool) {
	for _, s := range []*site.Site{w.rome, w.milan} {
		w.drop(t, s.Fabric.Machine, tunnelPackets)
	}
	within(t, longest, "the tunnel counts as down", w.networkUnavailable(corev1.ConditionTrue, nil))
	record(t, w, w.rome, wanted, "tunnel-down")
	w.pass(t)
	w.whole(t)
}

// contested has another program delete rules of liqod on a node of rome each second, until stop is called.
// The commands of the runbook show the deletions.
func (w partitionWorld) contested(t *testing.T) (stop func()) {
	t.Helper()
	host := w.full.Nodes(w.rome.Cluster)[0].Machine
	ctx, cancel := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() {
		_, _ = host.Command(ctx, "bash", "-c", "while sleep 1; do for p in 90 91 92 93; do ip rule del priority $p; done; done")
	})
	within(t, longest, "ip monitor shows what is deleted", func(ctx context.Context) error {
		seen, err := host.Command(ctx, "bash", "-c", "timeout 5 ip monitor rule || true") // it ends by the timeout only
		return lab.Wrong(err, !strings.Contains(seen, "Deleted"), "it shows %q", seen)
	})
	return func() {
		cancel()
		other.Wait()
	}
}

// controllers sets the number of rome's controllers, and waits for it.
func (w partitionWorld) controllers(t *testing.T, n int) {
	t.Helper()
	home := w.rome.Client()
	kubetest.Patch(t, home.AppsV1().Deployments(site.Namespace), "liqod-controller", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
	within(t, longest, fmt.Sprintf("%d controllers run", n), lab.Number(home.CoreV1().Pods(site.Namespace), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"}, n))
}

// shownMetrics are the names of the series that a dashboard or an alert uses.
func shownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../../charts/liqod/monitoring", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, name := range regexp.MustCompile(`\bliqod_[a-z_]+`).FindAllString(string(data), -1) {
			names[name] = true
		}
		return err
	}))
	return names
}

// record scrapes every role of a cluster, with something to do between the scrapes, and writes
// the file of a state of the clusters.
func record(t *testing.T, w measured, s *site.Site, wanted map[string]bool, state string) {
	t.Helper()
	r := recording{series: map[string][]string{}}
	every := time.NewTicker(recordedEvery)
	defer every.Stop()
	for n := range recordedScrapes {
		w.busy(t, fmt.Sprintf("%s-%s-%d", state, s.Name, n))
		select {
		case <-t.Context().Done():
			require.NoError(t, t.Context().Err())
		case <-every.C:
		}
		if state == "healthy" {
			within(t, longest, "every role answers", func(ctx context.Context) error {
				return scrape(ctx, w, s, wanted, recording{series: map[string][]string{}})
			})
		}
		r.times = append(r.times, fmt.Sprint(time.Now().Unix()))
		if err := scrape(t.Context(), w, s, wanted, r); err != nil {
			t.Logf("%s: a target is down: %v", state, err)
		}
	}
	require.NoError(t, os.MkdirAll(recordings, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(recordings, state+"-"+s.Name+".txt"), []byte(r.text(t.Name(), state, s.Name)), 0o600))
}

// busy gives webhook and reflection something to do, as far as the fault allows.
func (w partitionWorld) busy(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), recordedEvery)
	defer cancel()
	home := w.rome.Client().CoreV1()
	_, made := home.ConfigMaps(netNamespace).Create(ctx, configMapOf(name, "k", "v"), metav1.CreateOptions{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: testSpec(1, "serve")}
	_, admitted := home.Pods(netNamespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	t.Logf("%s: %v", name, errors.Join(made, admitted))
}

// targets are the roles of a cluster: pods of liqod, and the processes of the fabric.
func (w partitionWorld) targets(ctx context.Context, s *site.Site) ([]target, error) {
	var all []target
	for namespace, component := range map[string]string{site.Namespace: "app.kubernetes.io/component", "liqo-tenant-" + w.other(s).Name: "liqo.io/virtual-node"} {
		pods, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: component})
		if err != nil {
			return nil, err
		}
		for _, pod := range pods.Items {
			all = append(all, target{namespace, pod.Name, func(ctx context.Context) (string, error) {
				data, err := s.Client().CoreV1().Pods(namespace).ProxyGet("http", pod.Name, "8080", "/metrics", nil).DoRaw(ctx)
				return string(data), err
			}})
		}
	}
	local := func(pod string, m *lab.Machine, p *lab.Process) target {
		return target{site.Namespace, pod, func(ctx context.Context) (string, error) {
			host, port, _ := strings.Cut(p.Flag("server.address"), ":")
			return m.Command(ctx, "bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/%s/%s && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && cat <&3`, host, port))
		}}
	}
	all = append(all, local("liqod-gateway-1", s.Fabric.Machine, s.Fabric.Gateway()))
	for _, node := range w.full.Nodes(s.Cluster) {
		all = append(all, local("liqod-route-"+node.Name, node.Machine, s.Fabric.Route(node.Name)))
	}
	return all, nil
}

// scrape adds one value to each series. What a target does not answer has none.
func scrape(ctx context.Context, w measured, s *site.Site, wanted map[string]bool, into recording) error {
	all, err := w.targets(ctx, s)
	if err != nil {
		return err
	}
	var errs []error
	for _, from := range all {
		text, err := from.read(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s/%s: %w", from.namespace, from.pod, err))
			continue
		}
		into.add(text, from, wanted)
	}
	return errors.Join(errs...)
}

var sample = regexp.MustCompile(`^(liqod_[a-z_]+)(?:\{(.*)\})? (\S+)$`)

// add takes the wanted series out of an answer, with the labels that a monitor adds.
func (r recording) add(text string, from target, wanted map[string]bool) {
	scanner := bufio.NewScanner(strings.NewReader(text))
	for scanner.Scan() {
		match := sample.FindStringSubmatch(scanner.Text())
		if match == nil || !wanted[match[1]] {
			continue
		}
		labels := fmt.Sprintf(`namespace=%q,pod=%q`, from.namespace, from.pod)
		if match[2] != "" {
			labels = match[2] + "," + labels
		}
		key := match[1] + "{" + labels + "}"
		values := r.series[key]
		for len(values) < len(r.times)-1 {
			values = append(values, "")
		}
		r.series[key] = append(values, match[3])
	}
}

// text is the recording as hack/promql reads it: 5*3 is the value 5 in three scrapes, and - a
// scrape without the series.
func (r recording) text(test, state, cluster string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Metrics of %s, which uses or serves the other cluster: %s. Written by:\n", cluster, state)
	fmt.Fprintf(&b, "# go test ./e2e/scenarios -run %s -args -update\n", test)
	fmt.Fprintf(&b, "at %s\n", strings.Join(r.times, " "))
	for _, key := range slices.Sorted(maps.Keys(r.series)) {
		values := r.series[key]
		for len(values) < len(r.times) {
			values = append(values, "")
		}
		b.WriteString(key)
		for len(values) > 0 {
			n := 1
			for n < len(values) && values[n] == values[0] {
				n++
			}
			value := values[0]
			if value == "" {
				value = "-"
			}
			fmt.Fprintf(&b, " %s*%d", value, n)
			values = values[n:]
		}
		b.WriteString("\n")
	}
	return b.String()
}
