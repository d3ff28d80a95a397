package scenarios

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/trust"
)

// alertWorld is two simulated clusters whose roles are recorded in faults that need no network.
type alertWorld struct {
	*world
	wanted map[string]bool
	// busily is what busy does in a fault, beside what it does in all.
	busily func(ctx context.Context, name string) error
}

// alarm is a fault that leads to an alert. The commands of docs/runbooks.md end the fault.
type alarm struct {
	name, alert string
	// at is the cluster in which the alert fires.
	at *site.Site
	// process measures line while the fault lasts, a regular expression.
	process func() *lab.Process
	line    string
	// make makes the fault.
	make func(*testing.T)
	// follow are the commands of the runbook that end it.
	follow []followed
	// then does what no command can do here.
	then func(*testing.T)
	// lasts says that the metric is a counter, which keeps its value.
	lasts bool
}

// followed is a command as docs/runbooks.md has it.
type followed struct {
	// in is the cluster in which it runs. Default: the one of the alert.
	in      *site.Site
	command string
	// fill are the words in capitals, each with what a person reads in the output of other commands.
	fill map[string]string
	// editor is a script of sed that edits what a command opens in an editor.
	editor string
	// says is a part of the output.
	says string
}

// TestRecordedAlerts makes faults that lead to alerts, writes what the roles measure in each, and ends it
// by the commands of docs/runbooks.md. It runs with -update alone: hack/promql reads what it writes.
func TestRecordedAlerts(t *testing.T) {
	if !*updateGolden {
		t.Skip("NOT RUN: only with -update, since it writes recordings")
	}
	all := newClusters(t, nil, map[string]any{"sharing": map[string]any{"mode": "Manual"}, "peering": map[string]any{"acceptOffers": "Manual"}})
	w := &alertWorld{world: all, wanted: shownMetrics(t)}
	w.joinByHand(t)
	w.offload(t, "busy", offloadingv1beta1.NamespaceOffloadingSpec{})
	for _, a := range w.alarms() {
		t.Run(a.name, func(t *testing.T) { w.alarm(t, a) })
	}
	restore := takeRights(t, w.rome, nodesRole, nodesResource) // of which an alert says something after 10 minutes
	w.anotherNode(t, "denied", asking("1", "1Gi"))
	for _, a := range []alarm{w.renewalFails(), w.rightsTaken(restore)} {
		t.Run(a.name, func(t *testing.T) { w.alarm(t, a) })
	}
}

// joinByHand peers, with an offer that waits for people in both clusters.
func (w *alertWorld) joinByHand(t *testing.T) {
	t.Helper()
	joined := make(chan string, 1)
	go func() {
		out, code, err := w.command(t.Context(), w.rome, "peer", "--timeout=5m", "--token", w.token(t), "--pod-cidr", w.rome.Options.PodCIDR)
		joined <- fmt.Sprintf("%d %v %s", code, err, out)
	}()
	approve := func(tenant string) []followed {
		return []followed{{command: "liqod offer approve NAME -n TENANT", fill: map[string]string{"NAME": "milan", "TENANT": tenant}}}
	}
	w.alarm(t, alarm{
		name: "offer-unapproved", alert: "LiqodOfferWaiting", at: w.milan, process: w.controllerOf(w.milan),
		line: `liqod_offers{direction="incoming",peer="rome",phase="ManualActionRequired"} 1`, follow: approve(tenantOfRome),
	})
	w.alarm(t, alarm{
		name: "offer-unaccepted", alert: "LiqodOfferWaiting", at: w.rome, process: w.controllerOf(w.rome),
		line: `liqod_offers{direction="outgoing",peer="milan",phase="ManualActionRequired"} 1`, follow: approve(tenantOfMilan),
	})
	require.NoError(t, w.rome.StartVKubelet(t.Context(), tenantOfMilan, "milan"))
	require.Regexp(t, "^0 ", <-joined)
}

// alarm makes a fault, records it, and ends it.
func (w *alertWorld) alarm(t *testing.T, a alarm) {
	if a.make != nil {
		a.make(t)
	}
	within(t, longest, "the fault is measured", measures(a.process(), a.line))
	record(t, w, a.at, w.wanted, a.name)
	page, err := os.ReadFile("../../docs/runbooks.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## "+a.alert+"\n")
	require.True(t, found, a.alert)
	section, _, _ = strings.Cut(section, "\n## ")
	printed := ""
	for _, f := range a.follow {
		require.Contains(t, section, f.command, a.alert)
		line, in := f.command, f.in
		for word, value := range f.fill {
			line = regexp.MustCompile(`\b`+word+`\b`).ReplaceAllString(line, value)
		}
		for said := range strings.Lines(printed) {
			if said = strings.TrimSpace(said); strings.HasPrefix(said, "liqod1.") {
				line = strings.ReplaceAll(line, "TOKEN", said)
			}
		}
		if in == nil {
			in = a.at
		}
		printed, err = w.shell(t, in, line, f.editor)
		require.NoError(t, err, "%s\n%s", line, printed)
		require.Contains(t, printed, f.says, line)
		t.Logf("%s\n%s", line, printed)
	}
	if a.then != nil {
		a.then(t)
	}
	if !a.lasts {
		within(t, longest, "the fault is not measured any more", func(ctx context.Context) error {
			text, err := metrics(ctx, a.process())
			return lab.Wrong(err, regexp.MustCompile("(?m)^"+a.line+"$").MatchString(text), "there is still a line %s", a.line)
		})
	}
}

// targets implements measured.
func (w *alertWorld) targets(_ context.Context, s *site.Site) ([]target, error) {
	from := func(namespace, pod string, p *lab.Process) target {
		return target{namespace, pod, func(ctx context.Context) (string, error) { return metrics(ctx, p) }}
	}
	all := []target{from("liqod", "liqod-controller-1", s.Controller), from("liqod", "liqod-webhook-1", s.Webhook)}
	if p := s.VKubelet(w.other(s).Name); p != nil {
		all = append(all, from(corev1beta1.TenantNamespace(w.other(s).Name), "vk-"+w.other(s).Name+"-1", *p))
	}
	return all, nil
}

// busy implements measured.
func (w *alertWorld) busy(t *testing.T, name string) {
	t.Helper()
	if w.busily == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), recordedEvery)
	defer cancel()
	t.Logf("%s: %v", name, w.busily(ctx, name))
}

func (*alertWorld) controllerOf(s *site.Site) func() *lab.Process {
	return func() *lab.Process { return s.Controller }
}

func (w *alertWorld) vkubelet() *lab.Process { return *w.rome.VKubelet("milan") }

// alarms are the faults of clusters that are peered.
func (w *alertWorld) alarms() []alarm {
	return []alarm{
		w.providerSilent(), w.podsRefused(), w.namespaceTaken(), w.nodeFull(), w.quotaFull(), w.idContested(), w.misbehaves(), w.identityUnknown(), w.webhookSlow(),
		w.identityRevoked(), // the identity that follows has a short life
	}
}

func (w *alertWorld) providerSilent() alarm {
	return alarm{
		name: "provider-silent", alert: "LiqodProviderControllerSilent", at: w.rome, process: w.controllerOf(w.rome),
		line: `liqod_virtual_node_controller_silent{peer="milan",virtual_node="milan"} 1`,
		make: func(*testing.T) {
			w.milan.Controller.Kill()
		},
		follow: []followed{{command: "kubectl describe node NODE", fill: map[string]string{"NODE": "milan"}, says: offloadingv1beta1.ReasonControllerSilent}},
		then:   func(t *testing.T) { require.NoError(t, w.sites.Restart(&w.milan.Controller)) },
	}
}

func (w *alertWorld) podsRefused() alarm {
	return alarm{
		name: "pods-refused", alert: "LiqodPodsPending", at: w.rome, process: w.vkubelet,
		line: `liqod_offloaded_pods{peer="milan",phase="Pending",ready="false",virtual_node="milan",workload_namespace="privileged"} 1`,
		make: func(t *testing.T) {
			w.offload(t, "privileged", offloadingv1beta1.NamespaceOffloadingSpec{})
			w.creates(t, "privileged", func(s *corev1.PodSpec) {
				s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
			})
		},
		follow: []followed{
			{command: "kubectl -n NAMESPACE get pods -o wide", fill: map[string]string{"NAMESPACE": "privileged"}, says: "PodRefused"},
			{
				command: "kubectl -n NAMESPACE edit deployment NAME", fill: map[string]string{"NAMESPACE": "privileged", "NAME": "web"},
				editor: "s/privileged: true/privileged: false/",
			},
		},
	}
}

func (w *alertWorld) namespaceTaken() alarm {
	names := map[string]string{"NAMESPACE": "renamed", "NAME": "other-rome"}
	return alarm{
		name: "namespace-taken", alert: "LiqodNamespaceNotMapped", at: w.rome, process: w.controllerOf(w.rome),
		line: `liqod_namespaces{direction="outgoing",peer="milan",phase="CreationLoopBackOff"} 1`,
		make: func(t *testing.T) {
			kubetest.Create(t, w.milan.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "renamed-rome"}})
			w.ask(t, "renamed", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
		},
		follow: []followed{
			{command: "liqod unoffload namespace NAMESPACE", fill: names},
			{command: "liqod offload namespace NAMESPACE --namespace-mapping-strategy SelectedName --remote-namespace-name NAME", fill: names},
		},
	}
}

// nodeFull requests 97 % of the CPU of the virtual node, by pods of which each has room on a node of the provider.
func (w *alertWorld) nodeFull() alarm {
	const pods = 20
	return alarm{
		name: "node-full", alert: "LiqodVirtualNodeFull", at: w.rome, process: w.vkubelet,
		line: fmt.Sprintf(`liqod_offloaded_pods{peer="milan",phase="Running",ready="true",virtual_node="milan",workload_namespace="full"} %d`, pods),
		make: func(t *testing.T) {
			node := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")
			each := resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()*97/100/pods, resource.DecimalSI)
			w.offload(t, "full", offloadingv1beta1.NamespaceOffloadingSpec{})
			d := deployment("web", pods)
			d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *each}
			kubetest.Create(t, w.rome.Client().AppsV1().Deployments("full"), d)
		},
		follow: []followed{{
			command: "kubectl -n NAMESPACE edit deployment NAME", fill: map[string]string{"NAMESPACE": "full", "NAME": "web"},
			editor: "s/replicas: 20/replicas: 2/; s/cpu: .*/cpu: 10m/",
		}},
	}
}

// quotaFull: a virtual node that was made by hand promises more than the Quota of the offer gives.
func (w *alertWorld) quotaFull() alarm {
	more := map[string]string{"TENANT": tenantOfRome}
	return alarm{
		name: "quota-full", alert: "LiqodQuotaWaiting", at: w.milan, process: w.controllerOf(w.milan), line: `liqod_quota_waiting{consumer="rome"} 1`,
		make: func(t *testing.T) {
			quota := kubetest.Get(t, w.milan.Liqod().OffloadingV1beta1().Quotas(tenantOfRome), "milan")
			milli := quota.Spec.Resources.Cpu().MilliValue()
			more["CPU"] = resource.NewMilliQuantity(milli, resource.DecimalSI).String()
			w.anotherNode(t, "promise", corev1.ResourceList{"cpu": resource.MustParse("1k"), "memory": resource.MustParse("1Ti"), "pods": resource.MustParse("100")})
			require.NoError(t, w.rome.StartVKubelet(t.Context(), tenantOfMilan, "promise"))
			w.offload(t, "waits", offloadingv1beta1.NamespaceOffloadingSpec{ClusterSelector: region("south")})
			d := deployment("web", 5) // of which four have room
			d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli*24/100, resource.DecimalSI)}
			kubetest.Create(t, w.rome.Client().AppsV1().Deployments("waits"), d)
		},
		follow: []followed{{command: "kubectl get quotas.offloading.liqo.io -A"}, {fill: more, command: `kubectl -n TENANT apply -f - <<END
{apiVersion: offloading.liqo.io/v1beta1, kind: Quota, metadata: {name: more}, spec: {resources: {cpu: CPU}}}
END`}},
		then: func(t *testing.T) { w.vanish(t, "waits") },
	}
}

func (w *alertWorld) idContested() alarm {
	var token trust.Token
	revoke := map[string]string{}
	return alarm{
		name: "id-contested", alert: "LiqodPeerContested", at: w.milan, process: w.controllerOf(w.milan), line: `liqod_peer_up{check="UniqueID",peer="rome"} 0`,
		make: func(t *testing.T) {
			token = enrolments{w.world}.token(t, "--for=rome", "--uses=0")
			revoke["ID"] = token.ID
			require.Equal(t, trust.ReasonConflict, newApplicant(t, "rome").enroll(t, token))
		},
		follow: []followed{
			{command: "kubectl describe foreigncluster milan", fill: map[string]string{"milan": "rome"}, says: corev1beta1.ReasonClaimedByAnother},
			{command: "liqod token list", says: "rome"},
			{command: "liqod token revoke ID", fill: revoke},
			{command: "kubectl annotate foreigncluster NAME liqo.io/rival-cluster-uid-", fill: map[string]string{"NAME": "rome"}},
		},
	}
}

func (w *alertWorld) misbehaves() alarm {
	writes := func(t *testing.T, ip string) {
		pods := w.milan.Client().CoreV1().Pods("liar-rome")
		list := kubetest.List(t, pods)
		require.Len(t, list.Items, 1)
		body := fmt.Appendf(nil, `{"status":{"podIP":%[1]q,"podIPs":[{"ip":%[1]q}]}}`, ip)
		kubetest.Patch(t, pods, list.Items[0].Name, types.MergePatchType, body, "status")
	}
	return alarm{
		name: "peer-misbehaves", alert: "LiqodPeerMisbehaves", at: w.rome, process: w.vkubelet, line: `liqod_peer_refused_total{peer="milan",reason="address"} [1-9].*`,
		make: func(t *testing.T) {
			w.deploy(t, "liar", 1)
			writes(t, "127.0.0.1")
		},
		then:  func(t *testing.T) { w.vanish(t, "liar") },
		lasts: true,
	}
}

// identityUnknown: the peer's API server comes up again, and does not tell which cluster it is.
func (w *alertWorld) identityUnknown() alarm {
	return alarm{
		name: "identity-unknown", alert: "LiqodPeerUnknown", at: w.rome, process: w.controllerOf(w.rome), line: `liqod_peer_unknown{check="APIServerStatus",peer="milan"} 1`,
		make: func(t *testing.T) {
			w.milan.Proxied().Drop()
			within(t, longest, "milan counts as down", peerSays(w.rome, "milan", corev1beta1.ConditionAPIServer, metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady))
			w.milan.Proxied().Answer(func(r lab.Request) http.Handler {
				if r.Resource != "namespaces" || r.Name != metav1.NamespaceSystem {
					return nil
				}
				return http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
					http.Error(out, "etcd is not there", http.StatusInternalServerError)
				})
			})
			w.milan.Proxied().Pass()
		},
		follow: []followed{
			{command: "kubectl describe foreigncluster milan", says: corev1beta1.ReasonIdentityUnknown},
			{in: w.milan, command: "kubectl get --raw '/readyz?verbose'", says: "etcd ok"},
			{in: w.milan, command: "kubectl get namespace kube-system"},
		},
		then: func(*testing.T) { w.milan.Proxied().Answer(nil) },
	}
}

// webhookSlow: this cluster's API server answers the webhook late.
func (w *alertWorld) webhookSlow() alarm {
	const late = 2 * time.Second
	slow := func(r lab.Request) http.Handler {
		if !strings.Contains(r.User, "liqod-webhook") || r.Resource != "namespaces" || r.Verb == "watch" {
			return nil
		}
		return http.HandlerFunc(func(out http.ResponseWriter, asked *http.Request) {
			select {
			case <-asked.Context().Done():
			case <-time.After(late):
			}
			text, err := w.rome.Client().CoreV1().RESTClient().Get().AbsPath(asked.URL.Path).SetHeader("Accept", "application/json").DoRaw(asked.Context())
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			out.Header().Set("Content-Type", "application/json")
			_, _ = out.Write(text)
		})
	}
	writes := func(ctx context.Context, _ string) error {
		_, err := w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("default").Create(ctx, offloading("offloading",
			offloadingv1beta1.NamespaceOffloadingSpec{}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	return alarm{
		name: "webhook-slow", alert: "LiqodWebhookSlow", at: w.rome, process: func() *lab.Process { return w.rome.Webhook }, lasts: true,
		line: `liqod_webhook_seconds_sum{result="[a-z]+",webhook="/validate/namespaceoffloading"} [2-9]\..*`,
		make: func(t *testing.T) {
			w.rome.Proxied().Answer(slow)
			w.busily = writes
			w.busy(t, "the first write")
		},
		then: func(*testing.T) {
			w.rome.Proxied().Answer(nil)
			w.busily = nil
		},
	}
}

// identityRevoked: people of the peer take the identity of this cluster back.
func (w *alertWorld) identityRevoked() alarm {
	return alarm{
		name: "identity-revoked", alert: "LiqodPeerNotAuthenticated", at: w.rome, process: w.controllerOf(w.rome), line: `liqod_peer_unknown{check="OutgoingPeering",peer="milan"} 1`,
		make: func(t *testing.T) {
			w.milan.Controller.Options.Args = append(w.milan.Controller.Options.Args, "--authentication.lifetime=10m") // of the next one
			require.NoError(t, w.sites.Restart(&w.milan.Controller))
			enrolments{w.world}.revoke(t, "rome")
		},
		follow: []followed{
			{command: "kubectl describe foreigncluster milan", says: corev1beta1.ReasonRightsRevoked},
			{in: w.milan, command: "liqod token create --for CLUSTER", fill: map[string]string{"CLUSTER": "rome"}},
			{command: "liqod peer --token TOKEN"},
		},
	}
}

// Controllers lose rights that somebody took from them by hand.
const (
	signingRole, signingResource = "liqod-controller", "certificatesigningrequests"
	nodesRole, nodesResource     = "liqod-controller-tenant", "deployments"
	// behindFor is how long an object waits until the alert fires.
	behindFor = 10 * time.Minute
)

// renewalFails: the peer cannot sign.
func (w *alertWorld) renewalFails() alarm {
	var restore func(*testing.T)
	return alarm{
		name: "renewal-fails", alert: "LiqodCertificateExpiring", at: w.rome, process: w.controllerOf(w.rome), lasts: true,
		line: `liqod_certificate_expiry_timestamp_seconds{certificate="identity",peer="milan"} .*`,
		make: func(t *testing.T) {
			restore = takeRights(t, w.milan, signingRole, signingResource)
			within(t, behindFor, "the identity is in the last fifth of its life", func(ctx context.Context) error {
				left, err := w.identityLeft(ctx)
				return lab.Wrong(err, left > 0.19, "%.0f %% of it are left", left*100)
			})
		},
		follow: []followed{{command: "kubectl describe foreigncluster milan", says: corev1beta1.ReasonRenewalFails}},
		then: func(t *testing.T) {
			restore(t)
			within(t, longest, "the identity is renewed", func(ctx context.Context) error {
				left, err := w.identityLeft(ctx)
				return lab.Wrong(err, left < 0.5, "%.0f %% of it are left", left*100)
			})
		},
	}
}

// rightsTaken: the controller may not make the Deployment of a virtual node.
func (w *alertWorld) rightsTaken(restore func(*testing.T)) alarm {
	return alarm{
		name: "rights-taken", alert: "LiqodLoopBehind", at: w.rome, process: w.controllerOf(w.rome), line: `liqod_loop_behind_seconds{loop="virtualnode"} [1-9].*`,
		make: func(t *testing.T) {
			within(t, behindFor+longest, "an object has waited for 10 minutes", measures(w.rome.Controller, `liqod_loop_behind_seconds{loop="virtualnode"} (6[0-9][1-9]|[7-9][0-9][0-9])\..*`))
		},
		then: restore,
	}
}

// takeRights removes the rule about a resource from a ClusterRole, and returns how it comes back, as it
// does when the chart is installed again.
func takeRights(t *testing.T, s *site.Site, role, about string) (restore func(*testing.T)) {
	t.Helper()
	roles := s.Client().RbacV1().ClusterRoles()
	before := kubetest.Get(t, roles, role)
	less := before.DeepCopy()
	less.Rules = slices.DeleteFunc(less.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, about) })
	kubetest.Update(t, roles, less)
	return func(t *testing.T) {
		t.Helper()
		before.ResourceVersion = "" // whatever was written since
		kubetest.Update(t, roles, before)
	}
}

// anotherNode asks for another virtual node of milan, in region south.
func (w *alertWorld) anotherNode(t *testing.T, name string, hard corev1.ResourceList) {
	t.Helper()
	nodes := w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan)
	first := kubetest.Get(t, nodes, "milan")
	another := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: offloadingv1beta1.VirtualNodeSpec{
		ClusterID: "milan", KubeconfigSecretRef: first.Spec.KubeconfigSecretRef, Labels: map[string]string{"region": "south"},
		ResourceQuota: corev1.ResourceQuotaSpec{Hard: hard}}}
	kubetest.Create(t, nodes, another)
}

// identityLeft is how much of the life of rome's identity in milan is left, as a fraction.
func (w *alertWorld) identityLeft(ctx context.Context) (float64, error) {
	text, err := metrics(ctx, w.rome.Controller)
	if err != nil {
		return 0, err
	}
	var times [2]float64
	for i, name := range []string{"issued", "expiry"} {
		match := regexp.MustCompile(`(?m)^liqod_certificate_` + name + `_timestamp_seconds{certificate="identity",peer="milan"} (.*)$`).FindStringSubmatch(text)
		if match == nil {
			return 0, fmt.Errorf("there is no identity in\n%s", text)
		}
		if times[i], err = strconv.ParseFloat(match[1], 64); err != nil {
			return 0, err
		}
	}
	return (times[1] - float64(time.Now().Unix())) / (times[1] - times[0]), nil
}
