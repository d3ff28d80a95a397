package roles

import (
	"k8s.io/client-go/informers"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/reflect/kinds"
)

// newStorage returns the provisioner of the volumes of a virtual node, and the informer factory of
// those that it has provisioned.
func (v *vkubelet) newStorage(node kinds.OfNode, provider clients) (*kinds.Claims, informers.SharedInformerFactory) {
	workers := v.env.Config.Reflection.PersistentVolumeClaim.Workers
	if workers == 0 {
		v.env.Log.Info("volumes are not provisioned: reflection.persistentvolumeclaim.workers is 0")
	}
	volumes := stripped(v.home.plain.kube, labelled(corev1beta1.RemoteClusterIDLabel+"="+node.Destination))
	return kinds.NewClaims(kinds.ClaimsConfig{
		OfNode: node, Home: v.home.fenced.kube, Remote: provider.kube, Volumes: volumes.Core().V1().PersistentVolumes(), Workers: workers,
	}), volumes
}
