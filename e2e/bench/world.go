package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	// podsPerNode leaves room on the simulated nodes, which take 250 pods.
	podsPerNode   = 200
	nodeGrace     = 50 * time.Second // that of Kubernetes
	mirrorName    = "mirror"
	mirrorAccount = "bench"
)

// contestant is one of the two ways of a pod from rome to milan.
type contestant struct {
	name       string
	node       string // in rome, that the pods are bound to
	home, away string // namespaces in rome and in milan
	shadows    bool   // whether there are ShadowPods
}

type worldOptions struct {
	pods       int
	mirror     bool // starts the mirror
	audit      bool
	noPolicies bool   // leaves the chart's admission policies out
	commit     string // whose chart and binary are installed; empty: those of this tree
	// twinLimits replace those that are shipped; none: they stay.
	twinLimits []string
}

// world is rome, which uses milan, by liqod and by the mirror.
type world struct {
	lab                   *lab.Lab
	rome, milan           *site.Site
	home                  kubernetes.Interface // client of rome
	away                  metadata.Interface   // client of milan
	mirror                *lab.Process         // nil: none
	offloading, mirroring *contestant
	guards                []guards
}

func newWorld(ctx context.Context, o worldOptions) (w *world, err error) {
	w = &world{
		offloading: &contestant{name: "liqod", node: "milan", home: "bench", away: "bench-rome", shadows: true},
		mirroring:  &contestant{name: "mirror", node: mirrorName, home: "mirror", away: "mirror-rome"},
	}
	w.lab, err = lab.New(ctx, lab.Options{Log: logf, Exited: func(p *lab.Process) {
		logf("%s ended by itself: %v\n%s", p.Name, p.Err(), p.Tail(2000))
	}})
	if err != nil {
		return nil, err
	}
	if err := w.fill(ctx, o); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func (w *world) close() error { return w.lab.Close() }

func (w *world) fill(ctx context.Context, o worldOptions) error {
	sites, err := shipped(ctx, w.lab)
	if err != nil {
		return err
	}
	if o.commit != "" {
		if sites.Installs, err = sites.Version(ctx, o.commit); err != nil {
			return err
		}
	}
	if len(o.twinLimits) > 0 {
		sites.Settings["sharing"] = map[string]any{"twinLimits": o.twinLimits}
	}
	if o.noPolicies {
		sites.Values = map[string]any{"admissionPolicies": map[string]any{"enabled": false}}
	}
	if err := w.start(ctx, sites, o); err != nil {
		return err
	}
	if err := w.readGuards(ctx, !o.noPolicies); err != nil {
		return err
	}
	room := *resource.NewQuantity(int64(2*o.pods), resource.DecimalSI)
	err = w.rome.Peer(ctx, w.milan, site.PeerOptions{Node: w.offloading.node, Resources: corev1.ResourceList{
		corev1.ResourceCPU: room, corev1.ResourceMemory: resource.MustParse("1000Gi"), corev1.ResourcePods: room,
	}})
	if err != nil {
		return err
	}
	err = w.rome.Offload(ctx, w.offloading.home, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	if err != nil {
		return err
	}
	cheap := w.rome.Config()
	cheap.ContentType, cheap.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	if w.home, err = kubernetes.NewForConfig(cheap); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if w.away, err = metadata.NewForConfig(w.milan.Config()); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if o.mirror {
		return w.startMirror(ctx)
	}
	return nil
}

// shipped are sites with the settings that are shipped.
func shipped(ctx context.Context, l *lab.Lab) (*site.Sites, error) {
	sites, err := site.New(ctx, l, nil)
	if err != nil {
		return nil, err
	}
	// Empty sections undo what is set for tests.
	sites.Settings = map[string]any{"lease": map[string]any{}, "vkubelet": map[string]any{}, "log": map[string]any{}}
	sites.Direct, sites.Certificates = true, true
	return sites, nil
}

// start makes the clusters side by side.
func (w *world) start(ctx context.Context, sites *site.Sites, o worldOptions) error {
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, target := range []**site.Site{&w.rome, &w.milan} {
		wg.Go(func() {
			c, err := w.lab.Start(ctx, lab.ClusterOptions{
				Name: []string{"rome", "milan"}[i], SimulatedNodes: []int{1, o.pods/podsPerNode + 2}[i], Audit: o.audit, NodeGrace: nodeGrace,
				PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 110+i),
			})
			if err == nil {
				*target, err = sites.Install(ctx, c)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// mirrorManifests give the mirror an account of its own, as the roles have theirs.
const mirrorManifests = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bench-mirror}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]
`

// startMirror runs the bench itself as the mirror, and waits for its node.
func (w *world) startMirror(ctx context.Context) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program to run as %s: %w", mirrorName, err)
	}
	kubeconfigs := make([]string, 2)
	for i, s := range []*site.Site{w.rome, w.milan} {
		namespace := []string{w.mirroring.home, w.mirroring.away}[i]
		if err := s.Apply(ctx, fmt.Appendf(nil, mirrorManifests, namespace, mirrorAccount)); err != nil {
			return err
		}
		if kubeconfigs[i], err = s.KubeconfigFor(ctx, lab.Access{Namespace: namespace, ServiceAccount: mirrorAccount}); err != nil {
			return err
		}
		// No pod can be created in a namespace without this account.
		err = lab.Eventually(ctx, func(ctx context.Context) error {
			_, err := s.Client().CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	w.mirror, err = w.lab.Process(lab.ProcessOptions{Name: mirrorName, Path: binary, Args: []string{
		mirrorCommand, "--home=" + kubeconfigs[0], "--away=" + kubeconfigs[1],
		"--home-namespace=" + w.mirroring.home, "--away-namespace=" + w.mirroring.away, "--node=" + w.mirroring.node,
	}})
	if err != nil {
		return err
	}
	return w.rome.WaitVirtualNode(ctx, w.mirroring.node, corev1.ConditionTrue)
}

// processes have the ids of all that is measured: of the contestants and those that serve them.
func (w *world) processes() map[string]int {
	all := map[string]int{
		"rome vkubelet": (*w.rome.VKubelet(w.offloading.node)).PID, "rome controller": w.rome.Controller.PID, "rome webhook": w.rome.Webhook.PID,
		"milan controller": w.milan.Controller.PID, "milan webhook": w.milan.Webhook.PID, benchProcess: os.Getpid(),
	}
	if w.mirror != nil {
		all[mirrorName] = w.mirror.PID
	}
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, component := range []string{lab.APIServer, lab.Etcd, lab.ControllerManager, lab.Scheduler} {
			all[s.Name+" "+component] = s.Component(component).PID
		}
		all[s.Name+" simulator"] = s.Simulator().PID
	}
	return all
}

// pod is what both are given: a pod that needs no scheduler in rome.
func (c *contestant) pod(name string) *corev1.Pod {
	grace := int64(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench"}},
		Spec: corev1.PodSpec{
			NodeName: c.node, TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: "sim/bench:1"}},
			Tolerations: []corev1.Toleration{{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}},
		},
	}
}
