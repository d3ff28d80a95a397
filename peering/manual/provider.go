package manual

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
)

// accountPrefix and a number that is new for each enrolment form the name of a consumer's
// ServiceAccount.
const accountPrefix = corev1beta1.PeerAccountPrefix

// tokenPoll is the poll interval while a token is being created.
const tokenPoll = 100 * time.Millisecond

// Credentials are a consumer's credentials in a provider.
type Credentials struct {
	// User is the user name of the credentials.
	User  string
	Token string
	// CA has the authorities of the provider's API server as PEM.
	CA []byte
}

// Admission describes a consumer to its provider.
type Admission struct {
	// Consumer is the consumer's id.
	Consumer string
	// AddressRanges are the CIDRs that the consumer's endpoints may use; nil keeps the
	// existing ones.
	AddressRanges []string
}

// Admit allows a consumer to use this cluster, and returns its credentials. A repeated call
// returns the same credentials. If the rights were revoked in between, it creates new
// credentials and deletes the old ones.
func (c Cluster) Admit(ctx context.Context, a Admission) (Credentials, error) {
	if err := c.check(a.Consumer); err != nil {
		return Credentials{}, err
	}
	namespace, err := link.Tenant(ctx, c.Kube, a.Consumer)
	if err != nil {
		return Credentials{}, err
	}
	account, err := c.account(ctx, a.Consumer, namespace)
	if err != nil {
		return Credentials{}, err
	}
	secret, err := c.token(ctx, namespace, account)
	if err != nil {
		return Credentials{}, err
	}
	out := Credentials{
		User:  corev1beta1.PeerAccountUser(a.Consumer, account),
		Token: string(secret.Data[corev1.ServiceAccountTokenKey]), CA: secret.Data[corev1.ServiceAccountRootCAKey],
	}
	// The record comes last, because it gives the user its rights.
	err = c.edit(ctx, a.Consumer, true, func(fc *corev1beta1.ForeignCluster) {
		fc.Spec.UserName = out.User
		if a.AddressRanges != nil {
			fc.Spec.AddressRanges = a.AddressRanges
		}
	})
	return out, err
}

// account returns the ServiceAccount of a consumer's current enrolment, or creates a new
// one.
func (c Cluster) account(ctx context.Context, consumer, namespace string) (string, error) {
	fc, err := c.foreignCluster(ctx, consumer)
	if err != nil {
		return "", err
	}
	current := ""
	if fc != nil {
		account := strings.TrimPrefix(fc.Spec.UserName, corev1beta1.PeerAccountUser(consumer, ""))
		if _, ours := enrolment(account); fc.Spec.UserName != "" && !ours {
			return "", fmt.Errorf("ForeignCluster %s has spec.userName %q, which this command has not made: empty the field to replace those credentials", fc.Name, fc.Spec.UserName)
		}
		current = account
	}
	list, err := c.Kube.CoreV1().ServiceAccounts(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing the service accounts of namespace %s: %w", namespace, err)
	}
	last := 0
	for i := range list.Items {
		sa := &list.Items[i]
		number, ok := enrolment(sa.Name)
		switch {
		case !ok:
			continue
		case sa.Name == current && sa.DeletionTimestamp == nil:
			return current, nil
		}
		last = max(last, number)
	}
	if number, ok := enrolment(current); ok {
		last = max(last, number)
	}
	if err := c.retire(ctx, namespace); err != nil {
		return "", err
	}
	name := accountPrefix + strconv.Itoa(last+1)
	_, err = c.Kube.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod}},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return "", fmt.Errorf("creating service account %s/%s: %w", namespace, name, err)
	}
	return name, nil
}

// enrolment returns the number in the name of a consumer's ServiceAccount.
func enrolment(name string) (int, bool) {
	number, err := strconv.Atoi(strings.TrimPrefix(name, accountPrefix))
	return number, err == nil && strings.HasPrefix(name, accountPrefix)
}

// retire deletes the ServiceAccounts and tokens of earlier enrolments, if this package or
// the authentication endpoint created them.
func (c Cluster) retire(ctx context.Context, namespace string) error {
	accounts, err := store.Sweep(ctx, "service account", c.Kube.CoreV1().ServiceAccounts(namespace), metav1.ListOptions{}, func(sa *corev1.ServiceAccount) bool {
		return strings.HasPrefix(sa.Name, accountPrefix) && sa.Labels[corev1beta1.MadeByLabel] == corev1beta1.MadeByLiqod
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

// token creates the token Secret of a ServiceAccount, and returns it once Kubernetes has
// filled it. It blocks until then, or until ctx is done.
func (c Cluster) token(ctx context.Context, namespace, account string) (*corev1.Secret, error) {
	secrets := c.Kube.CoreV1().Secrets(namespace)
	_, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: account, Labels: map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod},
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating secret %s/%s: %w", namespace, account, err)
	}
	var have *corev1.Secret
	err = wait.PollUntilContextCancel(ctx, tokenPoll, true, func(ctx context.Context) (bool, error) {
		var err error
		if have, err = secrets.Get(ctx, account, metav1.GetOptions{}); err != nil {
			return false, fmt.Errorf("reading secret %s/%s: %w", namespace, account, err)
		}
		if have.Type != corev1.SecretTypeServiceAccountToken || have.Annotations[corev1.ServiceAccountNameKey] != account {
			return false, fmt.Errorf("secret %s/%s exists and is not the token of service account %s: delete it", namespace, account, account)
		}
		return len(have.Data[corev1.ServiceAccountTokenKey]) > 0, nil
	})
	if wait.Interrupted(err) {
		return nil, fmt.Errorf("secret %s/%s has no token yet: is the kube-controller-manager of the cluster running? %w", namespace, account, err)
	}
	return have, err
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
