package manual

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/trust"
)

// retire deletes the ServiceAccounts and tokens of enrolments, if the authentication
// endpoint created them.
func (c Cluster) retire(ctx context.Context, namespace string) error {
	accounts, err := store.Sweep(ctx, "service account", c.Kube.CoreV1().ServiceAccounts(namespace), metav1.ListOptions{}, func(sa *corev1.ServiceAccount) bool {
		return strings.HasPrefix(sa.Name, corev1beta1.PeerAccountPrefix) && sa.Labels[corev1beta1.MadeByLabel] == corev1beta1.MadeByLiqod
	})
	if err != nil {
		return err
	}
	for _, sa := range accounts {
		if err := c.Kube.CoreV1().Secrets(namespace).Delete(ctx, sa.Name, metav1.DeleteOptions{}); store.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the token %s/%s of an earlier enrolment: %w", namespace, sa.Name, err)
		}
	}
	return nil
}

// Dismiss revokes all rights of a consumer at once, and then deletes what was created for
// it, including everything that it has offloaded here. This cluster's own use of the peer
// is not affected. It returns the objects that are still being removed; call it again until
// there are none.
func (c Cluster) Dismiss(ctx context.Context, consumer string) (left []string, err error) {
	if err := c.check(consumer); err != nil {
		return nil, err
	}
	// The invitation comes first: an unused token would allow a new enrolment.
	if err := c.dropMade(ctx, trust.SecretName(trust.BackID(consumer))); err != nil {
		return nil, err
	}
	fc, err := c.foreignCluster(ctx, consumer)
	if err != nil {
		return nil, err
	}
	if fc != nil && fc.DeletionTimestamp == nil && fc.Spec.UserName != "" { // a deletion revokes the rights, too
		if err := c.edit(ctx, consumer, false, func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName, fc.Spec.AddressRanges = "", nil }); err != nil {
			return nil, err
		}
	}
	if err := c.retire(ctx, corev1beta1.TenantNamespace(consumer)); err != nil {
		return nil, err
	}
	if left, err = c.dropCopies(ctx, consumer); err != nil || len(left) > 0 {
		return left, err
	}
	uses, err := c.uses(ctx, consumer)
	if err != nil {
		return nil, err
	}
	if uses {
		return nil, c.dropEnrolments(ctx, consumer)
	}
	return c.forget(ctx, consumer)
}

// dropEnrolments deletes the objects in other namespaces that the enrolments of a consumer
// have left.
func (c Cluster) dropEnrolments(ctx context.Context, consumer string) error {
	if err := c.dropSpent(ctx, consumer); err != nil {
		return err
	}
	return c.dropRequests(ctx, consumer)
}

// dropSpent deletes the Secrets of used-up tokens that only this consumer has used. Tokens
// that people wrote in clear text stay.
func (c Cluster) dropSpent(ctx context.Context, consumer string) error {
	if c.Namespace == "" {
		return nil
	}
	tokens := metav1.ListOptions{FieldSelector: "type=" + corev1beta1.PeeringTokenType}
	_, err := store.Sweep(ctx, "secret", c.Kube.CoreV1().Secrets(c.Namespace), tokens, func(secret *corev1.Secret) bool {
		token, err := trust.ReadSecret(secret)
		_, byHand := secret.Data[trust.TokenKey]
		others := slices.ContainsFunc(token.Redemptions, func(r trust.Redemption) bool { return r.ClusterID != consumer })
		return err == nil && token.UsedUp() && !others && !byHand
	})
	return err
}

// dropRequests deletes certificate requests of a consumer that a killed process left
// behind.
func (c Cluster) dropRequests(ctx context.Context, consumer string) error {
	requests := c.Kube.CertificatesV1().CertificateSigningRequests()
	theirs := metav1.ListOptions{LabelSelector: corev1beta1.MadeByLabel + "=" + corev1beta1.MadeByLiqod + "," + corev1beta1.RemoteClusterIDLabel + "=" + consumer}
	_, err := store.Sweep(ctx, "certificate request", requests, theirs, func(request *certificatesv1.CertificateSigningRequest) bool {
		return strings.HasPrefix(request.Name, corev1beta1.PeerRequestPrefix+consumer+"-")
	})
	return store.IgnoreNotFound(err) // the cluster may have no certificate API
}
