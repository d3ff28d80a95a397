package roles

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/kinds"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/rules"
)

// addStorage adds the provisioner of volumes on the nodes of this cluster, if it is enabled.
func (c *controller) addStorage() {
	cfg := c.env.Config.Storage
	if cfg.StorageNamespace == "" {
		return
	}
	classes := c.own.Storage().V1().StorageClasses()
	c.addLoop("real-claims", kinds.NewRealClaims(kinds.RealClaimsConfig{
		Kube: c.home.fenced.kube, Claims: c.own.Core().V1().PersistentVolumeClaims(), Volumes: c.volumes.Core().V1().PersistentVolumes(),
		Nodes: c.own.Core().V1().Nodes(), Namespace: cfg.StorageNamespace, Classes: classes, Class: realClass(cfg, classes.Lister()),
		Recorder: c.events, Env: c.env.component(),
	}))
}

// realClass returns a function that returns the class of volumes on the nodes of this cluster, or
// the reason why there is none.
func realClass(cfg config.Storage, classes storagelisters.StorageClassLister) func() (name, problem string) {
	return func() (name, problem string) {
		if name = cfg.RealStorageClassName; name == "" {
			name = rules.DefaultStorageClass(store.Listed(classes.List(labels.Everything())))
		}
		if name == "" {
			return "", "this cluster has no default storage class, of which volumes on its own nodes would be: make a class the default one, or name one in storage.realStorageClassName"
		}
		class, err := classes.Get(name)
		switch {
		case err != nil: // a lister returns no other error than NotFound
			return "", fmt.Sprintf("StorageClass %s (storage.realStorageClassName) does not exist", name)
		case class.Provisioner == offloadingv1beta1.StorageProvisioner:
			return "", fmt.Sprintf("StorageClass %s is of liqod itself, and makes no volumes on this cluster's own nodes: name another class in storage.realStorageClassName", name)
		}
		return name, ""
	}
}
