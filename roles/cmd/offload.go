package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/roles/cmd/report"
)

// wish has the flags of offload.
type wish struct {
	strategy, mapping, remoteName string
	services                      string
	selectors                     []string
	output                        string
	endPods                       bool
}

func (c *commands) offload() *cobra.Command {
	w := wish{strategy: string(offloadingv1beta1.PodsLocalAndRemote), mapping: string(offloadingv1beta1.DefaultName), services: string(offloadingv1beta1.ServicesTwin)}
	cmd := &cobra.Command{Use: "namespace NAME", Aliases: []string{"namespaces", "ns"}, Short: "Let the pods of a namespace run in other clusters", Args: oneName("namespace")}
	flags := cmd.Flags()
	addChoice(cmd, &w.strategy, "pod-offloading-strategy", "", "where pods may run",
		string(offloadingv1beta1.PodsLocalAndRemote), string(offloadingv1beta1.PodsRemote), string(offloadingv1beta1.PodsLocal))
	addChoice(cmd, &w.mapping, "namespace-mapping-strategy", "", "how the twins are named: NAME-<this cluster's id>, NAME, or as --remote-namespace-name says",
		string(offloadingv1beta1.DefaultName), string(offloadingv1beta1.EnforceSameName), string(offloadingv1beta1.SelectedName))
	flags.StringVar(&w.remoteName, "remote-namespace-name", "", "`name` of the twins, with SelectedName")
	addChoice(cmd, &w.services, "services", "", "whose DNS and Services the pods in providers use: those of the provider, with the Services reflected there, or those of this cluster",
		string(offloadingv1beta1.ServicesTwin), string(offloadingv1beta1.ServicesHome))
	flags.StringArrayVarP(&w.selectors, "selector", "l", nil, "`labels` of the virtual nodes to use, as for kubectl get -l; may be repeated, and one that matches is enough")
	flags.BoolVar(&w.endPods, "end-pods", false, "let a change of --selector end the pods in the providers that it leaves")
	addChoice(cmd, &w.output, "output", "o", "print the NamespaceOffloading instead of creating it", asYAML, asJSON)
	wait, timeout := addWait(flags, 20*time.Second, "until every selected provider has the twin")
	conn := c.connection(flags)
	cmd.ValidArgsFunction = c.completer(conn, 1, namespaceNames)
	cmd.RunE = interruptible(limited(timeout, func(cmd *cobra.Command, args []string) error {
		want, err := w.object(args[0])
		if err != nil {
			return err
		}
		if w.output != "" {
			return printObject(cmd.OutOrStdout(), w.output, want)
		}
		to, err := c.connect(conn)
		if err != nil {
			return err
		}
		if err := w.ask(cmd.Context(), to, want, cmd.Flags().Changed, cmd.OutOrStdout()); err != nil {
			return explain(err)
		}
		if err := tellDifferences(cmd.Context(), to, want, cmd.OutOrStdout()); err != nil {
			return err
		}
		if !*wait {
			return nil
		}
		return explain(c.untilOffloaded(cmd.Context(), to, args[0], cmd.OutOrStdout()))
	}))
	return shortened(parent("offload", "Let what is in this cluster run in other clusters", cmd), cmd)
}

// tellDifferences prints what of an offloaded namespace does not follow its pods.
func tellDifferences(ctx context.Context, to *clients, o *offloadingv1beta1.NamespaceOffloading, out io.Writer) error {
	s := report.Offloaded(o)
	readApplications(ctx, to, s)
	if pods, err := to.kube.CoreV1().Pods(o.Namespace).List(ctx, metav1.ListOptions{Limit: mostOfKind}); err != nil {
		s.Unread[report.ReadPods] = err
	} else {
		s.Pods = pods.Items
	}
	_, err := io.WriteString(out, report.DifferencesText(s))
	return err
}

// namespaceNames returns the namespaces that may be offloaded and are not yet.
func namespaceNames(ctx context.Context, to *clients) ([]string, error) {
	list, err := to.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	offloaded, err := offloadedNames(ctx, to)
	if err != nil {
		return nil, err
	}
	own, _ := join.Namespace(ctx, to.kube) // else the usual one
	return report.Names(list.Items, func(ns *corev1.Namespace) string {
		if ns.Name == cmp.Or(own, usualNamespace) || !mayOffload(ns) || slices.Contains(offloaded, ns.Name) {
			return ""
		}
		return ns.Name
	}), nil
}

// reservedPrefix begins the names of namespaces that providers refuse, as those of tenants and of data.
const reservedPrefix = "liqo-"

// mayOffload reports whether the controller accepts a namespace, other than that of liqod
// itself.
func mayOffload(ns *corev1.Namespace) bool {
	switch {
	case ns.DeletionTimestamp != nil, ns.Name == metav1.NamespaceSystem, ns.Name == metav1.NamespacePublic, ns.Name == corev1.NamespaceNodeLease:
		return false
	case ns.Labels[corev1beta1.TenantNamespaceLabel] == "true", strings.HasPrefix(ns.Name, reservedPrefix):
		return false
	}
	return ns.Annotations[offloadingv1beta1.ManagedByNamespaceMapAnnotation] == ""
}

// object returns the wanted NamespaceOffloading.
func (w wish) object(namespace string) (*offloadingv1beta1.NamespaceOffloading, error) {
	selected := w.mapping == string(offloadingv1beta1.SelectedName)
	switch {
	case selected && w.remoteName == "":
		return nil, Usagef("--namespace-mapping-strategy=SelectedName needs --remote-namespace-name")
	case !selected && w.remoteName != "":
		return nil, Usagef("--remote-namespace-name is used with --namespace-mapping-strategy=SelectedName only")
	}
	selector, err := nodeSelector(w.selectors)
	if err != nil {
		return nil, err
	}
	return &offloadingv1beta1.NamespaceOffloading{
		TypeMeta:   metav1.TypeMeta{APIVersion: offloadingv1beta1.SchemeGroupVersion.String(), Kind: "NamespaceOffloading"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloadingv1beta1.NamespaceOffloadingName},
		Spec: offloadingv1beta1.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloadingv1beta1.NamespaceMappingStrategy(w.mapping), RemoteNamespaceName: w.remoteName,
			PodOffloadingStrategy: offloadingv1beta1.PodOffloadingStrategy(w.strategy), ClusterSelector: selector, Services: offloadingv1beta1.ServiceNetwork(w.services),
		},
	}, nil
}

// nodeSelector makes one term of each selector. A node needs to match one term.
func nodeSelector(selectors []string) (out corev1.NodeSelector, err error) {
	for _, text := range selectors {
		requirements, err := labels.ParseToRequirements(text)
		if err != nil {
			return out, Usagef("--selector %q: %w", text, err)
		}
		if len(requirements) == 0 {
			return corev1.NodeSelector{}, nil // every virtual node
		}
		var term corev1.NodeSelectorTerm
		for _, r := range requirements {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: r.Key(), Operator: operator(r.Operator()), Values: r.ValuesUnsorted()})
		}
		out.NodeSelectorTerms = append(out.NodeSelectorTerms, term)
	}
	return out, nil
}

// operator translates an operator of label selectors for node selectors.
func operator(o selection.Operator) corev1.NodeSelectorOperator {
	return cmp.Or(map[selection.Operator]corev1.NodeSelectorOperator{
		selection.NotIn: corev1.NodeSelectorOpNotIn, selection.NotEquals: corev1.NodeSelectorOpNotIn, selection.Exists: corev1.NodeSelectorOpExists,
		selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist, selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
	}[o], corev1.NodeSelectorOpIn)
}

// ask creates the NamespaceOffloading, or changes what given flags say of the existing one.
func (w wish) ask(ctx context.Context, to *clients, want *offloadingv1beta1.NamespaceOffloading, given func(flag string) bool, out io.Writer) error {
	namespace := want.Namespace
	if _, err := to.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no namespace %s in this cluster: make it first (kubectl create namespace %s)", namespace, namespace)
	} else if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	client := to.liqo.OffloadingV1beta1().NamespaceOffloadings(namespace)
	have, err := store.Live(ctx, "NamespaceOffloading", client, want.Name)
	if err != nil {
		return err
	}
	if have == nil {
		if _, err := client.Create(ctx, want, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("offloading namespace %s: %w", namespace, err)
		}
		return say(out, "namespace %s: offloading is asked for (%s, twins by %s)", namespace, want.Spec.PodOffloadingStrategy, want.Spec.NamespaceMappingStrategy)
	}
	if !given("pod-offloading-strategy") {
		want.Spec.PodOffloadingStrategy = have.Spec.PodOffloadingStrategy
	}
	if !given("services") {
		want.Spec.Services = have.Spec.Services
	}
	if !given("selector") {
		want.Spec.ClusterSelector = have.Spec.ClusterSelector
	}
	if !given("namespace-mapping-strategy") {
		want.Spec.NamespaceMappingStrategy, want.Spec.RemoteNamespaceName = cmp.Or(have.Spec.NamespaceMappingStrategy, offloadingv1beta1.DefaultName), have.Spec.RemoteNamespaceName
	}
	return w.change(ctx, to, have, want, out)
}

// change updates an existing NamespaceOffloading to the wanted one.
func (w wish) change(ctx context.Context, to *clients, have, want *offloadingv1beta1.NamespaceOffloading, out io.Writer) error {
	namespace := have.Namespace
	mapping := cmp.Or(have.Spec.NamespaceMappingStrategy, offloadingv1beta1.DefaultName)
	switch {
	case have.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s is just being taken back from the providers: offload it again when that has ended", namespace)
	case mapping != want.Spec.NamespaceMappingStrategy, have.Spec.RemoteNamespaceName != want.Spec.RemoteNamespaceName:
		return fmt.Errorf("namespace %s is offloaded already, with twins named by %s: that cannot be changed; unoffload it first, which removes its pods there",
			namespace, strings.TrimSpace(string(mapping)+" "+have.Spec.RemoteNamespaceName))
	case cmp.Or(have.Spec.Services, offloadingv1beta1.ServicesTwin) != cmp.Or(want.Spec.Services, offloadingv1beta1.ServicesTwin):
		return fmt.Errorf("namespace %s is offloaded already, with services %s: that cannot be changed, because its pods there have the DNS that they began with; unoffload it first, which removes its pods there",
			namespace, cmp.Or(have.Spec.Services, offloadingv1beta1.ServicesTwin))
	case have.Spec.PodOffloadingStrategy == want.Spec.PodOffloadingStrategy && equality.Semantic.DeepEqual(have.Spec.ClusterSelector, want.Spec.ClusterSelector):
		return say(out, "namespace %s: offloading is asked for already", namespace)
	}
	next := have.DeepCopy()
	next.Spec.PodOffloadingStrategy, next.Spec.ClusterSelector = want.Spec.PodOffloadingStrategy, want.Spec.ClusterSelector
	delete(next.Annotations, offloadingv1beta1.EndPodsInAnnotation)
	if w.endPods {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, offloadingv1beta1.EndPodsInAnnotation, strings.Join(slices.Sorted(maps.Keys(have.Status.RemoteNamespacesConditions)), ","))
	}
	if _, err := to.liqo.OffloadingV1beta1().NamespaceOffloadings(namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("changing the offloading of namespace %s: %w", namespace, err)
	}
	return say(out, "namespace %s: offloading is changed (%s)", namespace, want.Spec.PodOffloadingStrategy)
}

func (c *commands) unoffload() *cobra.Command {
	cmd := &cobra.Command{Use: "namespace NAME", Aliases: []string{"namespaces", "ns"}, Short: "Take a namespace back from the other clusters", Args: oneName("namespace")}
	wait, timeout := addWait(cmd.Flags(), 2*time.Minute, "until the providers have removed the twin")
	conn := c.connection(cmd.Flags())
	cmd.ValidArgsFunction = c.completer(conn, 1, offloadedNames)
	cmd.RunE = interruptible(limited(timeout, c.connected(conn, func(cmd *cobra.Command, to *clients, args []string) error {
		out := cmd.OutOrStdout()
		uid, err := takeBack(cmd.Context(), to, args[0], out)
		if err != nil || !*wait {
			return explain(err)
		}
		return explain(c.untilTakenBack(cmd.Context(), to, args[0], uid, out))
	})))
	return shortened(parent("unoffload", "Take back what runs in other clusters", cmd), cmd)
}

func offloadedNames(ctx context.Context, to *clients) ([]string, error) {
	list, err := to.liqo.OffloadingV1beta1().NamespaceOffloadings("").List(ctx, metav1.ListOptions{})
	return report.Names(list.Items, func(o *offloadingv1beta1.NamespaceOffloading) string { return o.Namespace }), err
}

// takeBack deletes the NamespaceOffloading of a namespace and returns its UID. The UID is
// empty if there is no NamespaceOffloading.
func takeBack(ctx context.Context, to *clients, namespace string, out io.Writer) (string, error) {
	client := to.liqo.OffloadingV1beta1().NamespaceOffloadings(namespace)
	have, err := store.Live(ctx, "NamespaceOffloading", client, offloadingv1beta1.NamespaceOffloadingName)
	switch {
	case err != nil:
		return "", err
	case have == nil:
		return "", notOffloaded(ctx, to, namespace, out)
	}
	if err := store.Delete(ctx, "NamespaceOffloading", client, have); err != nil {
		return "", err
	}
	return string(have.UID), say(out, "namespace %s: its offloading is deleted", namespace)
}

// notOffloaded says that a namespace is not offloaded. It returns an error if there is no
// such namespace, unless providers still have twins of it.
func notOffloaded(ctx context.Context, to *clients, namespace string, out io.Writer) error {
	ns, err := store.Live(ctx, "namespace", to.kube.CoreV1().Namespaces(), namespace)
	switch {
	case ns != nil || apierrors.IsForbidden(err):
		return say(out, "namespace %s: it is not offloaded", namespace)
	case err != nil:
		return err
	}
	maps, err := store.Find[*offloadingv1beta1.NamespaceMap](ctx, "NamespaceMap", to.liqo.OffloadingV1beta1().NamespaceMaps(""), metav1.ListOptions{})
	if err != nil {
		return err
	}
	lines := map[string]string{}
	if twins(namespace, maps, lines); len(lines) > 0 {
		return say(out, "namespace %s: it is gone from this cluster", namespace)
	}
	names, err := offloadedNames(ctx, to)
	switch {
	case err != nil:
		return fmt.Errorf("there is no namespace %s in this cluster", namespace)
	case len(names) == 0:
		return fmt.Errorf("there is no namespace %s in this cluster, and no namespace is offloaded", namespace)
	}
	return fmt.Errorf("there is no namespace %s in this cluster: %s", namespace, report.Listed("the only one that is offloaded is", "offloaded are", names))
}
