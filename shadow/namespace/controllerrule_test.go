package namespace

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	liqofake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const controllerAccount = "system:serviceaccount:liqod:liqod-controller"

// TestBindingsOfTheController: a vkubelet gets rights only where people have offloaded the namespace.
func TestBindingsOfTheController(t *testing.T) {
	t.Parallel()
	liqo := liqofake.NewSimpleClientset(&offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}},
		&offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "other"}})
	rule := ControllerRule{Kube: fake.NewClientset(), Liqo: liqo}
	in := func(namespace string) (bool, error) {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "liqod-vkubelet-namespace:x"}}
		req := written(t, controllerAccount, binding)
		req.Namespace = namespace
		answer, err := rule.DecideBinding(t.Context(), req)
		require.Zero(t, answer.Code)
		return answer.Allowed, err
	}
	for namespace, want := range map[string]bool{"shop": true, "bank": false, "kube-system": false} {
		allowed, err := in(namespace)
		require.NoError(t, err)
		require.Equal(t, want, allowed, namespace)
	}
	liqo.PrependReactor("get", "namespaceoffloadings", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
	allowed, err := in("shop")
	require.ErrorContains(t, err, "down", "unknown is not offloaded")
	require.False(t, allowed)
}

// TestVolumesOfTheController: a claim gets only the data of the volume that a provisioner has made for it.
func TestVolumesOfTheController(t *testing.T) {
	t.Parallel()
	disk := func(handle string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example", VolumeHandle: handle}}
	}
	claim := func(uid, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-storage", Name: uid, UID: "real-uid"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	made := func(name, handle, provisioner, of string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: disk(handle), ClaimRef: &corev1.ObjectReference{UID: "real-uid", Name: of}}}
	}
	loose := made("pvc-loose", "4", "disks.example", "")
	loose.Spec.ClaimRef = nil
	others := made("pvc-others", "5", "disks.example", "")
	others.Spec.ClaimRef.UID = "another"
	class := func(name, provisioner string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	}
	kube := fake.NewClientset(class("liqo", "liqo.io/storage"), class("of-people", "liqo.io/storage"), class("disk", "disks.example"),
		claim("1", "pvc-made"), claim("2", ""), claim("3", "pvc-own"), claim("4", "pvc-loose"), claim("5", "pvc-others"), claim("6", "pvc-gone"),
		made("pvc-made", "1", "disks.example", "1"), made("pvc-own", "3", "liqo.io/storage", "3"), loose, others)
	rule := ControllerRule{Kube: kube, Liqo: liqofake.NewSimpleClientset(), StorageNamespace: "liqo-storage"}
	ask := func(class, uid, handle string) (bool, error) {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + uid, Labels: map[string]string{"offloading.liqo.io/local-claim-uid": uid}},
			Spec: corev1.PersistentVolumeSpec{StorageClassName: class, PersistentVolumeSource: disk(handle)}}
		answer, err := rule.DecideVolume(t.Context(), written(t, controllerAccount, volume))
		require.Zero(t, answer.Code)
		return answer.Allowed, err
	}
	for what, tc := range map[string]struct {
		class, uid, handle string
		want               bool
	}{
		"the volume made for it":             {"liqo", "1", "1", true},
		"of a class of people":               {"of-people", "1", "1", true},
		"a class of another provisioner":     {"disk", "1", "1", false},
		"a class that does not exist":        {"gone", "1", "1", false},
		"no class":                           {"", "1", "1", false},
		"another's disk":                     {"liqo", "1", "9", false},
		"a claim that is not bound":          {"liqo", "2", "2", false},
		"a volume that liqod made itself":    {"liqo", "3", "3", false},
		"a volume of no claim":               {"liqo", "4", "4", false},
		"a volume of a claim with that name": {"liqo", "5", "5", false},
		"a claim whose volume is gone":       {"liqo", "6", "6", false},
		"a claim that does not exist":        {"liqo", "7", "7", false},
		"no label":                           {"liqo", "", "1", false},
	} {
		allowed, err := ask(tc.class, tc.uid, tc.handle)
		require.NoError(t, err, what)
		require.Equal(t, tc.want, allowed, what)
	}
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims", "storageclasses"} {
		kube.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
		allowed, err := ask("liqo", "1", "1")
		require.ErrorContains(t, err, "down", resource)
		require.False(t, allowed, resource)
	}
}
