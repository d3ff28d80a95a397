package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	// contNamespace is offloaded by rome, and contTwin is what milan has of it.
	contNamespace = "cont"
	contTwin      = "cont-rome"
	contService   = "web"
	contPort      = 8080
	contClient    = "client"
	// A client asks so often, and waits so long for an answer.
	askedEvery    = 50 * time.Millisecond
	askedDeadline = 500 * time.Millisecond
)

// continuity is rome, which uses milan, and in a two-way peering is used by it. Each runs
// one pod of a Service on its real node, and a client of that Service.
type continuity struct {
	opts        continuityOptions
	lab         *lab.Lab
	sites       *site.Sites
	rome, milan *victim
	way         string // of the peering
}

// victim is a cluster that may be hit.
type victim struct {
	site      *site.Site
	node      *lab.Node
	namespace string // of the Service
	pod       string // the Service's pod that runs here
}

func newContinuity(ctx context.Context, o continuityOptions) (w *continuity, err error) {
	w = &continuity{opts: o}
	w.lab, err = lab.New(ctx, lab.Options{Clusters: 2, Log: logf, Exited: func(p *lab.Process) {
		logf("%s ended by itself: %v\n%s", p.Name, p.Err(), p.Tail(2000))
	}})
	if err != nil {
		return nil, err
	}
	if err := w.fill(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *continuity) close() error { return w.lab.Close() }

func (w *continuity) fill(ctx context.Context) error {
	full, err := lab.NewFull(ctx, w.lab, lab.FullOptions{Network: lab.NetworkOptions{Isolated: true}})
	if err != nil {
		return err
	}
	if w.sites, err = site.New(ctx, w.lab, full); err != nil {
		return err
	}
	// Empty sections undo what is set for tests: the settings are those that are shipped.
	w.sites.Settings = map[string]any{"lease": map[string]any{}, "vkubelet": map[string]any{}, "log": map[string]any{}}
	w.sites.Fabric = site.FabricProcesses
	if err := w.start(ctx); err != nil {
		return err
	}
	if err := w.use(ctx, w.rome, w.milan); err != nil {
		return err
	}
	w.way = oneWay
	if err := w.deploy(ctx); err != nil {
		return err
	}
	for _, v := range []*victim{w.rome, w.milan} {
		if err := w.addClient(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// start makes the clusters side by side.
func (w *continuity) start(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, target := range []**victim{&w.rome, &w.milan} {
		wg.Go(func() {
			options := lab.ClusterOptions{Name: []string{"rome", "milan"}[i], NodeGrace: nodeGrace}
			site.FabricOptions(&options)
			c, err := w.sites.Full.Start(ctx, options, 1)
			if err != nil {
				errs[i] = err
				return
			}
			v := &victim{node: w.sites.Full.Nodes(c)[0], namespace: []string{contNamespace, contTwin}[i]}
			v.site, errs[i] = w.sites.Install(ctx, c)
			*target = v
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// use lets a cluster use another by a token, as people do.
func (w *continuity) use(ctx context.Context, consumer, provider *victim) error {
	out, err := w.sites.Command(ctx, "token", "create", "--kubeconfig", provider.site.Kubeconfig).Output()
	if err != nil {
		return fmt.Errorf("making a token of %s: %w", provider.site.Name, err)
	}
	token, err := tokenIn(string(out))
	if err != nil {
		return fmt.Errorf("making a token of %s: %w", provider.site.Name, err)
	}
	peer := w.sites.Command(ctx, "peer", "--kubeconfig", consumer.site.Kubeconfig, "--token", token, "--timeout=3m")
	if out, err := peer.CombinedOutput(); err != nil {
		return fmt.Errorf("peering %s with %s: %w\n%s", consumer.site.Name, provider.site.Name, err, out)
	}
	return consumer.site.WaitVirtualNode(ctx, provider.site.Name, corev1.ConditionTrue)
}

// tokenIn finds the token in what is printed with it.
func tokenIn(printed string) (string, error) {
	for line := range strings.Lines(printed) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "liqod1.") {
			return line, nil
		}
	}
	return "", errors.New("no token is printed")
}

// peered makes the peering a two-way one if it is not yet what a case needs.
func (w *continuity) peered(ctx context.Context, way string) error {
	if w.way == way {
		return nil
	}
	if err := w.use(ctx, w.milan, w.rome); err != nil {
		return err
	}
	w.way = way
	return nil
}

// deploy runs a pod of the Service in each cluster.
func (w *continuity) deploy(ctx context.Context) error {
	err := w.rome.site.Offload(ctx, contNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	if err != nil {
		return err
	}
	home := w.rome.site.Client()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: contService}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": contService}, Ports: []corev1.ServicePort{{Port: contPort, TargetPort: intstr.FromInt32(contPort)}},
	}}
	if _, err := home.CoreV1().Services(contNamespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the Service: %w", err)
	}
	for name, v := range map[string]*victim{"here": w.rome, "there": w.milan} {
		if _, err := home.AppsV1().Deployments(contNamespace).Create(ctx, contDeployment(name), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating Deployment %s: %w", name, err)
		}
		err := lab.Eventually(ctx, func(ctx context.Context) (err error) {
			v.pod, err = w.readyPod(ctx, name)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readyPod is the only pod of a Deployment, which is Ready.
func (w *continuity) readyPod(ctx context.Context, deployment string) (string, error) {
	pods, err := w.rome.site.Client().CoreV1().Pods(contNamespace).List(ctx, metav1.ListOptions{LabelSelector: "part=" + deployment})
	if err != nil {
		return "", err
	}
	if len(pods.Items) != 1 {
		return "", fmt.Errorf("deployment %s has %d pods, not 1", deployment, len(pods.Items))
	}
	if podReady(&pods.Items[0]) {
		return pods.Items[0].Name, nil
	}
	return "", fmt.Errorf("pod %s is not Ready: %+v", pods.Items[0].Name, pods.Items[0].Status)
}

func testContainer(args ...string) corev1.Container {
	return corev1.Container{Name: "c", Image: lab.TestImage, ImagePullPolicy: corev1.PullNever, Args: args}
}

// contDeployment is one pod, on rome's own node or in milan.
func contDeployment(name string) *appsv1.Deployment {
	c := testContainer("serve")
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(contPort)},
	}}
	labels := map[string]string{"app": contService, "part": name}
	spec := corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{c}}
	if name == "there" {
		spec.RuntimeClassName = ptr.To("liqo")
	} else {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: "rome-1"}
	}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
}

// addClient runs a client of the Service in a cluster, outside of the offloaded namespace.
func (w *continuity) addClient(ctx context.Context, v *victim) error {
	var address string
	err := lab.Eventually(ctx, func(ctx context.Context) error {
		service, err := v.site.Client().CoreV1().Services(v.namespace).Get(ctx, contService, metav1.GetOptions{})
		if err != nil {
			return err
		}
		address = service.Spec.ClusterIP
		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the Service in %s: %w", v.site.Name, err)
	}
	url := fmt.Sprintf("http://%s:%d/healthz", address, contPort)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: contClient}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers:                    []corev1.Container{testContainer("load", url, askedEvery.String(), askedDeadline.String())},
	}}
	if _, err := v.site.Client().CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the client in %s: %w", v.site.Name, err)
	}
	err = lab.Eventually(ctx, func(ctx context.Context) error {
		_, err := v.asked(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for the client in %s: %w", v.site.Name, err)
	}
	return nil
}

// asked is what became of the requests of a client since the last look; see e2e/image.
type asked struct {
	Requests, Failed int
	LastFailed       time.Time
	Failures         map[string]int
}

// and is what became of the requests of two looks.
func (a asked) and(later asked) asked {
	a.Requests += later.Requests
	a.Failed += later.Failed
	if later.LastFailed.After(a.LastFailed) {
		a.LastFailed = later.LastFailed
	}
	a.Failures = maps.Clone(a.Failures)
	for what, n := range later.Failures {
		if a.Failures == nil {
			a.Failures = map[string]int{}
		}
		a.Failures[what] += n
	}
	return a
}

// asked looks at the client of a cluster.
func (v *victim) asked(ctx context.Context) (out asked, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	said, err := v.site.Exec(ctx, metav1.NamespaceDefault, contClient, "get", fmt.Sprintf("http://127.0.0.1:%d/", contPort))
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal([]byte(said), &out); err != nil {
		return out, fmt.Errorf("reading what the client in %s says: %w", v.site.Name, err)
	}
	return out, nil
}

// lives are the UIDs and restarts of the pods that a fault may not touch, by cluster and name:
// those of the Service and its clients, and those of liqod.
func (w *continuity) lives(ctx context.Context) (map[string]life, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	out := map[string]life{}
	for _, v := range []*victim{w.rome, w.milan} {
		other := w.milan
		if v == w.milan {
			other = w.rome
		}
		for _, namespace := range []string{v.namespace, metav1.NamespaceDefault, site.Namespace, corev1beta1.TenantNamespace(other.site.Name)} {
			pods, err := v.site.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing the pods of %s in %s: %w", namespace, v.site.Name, err)
			}
			for _, p := range pods.Items {
				out[v.site.Name+" "+p.Namespace+"/"+p.Name] = lifeOf(p)
			}
		}
	}
	return out, nil
}

// life of a pod: what changes if it is made or started again.
type life struct {
	uid      string
	restarts int32
}

func lifeOf(p corev1.Pod) life {
	l := life{uid: string(p.UID)}
	for _, c := range p.Status.ContainerStatuses {
		l.restarts += c.RestartCount
	}
	return l
}
