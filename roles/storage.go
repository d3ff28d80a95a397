package roles

import (
	"context"

	"k8s.io/client-go/informers"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/kinds"
)

// storage provisions the volumes of a virtual node. It has the informer factory of the
// volumes that it has provisioned.
type storage struct {
	*kinds.Claims
	volumes informers.SharedInformerFactory
	// off is true if no volumes are provisioned.
	off bool
}

// Run provisions volumes until ctx is done.
func (s *storage) Run(ctx context.Context) error {
	if s.off {
		<-ctx.Done()
		return nil
	}
	return s.Claims.Run(ctx)
}

// provisioner returns nil if no volumes are provisioned.
func (s *storage) provisioner() *kinds.Claims {
	if s.off {
		return nil
	}
	return s.Claims
}

func (v *vkubelet) newStorage(clusterID string, provider clients, check *link.Check, maps externalversions.SharedInformerFactory, offloaded *engine.Follower) (*storage, error) {
	workers := v.env.Config.Reflection.PersistentVolumeClaim.Workers
	if workers == 0 {
		v.env.Log.Info("volumes are not provisioned: reflection.persistentvolumeclaim.workers is 0")
	}
	s := &storage{off: workers == 0, volumes: stripped(v.home.plain.kube, labelled(corev1beta1.RemoteClusterIDLabel+"="+clusterID))}
	var err error
	s.Claims, err = kinds.NewClaims(kinds.ClaimsConfig{
		Home: v.home.fenced.kube, Remote: provider.kube, Volumes: s.volumes.Core().V1().PersistentVolumes(),
		Namespaces: offloaded, VirtualNodes: maps.Offloading().V1beta1().VirtualNodes(),
		TenantNamespace: v.namespace, Node: v.name, Origin: v.env.Config.ClusterID, Destination: clusterID,
		SkipLabels: v.env.Config.Reflection.SkipLabels, SkipAnnotations: v.env.Config.Reflection.SkipAnnotations,
		Gate: check.Gate, Verify: check.Verify, Transform: client.StripManagedFields,
		Recorder: v.events, Clock: v.env.Clock, Log: v.env.Log, Observer: v.env.Observer, Workers: workers,
	})
	return s, err
}
