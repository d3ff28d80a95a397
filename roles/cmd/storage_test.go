package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// storage list shows what its user may read, and names the rest.
func TestStorageList(t *testing.T) {
	t.Parallel()
	c, class := newCluster(), "liqo"
	c.add(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "liqo.io/storage"},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": "liqo.io/storage"}}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}})
	c.forbid("list", "persistentvolumes")
	out := c.ran(t, "storage", "list")
	require.Contains(t, out, "waiting for its first pod\n")
	require.Contains(t, out, "No right to read PersistentVolumes.\n")
	out = c.ran(t, "storage", "ls", "-o", "json")
	require.Contains(t, out, `"phase": "waiting"`)
	require.Empty(t, c.writes())

	c.core.PrependReactor("list", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		_, _, err := forbidden(action)
		return action.GetNamespace() == "", nil, err
	})
	_, err := c.run(t, "storage", "list")
	require.EqualError(t, err, "no right to read PersistentVolumeClaims and PersistentVolumes; -n NAMESPACE reads one namespace")
	require.Equal(t, ExitUnknown, code(err))

	// The administrator of a namespace gets what it has.
	c.forbid("list", "storageclasses", "namespaces", "namespacemaps")
	out = c.ran(t, "storage", "list", "-n", "shop")
	require.Contains(t, out, "data")
	out = c.ran(t, "storage", "list", "-n", "other")
	require.NotContains(t, out, "data")
}
