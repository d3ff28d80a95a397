package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

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

// clients are the bench's own, an administrator's, cheap and not limited.
type clients struct {
	core kubernetes.Interface
	meta metadata.Interface
}

type worldOptions struct {
	pods     int
	audit    bool
	profiles string
	noEvents bool
	// noPolicies leaves the chart's admission policies out.
	noPolicies bool
	// twinLimits replace those that are shipped; none: they stay.
	twinLimits []string
	// objects has objects mirrored instead of pods.
	objects bool
}

// world is rome, which uses milan, by liqod and by the mirror.
type world struct {
	lab                   *lab.Lab
	rome, milan           *site.Site
	atRome, atMilan       clients
	mirror                *lab.Process
	offloading, mirroring *contestant
	profiles              string
	guards                []guards
}

func newWorld(ctx context.Context, o worldOptions) (w *world, err error) {
	w = &world{
		offloading: &contestant{name: "liqod", node: "milan", home: "bench", away: "bench-rome", shadows: true},
		mirroring:  &contestant{name: "mirror", node: mirrorName, home: "mirror", away: "mirror-rome"},
		profiles:   o.profiles,
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
	sites, err := site.New(ctx, w.lab, nil)
	if err != nil {
		return err
	}
	// Empty sections undo what is set for tests: the settings are those that are shipped.
	sites.Settings = map[string]any{"lease": map[string]any{}, "vkubelet": map[string]any{}, "log": map[string]any{}}
	if o.profiles != "" {
		sites.Settings["server"] = map[string]any{"pprof": true}
	}
	if len(o.twinLimits) > 0 {
		sites.Settings["sharing"] = map[string]any{"twinLimits": o.twinLimits}
	}
	sites.Values = o.values()
	sites.Direct, sites.Certificates = true, true
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
	if w.atRome, err = newClients(w.rome); err != nil {
		return err
	}
	if w.atMilan, err = newClients(w.milan); err != nil {
		return err
	}
	if o.objects {
		return w.startCopier(ctx)
	}
	return w.startMirror(ctx)
}

// values are those of the chart that differ from what is shipped.
func (o worldOptions) values() map[string]any {
	values := map[string]any{}
	if o.noEvents {
		values["offloading"] = map[string]any{"reflection": map[string]any{"event": map[string]any{"workers": 0}}}
	}
	if o.noPolicies {
		values["admissionPolicies"] = map[string]any{"enabled": false}
	}
	return values
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

func newClients(s *site.Site) (clients, error) {
	config := s.Config()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("making a client: %w", err)
	}
	// Endpoints are looked at too: that they are deprecated is no news.
	quietly := s.Config()
	quietly.WarningHandler = rest.NoWarnings{}
	m, err := metadata.NewForConfig(quietly)
	if err != nil {
		return clients{}, fmt.Errorf("making a client of metadata: %w", err)
	}
	return clients{core, m}, nil
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

// startMirror starts the mirror of pods and waits for its node.
func (w *world) startMirror(ctx context.Context) error {
	if err := w.startProgram(ctx, mirrorCommand, "--node="+w.mirroring.node); err != nil {
		return err
	}
	return w.rome.WaitVirtualNode(ctx, w.mirroring.node, corev1.ConditionTrue)
}

// startCopier starts the mirror of objects.
func (w *world) startCopier(ctx context.Context) error {
	return w.startProgram(ctx, copierCommand, "--selector="+objectSelector)
}

// startProgram runs the bench itself as one of the mirrors, with an account of its own.
func (w *world) startProgram(ctx context.Context, program string, args ...string) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program to run as %s: %w", program, err)
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
		if err := waitForAccount(ctx, s, namespace); err != nil {
			return err
		}
	}
	w.mirror, err = w.lab.Process(lab.ProcessOptions{Name: mirrorName, Path: binary, Args: append([]string{
		program, "--home=" + kubeconfigs[0], "--away=" + kubeconfigs[1],
		"--home-namespace=" + w.mirroring.home, "--away-namespace=" + w.mirroring.away,
	}, args...)})
	return err
}

// waitForAccount waits for the account without which no pod can be made in a namespace.
func waitForAccount(ctx context.Context, s *site.Site, namespace string) error {
	return lab.Eventually(ctx, func(ctx context.Context) error {
		_, err := s.Client().CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// vkubelet is the running process of role vkubelet.
func (w *world) vkubelet() **lab.Process { return w.rome.VKubelet(w.offloading.node) }

// process is one that is measured.
type process struct {
	name string
	pid  int
	// role says that it is one of liqod's, or the mirror.
	role bool
}

// processes are the contestants' first, then those that serve them.
func (w *world) processes() []process {
	all := []process{
		{"rome vkubelet", (*w.vkubelet()).PID, true}, {"rome controller", w.rome.Controller.PID, true}, {"rome webhook", w.rome.Webhook.PID, true},
		{"milan controller", w.milan.Controller.PID, true}, {"milan webhook", w.milan.Webhook.PID, true}, {mirrorName, w.mirror.PID, true},
	}
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, component := range []string{lab.APIServer, lab.Etcd, lab.ControllerManager, lab.Scheduler} {
			all = append(all, process{s.Name + " " + component, s.Component(component).PID, false})
		}
		all = append(all, process{s.Name + " simulator", s.Simulator().PID, false})
	}
	return append(all, process{benchProcess, os.Getpid(), false})
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

// load is what a round puts on a contestant.
type load struct {
	pods  int
	every time.Duration // between two creations; 0: as fast as they go
	name  string        // begins the names of the pods
}

func (l load) names() []string {
	out := make([]string, l.pods)
	for i := range out {
		out[i] = l.name + "-" + strconv.Itoa(i)
	}
	return out
}
