package auth

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/reasons"
)

const (
	fieldManager = "liqod-auth"

	poll = 100 * time.Millisecond
	// signingTimeout is how long the cluster may take to sign a certificate.
	signingTimeout = 10 * time.Second
	// rightsTimeout is how long the controller may take to bind its rights in a new tenant
	// namespace.
	rightsTimeout = 10 * time.Second
	// tidyTimeout limits the cleanup after a request, which runs even if the client is
	// gone.
	tidyTimeout = 10 * time.Second
	// caFresh is how long the authorities of client certificates are cached, and caFailed
	// how long the error of reading them is: any client causes such a read.
	caFresh  = 10 * time.Second
	caFailed = time.Second
)

// ClusterConfig is the input of NewCluster. All fields are required unless their comment says
// otherwise.
type ClusterConfig struct {
	// Namespace is the namespace of liqod.
	Namespace string
	// Kube and Liqo are clients whose writes do not depend on a Lease, because every
	// replica serves.
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// APIServerURL is the URL of the API server for peers. If it is empty, the URL comes
	// from the ConfigMap kube-public/cluster-info, or else from Host, the URL that this
	// process uses.
	APIServerURL, Host string
	// Ranges are those of this cluster that its settings name; empty: none.
	Ranges []netip.Prefix
	Events record.EventRecorder
	Clock  clock.PassiveClock
	Log    *zap.Logger
}

// Cluster reads and writes what an Endpoint needs in an API server. It uses no caches, because
// its reads decide on rights.
type Cluster struct {
	cfg ClusterConfig

	mu sync.Mutex
	// roots and failure are the result of the last read of the authorities of client
	// certificates. They hold until fresh.
	roots   *x509.CertPool
	failure error
	fresh   time.Time
}

// NewCluster returns a Cluster. It sends no requests.
func NewCluster(cfg ClusterConfig) *Cluster { return &Cluster{cfg: cfg} }

// UID implements Home.
func (k *Cluster) UID(ctx context.Context) (string, error) {
	ns, err := k.cfg.Kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}

// Namespaces implements Home.
func (k *Cluster) Namespaces(ctx context.Context) (names []string, err error) {
	list, err := store.Find[*corev1.Namespace](ctx, "namespace", k.cfg.Kube.CoreV1().Namespaces(), metav1.ListOptions{LabelSelector: "!" + corev1beta1.RemoteClusterIDLabel})
	for _, ns := range list {
		twin := ns.Annotations[offloadingv1beta1.ManagedByNamespaceMapAnnotation] != "" || ns.Annotations[offloadingv1beta1.ConsumerUIDAnnotation] != ""
		if !twin && !strings.HasPrefix(ns.Name, corev1beta1.TenantNamespacePrefix) {
			names = append(names, ns.Name)
		}
	}
	return names, err
}

// Token implements Home.
func (k *Cluster) Token(ctx context.Context, id string) (*corev1.Secret, error) {
	secret, err := store.Live(ctx, "secret", k.cfg.Kube.CoreV1().Secrets(k.cfg.Namespace), trust.SecretName(id))
	if secret == nil || secret.DeletionTimestamp != nil {
		return nil, err // revoked
	}
	return secret, nil
}

// SaveToken implements Home.
func (k *Cluster) SaveToken(ctx context.Context, have, next *corev1.Secret) error {
	_, err := store.Write(ctx, "secret", k.cfg.Kube.CoreV1().Secrets(k.cfg.Namespace), fieldManager, have, next)
	return err
}

// Peers implements Home.
func (k *Cluster) Peers(ctx context.Context) ([]*corev1beta1.ForeignCluster, error) {
	return store.Find[*corev1beta1.ForeignCluster](ctx, "ForeignCluster", k.cfg.Liqo.CoreV1beta1().ForeignClusters(), metav1.ListOptions{})
}

// SavePeer implements Home.
func (k *Cluster) SavePeer(ctx context.Context, have, next *corev1beta1.ForeignCluster) error {
	_, err := store.Write(ctx, "ForeignCluster", k.cfg.Liqo.CoreV1beta1().ForeignClusters(), fieldManager, have, next)
	return err
}

// Tenant implements Home.
func (k *Cluster) Tenant(ctx context.Context, clusterID string) error {
	return link.Tenant(ctx, k.cfg.Kube, clusterID)
}

// Sign implements Home. It approves only the certificate request that it has created
// itself.
func (k *Cluster) Sign(ctx context.Context, clusterID string, csr trust.CSR, lifetime time.Duration) (string, error) {
	request, err := k.request(ctx, clusterID, csr, lifetime)
	if err != nil {
		return "", notSigned(fmt.Errorf("creating a certificate request: %w", err))
	}
	defer k.dropRequest(ctx, request)
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reasons.Peer, Message: "the request comes from a peer with a valid token or identity",
	})
	_, err = k.cfg.Kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsNotFound(err): // another replica has replaced it, for the same peer
		return "", fmt.Errorf("approving a certificate request: %w", err)
	case err != nil:
		return "", notSigned(fmt.Errorf("approving a certificate request: %w", err))
	}
	return k.certificate(ctx, request)
}

// request creates the certificate request of a key. It replaces a request that an earlier
// process left behind, as its certificate may be old.
func (k *Cluster) request(ctx context.Context, clusterID string, csr trust.CSR, lifetime time.Duration) (*certificatesv1.CertificateSigningRequest, error) {
	seconds := int32(lifetime.Seconds())
	want := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name:   corev1beta1.PeerRequestPrefix + clusterID + "-" + csr.Serial,
			Labels: map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod, corev1beta1.RemoteClusterIDLabel: clusterID},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr.PEM, SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: &seconds,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	requests := k.cfg.Kube.CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	left, err := requests.Get(ctx, want.Name, metav1.GetOptions{})
	if err == nil {
		err = requests.Delete(ctx, left.Name, store.DeleteUID(left))
	}
	if store.IgnoreGone(err) != nil {
		return nil, err
	}
	return requests.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
}

// notSigned wraps the errors that mean that the cluster does not support such requests in
// ErrNotSigned. It returns other errors unchanged.
func notSigned(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsMethodNotSupported(err) {
		return fmt.Errorf("%w: %w", ErrNotSigned, err)
	}
	return err
}

// certificate waits for the certificate of a request.
func (k *Cluster) certificate(ctx context.Context, request *certificatesv1.CertificateSigningRequest) (chain string, err error) {
	waiting, cancel := context.WithTimeout(ctx, signingTimeout)
	defer cancel()
	requests := k.cfg.Kube.CertificatesV1().CertificateSigningRequests()
	err = wait.PollUntilContextCancel(waiting, poll, true, func(ctx context.Context) (bool, error) {
		have, err := requests.Get(ctx, request.Name, metav1.GetOptions{})
		if err == nil && have.UID != request.UID {
			err = errors.New("another request has taken its place")
		}
		if err != nil {
			return false, fmt.Errorf("reading certificate request %s: %w", request.Name, err)
		}
		for _, c := range have.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return false, fmt.Errorf("%w: %s: %s", ErrNotSigned, c.Type, c.Message)
			}
		}
		chain = string(have.Status.Certificate)
		return chain != "", nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return "", fmt.Errorf("%w within %s", ErrNotSigned, signingTimeout)
	}
	return chain, err
}

// dropRequest deletes a request that is complete or given up. If that fails, Kubernetes
// deletes the request within hours, and the end of the peering does so, too.
func (k *Cluster) dropRequest(ctx context.Context, request *certificatesv1.CertificateSigningRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if err := store.Delete(ctx, "certificate request", k.cfg.Kube.CertificatesV1().CertificateSigningRequests(), request); err != nil {
		k.cfg.Log.Warn("a certificate request is left", zap.String("name", request.Name), zap.Error(err))
	}
}

// AccountToken implements Home. It retries while its rights in a new tenant namespace
// are still being bound.
func (k *Cluster) AccountToken(ctx context.Context, clusterID, account string, lifetime time.Duration) (token string, end time.Time, err error) {
	namespace := corev1beta1.TenantNamespace(clusterID)
	accounts := k.cfg.Kube.CoreV1().ServiceAccounts(namespace)
	waiting, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	var last error
	err = wait.PollUntilContextCancel(waiting, poll, true, func(ctx context.Context) (bool, error) {
		_, last = accounts.Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: account, Labels: map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod}},
		}, metav1.CreateOptions{FieldManager: fieldManager})
		if last != nil && !apierrors.IsAlreadyExists(last) {
			return false, unlessForbidden(last)
		}
		seconds := int64(lifetime.Seconds())
		answer, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
		}, metav1.CreateOptions{FieldManager: fieldManager})
		if last = err; err != nil {
			return false, unlessForbidden(err)
		}
		token, end = answer.Status.Token, answer.Status.ExpirationTimestamp.Time
		return true, nil
	})
	if wait.Interrupted(err) && last != nil {
		err = last
	}
	if err != nil {
		return "", end, fmt.Errorf("making a token of service account %s/%s: %w", namespace, account, err)
	}
	return token, end, nil
}

func unlessForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// Retire implements Home.
func (k *Cluster) Retire(ctx context.Context, clusterID, account string) error {
	return link.Retire(ctx, k.cfg.Kube, clusterID, account)
}

// Authenticate implements Home.
func (k *Cluster) Authenticate(ctx context.Context, token string) (string, error) {
	review, err := k.cfg.Kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return "", fmt.Errorf("reviewing a token: %w", err)
	}
	if !review.Status.Authenticated {
		return "", nil
	}
	return review.Status.User.Username, nil
}

// ClientCAs implements Home.
func (k *Cluster) ClientCAs(ctx context.Context) (*x509.CertPool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.cfg.Clock.Now()
	if now.Before(k.fresh) {
		return k.roots, k.failure
	}
	pool, err := k.clientCAs(ctx)
	switch {
	case err == nil:
		k.fresh = now.Add(caFresh)
	case ctx.Err() != nil: // the client is gone, and the read was cut off
		return nil, err
	default:
		k.fresh = k.cfg.Clock.Now().Add(caFailed)
	}
	k.roots, k.failure = pool, err
	return pool, err
}

func (k *Cluster) clientCAs(ctx context.Context) (*x509.CertPool, error) {
	const name, key = "extension-apiserver-authentication", "client-ca-file"
	cm, err := k.cfg.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the authorities for client certificates of the API server: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(cm.Data[key])) {
		return nil, fmt.Errorf("ConfigMap %s/%s has no certificates in %s: the API server accepts no client certificates", metav1.NamespaceSystem, name, key)
	}
	return pool, nil
}

// APIServer implements Home.
func (k *Cluster) APIServer(ctx context.Context) (url, ca string, err error) {
	const rootCA = "kube-root-ca.crt"
	cm, err := k.cfg.Kube.CoreV1().ConfigMaps(k.cfg.Namespace).Get(ctx, rootCA, metav1.GetOptions{})
	if err != nil {
		return "", "", fmt.Errorf("reading the certificate of the API server: %w", err)
	}
	if url = k.cfg.APIServerURL; url != "" {
		return url, cm.Data["ca.crt"], nil
	}
	url, err = k.clusterInfo(ctx)
	return cmp.Or(url, k.cfg.Host), cm.Data["ca.crt"], err
}

// clusterInfo returns the API server's URL in the ConfigMap that kubeadm creates, or "" if
// there is none.
func (k *Cluster) clusterInfo(ctx context.Context) (string, error) {
	cm, err := k.cfg.Kube.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, "cluster-info", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading how the API server is reached: %w", err)
	}
	config, err := clientcmd.Load([]byte(cm.Data["kubeconfig"]))
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig of ConfigMap %s/cluster-info: %w", metav1.NamespacePublic, err)
	}
	for _, cluster := range config.Clusters {
		if trust.CheckURL(cluster.Server) == nil {
			return cluster.Server, nil
		}
	}
	return "", nil
}

// KeepBack implements Home. The peer's record owns the Secret.
func (k *Cluster) KeepBack(ctx context.Context, fc *corev1beta1.ForeignCluster, token string) error {
	secrets, name := k.cfg.Kube.CoreV1().Secrets(k.cfg.Namespace), trust.ReceivedName(fc.Spec.ClusterID)
	next := receivedSecret(name, fc, token)
	have, err := store.Live(ctx, "secret", secrets, name)
	if err != nil {
		return err
	}
	if have != nil {
		kept := string(have.Data[corev1beta1.TokenSecretKey])
		if have.Type != corev1beta1.BackTokenType || have.Annotations[corev1beta1.SentTokenAnnotation] != trust.Hash(kept) {
			return fmt.Errorf("secret %s/%s: %w", k.cfg.Namespace, name, ErrWritten)
		}
		if kept == token && equality.Semantic.DeepEqual(have.OwnerReferences, next.OwnerReferences) {
			return nil
		}
		next.ResourceVersion = have.ResourceVersion
	}
	_, err = store.Write(ctx, "secret", secrets, fieldManager, have, next)
	return err
}

func receivedSecret(name string, fc *corev1beta1.ForeignCluster, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod, corev1beta1.RemoteClusterIDLabel: fc.Spec.ClusterID},
			Annotations:     map[string]string{corev1beta1.SentTokenAnnotation: trust.Hash(token)},
			OwnerReferences: []metav1.OwnerReference{link.OwnedBy(fc)},
		},
		Type: corev1beta1.BackTokenType, Data: map[string][]byte{corev1beta1.TokenSecretKey: []byte(token)},
	}
}

// Told implements Home.
func (k *Cluster) Told(about runtime.Object, reason, message string) {
	k.cfg.Events.Event(about, corev1.EventTypeWarning, reason, message)
}
