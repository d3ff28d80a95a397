package timed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

const (
	// liqoClass is the class at home whose volumes are in the provider.
	liqoClass = "liqo"
	// diskClass is what the provider offers. It waits for pods, of which there are none: a
	// claim in the provider never gets a volume, and goes with the one at home whatever
	// happens. One that has a volume is kept where anything is in doubt, and would stand in
	// the way of the next claim of the name.
	diskClass = "disk"
)

// offerStorage has the provider offer its class.
func (w *shaken) offerStorage(t *testing.T) {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: diskClass}, Provisioner: "example.com/disk", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	_, err := w.milan.Client().StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
	body := fmt.Appendf(nil, `{"spec":{"storageClasses":[{"storageClassName":%q}]}}`, diskClass)
	_, err = w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenant).Patch(t.Context(), provider, types.MergePatchType, body, metav1.PatchOptions{FieldManager: user})
	require.NoError(t, err)
}

// claims are as if a pod had been scheduled that uses them. Of a claim without a volume
// nothing can change but its metadata.
func claims() kind {
	return kind{
		name: "persistentvolumeclaim", always: true, lasting: true, manager: reflectionManager, owned: []string{"f:spec"},
		at: func(c kubernetes.Interface, ns string) client {
			return typed[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]{c.CoreV1().PersistentVolumeClaims(ns)}
		},
		make: func(r *rand.Rand) metav1.Object {
			size := resource.MustParse(fmt.Sprintf("%dMi", 1+r.IntN(100)))
			return &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"volume.kubernetes.io/selected-node": provider}},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: new(liqoClass), AccessModes: []corev1.PersistentVolumeAccessMode{one(r, corev1.ReadWriteOnce, corev1.ReadWriteMany)},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
				},
			}
		},
		change: func(r *rand.Rand) string { return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, soft+"a", word(r)) },
		spoil:  fmt.Sprintf(`{"metadata":{"labels":{%q:"spoilt"}}}`, soft+"a"),
		content: func(obj metav1.Object) any {
			s := obj.(*corev1.PersistentVolumeClaim).Spec.DeepCopy()
			s.VolumeName = ""
			if !reflected(obj) {
				s.StorageClassName = new(diskClass)
			}
			return s
		},
	}
}

// volumes compares the claims at home with the volumes that stand for their data.
func (c *checker) volumes(ctx context.Context, k kind, namespace string, b both) ([]string, error) {
	list, err := c.w.home.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: corev1beta1.RemoteClusterIDLabel + "=" + provider})
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range list.Items {
		v := &list.Items[i]
		if of := v.Spec.ClaimRef; of.Namespace == namespace && (b.home[of.Name] == nil || b.home[of.Name].GetUID() != of.UID) {
			out = append(out, fmt.Sprintf("volume %s of %s is left at home", v.Name, key(k, namespace, of.Name)))
		}
	}
	for name, local := range b.home {
		claim := local.(*corev1.PersistentVolumeClaim)
		if _, taken := c.kept.foreign[key(k, namespace, name)]; !taken && claim.Status.Phase != corev1.ClaimBound {
			out = append(out, fmt.Sprintf("%s is %s", key(k, namespace, name), claim.Status.Phase))
		}
	}
	return out, nil
}
