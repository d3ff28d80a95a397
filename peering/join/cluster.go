package join

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/trust"
)

// ErrNotInstalled means that a cluster has no configuration of liqod's chart.
var ErrNotInstalled = errors.New("liqod is not installed in this cluster: there is no ClusterRoleBinding liqod-controller, or no ConfigMap liqod with a clusterID in the namespace that it names; install the chart first")

// Cluster is one of the two clusters, with the rights of an administrator.
type Cluster struct {
	// ID is the id of the cluster. Namespace is the namespace that liqod is installed in.
	ID, Namespace string
	Kube          kubernetes.Interface
	Liqo          versioned.Interface
}

// Controller is the name that the chart gives to all objects of liqod's controller.
const Controller = "liqod-controller"

// Namespace returns the namespace that liqod is installed in: that of the ServiceAccount to which
// ClusterRoleBinding liqod-controller gives rights. Only administrators write this object. Labels
// do not identify liqod: a user with rights in one namespace can set the same labels on objects there.
func Namespace(ctx context.Context, kube kubernetes.Interface) (string, error) {
	binding, err := kube.RbacV1().ClusterRoleBindings().Get(ctx, Controller, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", ErrNotInstalled
	}
	if err != nil {
		return "", fmt.Errorf("looking for the namespace of liqod in ClusterRoleBinding %s: %w", Controller, err)
	}
	if len(binding.Subjects) != 1 || binding.Subjects[0].Namespace == "" {
		return "", fmt.Errorf("ClusterRoleBinding %s does not say in which namespace liqod is: one subject is accepted, the ServiceAccount of its controller, and it has %d", Controller, len(binding.Subjects))
	}
	return binding.Subjects[0].Namespace, nil
}

// Configuration reads the configuration of liqod's chart into settings, and returns the namespace of liqod.
func Configuration(ctx context.Context, kube kubernetes.Interface, settings any) (namespace string, err error) {
	if namespace, err = Namespace(ctx, kube); err != nil {
		return "", err
	}
	cm, err := kube.CoreV1().ConfigMaps(namespace).Get(ctx, "liqod", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", ErrNotInstalled
	}
	if err != nil {
		return "", fmt.Errorf("reading the configuration of liqod: %w", err)
	}
	if err := yaml.Unmarshal([]byte(cm.Data["config.yaml"]), settings); err != nil {
		return "", fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, cm.Name, err)
	}
	return namespace, nil
}

// Installed returns the id of the cluster that kube reaches, and the namespace of liqod.
func Installed(ctx context.Context, kube kubernetes.Interface) (id, namespace string, err error) {
	var config struct {
		ClusterID string `json:"clusterID"`
	}
	namespace, err = Configuration(ctx, kube, &config)
	if err == nil && config.ClusterID == "" {
		err = ErrNotInstalled
	}
	return config.ClusterID, namespace, err
}

const fieldManager = "liqod-enroll"

// check returns an error if peer is not a valid id of another cluster.
func (c Cluster) check(peer string) error {
	if peer == c.ID {
		return fmt.Errorf("both clusters have the id %q: a cluster cannot be a peer of itself, and each needs its own id (discovery.config.clusterID of the chart)", peer)
	}
	return trust.CheckClusterID(peer)
}

// foreignCluster returns the ForeignCluster of a peer, or nil.
func (c Cluster) foreignCluster(ctx context.Context, peer string) (*corev1beta1.ForeignCluster, error) {
	return store.Live(ctx, "ForeignCluster", c.Liqo.CoreV1beta1().ForeignClusters(), peer)
}

// Authority returns the fingerprint of the authority that issues the certificate of a
// cluster's authentication endpoint. namespace is the namespace of liqod.
func Authority(ctx context.Context, kube kubernetes.Interface, namespace string) (string, error) {
	secret, err := kube.CoreV1().Secrets(namespace).Get(ctx, corev1beta1.AuthCertificatesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("secret %s/%s with the certificate of the authentication is missing: is the controller running?", namespace, corev1beta1.AuthCertificatesName)
	}
	if err != nil {
		return "", fmt.Errorf("reading secret %s/%s: %w", namespace, corev1beta1.AuthCertificatesName, err)
	}
	block, _ := pem.Decode(secret.Data[serve.BundleKey])
	if block == nil {
		return "", fmt.Errorf("secret %s/%s has no certificate in %s", namespace, secret.Name, serve.BundleKey)
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("reading secret %s/%s: %w", namespace, secret.Name, err)
	}
	return trust.Fingerprint(ca), nil
}
