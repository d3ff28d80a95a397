package cmd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/roles/cmd/report"
)

// The numbers that the checks before an installation repeat are those of the chart.
func TestPreNumbers(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text := must(os.ReadFile("../../" + path))
		return string(text)
	}
	require.Contains(t, read("charts/liqod/Chart.yaml"), `kubeVersion: ">=`+report.OldestKubernetes+`-0"`)
	require.Contains(t, read("config.yaml"), fmt.Sprintf("overlayPort: %d #", nodePorts[0].number))
	require.Contains(t, read("charts/liqod/values.yaml"), fmt.Sprintf("healthPort: %d #", nodePorts[1].number))
}

// Every kind that the chart has is asked for.
func TestPreKnowsTheKindsOfTheChart(t *testing.T) {
	t.Parallel()
	files := must(os.ReadDir("../../charts/liqod/templates"))
	known := map[string]bool{}
	for _, a := range append(core, apis...) {
		known[a.group+" "+a.resource] = true
	}
	for _, f := range files {
		if f.IsDir() {
			continue
		}
		text := must(os.ReadFile("../../charts/liqod/templates/" + f.Name()))
		group := ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if g, ok := strings.CutPrefix(line, "apiVersion: "); ok {
				group = g
			}
			kind, ok := strings.CutPrefix(line, "kind: ")
			if !ok || group == "" || strings.HasPrefix(group, "monitoring.coreos.com/") { // off by default
				continue
			}
			resource := strings.ToLower(kind) + "s"
			resource = strings.ReplaceAll(strings.ReplaceAll(resource, "ys", "ies"), "sss", "sses")
			require.True(t, known[group+" "+resource], "%s: %s %s", f.Name(), group, resource)
			group = ""
		}
	}
}

// fit is a cluster in which liqod can be installed.
func fit() *preflight {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	snap := &report.Snapshot{
		Kubernetes: "v1.34.1", Taken: now, Unread: map[string]error{},
		Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDR: "10.244.0.0/24"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}},
		Leases: []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-5 * time.Second)))}}},
	}
	return &preflight{reading: &reading{snap: snap},
		services: []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}}}},
	}
}

func holding(name string, hostNetwork bool, ports ...corev1.ContainerPort) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}, Spec: corev1.PodSpec{HostNetwork: hostNetwork, Containers: []corev1.Container{{Ports: ports}}}}
}

func TestPreJudges(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*preflight)
		level  report.Level
		says   string
	}{
		"fit":            {func(*preflight) {}, report.Warning, "✔ Kubernetes: v1.34.1"},
		"old":            {func(p *preflight) { p.snap.Kubernetes = "v1.31.9" }, report.Problem, "✘ Kubernetes: version v1.31.9 is older than 1.32.0"},
		"strange":        {func(p *preflight) { p.snap.Kubernetes = "main" }, report.Unknown, `? Kubernetes: version "main" is not understood`},
		"no cidrs":       {func(p *preflight) { p.snap.Kubernetes = "v1.32.1+k3s1" }, report.Warning, "‼ Service addresses: this version has no ServiceCIDRs"},
		"an api missing": {func(p *preflight) { p.missing = []string{"runtimeclasses (node.k8s.io/v1)"} }, report.Problem, "✘ APIs: the API server does not serve runtimeclasses (node.k8s.io/v1)"},
		"installed":      {func(p *preflight) { p.snap.Namespace, p.kinds = "liqod", true }, report.Warning, "‼ Installation: liqod is installed already, in namespace liqod"},
		"liqo":           {func(p *preflight) { p.kinds = true }, report.Warning, "‼ Installation: there are kinds of the group core.liqo.io, but no liqod"},
		"no rights":      {func(p *preflight) { p.denied = []string{"create clusterroles"} }, report.Problem, "✘ Rights: you may not: create clusterroles"},
		"dead webhook":   {func(p *preflight) { p.webhooks = []guard{{"policy/pods", "policy/server"}} }, report.Problem, "✘ Webhook policy/pods: it has to allow pods or nodes, and its Service policy/server has no ready endpoint"},
		"a host port": {func(p *preflight) {
			p.snap.Pods = []corev1.Pod{holding("a", false, corev1.ContainerPort{HostPort: 6093})}
		}, report.Problem, "✘ TCP port 6093: pods have it on their nodes: x/a;"},
		"a host's port": {func(p *preflight) {
			p.snap.Pods = []corev1.Pod{holding("a", true, corev1.ContainerPort{ContainerPort: 6091, Protocol: corev1.ProtocolUDP})}
		}, report.Problem, "✘ UDP port 6091: pods have it on their nodes: x/a;"},
		"other ports": {func(p *preflight) {
			p.snap.Pods = []corev1.Pod{holding("a", true, corev1.ContainerPort{ContainerPort: 6091}), holding("b", false, corev1.ContainerPort{ContainerPort: 6093})}
		}, report.Warning, "✔ UDP port 6091: no pod has it"},
		"many pods": {func(p *preflight) {
			for _, n := range strings.Split("abcdefg", "") {
				p.snap.Pods = append(p.snap.Pods, holding(n, false, corev1.ContainerPort{HostPort: 6093}))
			}
		}, report.Problem, "x/a, x/b, x/c, x/d, x/e and 2 more; liqod uses it"},
		"own pods": {func(p *preflight) {
			p.snap.Pods = []corev1.Pod{holding("a", false, corev1.ContainerPort{HostPort: 6093})}
			p.snap.Pods[0].Labels = map[string]string{"app.kubernetes.io/name": "liqod"}
		}, report.Warning, "✔ TCP port 6093: no pod has it"},
		"no balancer":      {func(p *preflight) { p.services[0].Status = corev1.ServiceStatus{} }, report.Warning, "‼ Load balancers: Service web/front waits for an address"},
		"none yet":         {func(p *preflight) { p.services = nil }, report.Warning, "‼ Load balancers: there is no Service of type LoadBalancer yet"},
		"skew":             {func(p *preflight) { p.skew = -time.Minute }, report.Warning, "‼ Clock of the API server: it is 1m0s behind the clock of this machine"},
		"a node ahead":     {func(p *preflight) { p.snap.Leases[0].Spec.RenewTime.Time = p.snap.Taken.Add(10 * time.Second) }, report.Warning, "by the renewal of their Leases: n1 (10s ahead of it)"},
		"a node behind":    {func(p *preflight) { p.snap.Leases[0].Spec.RenewTime.Time = p.snap.Taken.Add(-time.Minute) }, report.Warning, "n1 (1m0s behind it)"},
		"a node down":      {func(p *preflight) { p.snap.Nodes[0].Status.Conditions = nil }, report.Warning, "‼ Nodes: not Ready: n1"},
		"a node without":   {func(p *preflight) { p.snap.Nodes[0].Spec.PodCIDR = "" }, report.Warning, "‼ Pod addresses: nodes have no podCIDR: n1."},
		"unread":           {func(p *preflight) { p.snap.Unread["Nodes"] = errors.New("forbidden") }, report.Unknown, "? Nodes: cannot be read: forbidden"},
		"rights not asked": {func(p *preflight) { p.snap.Unread["your rights"] = errors.New("no") }, report.Unknown, "? your rights: cannot be read: no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fit()
			tc.change(p)
			findings := p.judge()
			requireIDs(t, findings)
			require.Contains(t, report.CheckText(findings), tc.says)
			require.Equal(t, tc.level, report.Worst(findings))
		})
	}
}

// bare is a cluster without liqod.
func bare(t *testing.T) *cluster {
	t.Helper()
	c := newCluster()
	require.NoError(t, c.core.Tracker().Delete(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), "", join.Controller))
	discovery, ok := c.core.Discovery().(*fakediscovery.FakeDiscovery)
	require.True(t, ok)
	discovery.FakedServerVersion = &version.Info{GitVersion: "v1.34.1"}
	lists := map[string]*metav1.APIResourceList{}
	for _, a := range append(core, apis...) {
		if lists[a.group] == nil {
			lists[a.group] = &metav1.APIResourceList{GroupVersion: a.group}
			discovery.Resources = append(discovery.Resources, lists[a.group])
		}
		lists[a.group].APIResources = append(lists[a.group].APIResources, metav1.APIResource{Name: a.resource})
	}
	return c
}

// may gives the user rights to some verbs.
func (c *cluster) may(verbs ...string) {
	c.core.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		attributes := review.Spec.ResourceAttributes
		for _, v := range verbs {
			review.Status.Allowed = review.Status.Allowed || attributes.Verb == v || attributes.Verb+" "+attributes.Resource == v
		}
		return true, review, nil
	})
}

func TestPreReads(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.may("*")
	out := c.ran(t, "check", "--pre")
	require.Contains(t, out, "Before the installation\n  ✔ Kubernetes: v1.34.1\n  ✔ APIs: ")
	require.Contains(t, out, "✔ Rights: you may create all objects of the chart")
	require.Contains(t, out, "✔ Webhooks: ")
	for _, a := range c.core.Actions() {
		require.True(t, a.GetVerb() == "get" || a.GetVerb() == "list" || a.GetResource().Resource == "selfsubjectaccessreviews", a)
	}

	c = bare(t)
	c.may("create configmaps", "create namespaces")
	out = c.fails(t, ExitProblem, "", "check", "--pre")
	require.Contains(t, out, "✘ Rights: you may not: create resourcequotas, create serviceaccounts, create services, create daemonsets, ")
	require.Contains(t, out, ", escalate clusterroles\n")
}

// The objects that show the network plugin are read, and no others.
func TestPreRecognisesThePlugin(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.may("*")
	out := c.ran(t, "check", "--pre")
	require.Contains(t, out, "✔ Network plugin: no plugin that needs settings of liqod was recognised")
	in := metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium"}
	c.add(t, &appsv1.DaemonSet{ObjectMeta: in})
	in.Name = "cilium-config"
	c.add(t, &corev1.ConfigMap{ObjectMeta: in, Data: map[string]string{"ipam": "kubernetes", "enable-bpf-masquerade": "true"}})
	out = c.ran(t, "check", "--pre")
	require.Contains(t, out, "‼ Network plugin Cilium: DaemonSet kube-system/cilium is there.")
	require.Contains(t, out, "set bpf.hostLegacyRouting=true in Cilium's chart; set bpf.masquerade=false in Cilium's chart")
	c.core.PrependReactor("get", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == "kube-system", nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
	})
	out = c.fails(t, ExitUnknown, "", "check", "--pre")
	require.Contains(t, out, "? ConfigMap kube-system/cilium-config: cannot be read: ")
}

func TestPreFindsDeadWebhooks(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.may("*")
	rule := func(group, resource string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, Resources: []string{resource}}}}
	}
	at := func(service string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "policy", Name: service}}
	}
	c.add(t, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
		{Name: "dead", ClientConfig: at("gone"), Rules: rule("", "pods")},
		{Name: "lenient", ClientConfig: at("gone"), Rules: rule("", "pods"), FailurePolicy: ptr.To(admissionregistrationv1.Ignore)},
		{Name: "elsewhere", ClientConfig: at("gone"), Rules: rule("apps", "deployments")},
		{Name: "by-url", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://policy.example")}, Rules: rule("", "pods")},
	}})
	c.add(t, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Webhooks: []admissionregistrationv1.MutatingWebhook{
		{Name: "alive", ClientConfig: at("server"), Rules: rule("*", "*")},
		{Name: "not-ready", ClientConfig: at("starting"), Rules: rule("*", "*/*"), FailurePolicy: ptr.To(admissionregistrationv1.Fail)},
	}})
	for name, ready := range map[string]bool{"server": true, "starting": false} {
		c.add(t, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "policy", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)}}}})
	}
	out := c.fails(t, ExitProblem, "", "check", "--pre")
	require.Equal(t, 2, strings.Count(out, "✘"), out)
	require.Contains(t, out, "✘ Webhook v/dead: ")
	require.Contains(t, out, "✘ Webhook m/not-ready: ")
}

func TestPreWithoutRightsToRead(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.forbid("list", "*")
	c.forbid("create", "*")
	out := c.fails(t, ExitUnknown, "", "check", "--pre", "-o", "json")
	require.Contains(t, out, `"subject": "your rights"`)
	require.Contains(t, out, `"health": "unknown"`)
}

// endpoint serves what an authentication endpoint answers to a GET, with the certificate of an
// authority, and returns a token of it. Its clock is ahead by that much.
func endpoint(t *testing.T, status int, ahead time.Duration) (trust.Token, *httptest.Server) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		if r.Method != http.MethodGet || r.URL.Path != trust.EnrollPath || r.ContentLength > 0 || r.Header.Get("Authorization") != "" {
			status = http.StatusTeapot
		}
		w.WriteHeader(status)
	}))
	pin := serveTLS(t, server)
	token := must(trust.NewToken(server.URL, "milan", pin))
	return token, server
}

func TestCheckToken(t *testing.T) {
	t.Parallel()
	good, _ := endpoint(t, http.StatusMethodNotAllowed, 0)
	other, _ := endpoint(t, http.StatusOK, 0)
	skewed, _ := endpoint(t, http.StatusMethodNotAllowed, -time.Hour)
	closed, server := endpoint(t, http.StatusMethodNotAllowed, 0)
	server.Close()
	pinned := good
	pinned.CA = strings.Repeat("0", 64)
	nowhere := good
	nowhere.AuthURL = "https://nowhere.invalid:8443"
	own := good
	own.ClusterID = "rome"
	for name, tc := range map[string]struct {
		token trust.Token
		code  int
		says  string
	}{
		"good":              {good, 0, "✔ Authentication endpoint: " + good.AuthURL + " answers to this machine with the certificate of the token."},
		"usable":            {good, 0, "✔ This cluster: it is cluster rome, and can use the token"},
		"another server":    {other, ExitProblem, "✘ Authentication endpoint: " + other.AuthURL + " answers with status 200, so it is not an authentication endpoint of liqod"},
		"refused":           {closed, ExitProblem, "✘ Authentication endpoint: " + closed.AuthURL + " does not answer as it should to this machine: dial tcp "},
		"another authority": {pinned, ExitProblem, "its certificate was issued by another authority"},
		"no such name":      {nowhere, ExitProblem, "does not answer as it should to this machine: "},
		"own":               {own, ExitProblem, "✘ This cluster: the token is one of this cluster itself"},
		"skew":              {skewed, 0, "‼ Clocks: the clock of cluster milan is 1h0m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rome := installation(t, "rome")
			out, err := rome.run(t, "check", "--token", tc.token.String())
			require.Contains(t, out, tc.says)
			require.Equal(t, tc.code, code(err), out)
			require.NotContains(t, out, tc.token.Secret)
			require.Empty(t, rome.writes())
		})
	}
}

func TestCheckTokenAndTheCluster(t *testing.T) {
	t.Parallel()
	good, _ := endpoint(t, http.StatusMethodNotAllowed, 0)
	rome := installation(t, "rome")
	rome.add(t, foreignCluster("milan"))
	out := rome.ran(t, "check", "--token", good.String())
	require.Contains(t, out, "‼ This cluster: cluster milan is a peer of cluster rome already: a token replaces its identity only if it was made with --for=rome")

	c := bare(t)
	c.may("*")
	out = c.fails(t, ExitProblem, "", "check", "--token", good.String(), "--pre")
	require.Contains(t, out, "✘ This cluster: liqod is not installed in it")
	require.Contains(t, out, "Before the installation\n")

	away := &commands{program: "liqod", every: time.Millisecond, connect: func(*connection) (*clients, error) { return nil, errors.New("no cluster is known") }}
	out, err := execute(t, away, "check", "--token", good.String())
	require.Equal(t, ExitUnknown, code(err))
	require.Contains(t, out, "? This cluster: it cannot be asked: no cluster is known")
	requireIDs(t, away.examineToken(t.Context(), &connection{}, good))
	_, err = execute(t, away, "check", "--token", "liqod1.x")
	require.ErrorContains(t, err, "a damaged token")
	require.Equal(t, ExitProblem, code(err))
}

// serveTLS starts a server with a certificate of an authority of its own, and returns the
// fingerprint of that.
func serveTLS(t *testing.T, server *httptest.Server) string {
	t.Helper()
	ca := must(serve.NewCA("authentication", time.Now(), time.Hour))
	serving := must(serve.NewCertificate(ca, []string{"milan.example"}, time.Now(), time.Hour))
	certificate := serving.TLS()
	certificate.Certificate = append(certificate.Certificate[:1:1], ca.Cert.Raw)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return trust.Fingerprint(ca.Cert)
}
