package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	// lossNamespace is offloaded from rome to milan.
	lossNamespace = "loss"
	// customerPace is the time between two requests of a customer.
	customerPace = "50ms"
)

// lossWorld is clusters with the defaults of the chart. A customer in rome sends requests to pods
// in milan, and a customer in milan sends requests to a pod in rome.
type lossWorld struct {
	networkWorld
	// turin peers with milan while roles are lost; nil: no cluster does.
	turin *site.Site
}

// roleLoss is a time without some roles, in both clusters at once.
type roleLoss struct {
	roles []string
	lasts time.Duration
	// felt says that requests fail, or that pods leave Services: it is in the nature of the role.
	felt bool
}

// TestRolesLost: each cluster has the replicas of the chart's defaults. While a role is away in both clusters,
// no request fails, no endpoint leaves a Service and no pod is changed, except without gateways,
// and without vkubelets for longer than the grace period of the virtual node. With -all the log is
// the table of docs/high-availability.md; otherwise the roles without such an exception are away
// at once, for longer than any Lease or heartbeat lasts.
func TestRolesLost(t *testing.T) {
	losses := []roleLoss{{roles: []string{"controller", "webhook", "ipam", "route"}, lasts: 50 * time.Second}}
	clusters, nodes := []string{"rome", "milan"}, []int{1, 2}
	if *all {
		clusters, nodes = append(clusters, "turin"), append(nodes, 1)
		losses = []roleLoss{
			{roles: []string{"webhook"}, lasts: 2 * time.Minute}, {roles: []string{"ipam"}, lasts: 2 * time.Minute},
			{roles: []string{"route"}, lasts: 6 * time.Minute}, {roles: []string{"controller"}, lasts: 10 * time.Minute},
			{roles: []string{"gateway"}, lasts: 2 * time.Minute, felt: true}, {roles: []string{"vkubelet"}, lasts: 10 * time.Minute, felt: true},
		}
	}
	w := newLossWorld(t, clusters, nodes)
	for _, l := range losses {
		t.Run(strings.Join(l.roles, " and "), func(t *testing.T) { w.without(t, l) })
	}
}

// newLossWorld starts clusters, lets rome use milan, and starts the customers.
func newLossWorld(t *testing.T, clusters []string, nodes []int) lossWorld {
	t.Helper()
	// Empty sections undo the settings of tests.
	settings := map[string]any{"lease": map[string]any{}, "vkubelet": map[string]any{}}
	if !*all { // as in TestApplication
		settings["gateway"] = map[string]any{"probe": map[string]any{"silence": "10s", "patience": "20s"}}
	}
	network, list := startNetwork(t, site.World{
		Clusters: clusters, RealNodes: nodes, Fabric: site.FabricPods, Settings: []map[string]any{settings},
		Adjust: func(o *lab.ClusterOptions) { o.Audit, o.NodeGrace = false, 40*time.Second },
	})
	w := lossWorld{networkWorld: network}
	if len(list) > 2 {
		w.turin = list[2]
	}
	w.peer(t)
	w.offload(t, lossNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	home := w.rome.Client()
	for _, name := range []string{"here", "there"} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		}}
		_, err := home.CoreV1().Services(lossNamespace).Create(t.Context(), service, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, d := range []*appsv1.Deployment{
		lossDeployment("here", 1, "serve"), lossDeployment("there", 2, "serve"),
		lossDeployment("buyer-here", 1, "load", "http://there/readyz", customerPace), lossDeployment("buyer-there", 1, "load", "http://here/readyz", customerPace),
	} {
		_, err := home.AppsV1().Deployments(lossNamespace).Create(t.Context(), d, metav1.CreateOptions{})
		require.NoError(t, err)
		within(t, longest, d.Name+" is available", w.available(d.Name, lossNamespace, *d.Spec.Replicas))
	}
	within(t, longest, "all is well at first", w.well)
	return w
}

// lossDeployment runs in milan if its name ends with there, and else in rome.
func lossDeployment(name string, replicas int32, args ...string) *appsv1.Deployment {
	d := deployment(name, replicas)
	d.Spec.Template.Spec = testSpec(1)
	d.Spec.Template.Spec.Containers[0].Args = args
	d.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)},
	}}
	if strings.HasSuffix(name, "there") {
		d.Spec.Template.Spec.RuntimeClassName = ptr.To("liqo")
	} else {
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "rome-1"}
	}
	return d
}

// namespaceOf returns the name of the namespace in a cluster.
func (w lossWorld) namespaceOf(s *site.Site) string {
	if s == w.milan {
		return lossNamespace + "-rome"
	}
	return lossNamespace
}

// sales returns what became of the requests of the customer of each cluster since the last call.
func (w lossWorld) sales(ctx context.Context) (map[string]tally, error) {
	out := map[string]tally{}
	for s, app := range map[*site.Site]string{w.rome: "buyer-here", w.milan: "buyer-there"} {
		pods, err := s.Client().CoreV1().Pods(w.namespaceOf(s)).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return podReady(&p) == corev1.ConditionTrue && p.DeletionTimestamp == nil })
		if i < 0 {
			return nil, fmt.Errorf("no pod of %s is Ready in %s", app, s.Name)
		}
		said, err := s.Exec(ctx, w.namespaceOf(s), pods.Items[i].Name, "get", "http://localhost:8080/")
		if err != nil {
			return nil, err
		}
		var of tally
		if err := json.Unmarshal([]byte(said), &of); err != nil {
			return nil, err
		}
		out["in "+s.Name] = of
	}
	return out, nil
}

// well says whether all roles are there, each cluster says so, and customers are served.
func (w lossWorld) well(ctx context.Context) error {
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, role := range allRoles() {
			if err := w.complete(ctx, s, role); err != nil {
				return err
			}
		}
		seen, err := w.look(ctx, s)
		if err != nil {
			return err
		}
		for what, is := range seen {
			if want := w.wants(what); is != want && !strings.HasPrefix(is, want+" ") {
				return fmt.Errorf("%s: %s", what, is)
			}
		}
	}
	return w.served(ctx)
}

// served says whether no request of a customer has failed since the last call.
func (w lossWorld) served(ctx context.Context) error {
	sales, err := w.sales(ctx)
	for customer, of := range sales {
		if of.Failed > 0 || of.Requests == 0 {
			err = errors.Join(err, fmt.Errorf("customer %s: %+v", customer, of))
		}
	}
	return err
}

// without takes roles from both clusters for a time, and logs what happens.
func (w lossWorld) without(t *testing.T, l roleLoss) {
	before := map[*site.Site]map[string]string{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		pods, err := containers(t.Context(), s, w.namespaceOf(s))
		require.NoError(t, err)
		before[s] = pods
	}
	token := ""
	if w.turin != nil {
		token = tokenOf(t, w.sites, w.milan)
	}
	_, err := w.sales(t.Context())
	require.NoError(t, err)
	book := w.watch(t)
	defer func() { t.Logf("without %v for %s:\n%s", l.roles, l.lasts, book.end()) }()
	var back []func()
	for _, role := range l.roles {
		for _, s := range []*site.Site{w.rome, w.milan} {
			if role != "vkubelet" || s == w.rome { // only consumers have vkubelets
				back = append(back, w.lose(t, s, role))
			}
		}
	}
	book.note("away: %v", l.roles)
	began := time.Now()
	w.tryNew(t, book, token)
	hold(t, time.Until(began.Add(l.lasts)), "the test goes on", func(context.Context) error { return nil })
	meanwhile, err := w.sales(t.Context())
	book.note("customers: %+v (%v)", meanwhile, err)
	w.statuses(t, book)
	for _, f := range back {
		f()
	}
	book.note("back")
	within(t, longest, "customers are served", w.served)
	book.note("customers are served")
	within(t, 10*time.Minute, "all is well again", w.well)
	book.note("all is well")
	w.forgetNew(t, book, token)
	if l.felt {
		return
	}
	require.NoError(t, err)
	for customer, of := range meanwhile {
		require.Zero(t, of.Failed, "customer %s: %v", customer, of.Failures)
		require.Greater(t, of.Requests, enoughRequests)
	}
	book.end()
	require.Empty(t, book.fewer, "endpoints that left a Service, and pods that were not Ready")
	for s, pods := range before {
		w.same(t, s, w.namespaceOf(s), pods)
	}
}
