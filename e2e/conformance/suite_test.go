// Package conformance runs the conformance suite of Kubernetes with pods in another cluster: make conformance.
package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

var (
	run      = flag.Bool("run-suite", false, "run the suite: hours on two cores")
	services = flag.String("services", string(offloadingv1beta1.ServicesHome), "spec.services of the NamespaceOffloadings: Home or Twin; None: no pod is offloaded, to compare")
	focus    = flag.String("focus", "", "run only the specs whose text matches this expression, and print the result; docs/conformance.md and the report of the last whole run stay")
	procs    = flag.Int("procs", 4, "specs that run at the same time")
)

const (
	// suiteLabel is on each namespace that the suite creates.
	suiteLabel = "e2e-run"
	// homeNode is the real node of the consumer, and homeTaint keeps the pods of the suite off it.
	homeNode, homeTaint = "rome-1", "conformance/home"
	// secondNode is another virtual node of the provider: the suite requires two nodes without a taint.
	secondNode = "milan-second"
	// none of the specs' pods are offloaded.
	none = "None"
	// selection are the specs that run: others need the cluster for themselves, or much time.
	selection = "Conformance && !Serial && !Disruptive && !Slow"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// TestConformance runs the suite in rome, whose pods run in milan: the real node of rome has a taint. Each namespace that
// the suite creates is offloaded. It writes docs/conformance.md. It fails if the suite could not run, or if a spec failed for a
// reason that the docs do not have.
func TestConformance(t *testing.T) {
	if !*run {
		t.Skip("NOT RUN: make conformance runs it")
	}
	programs, err := lab.BuildConformance(t.Context(), t.Logf)
	require.NoError(t, err)
	images, err := writeImages(t.Context(), programs, t.Logf)
	require.NoError(t, err)
	sites, list := suiteWorld().Start(t)
	rome, milan := list[0], list[1]
	t.Cleanup(func() { site.LogPods(t, list...) })
	for _, s := range list {
		require.NoError(t, sites.Full.ApplyCoreDNS(t.Context(), s.Cluster))
		require.NoError(t, sites.Full.LoadImage(t.Context(), s.Cluster, images))
	}
	world := &suite{rome: rome, kubelab: sites.Lab.Kubelab(), services: offloadingv1beta1.ServiceNetwork(*services), in: map[string]places{}}
	if *services != none {
		require.NoError(t, sites.PeerByToken(t.Context(), rome, milan))
		require.NoError(t, addSecondNode(t.Context(), rome, milan))
		require.NoError(t, taint(t.Context(), rome, homeNode))
		require.NoError(t, world.offloadAll(t))
	}
	require.NoError(t, world.watchPods(t))
	report, err := reportPath(*services, *focus)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(report), 0o755))
	begin := time.Now()
	runErr := world.run(t, programs, report)
	specs, err := readReport(report)
	require.NoError(t, errors.Join(err, errorUnlessExit(runErr)))
	result := summarize(specs)
	result.Services, result.Minutes, result.Procs = *services, int(time.Since(begin).Minutes()), *procs
	result.There, result.Here = world.count()
	t.Logf("\n%s", result.markdown())
	if *focus == "" {
		require.NoError(t, result.write(filepath.Join("..", "..", "docs", "conformance.md")))
	}
	unexplained := slices.DeleteFunc(result.failed, func(s spec) bool { return s.explanation(*services) != nil })
	require.Empty(t, unexplained, "specs that fail for a reason that the docs do not have")
}

// suiteWorld is rome with one node and milan with two, with equal ranges. What the suite needs and the defaults close is opened.
func suiteWorld() site.World {
	return site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{1, 2}, Fabric: site.FabricPods, CNI: lab.CNIPointToPoint, HostPorts: true,
		Values:   map[string]any{"virtualKubelet": map[string]any{"nodeTaint": false}},
		Settings: []map[string]any{suiteSettings()},
		Adjust: func(o *lab.ClusterOptions) {
			o.Audit, o.NodeGrace = false, 40*time.Second
		},
	}
}

// suiteSettings are those of liqod in both clusters, beside its defaults. Empty sections undo those of the lab.
func suiteSettings() map[string]any {
	volumes := []string{"configMap", "secret", "projected", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "image", "hostPath"}
	return map[string]any{
		"controller": map[string]any{"podSecurityLevel": "privileged", "twinNames": []string{"*"}, "volumeTypes": volumes},
		"lease":      map[string]any{},
		"sharing":    map[string]any{"namespacesPerPeer": 2000},
		"vkubelet":   map[string]any{"tokenBinding": "pod"},
	}
}

// reportPath is the file of the suite's report. A run keeps it, so that failed specs can be read.
func reportPath(services, focus string) (string, error) {
	name := "conformance-" + services
	if focus != "" {
		name += "-sample"
	}
	return filepath.Abs(filepath.Join("..", "..", "bin", name+".json"))
}

// addSecondNode makes another virtual node of milan, equal to the one that the peering made.
func addSecondNode(ctx context.Context, rome, milan *site.Site) error {
	nodes := rome.Liqod().OffloadingV1beta1().VirtualNodes(corev1beta1.TenantNamespace(milan.Name))
	first, err := nodes.Get(ctx, milan.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	second := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: secondNode}, Spec: first.Spec}
	if _, err := nodes.Create(ctx, second, metav1.CreateOptions{}); err != nil {
		return err
	}
	return rome.WaitVirtualNode(ctx, secondNode, corev1.ConditionTrue)
}

func taint(ctx context.Context, s *site.Site, name string) error {
	node, err := s.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: homeTaint, Effect: corev1.TaintEffectNoSchedule})
	_, err = s.Client().CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return err
}

// suite is a run of the suite.
type suite struct {
	rome     *site.Site
	kubelab  string // the path of kubectl
	services offloadingv1beta1.ServiceNetwork

	mu sync.Mutex
	in map[string]places // by namespace
}

// places says where pods ran: in the provider, at home.
type places struct{ there, here bool }

// offloadAll offloads the namespaces of the suite as it creates them, until the test ends.
func (s *suite) offloadAll(t *testing.T) error {
	namespaces := cache.NewFilteredListWatchFromClient(s.rome.Client().CoreV1().RESTClient(), "namespaces", "", func(o *metav1.ListOptions) { o.LabelSelector = suiteLabel })
	seen, err := site.NewWatch(t.Context(), namespaces, func(kind watch.EventType, object runtime.Object) {
		if n, ok := object.(*corev1.Namespace); ok && kind == watch.Added {
			if err := s.offload(t.Context(), n.Name); err != nil && t.Context().Err() == nil {
				t.Errorf("offloading namespace %s: %v", n.Name, err)
			}
		}
	})
	if err != nil {
		return err
	}
	t.Cleanup(seen.Stop)
	return nil
}

// watchPods notes where the pods of the suite run, until the test ends.
func (s *suite) watchPods(t *testing.T) error {
	pods, err := site.WatchPods(t.Context(), s.rome.Client(), metav1.NamespaceAll, func(_ watch.EventType, p *corev1.Pod) { s.note(p) })
	if err != nil {
		return err
	}
	t.Cleanup(pods.Stop)
	return nil
}

func (s *suite) offload(ctx context.Context, namespace string) error {
	o := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloadingv1beta1.NamespaceOffloadingName},
		Spec: offloadingv1beta1.NamespaceOffloadingSpec{
			PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote, NamespaceMappingStrategy: offloadingv1beta1.EnforceSameName, Services: s.services,
		},
	}
	_, err := s.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings(namespace).Create(ctx, o, metav1.CreateOptions{})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *suite) note(p *corev1.Pod) {
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodPending || p.Namespace == metav1.NamespaceSystem || strings.HasPrefix(p.Namespace, "liqo") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.in[p.Namespace]
	if p.Spec.NodeName == homeNode {
		at.here = true
	} else {
		at.there = true
	}
	s.in[p.Namespace] = at
}

// count returns how many namespaces had pods that ran in the provider, and how many had pods at home.
func (s *suite) count() (there, here int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.in {
		if at.there {
			there++
		}
		if at.here {
			here++
		}
	}
	return there, here
}

// run runs the suite in the network of rome's node, which writes the report, and prints its progress.
func (s *suite) run(t *testing.T, programs map[string]string, report string) error {
	kubectl := filepath.Join(t.TempDir(), "kubectl")
	if err := os.Symlink(s.kubelab, kubectl); err != nil {
		return err
	}
	args := []string{"netns", "exec", s.rome.Options.Netns, programs["ginkgo"],
		"--procs=" + strconv.Itoa(*procs), "--label-filter=" + selection, "--timeout=4h", "--no-color", "--silence-skips",
		"--output-dir=" + filepath.Dir(report), "--json-report=" + filepath.Base(report)}
	if *focus != "" {
		args = append(args, "--focus="+*focus)
	}
	args = append(args, programs["e2e.test"], "--", "--kubeconfig="+s.rome.Kubeconfig, "--kubectl-path="+kubectl, "--provider=skeleton",
		"--non-blocking-taints="+homeTaint, "--dump-logs-on-failure=false")
	cmd := exec.CommandContext(t.Context(), "ip", args...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(kubectl))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// errorUnlessExit returns err unless the program ended with a code: specs have failed.
func errorUnlessExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("running the suite: %w", err)
	}
	return nil
}
