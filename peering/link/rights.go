package link

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
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

// RightsConfig is the input of NewRights. All fields are required.
type RightsConfig struct {
	Base

	// OwnNamespace is the namespace that the controller runs in. ServiceAccount is the name
	// of its service account there.
	OwnNamespace   string
	ServiceAccount string

	// The informers watch this cluster in all namespaces, without label selectors.
	RoleBindings        rbacinformers.RoleBindingInformer
	ClusterRoleBindings rbacinformers.ClusterRoleBindingInformer
}

// Rights keeps the RBAC bindings of the controller and of each peer's user: those in the
// tenant namespaces, and the cluster-wide ones. It keeps the labels of tenant namespaces, too,
// and creates that of a peer that has rights here, if it is missing. Its keys are cluster ids.
type Rights struct {
	*loop.Loop
	cfg      RightsConfig
	bindings *store.Binder
}

// NewRights returns a Rights and registers its event handlers on the informers. It starts
// nothing.
func NewRights(cfg RightsConfig) *Rights {
	r := &Rights{
		cfg:      cfg,
		bindings: store.NewBinder(cfg.Kube, cfg.RoleBindings.Lister(), cfg.ClusterRoleBindings.Lister()),
	}
	r.Loop = loop.New(loop.Config{Name: "peerrights", Sync: r.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.ForeignClusters.Informer(), ClusterKey),
		loop.From(cfg.Namespaces.Informer(), TenantKey),
		loop.From(cfg.RoleBindings.Informer(), bindingKey),
		loop.From(cfg.ClusterRoleBindings.Informer(), bindingKey),
	)
	return r
}

// ClusterKey is a keys function of a loop: the key of a ForeignCluster is the cluster id of
// its peer.
func ClusterKey(fc *corev1beta1.ForeignCluster) []loop.Key {
	return []loop.Key{{Name: fc.Spec.ClusterID}}
}

// TenantKey is a keys function of a loop: the key of a tenant namespace is the cluster id
// of its peer. Other namespaces have no key.
func TenantKey(ns *corev1.Namespace) (keys []loop.Key) {
	if id, tenant := peerOf(ns); tenant {
		keys = []loop.Key{{Name: id}}
	}
	return keys
}

// bindingKey returns the peer that a binding belongs to, by its namespace or name. It does
// not use labels, as they may have been removed.
func bindingKey(o metav1.Object) []loop.Key {
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
	fc := store.Known(r.cfg.ForeignClusters.Lister().Get(id))
	if fc == nil { // a stale cache must not revoke rights
		var err error
		if fc, err = store.Live(ctx, "ForeignCluster", r.cfg.Liqo.CoreV1beta1().ForeignClusters(), id); err != nil {
			return err
		}
	}
	user, _ := userOf(fc)
	if id == r.cfg.ClusterID {
		user = "" // a cluster is not its own peer
	}
	ns := store.Known(r.cfg.Namespaces.Lister().Get(namespace))
	if ns == nil && user != "" {
		return errors.Join(r.bind(ctx, id, user, false), r.makeTenant(ctx, id))
	}
	if _, tenant := peerOf(ns); !tenant || ns.DeletionTimestamp != nil {
		return r.bind(ctx, id, user, false)
	}
	// Those that people have made lack the pod-security level.
	return errors.Join(r.bind(ctx, id, user, true), labelTenant(ctx, r.cfg.Kube, id, ns))
}

// makeTenant creates the tenant namespace of a peer that has rights here: without it, the peer
// could not write what it asks for. The end of a peering takes the rights first.
func (r *Rights) makeTenant(ctx context.Context, id string) error {
	fc, err := store.Live(ctx, "ForeignCluster", r.cfg.Liqo.CoreV1beta1().ForeignClusters(), id)
	if user, _ := userOf(fc); err != nil || user == "" {
		return err
	}
	return Tenant(ctx, r.cfg.Kube, id)
}

// bind grants and revokes the rights for one peer. It revokes first; a failed grant does
// not keep a revocation back.
func (r *Rights) bind(ctx context.Context, id, user string, tenant bool) error {
	namespace, wide := corev1beta1.TenantNamespace(id), PeerClusterRole+":"+id
	marks := map[string]string{offloadingv1beta1.ManagedByLabel: managedByLink, corev1beta1.RemoteClusterIDLabel: id}
	var subjects []rbacv1.Subject
	if user != "" {
		subjects = []rbacv1.Subject{store.UserSubject(user)}
	}
	errs := []error{
		r.bindings.RemoveUnless(ctx, namespace, PeerTenantRole, subjects...),
		r.bindings.RemoveUnless(ctx, "", wide, subjects...),
	}
	if tenant {
		errs = append(errs, r.bindings.Ensure(ctx, store.Binding{Namespace: namespace, Name: ControllerTenantRole, ClusterRole: ControllerTenantRole,
			Labels: marks, Subjects: []rbacv1.Subject{store.ServiceAccountSubject(r.cfg.OwnNamespace, r.cfg.ServiceAccount)}}))
	}
	if user != "" && tenant {
		errs = append(errs, r.bindings.Ensure(ctx, store.Binding{Namespace: namespace, Name: PeerTenantRole, ClusterRole: PeerTenantRole,
			Labels: marks, Subjects: subjects}))
	}
	if user != "" {
		errs = append(errs, r.bindings.Ensure(ctx, store.Binding{Name: wide, ClusterRole: PeerClusterRole, Labels: marks, Subjects: subjects}))
	}
	return errors.Join(errs...)
}

// userOf returns the user that a peer's rights are bound to, or "" and, if the configured
// user is not accepted, the problem. fc may be nil.
func userOf(fc *corev1beta1.ForeignCluster) (user string, p problem) {
	if fc == nil || fc.DeletionTimestamp != nil || fc.Spec.UserName == "" {
		return "", problem{}
	}
	if !corev1beta1.ValidPeerUser(fc.Name, fc.Spec.UserName) {
		return "", problem{corev1beta1.ReasonInvalidUser, strangeUser(fc.Name, fc.Spec.UserName)}
	}
	return fc.Spec.UserName, problem{}
}

// strangeUser is the message about a userName that cannot belong to the peer.
func strangeUser(id, user string) string {
	return fmt.Sprintf("spec.userName %q is not this peer's: accepted are %s%s:<serial> and system:serviceaccount:%s:<name>",
		user, corev1beta1.PeerUserPrefix, id, corev1beta1.TenantNamespace(id))
}

// tenantManager is the field manager of tenant namespaces.
const tenantManager = "liqod-enroll"

// Tenant creates the tenant namespace of a peer in the cluster of kube, or adds missing
// labels to it. It is idempotent. The namespace enforces the restricted
// pod-security level, unless people have chosen another one: its only pods are vkubelets.
func Tenant(ctx context.Context, kube kubernetes.Interface, peer string) error {
	name := corev1beta1.TenantNamespace(peer)
	namespaces := kube.CoreV1().Namespaces()
	have, err := store.Live(ctx, "namespace", namespaces, name)
	switch {
	case err != nil:
		return err
	case have == nil:
		_, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: tenantLabels(peer, nil)}}, metav1.CreateOptions{FieldManager: tenantManager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
		return nil
	case have.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s is being deleted: wait until it is gone", name)
	}
	return labelTenant(ctx, kube, peer, have)
}

// tenantLabels returns the labels of a tenant namespace that has some labels already.
func tenantLabels(peer string, have map[string]string) map[string]string {
	want := map[string]string{
		corev1beta1.RemoteClusterIDLabel: peer, corev1beta1.TenantNamespaceLabel: "true", corev1beta1.PodSecurityLabel: corev1beta1.PodSecurityRestricted,
	}
	if level, chosen := have[corev1beta1.PodSecurityLabel]; chosen {
		want[corev1beta1.PodSecurityLabel] = level
	}
	return want
}

// labelTenant adds the labels that the tenant namespace of a peer lacks.
func labelTenant(ctx context.Context, kube kubernetes.Interface, peer string, have *corev1.Namespace) error {
	labels := store.MapChanges(tenantLabels(peer, have.Labels), have.Labels, nil)
	if len(labels) == 0 {
		return nil
	}
	_, err := store.Merge(ctx, "namespace", kube.CoreV1().Namespaces(), tenantManager, have, store.Patch{"metadata": store.Patch{"labels": labels}})
	return err
}

// Retire deletes the ServiceAccounts of a peer's enrolments, if the authentication endpoint
// created them, but the given one.
func Retire(ctx context.Context, kube kubernetes.Interface, peer, account string) error {
	made := metav1.ListOptions{LabelSelector: corev1beta1.MadeByLabel + "=" + corev1beta1.MadeByLiqod}
	_, err := store.Sweep(ctx, "service account", kube.CoreV1().ServiceAccounts(corev1beta1.TenantNamespace(peer)), made, func(sa *corev1.ServiceAccount) bool {
		return sa.Name != account && strings.HasPrefix(sa.Name, corev1beta1.PeerAccountPrefix)
	})
	return err
}

// OwnedBy returns an owner reference, so that an object is deleted with the ForeignCluster
// of a peer.
func OwnedBy(fc *corev1beta1.ForeignCluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: corev1beta1.SchemeGroupVersion.String(), Kind: "ForeignCluster", Name: fc.Name, UID: fc.UID}
}
