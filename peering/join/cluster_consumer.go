package join

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// Leave ends the use of a provider. It stops the requests for capacity, drains and deletes
// the virtual nodes, and then deletes everything else about the provider. The provider's
// rights in this cluster stay. With force, it does not wait for the provider, and
// force-deletes the pods on the virtual nodes. It returns the objects that are still being
// removed; call it again until there are none.
func (c Cluster) Leave(ctx context.Context, provider string, force bool) (left []string, err error) {
	left, _, err = c.leave(ctx, provider, force, force)
	return left, err
}

// leave does the work of Leave. With alone, it does not wait for the provider. theirs means
// that only objects of the provider are left.
func (c Cluster) leave(ctx context.Context, provider string, force, alone bool) (left []string, theirs bool, err error) {
	if err := c.check(provider); err != nil {
		return nil, false, err
	}
	fc, err := c.foreignCluster(ctx, provider)
	if err != nil {
		return nil, false, err
	}
	if err := c.stop(ctx, fc); err != nil {
		return nil, false, err
	}
	if left, err = c.dropNodes(ctx, provider, force); err != nil || len(left) > 0 {
		return left, false, err
	}
	away := alone || fc == nil || !corev1beta1.Reached(fc)
	if !away { // the credentials are needed until the provider has received the changes
		if left, err = c.asked(ctx, provider); err != nil || len(left) > 0 {
			return left, true, err
		}
	}
	if left, err = c.dropMap(ctx, provider, away); err != nil || len(left) > 0 {
		return left, true, err
	}
	if err := c.dropIdentity(ctx, provider); err != nil {
		return nil, false, err
	}
	if err := c.dropTokens(ctx, provider); err != nil {
		return nil, false, err
	}
	if fc != nil && fc.Spec.UserName != "" {
		return nil, false, nil // the peer uses this cluster, too
	}
	left, err = c.forget(ctx, provider)
	return left, false, err
}

// dropNodes deletes the virtual nodes of a provider, and returns those that are left.
func (c Cluster) dropNodes(ctx context.Context, provider string, force bool) (left []string, err error) {
	namespace := corev1beta1.TenantNamespace(provider)
	nodes, err := store.Sweep[*offloadingv1beta1.VirtualNode](ctx, "VirtualNode", c.Liqo.OffloadingV1beta1().VirtualNodes(namespace), metav1.ListOptions{}, nil)
	if err != nil {
		return nil, err
	}
	for _, vn := range nodes {
		if force {
			if err := c.abandon(ctx, vn.Name); err != nil {
				return nil, err
			}
		}
		left = append(left, "virtual node "+vn.Name+": "+told(vn))
	}
	if len(left) == 0 {
		return nil, c.dropLost(ctx, provider)
	}
	return left, nil
}

// dropLost deletes the Nodes of a provider that have no VirtualNode: their VirtualNodes went
// with a tenant namespace that somebody deleted, and did not come again. Kubernetes removes the
// pods of a Node that is gone.
func (c Cluster) dropLost(ctx context.Context, provider string) error {
	_, err := store.Sweep[*corev1.Node](ctx, "Node", c.Kube.CoreV1().Nodes(), metav1.ListOptions{
		LabelSelector: offloadingv1beta1.TypeLabel + "=" + offloadingv1beta1.TypeVirtualNode + "," + corev1beta1.RemoteClusterIDLabel + "=" + provider}, nil)
	return err
}

// told returns the progress of the deletion of a virtual node. A condition from before the
// deletion says nothing about it.
func told(vn *offloadingv1beta1.VirtualNode) string {
	c := meta.FindStatusCondition(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady)
	if vn.DeletionTimestamp != nil && c != nil && c.Message != "" && c.ObservedGeneration == vn.Generation {
		return c.Message
	}
	return "it is being drained"
}

// dropMap deletes the NamespaceMap for a provider. It first waits until the provider has
// removed the twins, unless away is set: the people of an unreachable provider have to end
// the peering there.
func (c Cluster) dropMap(ctx context.Context, provider string, away bool) ([]string, error) {
	maps := c.Liqo.OffloadingV1beta1().NamespaceMaps(corev1beta1.TenantNamespace(provider))
	m, err := store.Live(ctx, "NamespaceMap", maps, provider)
	if err != nil || m == nil {
		return nil, err
	}
	if !away {
		if left := twins(m, provider); len(left) > 0 {
			return left, nil
		}
	}
	// The credentials are needed until the copy there is deleted.
	return []string{"NamespaceMap " + m.Name}, store.Delete(ctx, "NamespaceMap", maps, m)
}

// twins returns the twin namespaces at a provider, except those that it keeps for their
// volumes.
func twins(m *offloadingv1beta1.NamespaceMap, provider string) (left []string) {
	for local, twin := range m.Status.CurrentMapping {
		kept := twin.Phase == offloadingv1beta1.MappingTerminating && twin.Message != ""
		if _, desired := m.Spec.DesiredMapping[local]; desired || !kept {
			left = append(left, fmt.Sprintf("namespace %s of cluster %s", twin.RemoteNamespace, provider))
		}
	}
	slices.Sort(left)
	return left
}

// replicated selects the copies of a peer's objects.
func replicated() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: offloadingv1beta1.ReplicatedLabel + "=true"}
}

// dropConfigurations deletes the Configurations that a peer has replicated here. It returns
// those that were there.
func (c Cluster) dropConfigurations(ctx context.Context, peer string) (left []string, err error) {
	configurations := c.Liqo.NetworkingV1beta1().Configurations(corev1beta1.TenantNamespace(peer))
	gone, err := store.Sweep[*networkingv1beta1.Configuration](ctx, "Configuration", configurations, replicated(), nil)
	for _, conf := range gone {
		left = append(left, "Configuration "+conf.Name)
	}
	return left, err
}

// dropIdentity deletes the Secrets with credentials for a provider.
func (c Cluster) dropIdentity(ctx context.Context, provider string) error {
	secrets := c.Kube.CoreV1().Secrets(corev1beta1.TenantNamespace(provider))
	_, err := store.Sweep(ctx, "secret", secrets, metav1.ListOptions{}, func(s *corev1.Secret) bool {
		return s.Labels[corev1beta1.IdentityTypeLabel] == corev1beta1.IdentityControlPlane || s.Labels[corev1beta1.EnrolledLabel] == "true"
	})
	return err
}

// dropCopies deletes the NamespaceMaps that a consumer has replicated here, and with them
// its twin namespaces, and then its Configuration, and with that its Connection. It returns
// what is left.
func (c Cluster) dropCopies(ctx context.Context, consumer string) (left []string, err error) {
	all := c.Liqo.OffloadingV1beta1().NamespaceMaps(corev1beta1.TenantNamespace(consumer))
	maps, err := store.Sweep[*offloadingv1beta1.NamespaceMap](ctx, "NamespaceMap", all, replicated(), nil)
	if err != nil {
		return nil, err
	}
	for _, m := range maps {
		for _, twin := range m.Status.CurrentMapping {
			left = append(left, "twin namespace "+twin.RemoteNamespace)
		}
		if len(m.Status.CurrentMapping) == 0 {
			left = append(left, "NamespaceMap "+m.Name)
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		return left, nil
	}
	uses, err := c.uses(ctx, consumer)
	if err != nil || uses {
		return nil, err // this cluster needs its network
	}
	return c.dropConfigurations(ctx, consumer)
}

// uses reports whether this cluster uses a provider.
func (c Cluster) uses(ctx context.Context, provider string) (bool, error) {
	namespace := corev1beta1.TenantNamespace(provider)
	nodes, err := store.Find[*offloadingv1beta1.VirtualNode](ctx, "VirtualNode", c.Liqo.OffloadingV1beta1().VirtualNodes(namespace), metav1.ListOptions{})
	if err != nil || len(nodes) > 0 {
		return len(nodes) > 0, err
	}
	secrets, err := store.Find[*corev1.Secret](ctx, "secret", c.Kube.CoreV1().Secrets(namespace),
		metav1.ListOptions{LabelSelector: corev1beta1.IdentityTypeLabel + "=" + corev1beta1.IdentityControlPlane})
	return len(secrets) > 0, err
}

// forget deletes the tenant namespace of a peer that neither direction uses, and then its
// ForeignCluster. What its enrolments have left goes first: an earlier process may have been
// killed in Dismiss, and nothing looks for it once the ForeignCluster is gone.
func (c Cluster) forget(ctx context.Context, peer string) (left []string, err error) {
	if err := c.dropEnrolments(ctx, peer); err != nil {
		return nil, err
	}
	name := corev1beta1.TenantNamespace(peer)
	ns, err := store.Live(ctx, "namespace", c.Kube.CoreV1().Namespaces(), name)
	switch {
	case err != nil:
		return nil, err
	case ns == nil:
		return c.dropRecord(ctx, peer)
	case ns.DeletionTimestamp == nil:
		err = store.Delete(ctx, "namespace", c.Kube.CoreV1().Namespaces(), ns)
	}
	return []string{"namespace " + name}, err
}

// dropRecord deletes the ForeignCluster of a peer. One that discovery created stays, with
// its settings: discovery would create it again without them.
func (c Cluster) dropRecord(ctx context.Context, peer string) (left []string, err error) {
	fc, err := c.foreignCluster(ctx, peer)
	if err != nil || fc == nil {
		return nil, err
	}
	if fc.DeletionTimestamp == nil && fc.Labels[corev1beta1.DiscoveredLabel] == "" {
		return []string{"ForeignCluster " + fc.Name}, store.Delete(ctx, "ForeignCluster", c.Liqo.CoreV1beta1().ForeignClusters(), fc)
	}
	return nil, c.release(ctx, fc)
}

// release removes the finalizer of a ForeignCluster. It fails with a conflict if the object
// has changed since it was read.
func (c Cluster) release(ctx context.Context, fc *corev1beta1.ForeignCluster) error {
	_, err := store.SetFinalizer(ctx, c.Liqo.CoreV1beta1().ForeignClusters(), fc, corev1beta1.ForeignClusterFinalizer, false, fieldManager)
	if store.IgnoreGone(err) != nil {
		return fmt.Errorf("releasing ForeignCluster %s: %w", fc.Name, err)
	}
	return nil
}
