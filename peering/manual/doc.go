// Package manual creates and ends peerings with the rights of an administrator: Accept, with
// a token, and Leave in the consumer, Dismiss in the provider. All of these are idempotent,
// so a call that was interrupted can be repeated. Two clusters may use each other; the
// functions for one direction do not affect the other. Ending ends the peering of a
// ForeignCluster that a user deletes.
package manual

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
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
