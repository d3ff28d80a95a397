package link

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

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
	body, err := store.EncodePatch(store.Patch{"metadata": store.Patch{"labels": labels}}, have)
	if err != nil {
		return err
	}
	if _, err := kube.CoreV1().Namespaces().Patch(ctx, have.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: tenantManager}); err != nil {
		return fmt.Errorf("labelling namespace %s: %w", have.Name, err)
	}
	return nil
}

// OwnedBy returns an owner reference, so that an object is deleted with the ForeignCluster
// of a peer.
func OwnedBy(fc *corev1beta1.ForeignCluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: corev1beta1.SchemeGroupVersion.String(), Kind: "ForeignCluster", Name: fc.Name, UID: fc.UID}
}
