package join

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/trust"
)

// Keys of a Secret with an identity. The kubeconfig, in its own key, is derived from them.
const (
	grantKey   = "grant"    // the peer's answer
	keyKey     = "key"      // the private key of the certificate
	nextKey    = "next-key" // the private key of an enrolment in progress
	authURLKey = "authUrl"  // the URL for renewals
	authCAKey  = "authCA"   // authorities of that endpoint as PEM, or the fingerprint of one
)

// Annotations of a Secret with an identity: the time at which it was granted, by this
// cluster's clock, and at that time the digest of the token, and the agreement by which a token was
// sent in return.
const (
	issuedAnnotation = "liqo.io/issued-at"
	tokenAnnotation  = "liqo.io/token-digest"
	agreedAnnotation = "liqo.io/token-sent-for"
)

// identity is this cluster's identity in a peer, as stored in a Secret. Nil means none.
type identity struct {
	secret *corev1.Secret
	// enrolled: this controller created the Secret.
	enrolled bool
	grant    trust.Grant
	key      []byte
	issued   time.Time
	token    string // digest of the token at the time of the grant
	agreed   string // result of agreement at the time of the grant
	// next is the key of an enrolment in progress.
	next            []byte
	authURL, authCA string
	// kubeconfig is set for a result of an enrolment or a renewal, which is not stored yet.
	kubeconfig []byte
}

// given reports whether people provided the credentials.
func (i *identity) given() bool {
	return i != nil && !i.enrolled && len(i.secret.Data[corev1beta1.KubeconfigSecretKey]) > 0
}

// usable reports whether the identity has not expired. The peer may have revoked it
// nevertheless.
func (i *identity) usable(now time.Time) bool {
	return i != nil && i.grant.User != "" && now.Before(i.grant.NotAfter)
}

func (i *identity) ref() string { return i.secret.Namespace + "/" + i.secret.Name }

// parse reads a Secret. Inconsistent content counts as no identity, so that a new one is
// obtained.
func parse(secret *corev1.Secret) *identity {
	i := &identity{
		secret: secret, enrolled: secret.Labels[corev1beta1.EnrolledLabel] == "true", next: secret.Data[nextKey],
		authURL: string(secret.Data[authURLKey]), authCA: string(secret.Data[authCAKey]),
	}
	if !i.enrolled {
		return i
	}
	var grant trust.Grant
	issued, err := time.Parse(time.RFC3339, secret.Annotations[issuedAnnotation])
	if err != nil || json.Unmarshal(secret.Data[grantKey], &grant) != nil {
		return i
	}
	i.grant, i.key, i.issued = grant, secret.Data[keyKey], issued
	i.token, i.agreed = secret.Annotations[tokenAnnotation], secret.Annotations[agreedAnnotation]
	return i
}

// read returns the identity in a peer, or nil. It reads live.
func (j *Join) read(ctx context.Context, id string) (*identity, error) {
	namespace := corev1beta1.TenantNamespace(id)
	secret, err := store.Live(ctx, "secret", j.cfg.Kube.CoreV1().Secrets(namespace), id)
	if err != nil || secret == nil {
		return nil, err
	}
	return parse(secret), nil
}

// other returns credentials for a peer that people provided in a Secret of another name, or
// nil.
func (j *Join) other(ctx context.Context, id string) (*identity, error) {
	namespace := corev1beta1.TenantNamespace(id)
	secrets, err := store.Find[*corev1.Secret](ctx, "secret", j.cfg.Kube.CoreV1().Secrets(namespace),
		metav1.ListOptions{LabelSelector: corev1beta1.IdentityTypeLabel + "=" + corev1beta1.IdentityControlPlane})
	for _, secret := range secrets {
		if i := parse(secret); i.given() {
			return i, nil
		}
	}
	return nil, err
}

// held is the last usable identity in a peer that this process has read, with the UIDs of the
// ForeignCluster that it is about and of the tenant namespace. Standby replicas have none.
type held struct {
	of, in types.UID
	*identity
}

func (j *Join) remember(fc *corev1beta1.ForeignCluster, have *identity) {
	if have == nil || !have.enrolled || !have.usable(j.cfg.Clock.Now()) {
		return
	}
	ns, err := j.cfg.Namespaces.Lister().Get(have.secret.Namespace)
	if err != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held[fc.Spec.ClusterID] = held{fc.UID, ns.UID, have}
}

// lost returns the usable identity in a peer whose Secret went with its tenant namespace, or
// nil. One that somebody has deleted in a namespace that stays is given up.
func (j *Join) lost(fc *corev1beta1.ForeignCluster, have *identity) *identity {
	j.mu.Lock()
	was, ok := j.held[fc.Spec.ClusterID]
	j.mu.Unlock()
	if have != nil || !ok || was.of != fc.UID || !was.usable(j.cfg.Clock.Now()) {
		return nil
	}
	ns, err := j.cfg.Namespaces.Lister().Get(was.secret.Namespace)
	if err != nil || ns.UID == was.in {
		return nil
	}
	return was.identity
}

// restore creates the Secret of an identity again.
func (j *Join) restore(ctx context.Context, fc *corev1beta1.ForeignCluster, was *identity) (standing, error) {
	again := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: was.secret.Name, Labels: was.secret.Labels, Annotations: was.secret.Annotations}, Data: was.secret.Data}
	made, err := store.Write(ctx, "secret", j.cfg.Kube.CoreV1().Secrets(was.secret.Namespace), "", nil, again)
	if err != nil {
		return standing{}, err
	}
	j.cfg.Log.Info("identity kept although the tenant namespace was deleted", zap.String("peer", fc.Spec.ClusterID))
	return j.keep(ctx, fc, parse(made))
}

// begin stores the key of an enrolment before any request is sent. An existing Secret
// without credentials is completed.
func (j *Join) begin(ctx context.Context, id string, have *identity, key []byte) (*identity, error) {
	var before *corev1.Secret
	next := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(id), Name: id}}
	if have != nil {
		before, next = have.secret, have.secret.DeepCopy()
	}
	metav1.SetMetaDataLabel(&next.ObjectMeta, corev1beta1.EnrolledLabel, "true")
	metav1.SetMetaDataLabel(&next.ObjectMeta, corev1beta1.RemoteClusterIDLabel, id)
	setData(next, nextKey, key)
	return j.write(ctx, before, next)
}

// store writes an identity in a single update, which replaces the former one.
func (j *Join) store(ctx context.Context, have *identity, got identity) (*identity, error) {
	text, err := json.Marshal(got.grant)
	if err != nil {
		return nil, fmt.Errorf("encoding a grant: %w", err)
	}
	next := have.secret.DeepCopy()
	// The label puts the credentials into use.
	metav1.SetMetaDataLabel(&next.ObjectMeta, corev1beta1.IdentityTypeLabel, corev1beta1.IdentityControlPlane)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, issuedAnnotation, got.issued.UTC().Format(time.RFC3339))
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, tokenAnnotation, got.token)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, agreedAnnotation, got.agreed)
	delete(next.Data, nextKey)
	for key, value := range map[string][]byte{
		grantKey: text, keyKey: got.key, authURLKey: []byte(got.authURL), authCAKey: []byte(got.authCA), corev1beta1.KubeconfigSecretKey: got.kubeconfig,
	} {
		setData(next, key, value)
	}
	return j.write(ctx, have.secret, next)
}

// keep updates the kubeconfig of a valid identity after a change of spec.apiServer.
func (j *Join) keep(ctx context.Context, fc *corev1beta1.ForeignCluster, have *identity) (standing, error) {
	kubeconfig, err := trust.Kubeconfig(have.grant, have.key, fc.Spec.APIServer)
	if err != nil {
		return standing{}, err
	}
	labels := have.secret.Labels
	if !bytes.Equal(kubeconfig, have.secret.Data[corev1beta1.KubeconfigSecretKey]) || labels[corev1beta1.IdentityTypeLabel] != corev1beta1.IdentityControlPlane {
		next := have.secret.DeepCopy()
		metav1.SetMetaDataLabel(&next.ObjectMeta, corev1beta1.IdentityTypeLabel, corev1beta1.IdentityControlPlane)
		setData(next, corev1beta1.KubeconfigSecretKey, kubeconfig)
		if have, err = j.write(ctx, have.secret, next); err != nil {
			return standing{}, err
		}
	}
	kept := j.good(have, have.renewal(j.cfg.RenewAt))
	if invited(fc) {
		kept.again = min(kept.again, tokenAgain)
	}
	return kept, nil
}

func (j *Join) write(ctx context.Context, have, next *corev1.Secret) (*identity, error) {
	written, err := store.Write(ctx, "secret", j.cfg.Kube.CoreV1().Secrets(next.Namespace), "", have, next)
	if err != nil {
		return nil, err
	}
	return parse(written), nil
}

func setData(secret *corev1.Secret, key string, value []byte) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if len(value) == 0 {
		delete(secret.Data, key)
		return
	}
	secret.Data[key] = value
}
