package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/yaml"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/peering/manual"
	"github.com/liqod/liqod/roles/cmd/report"
)

const (
	// installed selects the objects of the chart.
	installed = "app.kubernetes.io/name=liqod"
	// usualNamespace is the namespace of liqod in texts, if the cluster does not say which it is.
	usualNamespace = "liqod"
	// configurationName is the name of the ConfigMap of the chart, and the key in it.
	configurationName, configurationKey = "liqod", "config.yaml"
)

// Limits of the reads about pods.
const (
	namespacesAtOnce = 4
	// mostExcluded limits the namespaces in a selector. Beyond it pods are read twice.
	mostExcluded = 100
	ownersAtOnce = 8
	mostOwners   = 100
	mostWarnings = 500
)

// reading fills a snapshot.
type reading struct {
	to   *clients
	mu   sync.Mutex
	snap *report.Snapshot
	seen map[string]bool // pods that have been read
}

// look reads all objects for status and check. It returns an error only if the cluster does
// not answer. The snapshot notes the objects that could not be read.
func (c *commands) look(ctx context.Context, to *clients, namespace string) (*report.Snapshot, error) {
	return c.read(ctx, to, namespace, false)
}

// read is look. With whole, it also reads the pods of the offloaded namespaces that are on nodes of
// this cluster.
func (c *commands) read(ctx context.Context, to *clients, namespace string, whole bool) (*report.Snapshot, error) {
	r, err := c.begin(ctx, to, namespace)
	if err != nil {
		return nil, err
	}
	return r.rest(ctx, whole)
}

// rest reads what begin has not.
func (r *reading) rest(ctx context.Context, whole bool) (*report.Snapshot, error) {
	r.together(ctx, r.kinds, r.leases, r.configuration, r.webhooks, r.own, r.virtualNodes, r.offloadings, r.nodes, r.tenants, r.vkubelets, r.daemonSets, r.rolePods, r.hosted, r.volumes)
	if whole {
		r.namespaces(ctx)
	}
	r.pods(ctx)
	r.claims(ctx)
	r.together(ctx, r.owners, r.warnings, r.refusals, r.budgets)
	return r.end(ctx)
}

// end returns the snapshot, or an error if ctx ended before everything was read.
func (r *reading) end(ctx context.Context) (*report.Snapshot, error) {
	if ctx.Err() != nil {
		return nil, silent(ctx, r.to)
	}
	r.snap.Taken = r.to.now()
	return r.snap, nil
}

// begin reads the version of the API server, and the Deployments of liqod in a namespace; if it is empty, in the one
// that the cluster names.
func (c *commands) begin(ctx context.Context, to *clients, namespace string) (*reading, error) {
	version, err := answered(ctx, to.kube.Discovery().ServerVersion)
	if ctx.Err() != nil {
		return nil, silent(ctx, to)
	}
	if err != nil {
		return nil, unknown(explain(err))
	}
	r := &reading{to: to, seen: map[string]bool{}, snap: &report.Snapshot{
		Program: c.program, Command: c.build.Version, Namespace: namespace, Kubernetes: version.GitVersion, Unread: map[string]error{},
		Templates: map[types.UID]corev1.PodTemplateSpec{},
	}}
	r.installation(ctx)
	return r, nil
}

// lookAtVersions reads what version prints of a cluster.
func (c *commands) lookAtVersions(ctx context.Context, to *clients, namespace string) (*report.Snapshot, error) {
	r, err := c.begin(ctx, to, namespace)
	if err != nil {
		return nil, err
	}
	r.together(ctx, r.leases, r.configuration, r.vkubelets, r.daemonSets, r.rolePods)
	return r.end(ctx)
}

// lookAt reads what status shows: of a namespace of a user that namespace, with lookAtNamespace; else all, as look.
func (c *commands) lookAt(ctx context.Context, to *clients, namespace string) (*report.Snapshot, error) {
	r, err := c.begin(ctx, to, "")
	if err != nil {
		return nil, err
	}
	if namespace == "" || namespace == r.snap.Namespace {
		return r.rest(ctx, false)
	}
	return r.lookAtNamespace(ctx, namespace)
}

// lookAtNamespace reads a namespace of a user, and of the cluster what places its pods. The snapshot notes
// what the user may not read.
func (r *reading) lookAtNamespace(ctx context.Context, namespace string) (*report.Snapshot, error) {
	to := r.to
	ns, err := to.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, unknown(fmt.Errorf("there is no namespace %s in this cluster", namespace))
	}
	if err == nil {
		r.snap.Labels = ns.Labels
	}
	r.snap.Only = namespace
	r.together(ctx, r.leases, r.configuration, r.virtualNodes, r.nodes, r.offloadings, r.volumes)
	_ = r.somePods(ctx, namespace, metav1.ListOptions{}) // the error is in the snapshot
	r.claims(ctx)
	r.together(ctx, r.owners, r.warnings)
	r.refused(ctx)
	readApplications(ctx, to, r.snap)
	return r.end(ctx)
}

// silent is the error about a cluster that has not answered everything before the end of ctx.
func silent(ctx context.Context, to *clients) error {
	return unknown(fmt.Errorf("the API server %s does not answer everything in time; is it the one that you mean (%s)? %w", to.server, localFlags, context.Cause(ctx)))
}

// answered returns the answer of a discovery request, or the cause of ctx if it ends first.
// The discovery client takes no context.
func answered[T any](ctx context.Context, request func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		value, err := request()
		got <- answer{value, err}
	}()
	select {
	case a := <-got:
		// The client has the same timeout, and may notice it before ctx does.
		if deadline, limited := ctx.Deadline(); a.err == nil || !limited || time.Now().Before(deadline) {
			return a.value, a.err
		}
		<-ctx.Done()
	case <-ctx.Done():
	}
	var none T
	return none, fmt.Errorf("the API server has not answered: %w", context.Cause(ctx))
}

func (r *reading) together(ctx context.Context, reads ...func(context.Context)) {
	var wg sync.WaitGroup
	for _, read := range reads {
		wg.Go(func() { read(ctx) })
	}
	wg.Wait()
}

// note records the error of a read in the snapshot, or calls keep if the read succeeded.
func (r *reading) note(what string, err error, keep func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.snap.Unread[what] = err
		return
	}
	keep()
}

// installation reads the Deployments of the chart in the given namespace, or in the one that the cluster names.
func (r *reading) installation(ctx context.Context) {
	if r.snap.Namespace == "" {
		namespace, err := manual.Namespace(ctx, r.to.kube)
		r.snap.Namespace = cmp.Or(namespace, usualNamespace)
		if err != nil {
			if !errors.Is(err, manual.ErrNotInstalled) {
				r.snap.Unread[report.ReadInstallation] = fmt.Errorf("%w (--namespace names it)", err)
			}
			return
		}
	}
	list, err := r.to.kube.AppsV1().Deployments(r.snap.Namespace).List(ctx, metav1.ListOptions{LabelSelector: installed})
	r.note(report.ReadInstallation, err, func() { r.snap.Roles = list.Items })
}

func (r *reading) kinds(ctx context.Context) {
	for _, group := range []string{
		corev1beta1.SchemeGroupVersion.String(), offloadingv1beta1.SchemeGroupVersion.String(), sharingv1alpha1.SchemeGroupVersion.String(),
		networkingv1beta1.SchemeGroupVersion.String(), ipamv1alpha1.SchemeGroupVersion.String(),
	} {
		list, err := answered(ctx, func() (*metav1.APIResourceList, error) {
			return r.to.kube.Discovery().ServerResourcesForGroupVersion(group)
		})
		if apierrors.IsNotFound(err) {
			continue
		}
		r.note(report.ReadKinds, err, func() {
			for _, resource := range list.APIResources {
				r.snap.Kinds = append(r.snap.Kinds, resource.Name)
			}
		})
	}
}

func (r *reading) leases(ctx context.Context) {
	list, err := r.to.kube.CoordinationV1().Leases(r.snap.Namespace).List(ctx, metav1.ListOptions{})
	r.note(report.ReadLeases, err, func() { r.snap.Leases = list.Items })
}

// configuration finds out the id of this cluster, from whom its overlay takes packets, and how far
// it trusts its peers.
func (r *reading) configuration(ctx context.Context) {
	cm, err := r.to.kube.CoreV1().ConfigMaps(r.snap.Namespace).Get(ctx, configurationName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	var settings struct { // its keys match in any case
		ClusterID      string
		Gateway, Route struct{ AnyOverlaySender bool }
		Sharing        struct{ Trust corev1beta1.Trust }
	}
	settings.Sharing.Trust = corev1beta1.TrustStrict // the default of config.yaml
	if err == nil {
		err = yaml.Unmarshal([]byte(cm.Data[configurationKey]), &settings)
	}
	r.note(report.ReadConfiguration, err, func() {
		r.snap.ClusterID, r.snap.Trust = settings.ClusterID, settings.Sharing.Trust
		if settings.Gateway.AnyOverlaySender {
			r.snap.OpenOverlays = append(r.snap.OpenOverlays, "gateway")
		}
		if settings.Route.AnyOverlaySender {
			r.snap.OpenOverlays = append(r.snap.OpenOverlays, "route")
		}
	})
}

func (r *reading) webhooks(ctx context.Context) {
	list, err := r.to.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{LabelSelector: installed})
	r.note(report.ReadWebhooks, err, func() { r.snap.Webhooks = list.Items })
	rules, err := r.to.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{LabelSelector: installed})
	r.note(report.ReadRules, err, func() { r.snap.Rules = rules.Items })
}

// noteOwn is note for liqod's own kinds. kinds reports those that the API server lacks.
func (r *reading) noteOwn(what string, err error, keep func()) {
	if !noSuchKind(err) {
		r.note(what, err, keep)
	}
}

// own reads liqod's own kinds, but for VirtualNodes and NamespaceOffloadings.
func (r *reading) own(ctx context.Context) {
	all := metav1.ListOptions{}
	clusters, err := r.to.liqo.CoreV1beta1().ForeignClusters().List(ctx, all)
	r.noteOwn(report.ReadForeignClusters, err, func() { r.snap.ForeignClusters = clusters.Items })
	maps, err := r.to.liqo.OffloadingV1beta1().NamespaceMaps("").List(ctx, all)
	r.noteOwn(report.ReadMaps, err, func() { r.snap.Maps = maps.Items })
	offers, err := r.to.liqo.SharingV1alpha1().ResourceOffers("").List(ctx, all)
	r.noteOwn(report.ReadOffers, err, func() { r.snap.Offers = offers.Items })
	quotas, err := r.to.liqo.OffloadingV1beta1().Quotas("").List(ctx, all)
	r.noteOwn(report.ReadQuotas, err, func() { r.snap.Quotas = quotas.Items })
	connections, err := r.to.liqo.NetworkingV1beta1().Connections("").List(ctx, all)
	r.noteOwn(report.ReadNetworks, err, func() { r.snap.Connections = connections.Items })
	networks, err := r.to.liqo.IPAMV1alpha1().Networks("").List(ctx, all)
	r.noteOwn(report.ReadNetworks, err, func() { r.snap.Networks = networks.Items })
}

func (r *reading) virtualNodes(ctx context.Context) {
	nodes, err := r.to.liqo.OffloadingV1beta1().VirtualNodes("").List(ctx, metav1.ListOptions{})
	r.noteOwn(report.ReadVirtualNodes, err, func() { r.snap.VirtualNodes = nodes.Items })
}

// offloadings reads the NamespaceOffloadings of the namespace that alone is read, or of all.
func (r *reading) offloadings(ctx context.Context) {
	offloadings, err := r.to.liqo.OffloadingV1beta1().NamespaceOffloadings(r.snap.Only).List(ctx, metav1.ListOptions{})
	r.noteOwn(report.ReadOffloadings, err, func() { r.snap.Offloadings = offloadings.Items })
}

func (r *reading) nodes(ctx context.Context) {
	nodes, err := r.to.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: offloadingv1beta1.TypeLabel + "=" + offloadingv1beta1.TypeVirtualNode})
	r.note(report.ReadNodes, err, func() { r.snap.Nodes = nodes.Items })
}

func (r *reading) tenants(ctx context.Context) {
	tenants, err := r.to.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: corev1beta1.TenantNamespaceLabel + "=true"})
	r.note(report.ReadTenants, err, func() { r.snap.Tenants = tenants.Items })
}

// ofTenant reports whether a namespace is one of peers. The owner of another one may set all labels in it.
func ofTenant(namespace string) bool {
	return strings.HasPrefix(namespace, corev1beta1.TenantNamespacePrefix)
}

func (r *reading) vkubelets(ctx context.Context) {
	list, err := r.to.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{LabelSelector: offloadingv1beta1.VirtualNodeLabel})
	r.note(report.ReadVKubelets, err, func() {
		r.snap.VKubelets = slices.DeleteFunc(list.Items, func(d appsv1.Deployment) bool { return !ofTenant(d.Namespace) })
	})
}

func (r *reading) daemonSets(ctx context.Context) {
	list, err := r.to.kube.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	r.note(report.ReadDaemonSets, err, func() { r.snap.DaemonSets = list.Items })
}

// rolePods reads the pods of liqod itself.
func (r *reading) rolePods(ctx context.Context) {
	own, err := r.to.kube.CoreV1().Pods(r.snap.Namespace).List(ctx, metav1.ListOptions{LabelSelector: installed})
	r.note(report.ReadRolePods, err, func() { r.snap.RolePods = append(r.snap.RolePods, own.Items...) })
	vkubelets, err := r.to.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: offloadingv1beta1.VirtualNodeLabel})
	r.note(report.ReadRolePods, err, func() {
		r.snap.RolePods = append(r.snap.RolePods, slices.DeleteFunc(vkubelets.Items, func(p corev1.Pod) bool { return !ofTenant(p.Namespace) })...)
	})
}

// hosted reads the pods of peers in this cluster.
func (r *reading) hosted(ctx context.Context) {
	_ = r.somePods(ctx, metav1.NamespaceAll, metav1.ListOptions{LabelSelector: offloadingv1beta1.ManagedByLabel + "=" + offloadingv1beta1.ManagedByShadowPod})
}

// namespaces reads all pods of the offloaded namespaces.
func (r *reading) namespaces(ctx context.Context) {
	r.snap.Whole = map[string]error{}
	var group errgroup.Group
	group.SetLimit(namespacesAtOnce)
	for i := range r.snap.Offloadings {
		group.Go(func() error {
			namespace := r.snap.Offloadings[i].Namespace
			err := r.somePods(ctx, namespace, metav1.ListOptions{})
			r.mu.Lock()
			defer r.mu.Unlock()
			r.snap.Whole[namespace] = err
			return nil
		})
	}
	_ = group.Wait() // the errors are in the snapshot
}

// pods reads the pods on the virtual nodes, and those without a node, but for those of namespaces
// that are read already.
func (r *reading) pods(ctx context.Context) {
	for _, node := range r.snap.Nodes {
		_ = r.somePods(ctx, metav1.NamespaceAll, r.onNode(node.Name)) // the error is in the snapshot
	}
	if len(r.snap.Offloadings)+len(r.snap.VirtualNodes)+len(r.snap.ForeignClusters) > 0 {
		_ = r.somePods(ctx, metav1.NamespaceAll, r.onNode(""))
	}
}

func (r *reading) onNode(name string) metav1.ListOptions {
	terms := []fields.Selector{fields.OneTermEqualSelector("spec.nodeName", name)}
	if len(r.snap.Whole) <= mostExcluded {
		for _, namespace := range slices.Sorted(maps.Keys(r.snap.Whole)) {
			terms = append(terms, fields.OneTermNotEqualSelector("metadata.namespace", namespace))
		}
	}
	return metav1.ListOptions{FieldSelector: fields.AndSelectors(terms...).String()}
}

// owners reads the templates of pods that find no node.
func (r *reading) owners(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(ownersAtOnce)
	for i, owner := range r.snap.Owners() {
		if i == mostOwners {
			break // the others are judged without their template
		}
		group.Go(func() error {
			template, err := r.template(ctx, owner)
			if err == nil || !apierrors.IsNotFound(err) {
				r.note(report.ReadControllers, err, func() { r.snap.Templates[owner.UID] = template })
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in the snapshot
}

func (r *reading) template(ctx context.Context, owner report.Owner) (corev1.PodTemplateSpec, error) {
	of := func(uid types.UID, template corev1.PodTemplateSpec, err error) (corev1.PodTemplateSpec, error) {
		if err == nil && uid != owner.UID {
			err = apierrors.NewNotFound(corev1.Resource(owner.Kind), owner.Name)
		}
		return template, err
	}
	switch owner.Kind {
	case "ReplicaSet":
		set, err := r.to.kube.AppsV1().ReplicaSets(owner.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		return of(set.UID, set.Spec.Template, err)
	case "StatefulSet":
		set, err := r.to.kube.AppsV1().StatefulSets(owner.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		return of(set.UID, set.Spec.Template, err)
	default:
		job, err := r.to.kube.BatchV1().Jobs(owner.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		return of(job.UID, job.Spec.Template, err)
	}
}

// claims reads all claims, the classes of the cluster if pods may wait for claims, and how far the moves of data are.
func (r *reading) claims(ctx context.Context) {
	waiting := r.snap.Claiming()
	list, err := r.to.kube.CoreV1().PersistentVolumeClaims(r.snap.Only).List(ctx, metav1.ListOptions{})
	r.note(report.ReadClaims, err, func() {
		r.snap.Claims = map[string][]corev1.PersistentVolumeClaim{}
		for _, namespace := range waiting {
			r.snap.Claims[namespace] = nil
		}
		for i := range list.Items {
			r.snap.Claims[list.Items[i].Namespace] = append(r.snap.Claims[list.Items[i].Namespace], list.Items[i])
		}
	})
	if len(waiting) > 0 {
		classes, err := r.to.kube.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
		r.note(report.ReadClaims, err, func() {
			for i := range classes.Items {
				r.snap.Classes = append(r.snap.Classes, &classes.Items[i])
			}
		})
	}
	if err == nil && slices.ContainsFunc(list.Items, moves) {
		copies, err := readCopies(ctx, r.to.kube, r.snap.Only)
		r.note(report.ReadPods, err, func() { r.snap.Copies = copies })
	}
}

// volumes reads the PersistentVolumes: kept data has no claim. For one namespace the right is not needed; status then does
// not say where the data of a former provider is.
func (r *reading) volumes(ctx context.Context) {
	list, err := r.to.kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if r.snap.Only != "" && apierrors.IsForbidden(err) {
		return
	}
	r.note(report.ReadStored, err, func() { r.snap.Volumes = list.Items })
}

// warnings reads the events about pods whose status has no cause, and about claims.
func (r *reading) warnings(ctx context.Context) {
	for kind, namespaces := range map[string][]string{"Pod": r.snap.Unexplained(), "PersistentVolumeClaim": r.snap.Claiming()} {
		selector := fields.SelectorFromSet(fields.Set{"involvedObject.kind": kind, "type": corev1.EventTypeWarning}).String()
		for _, namespace := range namespaces {
			list, err := r.to.kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: mostWarnings})
			r.note(report.ReadEvents, err, func() { r.snap.Events = append(r.snap.Events, list.Items...) })
		}
	}
}

// refused reads the events about objects that providers refuse, for a person who may not read Nodes, which say it.
func (r *reading) refused(ctx context.Context) {
	if r.snap.Unread[report.ReadNodes] == nil {
		return
	}
	selector := fields.OneTermEqualSelector("reason", offloadingv1beta1.ReasonFailedReflection).String()
	list, err := r.to.kube.CoreV1().Events(r.snap.Only).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: mostWarnings})
	r.note(report.ReadEvents, err, func() { r.snap.Events = append(r.snap.Events, list.Items...) })
}

// refusals reads the events about packets of peers that hosts of this cluster have dropped.
func (r *reading) refusals(ctx context.Context) {
	selector := fields.SelectorFromSet(fields.Set{"involvedObject.kind": "Connection", "reason": networkingv1beta1.ReasonPacketsRefused}).String()
	for _, c := range r.snap.Connections {
		list, err := r.to.kube.CoreV1().Events(c.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: mostWarnings})
		r.note(report.ReadEvents, err, func() { r.snap.Refusals = append(r.snap.Refusals, list.Items...) })
	}
}

// budgets reads the disruption budgets, if a virtual node is being drained.
func (r *reading) budgets(ctx context.Context) {
	if !r.snap.Drains() {
		return
	}
	list, err := r.to.kube.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
	r.note(report.ReadBudgets, err, func() { r.snap.Budgets = list.Items })
}

// somePods reads pods page by page, and keeps only the used fields of each. The error is in the
// snapshot, too.
func (r *reading) somePods(ctx context.Context, namespace string, options metav1.ListOptions) error {
	var pods []corev1.Pod
	list := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return r.to.kube.CoreV1().Pods(namespace).List(ctx, o)
	}))
	err := list.EachListItem(ctx, options, func(obj runtime.Object) error {
		if pod, ok := obj.(*corev1.Pod); ok {
			pods = append(pods, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences,
					CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp},
				Spec: pod.Spec,
				Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, Conditions: pod.Status.Conditions,
					InitContainerStatuses: pod.Status.InitContainerStatuses, ContainerStatuses: pod.Status.ContainerStatuses},
			})
		}
		return nil
	})
	r.note(report.ReadPods, err, func() {
		for _, pod := range pods {
			// What a peer runs here may be on a virtual node.
			if key := pod.Namespace + "/" + pod.Name; !r.seen[key] {
				r.seen[key] = true
				r.snap.Pods = append(r.snap.Pods, pod)
			}
		}
	})
	return err
}
