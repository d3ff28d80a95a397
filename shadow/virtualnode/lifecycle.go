package virtualnode

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// takenRetry is the delay before a taken name is tried again. No watch reports when a
// foreign object is deleted.
const takenRetry = time.Minute

// Lifecycle creates the vkubelet of every VirtualNode, and removes it with the VirtualNode.
type Lifecycle struct {
	*loop.Loop
	cfg Config
}

// NewLifecycle returns a Lifecycle and registers its event handlers on the informers, which
// must be started afterwards. It starts nothing. It returns an error if cfg has no image.
func NewLifecycle(cfg Config) (*Lifecycle, error) {
	if cfg.VirtualKubelet.Image == "" {
		return nil, errNoImage
	}
	l := &Lifecycle{cfg: cfg}
	l.Loop = loop.New(loop.Config{Name: "virtualnode", Sync: l.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.VirtualNodes.Informer(), l.namesakeKeys),
		loop.From(cfg.NamespaceMaps.Informer(), l.tenantKeys),
		loop.From(cfg.Nodes.Informer(), l.namesakeKeys),
		loop.From(cfg.Deployments.Informer(), ownerKeys),
		loop.From(cfg.Budgets.Informer(), ownerKeys),
		loop.From(cfg.ServiceAccounts.Informer(), ownerKeys),
		loop.From(cfg.RoleBindings.Informer(), ownerKeys),
		loop.From(cfg.ClusterRoleBindings.Informer(), ownerKeys),
	)
	return l, nil
}

// namesakeKeys maps a Node or VirtualNode to all VirtualNodes of its name: an object that
// waits for the name may now get it.
func (l *Lifecycle) namesakeKeys(m metav1.Object) (keys []loop.Key) {
	if _, ok := m.(*offloadingv1beta1.VirtualNode); ok {
		keys = loop.Self(m)
	}
	for _, vn := range namesakes(l.cfg.VirtualNodes.Lister(), m.GetName()) {
		if key := (loop.Key{Namespace: vn.Namespace, Name: vn.Name}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// tenantKeys maps a NamespaceMap to the VirtualNodes in its namespace.
func (l *Lifecycle) tenantKeys(nm *offloadingv1beta1.NamespaceMap) []loop.Key {
	return loop.Keys(store.Listed(l.cfg.VirtualNodes.Lister().VirtualNodes(nm.Namespace).List(labels.Everything())))
}

// namesakes returns the VirtualNodes called name in all namespaces.
func namesakes(lister offloadinglisters.VirtualNodeLister, name string) []*offloadingv1beta1.VirtualNode {
	all := store.Listed(lister.List(labels.Everything()))
	return slices.DeleteFunc(all, func(vn *offloadingv1beta1.VirtualNode) bool { return vn.Name != name })
}

func (l *Lifecycle) sync(ctx context.Context, key loop.Key) error {
	vn := store.Known(l.cfg.VirtualNodes.Lister().VirtualNodes(key.Namespace).Get(key.Name))
	if vn == nil {
		return nil
	}
	if !vn.DeletionTimestamp.IsZero() {
		return l.remove(ctx, vn)
	}
	others := namesakes(l.cfg.VirtualNodes.Lister(), vn.Name)
	node, err := l.node(ctx, vn)
	if err != nil {
		return err
	}
	if reason, message := refuse(vn, others, node); reason != "" {
		return errors.Join(l.retire(ctx, vn), l.writeStatus(ctx, vn, notReady(reason, message)))
	}
	if vn, err = l.hold(ctx, vn); err != nil {
		return err
	}
	applyErr := l.apply(ctx, vn)
	var taken takenError
	if errors.As(applyErr, &taken) {
		if err := l.writeStatus(ctx, vn, notReady(reasons.NameTaken, taken.message)); err != nil {
			return err
		}
		return loop.After(takenRetry)
	}
	deployment := store.Known(l.cfg.Deployments.Lister().Deployments(vn.Namespace).Get(VirtualKubeletName(vn.Name)))
	return errors.Join(applyErr, l.writeStatus(ctx, vn, liveConditions(deployment, node)))
}

// node returns the Node of vn's name, or nil. The cache may lack a Node that was created before
// vn, so the Node is read live before the first object of vn is created.
func (l *Lifecycle) node(ctx context.Context, vn *offloadingv1beta1.VirtualNode) (*corev1.Node, error) {
	node := store.Known(l.cfg.Nodes.Lister().Get(vn.Name))
	if node == nil && !slices.Contains(vn.Finalizers, offloadingv1beta1.VirtualNodeFinalizer) {
		return l.liveNode(ctx, vn.Name)
	}
	return node, nil
}

// retire deletes the vkubelet of vn if a foreign Node has its name: that Node was created after
// the vkubelet, which can only fail.
func (l *Lifecycle) retire(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	cached := store.Known(l.cfg.Deployments.Lister().Deployments(vn.Namespace).Get(VirtualKubeletName(vn.Name)))
	if cached == nil || !owned(vn, cached) {
		return nil
	}
	node, err := l.liveNode(ctx, vn.Name)
	if err != nil || node == nil || Ours(node, vn) {
		return err
	}
	_, err = l.removeDeployment(ctx, vn)
	return err
}

// hold adds the finalizer to vn. It comes before the first object of vn is created.
func (l *Lifecycle) hold(ctx context.Context, vn *offloadingv1beta1.VirtualNode) (*offloadingv1beta1.VirtualNode, error) {
	if slices.Contains(vn.Finalizers, offloadingv1beta1.VirtualNodeFinalizer) {
		return vn, nil
	}
	held := vn.DeepCopy()
	held.Finalizers = append(held.Finalizers, offloadingv1beta1.VirtualNodeFinalizer)
	return store.Write(ctx, "VirtualNode", l.cfg.Liqo.OffloadingV1beta1().VirtualNodes(vn.Namespace), fieldManager, vn, held)
}

// apply creates or corrects the objects of vn, the rights of the vkubelet before its
// Deployment.
func (l *Lifecycle) apply(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	if err := l.putServiceAccount(ctx, vn); err != nil {
		return err
	}
	if err := l.putClusterRoleBinding(ctx, vn); err != nil {
		return err
	}
	return errors.Join(l.putBindings(ctx, vn), l.putDeployment(ctx, vn), l.putBudget(ctx, vn))
}
