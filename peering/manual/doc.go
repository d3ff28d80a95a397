// Package manual creates and ends peerings with the rights of an administrator. It writes
// the objects that docs/manual-peering.md describes: Admit and Dismiss in the provider;
// Join or, with a token, Accept, and Leave in the consumer. All of these are idempotent, so
// a call that was interrupted can be repeated. Two clusters may use each other; the
// functions for one direction do not affect the other. Ending ends the peering of a
// ForeignCluster that a user deletes.
package manual

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// ErrNotInstalled means that a cluster has no ConfigMap of liqod's chart.
var ErrNotInstalled = errors.New("liqod is not installed in this cluster: no ConfigMap labelled app.kubernetes.io/name=liqod contains a clusterID; install the chart first")

// Cluster is one of the two clusters, with the rights of an administrator.
type Cluster struct {
	// ID is the id of the cluster. Namespace is the namespace that liqod is installed in.
	ID, Namespace string
	Kube          kubernetes.Interface
	Liqo          versioned.Interface
}

// Installed returns the id of the cluster that core reaches, and the namespace of liqod,
// from the ConfigMap of liqod's chart. It ignores ConfigMaps that a peer has reflected. It
// returns an error if more than one ConfigMap qualifies: a user who may write ConfigMaps in
// some namespace must not be able to redirect the tokens of administrators there.
func Installed(ctx context.Context, kube kubernetes.Interface) (id, namespace string, err error) {
	list, err := kube.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=liqod"})
	if err != nil {
		return "", "", fmt.Errorf("looking for the configuration of liqod: %w", err)
	}
	for i := range list.Items {
		cm := &list.Items[i]
		if _, reflected := cm.Labels[offloadingv1beta1.OriginLabel]; reflected {
			continue
		}
		var config struct {
			ClusterID string `json:"clusterID"`
		}
		if err := yaml.Unmarshal([]byte(cm.Data["config.yaml"]), &config); err != nil {
			return "", "", fmt.Errorf("reading ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
		}
		switch {
		case config.ClusterID == "":
		case namespace != "":
			return "", "", fmt.Errorf("ConfigMaps in the namespaces %s and %s are both labelled as the configuration of liqod: remove the label app.kubernetes.io/name=liqod from the one that does not belong to the chart", namespace, cm.Namespace)
		default:
			id, namespace = config.ClusterID, cm.Namespace
		}
	}
	if namespace == "" {
		return "", "", ErrNotInstalled
	}
	return id, namespace, nil
}
