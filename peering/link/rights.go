package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	listers "github.com/liqod/liqod/api/generated/listers/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/apply"
	"github.com/liqod/liqod/kube/loop"
)

// Names of the ClusterRoles that are bound for a peer. A binding in a tenant namespace has
// the name of its role. The cluster-wide binding is named <role>:<cluster id of the peer>.
const (
	// ControllerTenantRole is bound to the controller in each tenant namespace.
	ControllerTenantRole = "liqod-controller-tenant"
	// PeerTenantRole is bound to the peer's user in the peer's tenant namespace.
	PeerTenantRole = "liqod-peer-tenant"
	// PeerClusterRole is bound to the peer's user in the whole cluster.
	PeerClusterRole = "liqod-peer-cluster"
)

const managedByLink = "peering" // value of liqo.io/managed-by

// RightsConfig is the input of NewRights. All fields are required except Observer.
type RightsConfig struct {
	// ClusterID is this cluster's id.
	ClusterID string
	// OwnNamespace is the namespace that the controller runs in. ServiceAccount is the name
	// of its service account there.
	OwnNamespace   string
	ServiceAccount string

	// Kube and Liqo are clients of this cluster.
	Kube kubernetes.Interface
	Liqo versioned.Interface

	// The informers watch this cluster in all namespaces, without label selectors.
	ForeignClusters     informers.ForeignClusterInformer
	Namespaces          coreinformers.NamespaceInformer
	RoleBindings        rbacinformers.RoleBindingInformer
	ClusterRoleBindings rbacinformers.ClusterRoleBindingInformer

	Log *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
}

// Rights keeps the RBAC bindings of the controller and of each peer's user: those in the
// tenant namespaces, and the cluster-wide ones. Its keys are cluster ids.
type Rights struct {
	*loop.Loop
	cfg        RightsConfig
	clusters   listers.ForeignClusterLister
	namespaces corelisters.NamespaceLister
	bindings   *apply.Binder
}

// NewRights returns a Rights and registers its event handlers on the informers. It starts
// nothing.
func NewRights(cfg RightsConfig) (*Rights, error) {
	r := &Rights{
		cfg:        cfg,
		clusters:   cfg.ForeignClusters.Lister(),
		namespaces: cfg.Namespaces.Lister(),
		bindings:   apply.NewBinder(cfg.Kube, cfg.RoleBindings.Lister(), cfg.ClusterRoleBindings.Lister()),
	}
	r.Loop = loop.New(loop.Config{Name: "peerrights", Sync: r.sync, Log: cfg.Log, Observer: cfg.Observer})
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		keys     func(any) []loop.Key
	}{
		{cfg.ForeignClusters.Informer(), ClusterKey},
		{cfg.Namespaces.Informer(), TenantKey},
		{cfg.RoleBindings.Informer(), bindingKey},
		{cfg.ClusterRoleBindings.Informer(), bindingKey},
	} {
		if _, err := r.Watch(w.informer, w.keys); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// ClusterKey is a keys function of a loop: the key of a ForeignCluster is the cluster id of
// its peer.
func ClusterKey(obj any) []loop.Key {
	fc, ok := obj.(*corev1beta1.ForeignCluster)
	if !ok {
		return nil
	}
	return []loop.Key{{Name: fc.Spec.ClusterID}}
}

// TenantKey is a keys function of a loop: the key of a tenant namespace is the cluster id
// of its peer. Other namespaces have no key.
func TenantKey(obj any) []loop.Key {
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil
	}
	id, tenant := peerOf(ns)
	if !tenant {
		return nil
	}
	return []loop.Key{{Name: id}}
}

// bindingKey returns the peer that a binding belongs to, by its namespace or name. It does
// not use labels, as they may have been removed.
func bindingKey(obj any) []loop.Key {
	o, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	for _, s := range []struct{ in, prefix string }{
		{o.GetNamespace(), corev1beta1.TenantNamespacePrefix},
		{o.GetName(), PeerClusterRole + ":"},
	} {
		if id, ok := strings.CutPrefix(s.in, s.prefix); ok && id != "" {
			return []loop.Key{{Name: id}}
		}
	}
	return nil
}

func (r *Rights) sync(ctx context.Context, key loop.Key) error {
	id := key.Name
	namespace := corev1beta1.TenantNamespace(id)
	fcs, err := clustersOf(r.clusters, id)
	if err != nil {
		return err
	}
	user, _ := userOf(fcs, id)
	if len(fcs) == 0 {
		if user, err = r.confirm(ctx, id); err != nil {
			return err
		}
	}
	if id == r.cfg.ClusterID {
		user = "" // a cluster is not its own peer
	}
	ns, err := r.namespaces.Get(namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the tenant namespace: %w", err)
	}
	tenant := false
	if err == nil {
		_, tenant = peerOf(ns)
	}
	return r.bind(ctx, id, user, tenant && ns.DeletionTimestamp == nil)
}

// bind grants and revokes the rights for one peer. It revokes first; a failed grant does
// not keep a revocation back.
func (r *Rights) bind(ctx context.Context, id, user string, tenant bool) error {
	namespace, wide := corev1beta1.TenantNamespace(id), PeerClusterRole+":"+id
	marks := map[string]string{offloadingv1beta1.ManagedByLabel: managedByLink, corev1beta1.RemoteClusterIDLabel: id}
	var subjects []rbacv1.Subject
	if user != "" {
		subjects = []rbacv1.Subject{apply.UserSubject(user)}
	}
	errs := []error{
		r.bindings.RemoveUnless(ctx, namespace, PeerTenantRole, subjects...),
		r.bindings.RemoveUnless(ctx, "", wide, subjects...),
	}
	if tenant {
		errs = append(errs, r.bindings.Ensure(ctx, apply.Binding{Namespace: namespace, Name: ControllerTenantRole, ClusterRole: ControllerTenantRole,
			Labels: marks, Subjects: []rbacv1.Subject{apply.ServiceAccountSubject(r.cfg.OwnNamespace, r.cfg.ServiceAccount)}}))
	}
	if user != "" && tenant {
		errs = append(errs, r.bindings.Ensure(ctx, apply.Binding{Namespace: namespace, Name: PeerTenantRole, ClusterRole: PeerTenantRole,
			Labels: marks, Subjects: subjects}))
	}
	if user != "" {
		errs = append(errs, r.bindings.Ensure(ctx, apply.Binding{Name: wide, ClusterRole: PeerClusterRole, Labels: marks, Subjects: subjects}))
	}
	return errors.Join(errs...)
}

// confirm returns the peer's user from a live read, if the cache has no ForeignCluster. A
// stale cache must not revoke rights.
func (r *Rights) confirm(ctx context.Context, id string) (user string, err error) {
	list, err := r.cfg.Liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("confirming that there is no ForeignCluster of %s: %w", id, err)
	}
	var found []*corev1beta1.ForeignCluster
	for i := range list.Items {
		if fc := &list.Items[i]; fc.Spec.ClusterID == id && fc.DeletionTimestamp == nil {
			found = append(found, fc)
		}
	}
	user, _ = userOf(found, id)
	return user, nil
}

// clustersOf returns the cached ForeignClusters of a peer that are not being deleted.
func clustersOf(lister listers.ForeignClusterLister, id string) ([]*corev1beta1.ForeignCluster, error) {
	live, _, err := recordsOf(lister, id)
	return live, err
}

// recordsOf returns the cached ForeignClusters of a peer, and separately those that are
// being deleted.
func recordsOf(lister listers.ForeignClusterLister, id string) (live, ending []*corev1beta1.ForeignCluster, err error) {
	all, err := lister.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("listing ForeignClusters: %w", err)
	}
	for _, fc := range all {
		switch {
		case fc.Spec.ClusterID != id:
		case fc.DeletionTimestamp == nil:
			live = append(live, fc)
		default:
			ending = append(ending, fc)
		}
	}
	return live, ending, nil
}

// userOf returns the user that a peer's rights are bound to, or "" and, if the configured
// user is not accepted, the problem.
func userOf(fcs []*corev1beta1.ForeignCluster, id string) (user string, p problem) {
	switch {
	case len(fcs) > 1:
		return "", problem{corev1beta1.ReasonDuplicateClusterID, fmt.Sprintf("there are %d ForeignClusters with clusterID %s (%s), and one is accepted: the cluster has no rights here until only one is left",
			len(fcs), id, namesOf(fcs))}
	case len(fcs) == 0 || fcs[0].Spec.UserName == "":
		return "", problem{}
	}
	user = fcs[0].Spec.UserName
	if !corev1beta1.ValidPeerUser(id, user) {
		return "", problem{corev1beta1.ReasonInvalidUser, strangeUser(id, user)}
	}
	return user, problem{}
}

// strangeUser is the message about a userName that cannot belong to the peer.
func strangeUser(id, user string) string {
	return fmt.Sprintf("spec.userName %q is not this peer's: accepted are %s%s:<serial> and system:serviceaccount:%s:<name>",
		user, corev1beta1.PeerUserPrefix, id, corev1beta1.TenantNamespace(id))
}

func namesOf(fcs []*corev1beta1.ForeignCluster) string {
	names := make([]string, 0, len(fcs))
	for _, fc := range fcs {
		names = append(names, fc.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
