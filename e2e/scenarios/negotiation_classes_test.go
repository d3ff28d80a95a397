package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// testOfferedClasses: an offer follows the storage classes of the provider, and the default one comes
// first. A claim gets the class and the access modes that its annotations name. A class that the provider
// does not share is refused, and the event names the setting.
func testOfferedClasses(t *testing.T, w *world) {
	within(t, quickly, "the scheduler sees that there is no storage", w.offersClasses())
	for name, provisioner := range map[string]string{"tape": diskProvisioner, "quick": diskProvisioner, "shelf": "kubernetes.io/no-provisioner"} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
		if name != "tape" {
			class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		kubetest.Create(t, w.milan.Client().StorageV1().StorageClasses(), class)
	}
	within(t, 30*time.Second, "the offer has the classes, and the scheduler sees that there is storage", w.offersClasses("quick", "tape"))
	w.offload(t, "classes", offloadingv1beta1.NamespaceOffloadingSpec{})
	claims, there := w.rome.Client().CoreV1().PersistentVolumeClaims("classes"), w.milan.Client().CoreV1().PersistentVolumeClaims("classes-rome")
	made := map[string]*corev1.PersistentVolumeClaim{}
	for name, notes := range map[string]map[string]string{
		"plain":   {},
		"named":   {"liqo.io/remote-storage-class": "tape", "liqo.io/remote-access-modes": "RWX, ROX"},
		"refused": {"liqo.io/remote-storage-class": "shelf"},
	} {
		claim := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
		claim.Name, claim.Annotations = name, notes
		made[name] = kubetest.Create(t, claims, &claim)
		kubetest.Patch(t, claims, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"milan"}}}`))
	}
	template := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	template.Annotations = map[string]string{"liqo.io/remote-storage-class": "tape"}
	kubetest.Create(t, w.rome.Client().CoreV1().Pods("classes"), onVirtualNodes("scratch", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: template.Annotations}, Spec: template.Spec},
	}}))

	w.eventAbout(t, made["refused"], "ProvisioningFailed", "sharing.storageClasses")
	type modes = []corev1.PersistentVolumeAccessMode
	for name, want := range map[string]struct {
		class string
		modes modes
	}{
		"plain": {"quick", modes{corev1.ReadWriteOnce}}, "named": {"tape", modes{corev1.ReadWriteMany, corev1.ReadOnlyMany}},
		"scratch-data": {"tape", modes{corev1.ReadWriteOnce}},
	} {
		within(t, 30*time.Second, name+" is there", lab.Exists(there, name))
		have := kubetest.Get(t, there, name)
		require.Equal(t, want.class, *have.Spec.StorageClassName, name)
		require.Equal(t, want.modes, have.Spec.AccessModes, name)
	}
	require.NoError(t, absent(there.Get(t.Context(), "refused", metav1.GetOptions{})))
	require.NoError(t, w.rome.Client().CoreV1().Namespaces().Delete(t.Context(), "classes", metav1.DeleteOptions{}))
}

// offersClasses looks for the storage classes of an offer in the virtual node. Its Node says whether
// there are any.
func (w *world) offersClasses(want ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		vn, err := w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan).Get(ctx, "milan", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var have []string
		for i, c := range vn.Spec.StorageClasses {
			have = append(have, c.StorageClassName)
			if c.Default != (i == 0) {
				return fmt.Errorf("the default is not the first: %+v", vn.Spec.StorageClasses)
			}
		}
		node, err := w.rome.Client().CoreV1().Nodes().Get(ctx, "milan", metav1.GetOptions{})
		return lab.Wrong(err, fmt.Sprint(have) != fmt.Sprint(want) || (node.Labels[offloadingv1beta1.NoStorageLabel] == "true") != (len(want) == 0),
			"the classes are %v, the labels %v", have, node.Labels)
	}
}
