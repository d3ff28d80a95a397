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

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/yaml"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/roles/cmd/move"
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

// read is a read of one kind. It returns the function that keeps the answer in the snapshot.
type read func(context.Context) (keep func(), err error)

// list reads the objects of a kind.
func list[L any](list func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions, keep func(L)) read {
	return func(ctx context.Context) (func(), error) {
		objects, err := list(ctx, options)
		return func() { keep(objects) }, err
	}
}

// read reads all objects for status and check. It returns an error only if the cluster does not answer. The
// snapshot notes the objects that could not be read. With whole, it has also the pods of the offloaded namespaces
// that are on nodes of this cluster.
func (c *commands) read(ctx context.Context, to *clients, namespace string, whole bool) (*report.Snapshot, error) {
	r, err := c.begin(ctx, to, namespace)
	if err != nil {
		return nil, err
	}
	return r.rest(ctx, whole)
}

// rest reads what begin has not.
func (r *reading) rest(ctx context.Context, whole bool) (*report.Snapshot, error) {
	r.together(ctx, slices.Collect(maps.Keys(r.reads()))...)
	if whole {
		r.namespaces(ctx)
	}
	r.pods(ctx)
	r.claims(ctx)
	r.parallel(ctx, r.owners, r.warnings, r.refusals, r.budgets)
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

// readSome reads some kinds, by the keys of Snapshot.Unread.
func (c *commands) readSome(ctx context.Context, to *clients, namespace string, kinds ...string) (*report.Snapshot, error) {
	r, err := c.begin(ctx, to, namespace)
	if err != nil {
		return nil, err
	}
	r.together(ctx, kinds...)
	return r.end(ctx)
}

// lookAt reads what status shows: of a namespace of a user that namespace, with lookAtNamespace; else all, as read.
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
	r.together(ctx, report.ReadLeases, report.ReadConfiguration, report.ReadVirtualNodes, report.ReadNodes, report.ReadOffloadings, report.ReadStored)
	_ = r.somePods(ctx, namespace, metav1.ListOptions{}) // the error is in the snapshot
	r.claims(ctx)
	r.parallel(ctx, r.owners, r.warnings)
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

// together reads kinds, by the keys of Snapshot.Unread.
func (r *reading) together(ctx context.Context, kinds ...string) {
	reads := r.reads()
	report.Each(kinds, len(kinds), func(what string) { r.read(ctx, what, reads[what]...) })
}

// read notes the answers of reads. Of liqod's own kinds, kinds reports those that the API server lacks.
func (r *reading) read(ctx context.Context, what string, reads ...read) {
	for _, read := range reads {
		if keep, err := read(ctx); !noSuchKind(err) {
			r.note(what, err, keep)
		}
	}
}

func (r *reading) parallel(ctx context.Context, reads ...func(context.Context)) {
	report.Each(reads, len(reads), func(read func(context.Context)) { read(ctx) })
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
		namespace, err := join.Namespace(ctx, r.to.kube)
		r.snap.Namespace = cmp.Or(namespace, usualNamespace)
		if err != nil {
			if !errors.Is(err, join.ErrNotInstalled) {
				r.snap.Unread[report.ReadInstallation] = fmt.Errorf("%w (--namespace names it)", err)
			}
			return
		}
	}
	r.read(ctx, report.ReadInstallation, list(r.to.kube.AppsV1().Deployments(r.snap.Namespace).List, metav1.ListOptions{LabelSelector: installed}, func(l *appsv1.DeploymentList) { r.snap.Roles = l.Items }))
}

// reads are the reads that need nothing but begin, by the keys of Snapshot.Unread.
func (r *reading) reads() map[string][]read {
	all, ours, s := metav1.ListOptions{}, metav1.ListOptions{LabelSelector: installed}, r.snap
	core, apps, admission := r.to.kube.CoreV1(), r.to.kube.AppsV1(), r.to.kube.AdmissionregistrationV1()
	peers, offloading := r.to.liqo.CoreV1beta1(), r.to.liqo.OffloadingV1beta1()
	virtual := metav1.ListOptions{LabelSelector: offloadingv1beta1.TypeLabel + "=" + offloadingv1beta1.TypeVirtualNode}
	vkubelets := metav1.ListOptions{LabelSelector: offloadingv1beta1.VirtualNodeLabel}
	tenants := metav1.ListOptions{LabelSelector: corev1beta1.TenantNamespaceLabel + "=true"}
	return map[string][]read{
		report.ReadKinds:         {r.kinds},
		report.ReadConfiguration: {r.configuration},
		report.ReadStored:        {r.volumes},
		report.ReadPods:          {r.hosted},

		report.ReadLeases:          {list(r.to.kube.CoordinationV1().Leases(s.Namespace).List, all, func(l *coordinationv1.LeaseList) { s.Leases = l.Items })},
		report.ReadWebhooks:        {list(admission.MutatingWebhookConfigurations().List, ours, func(l *admissionregistrationv1.MutatingWebhookConfigurationList) { s.Webhooks = l.Items })},
		report.ReadRules:           {list(admission.ValidatingWebhookConfigurations().List, ours, func(l *admissionregistrationv1.ValidatingWebhookConfigurationList) { s.Rules = l.Items })},
		report.ReadForeignClusters: {list(peers.ForeignClusters().List, all, func(l *corev1beta1.ForeignClusterList) { s.ForeignClusters = l.Items })},
		report.ReadMaps:            {list(offloading.NamespaceMaps("").List, all, func(l *offloadingv1beta1.NamespaceMapList) { s.Maps = l.Items })},
		report.ReadOffers:          {list(r.to.liqo.SharingV1alpha1().ResourceOffers("").List, all, func(l *sharingv1alpha1.ResourceOfferList) { s.Offers = l.Items })},
		report.ReadQuotas:          {list(offloading.Quotas("").List, all, func(l *offloadingv1beta1.QuotaList) { s.Quotas = l.Items })},
		report.ReadNetworks: {
			list(r.to.liqo.NetworkingV1beta1().Connections("").List, all, func(l *networkingv1beta1.ConnectionList) { s.Connections = l.Items }),
			list(r.to.liqo.IPAMV1alpha1().Networks("").List, all, func(l *ipamv1alpha1.NetworkList) { s.Networks = l.Items }),
		},
		report.ReadVirtualNodes: {list(offloading.VirtualNodes("").List, all, func(l *offloadingv1beta1.VirtualNodeList) { s.VirtualNodes = l.Items })},
		report.ReadOffloadings:  {list(offloading.NamespaceOffloadings(s.Only).List, all, func(l *offloadingv1beta1.NamespaceOffloadingList) { s.Offloadings = l.Items })},
		report.ReadNodes:        {list(core.Nodes().List, virtual, func(l *corev1.NodeList) { s.Nodes = l.Items })},
		report.ReadTenants:      {list(core.Namespaces().List, tenants, func(l *corev1.NamespaceList) { s.Tenants = l.Items })},
		report.ReadDaemonSets:   {list(apps.DaemonSets("").List, all, func(l *appsv1.DaemonSetList) { s.DaemonSets = l.Items })},
		report.ReadVKubelets: {list(apps.Deployments("").List, vkubelets, func(l *appsv1.DeploymentList) {
			s.VKubelets = slices.DeleteFunc(l.Items, func(d appsv1.Deployment) bool { return !ofTenant(d.Namespace) })
		})},
		report.ReadRolePods: {
			list(core.Pods(s.Namespace).List, ours, func(l *corev1.PodList) { s.RolePods = append(s.RolePods, l.Items...) }),
			list(core.Pods("").List, vkubelets, func(l *corev1.PodList) {
				s.RolePods = append(s.RolePods, slices.DeleteFunc(l.Items, func(p corev1.Pod) bool { return !ofTenant(p.Namespace) })...)
			}),
		},
	}
}

// kinds reads which kinds of liqod the API server has.
func (r *reading) kinds(ctx context.Context) (func(), error) {
	var names []string
	var failed error
	for _, group := range []schema.GroupVersion{
		corev1beta1.SchemeGroupVersion, offloadingv1beta1.SchemeGroupVersion, sharingv1alpha1.SchemeGroupVersion, networkingv1beta1.SchemeGroupVersion, ipamv1alpha1.SchemeGroupVersion,
	} {
		served, err := r.to.served(ctx, group.String())
		names, failed = append(names, served...), cmp.Or(err, failed)
	}
	r.snap.Kinds = names
	return func() {}, failed
}

// served returns the plural names of the kinds of a group and version; none if the API server does not serve it.
func (to *clients) served(ctx context.Context, group string) (names []string, err error) {
	list, err := answered(ctx, func() (*metav1.APIResourceList, error) {
		return to.kube.Discovery().ServerResourcesForGroupVersion(group)
	})
	if err != nil {
		return nil, store.IgnoreNotFound(err)
	}
	return report.Names(list.APIResources, func(r *metav1.APIResource) string { return r.Name }), nil
}

// configuration finds out the id of this cluster, from whom its overlay takes packets, and how far
// it trusts its peers.
func (r *reading) configuration(ctx context.Context) (func(), error) {
	cm, err := r.to.kube.CoreV1().ConfigMaps(r.snap.Namespace).Get(ctx, configurationName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return func() {}, nil
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
	return func() {
		r.snap.ClusterID, r.snap.Trust = settings.ClusterID, settings.Sharing.Trust
		if settings.Gateway.AnyOverlaySender {
			r.snap.OpenOverlays = append(r.snap.OpenOverlays, "gateway")
		}
		if settings.Route.AnyOverlaySender {
			r.snap.OpenOverlays = append(r.snap.OpenOverlays, "route")
		}
	}, err
}

// ofTenant reports whether a namespace is one of peers. The owner of another one may set all labels in it.
func ofTenant(namespace string) bool {
	return strings.HasPrefix(namespace, corev1beta1.TenantNamespacePrefix)
}

// hosted reads the pods of peers in this cluster.
func (r *reading) hosted(ctx context.Context) (func(), error) {
	return func() {}, r.somePods(ctx, metav1.NamespaceAll, metav1.ListOptions{LabelSelector: offloadingv1beta1.ManagedByLabel + "=" + offloadingv1beta1.ManagedByShadowPod})
}

// namespaces reads all pods of the offloaded namespaces.
func (r *reading) namespaces(ctx context.Context) {
	r.snap.Whole = map[string]error{}
	report.Each(r.snap.OffloadedNamespaces(), namespacesAtOnce, func(namespace string) {
		err := r.somePods(ctx, namespace, metav1.ListOptions{})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.snap.Whole[namespace] = err
	})
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
	owners := r.snap.Owners()
	report.Each(owners[:min(len(owners), mostOwners)], ownersAtOnce, func(owner report.Owner) { // the others are judged without their template
		template, err := r.template(ctx, owner)
		if err == nil || !apierrors.IsNotFound(err) {
			r.note(report.ReadControllers, err, func() { r.snap.Templates[owner.UID] = template })
		}
	})
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
	r.read(ctx, report.ReadClaims, r.claimsIn(r.snap.Only))
	if len(r.snap.Claiming()) > 0 {
		r.read(ctx, report.ReadClaims, r.classes())
	}
	r.copies(ctx, r.snap.Only)
}

// claimsIn reads the claims of a namespace, or all.
func (r *reading) claimsIn(namespace string) read {
	return list(r.to.kube.CoreV1().PersistentVolumeClaims(namespace).List, metav1.ListOptions{}, func(l *corev1.PersistentVolumeClaimList) {
		r.snap.Claims = append([]corev1.PersistentVolumeClaim{}, l.Items...) // not nil, also if there are none
	})
}

func (r *reading) classes() read {
	return list(r.to.kube.StorageV1().StorageClasses().List, metav1.ListOptions{}, func(l *storagev1.StorageClassList) {
		r.snap.Classes = store.Pointers(l.Items)
	})
}

// copies reads how far the moves of data are, in a namespace or in all.
func (r *reading) copies(ctx context.Context, namespace string) {
	moves := func(claim corev1.PersistentVolumeClaim) bool {
		return claim.Annotations[offloadingv1beta1.MoveToAnnotation] != ""
	}
	if slices.ContainsFunc(r.snap.Claims, moves) {
		copies, err := move.Copies(ctx, r.to.kube, namespace)
		r.note(report.ReadPods, err, func() { r.snap.Copies = copies })
	}
}

// volumes reads the PersistentVolumes: kept data has no claim. For one namespace the right is not needed; status then does
// not say where the data of a former provider is.
func (r *reading) volumes(ctx context.Context) (func(), error) {
	list, err := r.to.kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if r.snap.Only != "" && apierrors.IsForbidden(err) {
		return func() {}, nil
	}
	return func() { r.snap.Volumes = list.Items }, err
}

// warnings reads the events about pods whose status has no cause, and about claims.
func (r *reading) warnings(ctx context.Context) {
	for kind, namespaces := range map[string][]string{"Pod": r.snap.Unexplained(), "PersistentVolumeClaim": r.snap.Claiming()} {
		for _, namespace := range namespaces {
			r.events(ctx, namespace, fields.Set{"involvedObject.kind": kind, "type": corev1.EventTypeWarning}, &r.snap.Events)
		}
	}
}

// refused reads the events about objects that providers refuse, for a person who may not read Nodes, which say it.
func (r *reading) refused(ctx context.Context) {
	if r.snap.Unread[report.ReadNodes] != nil {
		r.events(ctx, r.snap.Only, fields.Set{"reason": offloadingv1beta1.ReasonFailedReflection}, &r.snap.Events)
	}
}

// refusals reads the events about packets of peers that hosts of this cluster have dropped.
func (r *reading) refusals(ctx context.Context) {
	for _, c := range r.snap.Connections {
		r.events(ctx, c.Namespace, fields.Set{"involvedObject.kind": "Connection", "reason": networkingv1beta1.ReasonPacketsRefused}, &r.snap.Refusals)
	}
}

// events adds events of a namespace to those in to.
func (r *reading) events(ctx context.Context, namespace string, of fields.Set, to *[]corev1.Event) {
	options := metav1.ListOptions{FieldSelector: of.AsSelector().String(), Limit: mostWarnings}
	r.read(ctx, report.ReadEvents, list(r.to.kube.CoreV1().Events(namespace).List, options, func(l *corev1.EventList) { *to = append(*to, l.Items...) }))
}

// budgets reads the disruption budgets, if a virtual node is being drained.
func (r *reading) budgets(ctx context.Context) {
	if r.snap.Drains() {
		r.read(ctx, report.ReadBudgets, list(r.to.kube.PolicyV1().PodDisruptionBudgets("").List, metav1.ListOptions{}, func(l *policyv1.PodDisruptionBudgetList) { r.snap.Budgets = l.Items }))
	}
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

// mostOfKind limits the objects that are read of a kind to find what is different in providers.
const mostOfKind = 500

// applicationsAtOnce limits the namespaces that are read at a time.
const applicationsAtOnce = 4

// readApplications reads the applications of the namespaces whose pods may run in providers, and the offers
// if only one namespace is read.
func readApplications(ctx context.Context, to *clients, s *report.Snapshot) {
	s.Applications = map[string]*report.Application{}
	var mu sync.Mutex
	report.Each(s.Leaving(), applicationsAtOnce, func(namespace string) {
		has := readApplication(ctx, to, namespace) // with its errors
		mu.Lock()
		defer mu.Unlock()
		s.Applications[namespace] = has
	})
	if s.Only != "" {
		shared, err := to.liqo.SharingV1alpha1().ResourceOffers("").List(ctx, metav1.ListOptions{})
		if s.Offers = shared.Items; err != nil {
			s.Unread[report.ReadOffers] = err
		}
	}
	if has := s.Applications[s.Only]; has != nil {
		maps.Copy(s.Unread, has.Unread)
		has.Unread = nil
	}
}

// readApplication reads what a namespace has that may be different in providers. It leaves out Jobs that
// have ended or have an owner, such as a CronJob, that is read itself.
func readApplication(ctx context.Context, to *clients, namespace string) *report.Application {
	has := &report.Application{Unread: map[string]error{}}
	works := func(kind string, o metav1.Object, pod *corev1.PodTemplateSpec) {
		has.Workloads = append(has.Workloads, report.Workload{Name: kind + " " + o.GetName(), Meta: pod.ObjectMeta, Pod: pod.Spec})
	}
	apps, batch := to.kube.AppsV1(), to.kube.BatchV1()
	firstOf(ctx, has, report.ReadPolicies, to.kube.NetworkingV1().NetworkPolicies(namespace).List, func(o *networkingv1.NetworkPolicy) { has.Policies = append(has.Policies, o.Name) })
	firstOf(ctx, has, report.ReadBudgets, to.kube.PolicyV1().PodDisruptionBudgets(namespace).List, func(o *policyv1.PodDisruptionBudget) { has.Budgets = append(has.Budgets, o.Name) })
	firstOf(ctx, has, report.ReadDaemonSets, apps.DaemonSets(namespace).List, func(o *appsv1.DaemonSet) { has.DaemonSets = append(has.DaemonSets, o.Name) })
	firstOf(ctx, has, report.ReadWorkloads, apps.Deployments(namespace).List, func(o *appsv1.Deployment) { works("Deployment", o, &o.Spec.Template) })
	firstOf(ctx, has, report.ReadWorkloads, apps.StatefulSets(namespace).List, func(o *appsv1.StatefulSet) { works("StatefulSet", o, &o.Spec.Template) })
	firstOf(ctx, has, report.ReadWorkloads, batch.CronJobs(namespace).List, func(o *batchv1.CronJob) { works("CronJob", o, &o.Spec.JobTemplate.Spec.Template) })
	firstOf(ctx, has, report.ReadServices, to.kube.CoreV1().Services(namespace).List, func(o *corev1.Service) { has.Services = append(has.Services, *o) })
	firstOf(ctx, has, report.ReadWorkloads, batch.Jobs(namespace).List, func(o *batchv1.Job) {
		if metav1.GetControllerOf(o) == nil && o.Status.CompletionTime == nil {
			works("Job", o, &o.Spec.Template)
		}
	})
	return has
}

// firstOf calls see with objects of an application, mostOfKind at most. T is a pointer to an item of the list L.
func firstOf[T any, L interface {
	runtime.Object
	metav1.ListInterface
}](ctx context.Context, has *report.Application, what string, list func(context.Context, metav1.ListOptions) (L, error), see func(T)) {
	page, err := list(ctx, metav1.ListOptions{Limit: mostOfKind})
	if err != nil {
		has.Unread[what] = err
		return
	}
	has.More = has.More || page.GetContinue() != ""
	_ = meta.EachListItem(page, func(obj runtime.Object) error { // of a list that has items
		if o, is := obj.(T); is {
			see(o)
		}
		return nil
	})
}
