package scenarios

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// storeNamespace is what testdata/store is deployed to, in both clusters.
const storeNamespace = "store"

// storeDeployments are those of the store, and their replicas.
var storeDeployments = map[string]int32{"web": 2, "catalog": 1, "cart": 1, "checkout": 1, "payment": 1, "customers": 2}

// storeWorld is a world in which the store runs, half in each cluster.
type storeWorld struct{ *fullWorld }

// TestApplication: an application of many services that was written for one cluster works
// in two with equal ranges: its manifests say nothing of them, only the kustomization beside
// them does.
func TestApplication(t *testing.T) { testStore(t, nil) }

// versionsRun is a run of the store in clusters of these versions. `go run ./hack runs` writes those of
// e2e/versions into docs/install.md.
type versionsRun struct {
	Consumer string `json:"consumer"`
	Provider string `json:"provider"`
	Passed   bool   `json:"passed"`
}

// TestVersions is TestApplication with other versions of Kubernetes in either cluster.
func TestVersions(t *testing.T) {
	for _, pair := range [][]string{{"1.32", "1.37"}, {"1.37", "1.32"}, {"1.34", ""}, {"", "1.33"}, {"1.35", ""}} {
		t.Run("consumer "+cmp.Or(pair[0], lab.KubernetesVersion)+", provider "+cmp.Or(pair[1], lab.KubernetesVersion), func(t *testing.T) {
			testStore(t, map[string]string{"rome": pair[0], "milan": pair[1]})
		})
	}
}

// testStore deploys the store to two clusters that run these versions of Kubernetes.
func testStore(t *testing.T, versions map[string]string) {
	// Empty sections undo the settings of tests: the chart's defaults are kept.
	settings := map[string]any{
		"controller": map[string]any{"twinNames": []string{storeNamespace}}, "lease": map[string]any{}, "vkubelet": map[string]any{"ownZone": true},
	}
	var values map[string]any
	if slices.Contains(slices.Collect(maps.Values(versions)), "1.32") {
		// docs/networking.md: before 1.33 there are no ServiceCIDRs. Both clusters have the same range.
		values = map[string]any{"networking": map[string]any{"serviceCIDRs": []string{"10.96.0.0/16"}}}
	}
	network := newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{1, 2}, Fabric: site.FabricPods, Settings: []map[string]any{settings}, Values: values,
		// As long as Kubernetes waits by default.
		Adjust: func(o *lab.ClusterOptions) {
			o.Audit, o.NodeGrace, o.Kubernetes = false, 40*time.Second, versions[o.Name]
		},
	})
	consumer, provider := must(network.rome.Client().Discovery().ServerVersion())(t), must(network.milan.Client().Discovery().ServerVersion())(t)
	run := versionsRun{Consumer: consumer.GitVersion, Provider: provider.GitVersion}
	recordRun(t, "versions/consumer-1."+consumer.Minor+"-provider-1."+provider.Minor, &run, &run.Passed)
	network.peer(t)
	w := storeWorld(network)
	w.offload(t, storeNamespace, offloadingv1beta1.NamespaceOffloadingSpec{
		// Full names of Services, which have the namespace in them, are right in both clusters then.
		NamespaceMappingStrategy: offloadingv1beta1.EnforceSameName, PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote,
	})
	w.kubectl(t, "apply", "-k", "testdata/store")
	within(t, 90*time.Second, "the store is open", w.open)
	inTurn(t, w, []part[storeWorld]{
		{"half here and half there", storePlaces}, {"endpoints", storeEndpoints}, {"API server", storeAPIServer}, {"Ingress", storeIngress}, {"events", storeEvents},
		{"Job", storeJob}, {"requests", storeRequests}, {"node ports", storeNodePorts}, {"near first", storeNear}, {"hostile peer", storeHostilePeer}, {"configuration", storeConfiguration}, {"rollout", storeRollout}, {"endpoints after the rollout", storeEndpoints},
		{"killed", storeKilled}, {"home's API server away", storeHomeAway}, {"services at home", storeHomeServices}, {"deleted", storeDeleted},
	})
}

// kubectl runs kubectl in the store's namespace at home, as its users do.
func (w storeWorld) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	return must(w.rome.Kubectl(ctx, lab.KubectlOptions{}, append([]string{"-n", storeNamespace}, args...)...))(t)
}

// open says whether everything of the store runs, and nothing besides.
func (w storeWorld) open(ctx context.Context) error {
	want := 2 // of the cache
	for name, replicas := range storeDeployments {
		if err := w.available(name, storeNamespace, replicas)(ctx); err != nil {
			return err
		}
		want += int(replicas)
	}
	byApp, err := w.apps(ctx)
	if err != nil {
		return err
	}
	have := 0
	for _, pods := range byApp {
		for _, p := range pods {
			if podReady(&p) != corev1.ConditionTrue {
				return fmt.Errorf("pod %s is not Ready: %+v", p.Name, p.Status)
			}
			have++
		}
	}
	return lab.Wrong(nil, have != want, "the store has %d pods, not %d", have, want)
}

// apps are the pods of the store at home, without the Job's, by the label app.
func (w storeWorld) apps(ctx context.Context) (map[string][]corev1.Pod, error) {
	list, err := w.rome.Client().CoreV1().Pods(storeNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app"})
	if err != nil {
		return nil, err
	}
	out := map[string][]corev1.Pod{}
	for _, p := range list.Items {
		out[p.Labels["app"]] = append(out[p.Labels["app"]], p)
	}
	return out, nil
}

// pod of an app that runs in a cluster.
func (w storeWorld) pod(t *testing.T, app, cluster string) corev1.Pod {
	t.Helper()
	pods := must(w.apps(t.Context()))(t)
	i := slices.IndexFunc(pods[app], func(p corev1.Pod) bool { return runsIn(p.Spec.NodeName) == cluster })
	require.GreaterOrEqual(t, i, 0, "no pod of %s runs in %s", app, cluster)
	return pods[app][i]
}

// runsIn is the cluster that a node belongs to, or that it stands for.
func runsIn(node string) string {
	cluster, _, _ := strings.Cut(node, "-")
	return cluster
}

// storePlaces: the kustomization's patches decide where the pods run.
func storePlaces(t *testing.T, w storeWorld) {
	byApp := must(w.apps(t.Context()))(t)
	have := map[string][]string{}
	for app, pods := range byApp {
		for _, p := range pods {
			have[app] = append(have[app], runsIn(p.Spec.NodeName))
		}
		slices.Sort(have[app])
	}
	require.Equal(t, map[string][]string{
		"web": {"milan", "rome"}, "customers": {"milan", "rome"}, "cache": {"milan", "rome"},
		"catalog": {"rome"}, "checkout": {"rome"}, "cart": {"milan"}, "payment": {"milan"},
	}, have)
}

// storeEndpoints: each cluster has each endpoint of each Service once, wherever it runs,
// and under an address of its own.
func storeEndpoints(t *testing.T, w storeWorld) {
	byApp := must(w.apps(t.Context()))(t)
	for _, app := range []string{"web", "catalog", "cart", "checkout", "payment", "cache"} {
		var want []string
		for _, p := range byApp[app] {
			want = append(want, p.Name)
		}
		slices.Sort(want)
		for _, s := range []*lab.Cluster{w.rome.Cluster, w.milan.Cluster} {
			within(t, quickly, s.Name+" knows each endpoint of "+app+" once", func(ctx context.Context) error {
				have, err := endpointPods(ctx, s, app)
				return lab.Wrong(err, !slices.Equal(have, want), "%v, not %v", have, want)
			})
		}
	}
}

// endpointPods are the pods of a Service's ready endpoints, sorted, one for each address.
func endpointPods(ctx context.Context, s *lab.Cluster, service string) (out []string, err error) {
	list, err := s.Client().DiscoveryV1().EndpointSlices(storeNamespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef == nil || !ptr.Deref(e.Conditions.Ready, false) {
				continue
			}
			for _, address := range e.Addresses {
				if seen[address] {
					return nil, fmt.Errorf("address %s is there twice", address)
				}
				seen[address] = true
				out = append(out, e.TargetRef.Name)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// storeJob: the Job ends, which put something into the cache through all the services.
func storeJob(t *testing.T, w storeWorld) {
	w.kubectl(t, "wait", "job/stock", "--for=condition=Complete", "--timeout=50s")
	pods := kubetest.List(t, w.rome.Client().CoreV1().Pods(storeNamespace), metav1.ListOptions{LabelSelector: "job-name=stock"})
	require.Len(t, pods.Items, 1, "it ran in one pod")
	require.Equal(t, "milan", pods.Items[0].Spec.NodeName)
}

// An answer is what a service of the store says: see e2e/image.
type answer struct {
	Pod, Node, Kept string
	Read            map[string]string
	Asked           map[string]answer
}

// facts adds what an answer says to a map: where each Service answered from, what the
// caches keep, and what each cluster reads in files.
func (a answer) facts(into map[string]string) {
	for file, content := range a.Read {
		into[file+" in "+runsIn(a.Node)] = content
	}
	for url, of := range a.Asked {
		into[url] = runsIn(of.Node)
		if of.Kept != "" {
			into[url+" keeps"] = of.Kept
		}
		of.facts(into)
	}
}

// parsed reads JSON that a command has printed.
func parsed[T any](said string, err error) (out T, _ error) {
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal([]byte(said), &out); err != nil {
		return out, fmt.Errorf("%s: %w", said, err)
	}
	return out, nil
}

// ask sends a request from within a pod.
func (w storeWorld) ask(ctx context.Context, from, url string) (answer, error) {
	return parsed[answer](w.rome.Exec(ctx, storeNamespace, from, "get", url))
}

// expected are the facts that every request to the web tier gathers.
func (w storeWorld) expected(t *testing.T, price, key string) map[string]string {
	t.Helper()
	out := map[string]string{
		"http://catalog": "rome", "http://checkout.store.svc.cluster.local": "rome", "http://cart": "milan", "http://payment": "milan",
		"/etc/prices/lamp in rome": price, "/etc/prices/lamp in milan": price, "/etc/bank/key in rome": key, "/etc/bank/key in milan": key,
	}
	for _, cluster := range []string{"rome", "milan"} {
		url := "http://" + w.pod(t, "cache", cluster).Name + ".cache:8080"
		out[url], out[url+" keeps"] = cluster, "7"
	}
	return out
}

// storeRequests: customers of both clusters reach every Service, and the web tier's pods
// in both clusters; each request passes through all the services, wherever they run.
func storeRequests(t *testing.T, w storeWorld) {
	want := w.expected(t, "20", "first")
	for _, cluster := range []string{"rome", "milan"} {
		from := w.pod(t, "customers", cluster).Name
		w.asksAll(t, from)
		doors := map[string]bool{}
		within(t, 30*time.Second, "customers in "+cluster+" enter by the web tier of both", func(ctx context.Context) error {
			a, err := w.ask(ctx, from, "http://web/?key=lamp")
			if err != nil {
				return err
			}
			have := map[string]string{}
			a.facts(have)
			require.Equal(t, want, have)
			doors[runsIn(a.Node)] = true
			return lab.Wrong(nil, len(doors) < 2, "all were answered by %v", slices.Collect(maps.Keys(doors)))
		})
	}
	out := must(w.rome.Exec(t.Context(), storeNamespace, w.pod(t, "payment", "milan").Name, "env", "ACCOUNT"))(t)
	require.Equal(t, "store\n", out, "a variable from a Secret")
}

// storeNodePorts: a node port of home answers at the address of the virtual node, as at that of a real one.
func storeNodePorts(t *testing.T, w storeWorld) {
	services, from := w.rome.Client().CoreV1().Services(storeNamespace), w.pod(t, "customers", "rome").Name
	door := kubetest.Create(t, services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "door"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
	}})
	for _, node := range []string{"rome-1", w.milan.Name} {
		for _, address := range kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), node).Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				url := fmt.Sprintf("http://%s:%d/?key=lamp", address.Address, door.Spec.Ports[0].NodePort)
				within(t, 30*time.Second, "the node port of "+node+" answers", func(ctx context.Context) error { return second(w.ask(ctx, from, url)) })
			}
		}
	}
	require.NoError(t, services.Delete(t.Context(), door.Name, metav1.DeleteOptions{}))
}

// asksAll has a pod ask each Service, and each member of the cache by its name.
func (w storeWorld) asksAll(t *testing.T, from string) {
	t.Helper()
	var all errgroup.Group
	for _, name := range []string{"web", "catalog", "cart", "checkout", "payment", "cache-0.cache:8080", "cache-1.cache:8080"} {
		all.Go(func() error {
			if _, err := w.ask(t.Context(), from, "http://"+name); err != nil {
				return fmt.Errorf("%s asks %s: %w", from, name, err)
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
}

// storeIngress: the Ingress is there, without its class until milan offers one; then what
// serves Ingresses in each cluster lets customers in, to the web tier of both clusters.
func storeIngress(t *testing.T, w storeWorld) {
	remote := getter(w.milan.Client().NetworkingV1().Ingresses(storeNamespace), "web")
	home := kubetest.Get(t, w.rome.Client().NetworkingV1().Ingresses(storeNamespace), "web")
	have := there(t, "it is there, without class", remote, func(i *networkingv1.Ingress) bool { return i.Spec.IngressClassName == nil })
	require.Equal(t, home.Spec.Rules, have.Spec.Rules)
	kubetest.Create(t, w.milan.Client().NetworkingV1().IngressClasses(), &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: "milans"}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/milans"},
	})
	there(t, "it has the class that milan offers", remote, func(i *networkingv1.Ingress) bool {
		return ptr.Deref(i.Spec.IngressClassName, "") == "milans"
	})
	manifest := must(os.ReadFile("testdata/ingress.yaml"))(t)
	for cluster, c := range map[*site.Site]struct{ class, from string }{
		w.rome:  {ptr.Deref(home.Spec.IngressClassName, ""), w.pod(t, "customers", "rome").Name},
		w.milan: {"milans", w.pod(t, "customers", "milan").Name},
	} {
		require.NoError(t, second(cluster.Kubectl(t.Context(), lab.KubectlOptions{Stdin: bytes.NewReader(bytes.ReplaceAll(manifest, []byte("CLASS"), []byte(c.class)))}, "apply", "-f", "-")))
		within(t, time.Minute, "requests from outside of "+cluster.Name+" reach the web tier in both clusters", func(ctx context.Context) error {
			seen := map[string]bool{}
			for range 20 {
				who, err := parsed[answer](cluster.Exec(ctx, storeNamespace, c.from, "get", "http://ingress.ingress/", "5s", "store.example.com"))
				if err != nil {
					return err
				}
				seen[runsIn(who.Node)] = true
			}
			return lab.Wrong(nil, !seen["rome"] || !seen["milan"], "answers come from %v only", seen)
		})
	}
}

// storeAPIServer: a pod in the provider reads the API server of its own cluster through the chart's
// gateways, by its environment and by its name on port 443.
func storeAPIServer(t *testing.T, w storeWorld) {
	pod := w.pod(t, "cart", "milan").Name
	for _, path := range []string{"version", "https://kubernetes.default.svc/version"} {
		within(t, 30*time.Second, "pod "+pod+" reads "+path, w.readsVersion(storeNamespace, pod, path))
	}
}

// storeEvents: kubectl tells at home what happened to pods there, and marks it.
func storeEvents(t *testing.T, w storeWorld) {
	pod := w.pod(t, "cart", "milan").Name
	within(t, 30*time.Second, "kubectl get events tells the story of "+pod, func(ctx context.Context) error {
		out := w.kubectl(t, "get", "events", "-o", "wide")
		for _, reason := range []string{"Scheduled", "Pulled", "Created", "Started"} {
			if !regexp.MustCompile(`(?m)\s` + reason + `\s.*pod/` + pod + `\s.*\(remote\)`).MatchString(out) {
				return fmt.Errorf("nothing of %s in:\n%s", reason, out)
			}
		}
		return nil
	})
	for line := range strings.Lines(w.kubectl(t, "get", "events", "-o", "wide", "--field-selector", "involvedObject.name="+w.pod(t, "catalog", "rome").Name)) {
		require.NotContains(t, line, "(remote)")
	}
}

// storeHostilePeer: with the defaults of the chart, nothing but pods of milan answers rome.
func storeHostilePeer(t *testing.T, w storeWorld) {
	hostilePeer(t, w.fullWorld, storeNamespace+"/"+w.pod(t, "customers", "rome").Name, w.gatewayPod)
}

// storeConfiguration: what is changed at home in ConfigMaps and Secrets comes to the pods
// of both clusters.
func storeConfiguration(t *testing.T, w storeWorld) {
	w.kubectl(t, "patch", "configmap", "prices", "-p", `{"data":{"lamp":"25"}}`)
	w.kubectl(t, "patch", "secret", "bank", "-p", `{"stringData":{"key":"second"}}`)
	want := w.expected(t, "25", "second")
	from := w.pod(t, "customers", "rome").Name
	within(t, time.Minute, "all services read it", func(ctx context.Context) error {
		a, err := w.ask(ctx, from, "http://web/?key=lamp")
		if err != nil {
			return err
		}
		have := map[string]string{}
		a.facts(have)
		return lab.Wrong(nil, !maps.Equal(have, want), "%v", have)
	})
}

// A tally is what became of a customer's requests since it was looked at last: see e2e/image.
type tally struct {
	Requests, Failed int
	Pause            time.Duration
	Failures         map[string]int
}

func (w storeWorld) tally(ctx context.Context, customer string) (tally, error) {
	return tallyOf(ctx, w.rome, storeNamespace, customer)
}

// tallyOf returns what became of the requests of a pod that runs load.
func tallyOf(ctx context.Context, s *site.Site, namespace, pod string) (tally, error) {
	return parsed[tally](s.Exec(ctx, namespace, pod, "get", "http://localhost:8080/"))
}

// storeRollout replaces every service at once while customers of both clusters buy: as in
// one cluster, no request fails.
func storeRollout(t *testing.T, w storeWorld) {
	customers := map[string]string{}
	for _, cluster := range []string{"rome", "milan"} {
		customers[cluster] = w.pod(t, "customers", cluster).Name
		require.NoError(t, second(w.tally(t.Context(), customers[cluster])))
	}
	before := must(w.apps(t.Context()))(t)
	w.kubectl(t, "rollout", "restart", "deployment", "web", "catalog", "cart", "checkout", "payment")
	within(t, 90*time.Second, "every service is replaced", func(ctx context.Context) error {
		after, err := w.apps(ctx)
		if err != nil {
			return err
		}
		for app := range storeDeployments {
			for _, p := range before[app] {
				if app != "customers" && byName(after[app], p.Name) != nil {
					return fmt.Errorf("pod %s is still there", p.Name)
				}
			}
		}
		return w.open(ctx)
	})
	var lost error
	for cluster, customer := range customers {
		have := must(w.tally(t.Context(), customer))(t)
		t.Logf("customers in %s: %d requests, %d failed, longest pause %s", cluster, have.Requests, have.Failed, have.Pause.Round(time.Millisecond))
		require.Greater(t, have.Requests, 10)
		if have.Failed > 0 {
			lost = errors.Join(lost, fmt.Errorf("customers in %s: %v", cluster, have.Failures))
		}
	}
	require.NoError(t, lost)
	storePlaces(t, w)
}

// storeDeleted: what the store's manifests made goes in both clusters, and the namespace
// stays offloaded.
func storeDeleted(t *testing.T, w storeWorld) {
	w.kubectl(t, "delete", "-k", "testdata/store")
	within(t, 30*time.Second, "nothing of it is left in milan", func(ctx context.Context) error {
		out, err := w.milan.Kubectl(ctx, lab.KubectlOptions{}, "-n", storeNamespace, "get", "-o", "name", "-l", offloadingv1beta1.OriginLabel+"=rome",
			"pods,shadowpods,services,endpointslices,shadowendpointslices,ingresses,configmaps,secrets")
		return lab.Wrong(err, out != "configmap/kube-root-ca.crt.rome\n", "%q", out)
	})
}
