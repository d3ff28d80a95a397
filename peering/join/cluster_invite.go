package join

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/trust"
)

// Invitation is a token of a provider, and what the consumer wants from that provider.
type Invitation struct {
	// Token is the token as "liqod token create" prints it.
	Token string
	// Name is a display name of the provider; empty keeps the existing one.
	Name string
	// Request is the wanted capacity; nil keeps the existing request.
	Request *corev1beta1.CapacityRequest
	// AddressRanges are the CIDRs of this cluster's endpoints, sent to the provider; nil
	// means those of the configuration.
	AddressRanges []string
	// BothWays offers the provider an identity in this cluster in return.
	BothWays bool
}

// Use makes this cluster use the capacity of a peer as soon as the peer gives it an
// identity in return for one here.
func (c Cluster) Use(ctx context.Context, peer string) error {
	if err := c.check(peer); err != nil {
		return err
	}
	return c.edit(ctx, peer, true, func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringYes })
}

// Accept makes the controller enrol in a provider and use its capacity. It writes the
// token's Secret and the provider's ForeignCluster, and returns the provider's id.
func (c Cluster) Accept(ctx context.Context, in Invitation) (provider string, err error) {
	token, err := trust.ParseToken(in.Token)
	if err != nil {
		return "", err
	}
	provider = token.ClusterID
	if err := c.check(provider); err != nil {
		return "", err
	}
	if err := c.keepToken(ctx, provider, in); err != nil {
		return "", err
	}
	return provider, c.edit(ctx, provider, true, func(fc *corev1beta1.ForeignCluster) { in.fill(fc, token) })
}

// fill sets the fields of a provider's ForeignCluster.
func (in Invitation) fill(fc *corev1beta1.ForeignCluster, token trust.Token) {
	fc.Spec.TokenSecretRef = &corev1beta1.SecretReference{Name: trust.TokenName(token.ClusterID)}
	fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringYes
	if in.BothWays {
		fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringYes
	}
	if in.Name != "" {
		fc.Spec.ClusterName = in.Name
	}
	if in.Request != nil {
		fc.Spec.Request = *in.Request
	}
	metav1.SetMetaDataAnnotation(&fc.ObjectMeta, corev1beta1.TokenIDAnnotation, token.ID)
}

// secret returns the Secret of the token of a provider, in the namespace of liqod.
func (in Invitation) secret(namespace, provider string) *corev1.Secret {
	out := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: trust.TokenName(provider), Labels: map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod, corev1beta1.RemoteClusterIDLabel: provider}},
		Data:       map[string][]byte{corev1beta1.TokenSecretKey: []byte(strings.TrimSpace(in.Token))},
	}
	if in.AddressRanges != nil {
		out.Data[corev1beta1.AddressRangesSecretKey] = []byte(strings.Join(in.AddressRanges, ","))
	}
	return out
}

// peerRecord returns a ForeignCluster of a peer.
func peerRecord(peer string) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: peer}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: peer}}
}

// manifestsOf completes objects that people write to files. The data of the Secret is in clear text.
func manifestsOf(secret *corev1.Secret, fc *corev1beta1.ForeignCluster) (*corev1.Secret, *corev1beta1.ForeignCluster, error) {
	secret.TypeMeta = metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Secret"}
	fc.TypeMeta = metav1.TypeMeta{APIVersion: corev1beta1.SchemeGroupVersion.String(), Kind: "ForeignCluster"}
	secret.StringData = map[string]string{}
	for key, value := range secret.Data {
		secret.StringData[key] = string(value)
	}
	secret.Data = nil
	return secret, fc, nil
}

// Objects returns the objects that Accept would write: the token's Secret, in namespace,
// and the provider's ForeignCluster. It sends no requests.
func (in Invitation) Objects(namespace string) (*corev1.Secret, *corev1beta1.ForeignCluster, error) {
	token, err := trust.ParseToken(in.Token)
	if err != nil {
		return nil, nil, err
	}
	fc := peerRecord(token.ClusterID)
	in.fill(fc, token)
	return manifestsOf(in.secret(namespace, token.ClusterID), fc)
}

// Counterpart returns the provider's objects for a consumer with this token. namespace is
// the namespace of liqod in the provider. The Secret has the hash of the token, which only
// this consumer may use, any number of times and without expiration. The ForeignCluster
// allows the consumer to use the provider. Counterpart sends no requests.
func (in Invitation) Counterpart(consumer, namespace string) (*corev1.Secret, *corev1beta1.ForeignCluster, error) {
	token, err := trust.ParseToken(in.Token)
	if err != nil {
		return nil, nil, err
	}
	if err := (Cluster{ID: token.ClusterID}).check(consumer); err != nil {
		return nil, nil, err
	}
	// A token with unlimited uses records none, so the Secret stays as it is written here.
	// A tool that manages it sees no drift.
	secret := trust.NewSecret(namespace, trust.Record{ID: token.ID, Hash: trust.Hash(token.Secret), ClusterID: consumer})
	fc := peerRecord(consumer)
	fc.Spec.ClusterName, fc.Spec.AddressRanges, fc.Spec.IncomingPeeringEnabled = in.Name, in.AddressRanges, corev1beta1.PeeringYes
	return manifestsOf(secret, fc)
}

// keepToken writes the Secret that the provider's ForeignCluster refers to.
func (c Cluster) keepToken(ctx context.Context, provider string, in Invitation) error {
	secrets, name := c.Kube.CoreV1().Secrets(c.Namespace), trust.TokenName(provider)
	have, err := store.Live(ctx, "secret", secrets, name)
	if err != nil {
		return err
	}
	next := in.secret(c.Namespace, provider)
	if have != nil {
		data := next.Data
		next = have.DeepCopy()
		next.Data = map[string][]byte{}
		maps.Copy(next.Data, have.Data)
		maps.Copy(next.Data, data)
	}
	_, err = store.Write(ctx, "secret", secrets, fieldManager, have, next)
	return err
}

// edit changes the ForeignCluster of a peer. It creates a missing one if create is set. It
// retries after conflicts.
func (c Cluster) edit(ctx context.Context, peer string, create bool, change func(*corev1beta1.ForeignCluster)) error {
	records := c.Liqo.CoreV1beta1().ForeignClusters()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		have, err := c.foreignCluster(ctx, peer)
		switch {
		case err != nil:
			return err
		case have == nil && !create:
			return nil
		case have != nil && have.DeletionTimestamp != nil:
			return fmt.Errorf("ForeignCluster %s is being deleted: wait until it is gone", have.Name)
		}
		next := peerRecord(peer)
		if have != nil {
			next = have.DeepCopy()
		}
		change(next)
		_, err = store.Write(ctx, "ForeignCluster", records, fieldManager, have, next)
		return err
	})
}

// stop ends the requests for a provider's capacity, so that deleted objects are not created
// again.
func (c Cluster) stop(ctx context.Context, fc *corev1beta1.ForeignCluster) error {
	if fc == nil || fc.DeletionTimestamp != nil || fc.Spec.OutgoingPeeringEnabled == corev1beta1.PeeringNo {
		return nil
	}
	provider := fc.Spec.ClusterID
	if fc.Spec.OutgoingPeeringEnabled != corev1beta1.PeeringYes {
		asked, err := c.asked(ctx, provider)
		if err != nil || len(asked) == 0 {
			return err
		}
	}
	return c.edit(ctx, provider, false, func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringNo })
}

// asked returns the ResourceRequests to a provider and the ResourceOffers of it.
func (c Cluster) asked(ctx context.Context, provider string) (out []string, err error) {
	namespace := corev1beta1.TenantNamespace(provider)
	requests, err := store.Find[*sharingv1alpha1.ResourceRequest](ctx, "ResourceRequest", c.Liqo.SharingV1alpha1().ResourceRequests(namespace), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, r := range requests {
		if r.Spec.ProviderClusterID == provider {
			out = append(out, "ResourceRequest "+r.Name)
		}
	}
	offers, err := store.Find[*sharingv1alpha1.ResourceOffer](ctx, "ResourceOffer", c.Liqo.SharingV1alpha1().ResourceOffers(namespace), metav1.ListOptions{})
	for _, o := range offers {
		if o.Spec.ProviderClusterID == provider {
			out = append(out, "ResourceOffer "+o.Name)
		}
	}
	slices.Sort(out)
	return out, err
}

// dropTokens deletes the Secrets with tokens of a provider, if liqod created them.
func (c Cluster) dropTokens(ctx context.Context, provider string) error {
	return errors.Join(c.dropMade(ctx, trust.TokenName(provider)), c.dropMade(ctx, trust.ReceivedName(provider)))
}

// dropMade deletes a Secret in the namespace of liqod, if liqod created it.
func (c Cluster) dropMade(ctx context.Context, name string) error {
	if c.Namespace == "" {
		return nil
	}
	secrets := c.Kube.CoreV1().Secrets(c.Namespace)
	secret, err := store.Live(ctx, "secret", secrets, name)
	if err != nil || secret == nil || secret.Labels[corev1beta1.MadeByLabel] != corev1beta1.MadeByLiqod {
		return err
	}
	return store.Delete(ctx, "secret", secrets, secret)
}

// abandon force-deletes the pods on a virtual node without waiting for the provider.
func (c Cluster) abandon(ctx context.Context, node string) error {
	pods, err := store.Find[*corev1.Pod](ctx, "pod", c.Kube.CoreV1().Pods(metav1.NamespaceAll), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	var now int64
	for _, pod := range pods {
		if pod.Spec.NodeName != node {
			continue
		}
		atOnce := func(o *metav1.DeleteOptions) { o.GracePeriodSeconds = &now }
		if err := store.Delete(ctx, "pod", c.Kube.CoreV1().Pods(pod.Namespace), pod, atOnce); err != nil {
			return err
		}
	}
	return err
}
