// Package manual makes and ends peerings as docs/manual-peering.md tells people to, with the
// rights of an administrator: in the cluster that gives capacity (Admit, Dismiss) and in the
// one that uses it (Join or, with a token, Accept; Leave). Whatever is there already and is
// right is left as it is, so each of these may be interrupted anywhere and asked for again.
// Two clusters may use each other: neither direction touches the other's. Ending does the
// same for a ForeignCluster that people delete.
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

// Cluster is one of the two, with an administrator's rights.
type Cluster struct {
	// ID of the cluster among its peers, and the namespace that liqod is installed in.
	ID, Namespace string
	Kube          kubernetes.Interface
	Liqo          versioned.Interface
}

// Installed returns the id of the cluster that kube reaches, and the namespace that liqod
// is in, from the configuration that its chart has written. What a peer has reflected is
// never taken for that, and of several that say so none is: who may write ConfigMaps
// somewhere must not lead people's tokens there.
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
			return "", "", fmt.Errorf("ConfigMaps in the namespaces %s and %s both say that they are the configuration of liqod: take the label app.kubernetes.io/name=liqod from the one that its chart has not made", namespace, cm.Namespace)
		default:
			id, namespace = config.ClusterID, cm.Namespace
		}
	}
	if namespace == "" {
		return "", "", errors.New("liqod is not installed in this cluster: no ConfigMap labelled app.kubernetes.io/name=liqod says its clusterID; install the chart first")
	}
	return id, namespace, nil
}
