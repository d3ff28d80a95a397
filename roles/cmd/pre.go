package cmd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/roles/cmd/report"
)

// beforehand is check before an installation or before a peering by a token.
func (c *commands) beforehand(cmd *cobra.Command, in *inquiry, pre bool, token string) error {
	defer in.reading()()
	var findings []report.Finding
	if token != "" {
		text, err := readToken(token, cmd.InOrStdin())
		if err != nil {
			return err
		}
		parsed, err := trust.ParseToken(text)
		if err != nil {
			return &Error{Code: ExitProblem, Err: err}
		}
		findings = c.examineToken(cmd.Context(), in.conn, parsed)
	}
	if pre {
		in.conn.limit = in.timeout // the discovery client takes no context
		to, err := c.connect(in.conn)
		if err != nil {
			return err
		}
		read, err := preflightOf(cmd.Context(), to)
		if err != nil {
			return unknown(explain(err))
		}
		findings = append(read.judge(), findings...)
	}
	return printFindings(cmd, in.output, findings)
}

func printFindings(cmd *cobra.Command, format string, findings []report.Finding) error {
	data := map[string]any{"health": report.Worst(findings), "findings": findings}
	return orCode(show(cmd.OutOrStdout(), format, data, func() string { return report.CheckText(findings) }), report.Worst(findings))
}

// preflight is what was read of a cluster in which liqod is to be installed, and its examination.
type preflight struct {
	// reading has the version and the time of the API server, all Nodes, their Leases, and the pods with ports
	// on their nodes. Its Namespace is that of an installed liqod.
	*reading
	report.Examination
	// skew is how much the clock of the API server is ahead of that of this machine.
	skew time.Duration
	// missing are the needed kinds that it does not serve. kinds reports whether it serves kinds of liqod's groups.
	missing []string
	kinds   bool
	// denied are the actions of the installation that the user may not take.
	denied   []string
	services []corev1.Service
	// webhooks are those of others that refuse requests while they do not answer, and that nothing serves.
	webhooks []guard
	// networkFacts show the network plugin.
	networkFacts report.PluginFacts
}

// guard is a webhook that pods or nodes pass, and the Service that serves it.
type guard struct {
	name, service string
}

// api is a kind that liqod needs.
type api struct {
	// group has the version, too.
	group, resource string
	// namespace is where the chart creates such objects; empty if they are of the cluster.
	namespace string
}

// apis are the kinds that the chart and the roles need, beside those of version v1.
var apis = []api{
	{"apps/v1", "daemonsets", usualNamespace},
	{"apps/v1", "deployments", usualNamespace},
	{"batch/v1", "jobs", usualNamespace},
	{"admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", ""},
	{"admissionregistration.k8s.io/v1", "validatingadmissionpolicies", ""},
	{"admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", ""},
	{"admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", ""},
	{"apiextensions.k8s.io/v1", "customresourcedefinitions", ""},
	{"flowcontrol.apiserver.k8s.io/v1", "flowschemas", ""},
	{"flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", ""},
	{"networking.k8s.io/v1", "networkpolicies", usualNamespace},
	{"node.k8s.io/v1", "runtimeclasses", ""},
	{"policy/v1", "poddisruptionbudgets", usualNamespace},
	{"rbac.authorization.k8s.io/v1", "clusterrolebindings", ""},
	{"rbac.authorization.k8s.io/v1", "clusterroles", ""},
	{"rbac.authorization.k8s.io/v1", "rolebindings", usualNamespace},
	{"rbac.authorization.k8s.io/v1", "roles", usualNamespace},
	{"scheduling.k8s.io/v1", "priorityclasses", ""},
	{"storage.k8s.io/v1", "storageclasses", ""},
}

// core are the kinds of version v1 that the installation creates.
var core = []api{{"v1", "configmaps", usualNamespace}, {"v1", "namespaces", ""}, {"v1", "resourcequotas", usualNamespace}, {"v1", "serviceaccounts", usualNamespace}, {"v1", "services", usualNamespace}}

// preflightOf reads a cluster. It returns an error only if the cluster does not answer.
func preflightOf(ctx context.Context, to *clients) (*preflight, error) {
	version, err := answered(ctx, to.kube.Discovery().ServerVersion)
	if err != nil {
		return nil, err
	}
	p := &preflight{reading: &reading{to: to, snap: &report.Snapshot{Kubernetes: version.GitVersion, Taken: to.now(), Unread: map[string]error{}}}}
	p.skew = time.Until(p.snap.Taken)
	p.readKinds(ctx)
	p.readRights(ctx)
	p.readCluster(ctx)
	p.readWebhooks(ctx)
	p.readNetwork(ctx)
	return p, ctx.Err()
}

func (p *preflight) readKinds(ctx context.Context) {
	served := map[string][]string{}
	ask := func(group string) []string {
		names, known := served[group]
		if !known {
			var err error
			if names, err = p.to.served(ctx, group); err != nil {
				p.snap.Unread["the kinds of "+group] = err
			}
			served[group] = names
		}
		return names
	}
	for _, a := range apis {
		if names := ask(a.group); p.snap.Unread["the kinds of "+a.group] == nil && !slices.Contains(names, a.resource) {
			p.missing = append(p.missing, a.resource+" ("+a.group+")")
		}
	}
	p.kinds = len(ask(corev1beta1.SchemeGroupVersion.String())) > 0
	namespace, err := join.Namespace(ctx, p.to.kube)
	if err != nil && !errors.Is(err, join.ErrNotInstalled) {
		p.snap.Unread["the configuration of liqod"] = err
	}
	p.snap.Namespace = namespace
}

// readRights finds out the actions of an installation that the user may not take.
func (p *preflight) readRights(ctx context.Context) {
	may := func(a authorizationv1.ResourceAttributes) bool {
		review, err := p.to.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}, metav1.CreateOptions{})
		if err != nil {
			p.snap.Unread["your rights"] = err
			return false
		}
		return review.Status.Allowed
	}
	if may(authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}) || p.snap.Unread["your rights"] != nil {
		return
	}
	for _, a := range slices.Concat(core, apis) {
		group, _ := schema.ParseGroupVersion(a.group)
		if !may(authorizationv1.ResourceAttributes{Verb: "create", Group: group.Group, Resource: a.resource, Namespace: a.namespace}) {
			p.denied = append(p.denied, "create "+a.resource)
		}
	}
	// The chart's roles give rights that the user need not have.
	if !may(authorizationv1.ResourceAttributes{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}) {
		p.denied = append(p.denied, "escalate clusterroles")
	}
}

func (p *preflight) readCluster(ctx context.Context) {
	kube, all := p.to.kube, metav1.ListOptions{}
	p.read(ctx, report.ReadNodes, list(kube.CoreV1().Nodes().List, all, func(l *corev1.NodeList) { p.snap.Nodes = l.Items }))
	p.snap.Taken = p.to.now()
	p.read(ctx, "the Leases of Nodes", list(kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).List, all, func(l *coordinationv1.LeaseList) { p.snap.Leases = l.Items }))
	p.read(ctx, report.ReadServices, list(kube.CoreV1().Services("").List, all, func(l *corev1.ServiceList) { p.services = l.Items }))
	p.read(ctx, report.ReadPods, list(kube.CoreV1().Pods("").List, all, func(l *corev1.PodList) {
		p.snap.Pods = slices.DeleteFunc(l.Items, func(pod corev1.Pod) bool { return len(portsOf(&pod)) == 0 })
	}))
}

// readNetwork reads what shows the network plugin.
func (p *preflight) readNetwork(ctx context.Context) {
	p.read(ctx, report.ReadDaemonSets, list(p.to.kube.AppsV1().DaemonSets("").List, metav1.ListOptions{}, func(l *appsv1.DaemonSetList) { p.networkFacts.DaemonSets = l.Items }))
	for _, name := range p.networkFacts.ConfigMapNames() {
		config, err := p.to.kube.CoreV1().ConfigMaps(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			p.networkFacts.ConfigMaps = append(p.networkFacts.ConfigMaps, *config)
		case !apierrors.IsNotFound(err):
			p.snap.Unread["ConfigMap "+name.String()] = err
		}
	}
	groups, err := answered(ctx, p.to.kube.Discovery().ServerGroups)
	p.note("the API groups", err, func() {
		p.networkFacts.Groups = report.Names(groups.Groups, func(g *metav1.APIGroup) string { return g.Name })
	})
}

// readWebhooks finds the webhooks that refuse pods and nodes while they do not answer.
func (p *preflight) readWebhooks(ctx context.Context) {
	admission, all := p.to.kube.AdmissionregistrationV1(), metav1.ListOptions{}
	add := func(config, name string, policy *admissionregistrationv1.FailurePolicyType, at *admissionregistrationv1.ServiceReference, rules []admissionregistrationv1.RuleWithOperations) {
		if at == nil || policy != nil && *policy != admissionregistrationv1.Fail || !slices.ContainsFunc(rules, catches) {
			return
		}
		g := guard{name: config + "/" + name, service: at.Namespace + "/" + at.Name}
		slicesOf, err := p.to.kube.DiscoveryV1().EndpointSlices(at.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + at.Name})
		if err != nil {
			p.snap.Unread["the EndpointSlices of Service "+g.service] = err
			return
		}
		if !slices.ContainsFunc(slicesOf.Items, serves) {
			p.webhooks = append(p.webhooks, g)
		}
	}
	p.read(ctx, report.ReadWebhooks, list(admission.MutatingWebhookConfigurations().List, all, func(l *admissionregistrationv1.MutatingWebhookConfigurationList) {
		for _, c := range l.Items {
			for _, w := range c.Webhooks {
				add(c.Name, w.Name, w.FailurePolicy, w.ClientConfig.Service, w.Rules)
			}
		}
	}))
	p.read(ctx, report.ReadRules, list(admission.ValidatingWebhookConfigurations().List, all, func(l *admissionregistrationv1.ValidatingWebhookConfigurationList) {
		for _, c := range l.Items {
			for _, w := range c.Webhooks {
				add(c.Name, w.Name, w.FailurePolicy, w.ClientConfig.Service, w.Rules)
			}
		}
	}))
}

// catches reports whether a rule is about pods or nodes.
func catches(r admissionregistrationv1.RuleWithOperations) bool {
	has := func(list []string, names ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(names, s) })
	}
	return has(r.APIGroups, "", "*") && has(r.Resources, "pods", "nodes", "*", "*/*")
}

// serves reports whether an EndpointSlice has an endpoint that is ready.
func serves(s discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready)
	})
}
