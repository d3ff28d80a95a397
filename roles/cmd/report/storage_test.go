package report

import (
	"cmp"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func claimOf(namespace, name, uid string, change ...func(*corev1.PersistentVolumeClaim)) corev1.PersistentVolumeClaim {
	class := "liqo"
	c := corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: "pvc-" + uid,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func unbound(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeName, c.Status.Phase = "", corev1.ClaimPending
}

// realOf is the real claim of the claim shop/data.
func realOf(uid string) corev1.PersistentVolumeClaim {
	return claimOf("liqo-storage", uid, "real-"+uid, func(c *corev1.PersistentVolumeClaim) {
		*c.Spec.StorageClassName = "fast"
		c.Labels["offloading.liqo.io/local-claim-uid"] = uid
		c.Annotations["offloading.liqo.io/local-claim"] = "shop/data"
	})
}

// volumeFor is the PersistentVolume of the claim shop/data; peer is empty if the data is in this cluster.
func volumeFor(uid, peer string, change ...func(*corev1.PersistentVolume)) corev1.PersistentVolume {
	v := corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + uid, Labels: map[string]string{}, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "liqo.io/storage"}},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: types.UID(uid)}},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
	if peer != "" {
		v.Labels["liqo.io/remote-cluster-id"] = peer
	} else {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}}}}
	}
	for _, f := range change {
		f(&v)
	}
	return v
}

func keptFor(v *corev1.PersistentVolume) {
	v.Annotations[offloadingv1beta1.DataKeptAnnotation] = "namespace shop was deleted"
}

func notMade(v *corev1.PersistentVolume) {
	v.Annotations[offloadingv1beta1.NoVolumeAnnotation] = "true"
}

func retaining(v *corev1.PersistentVolume) {
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

func twinCalled(twin string) []offloadingv1beta1.NamespaceMap {
	return []offloadingv1beta1.NamespaceMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{"shop": {RemoteNamespace: twin}}}}}
}

// Every row of "When data is deleted" of docs/storage.md has its phase and true commands.
func TestListStorage(t *testing.T) {
	reflected := func(c *corev1.PersistentVolumeClaim) {
		*c.Spec.StorageClassName = "fast"
		c.Labels[offloadingv1beta1.OriginLabel] = "rome"
	}
	twin := func(why string) []corev1.Namespace {
		ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome", Annotations: map[string]string{
			offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/milan", offloadingv1beta1.OriginalNameAnnotation: "shop"}}}
		if why != "" {
			ns.Annotations[offloadingv1beta1.DataKeptAnnotation] = why
		}
		return []corev1.Namespace{ns}
	}
	claims := func(list ...corev1.PersistentVolumeClaim) []corev1.PersistentVolumeClaim { return list }
	type volumes = []corev1.PersistentVolume
	const adopt = "Offload namespace shop to cluster milan, create PersistentVolumeClaim shop/data if it is gone, and let its first pod run there:\n" +
		"kubectl -n shop annotate pvc data liqo.io/adopt-remote-volume=true\n" +
		"The namespace that had the data is gone: once there is one of its name, this shows what lets it have the data:\nliqod storage list"
	const listThere = "In cluster milan, this shows what is kept there, with the commands:\nliqod storage list"
	const taken = "PersistentVolumeClaim shop/data has PersistentVolume pvc-u2 now: only a claim of this name without a volume can get this data."
	for name, tc := range map[string]struct {
		is   Snapshot
		want []StoredVolume
	}{
		"nothing":           {},
		"of another class":  {is: Snapshot{Claims: claims(claimOf("shop", "data", "u1", func(c *corev1.PersistentVolumeClaim) { *c.Spec.StorageClassName = "fast" }))}},
		"for its first pod": {Snapshot{Claims: claims(claimOf("shop", "data", "u1", unbound))}, []StoredVolume{{Where: "-", Phase: "waiting", Why: "for its first pod"}}},
		"for a node": {Snapshot{Claims: claims(claimOf("shop", "data", "u1", unbound, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations["volume.kubernetes.io/selected-node"] = "milan"
		}))}, []StoredVolume{{Where: "-", Phase: "waiting", Why: "for its volume on node milan"}}},
		"bound there": {Snapshot{Claims: claims(claimOf("shop", "data", "u1")), Volumes: volumes{volumeFor("u1", "milan")}, Maps: twinCalled("shop-rome")},
			[]StoredVolume{{Where: "cluster milan, namespace shop-rome", Phase: "bound"}}},
		"a name of the peer's invention": {Snapshot{Claims: claims(claimOf("shop", "data", "u1")), Volumes: volumes{volumeFor("u1", "milan")}, Maps: twinCalled("x; reboot")},
			[]StoredVolume{{Where: "cluster milan", Phase: "bound"}}},
		"bound here": {Snapshot{Claims: claims(claimOf("shop", "data", "u1"), realOf("u1")), Volumes: volumes{volumeFor("u1", "")}},
			[]StoredVolume{{Where: "this cluster, node n1", Phase: "bound"}}},
		"its volume is gone": {Snapshot{Claims: claims(claimOf("shop", "data", "u1", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }))},
			[]StoredVolume{{Where: "unknown", Phase: "lost", Why: "PersistentVolume pvc-u1 is gone"}}},
		"kept there": {Snapshot{Volumes: volumes{volumeFor("u1", "milan", keptFor)}, Maps: twinCalled("shop-rome")},
			[]StoredVolume{{Where: "cluster milan, namespace shop-rome", Phase: "kept", Why: "namespace shop was deleted", Get: adopt,
				Delete: "In cluster milan:\nkubectl -n shop-rome delete pvc -l offloading.liqo.io/local-claim-uid=u1\nThen here:\nkubectl delete pv pvc-u1"}}},
		"a claim of the peer's invention": {Snapshot{Volumes: volumes{volumeFor("u1", "milan", keptFor, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Name = "x; reboot" })}},
			[]StoredVolume{{Claim: "x; reboot", Where: "cluster milan", Phase: "kept", Why: "namespace shop was deleted", Delete: listThere + "\nThen here:\nkubectl delete pv pvc-u1"}}},
		"a namespace of its invention": {Snapshot{Volumes: volumes{volumeFor("u1", "milan", keptFor, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace = "--all" })}},
			[]StoredVolume{{Namespace: "--all", Where: "cluster milan", Phase: "kept", Why: "namespace shop was deleted", Delete: listThere + "\nThen here:\nkubectl delete pv pvc-u1"}}},
		"retained there, no longer offloaded": {Snapshot{Volumes: volumes{volumeFor("u1", "milan", retaining)}},
			[]StoredVolume{{Where: "cluster milan", Phase: "kept", Why: "its claim is gone, and the reclaim policy of PersistentVolume pvc-u1 is Retain", Get: adopt,
				Delete: listThere + "\nThen here:\nkubectl delete pv pvc-u1"}}},
		"not made there yet": {Snapshot{Claims: claims(claimOf("shop", "data", "u1")), Volumes: volumes{volumeFor("u1", "milan", notMade)}},
			[]StoredVolume{{Where: "cluster milan", Phase: "waiting", Why: "for its volume in cluster milan"}}},
		"never made there": {Snapshot{Volumes: volumes{volumeFor("u1", "milan", retaining, notMade)}},
			[]StoredVolume{{Where: "cluster milan", Phase: "empty", Why: "its claim is gone, and cluster milan had made no volume for it when this cluster last saw it",
				Delete: "In cluster milan, this shows if it has made one since:\nliqod storage list\nThen here, where this PersistentVolume contains no data:\nkubectl delete pv pvc-u1"}}},
		"a later claim has the data, or its own there": {Snapshot{Claims: claims(claimOf("shop", "data", "u2")), Volumes: volumes{volumeFor("u1", "milan", keptFor), volumeFor("u2", "milan")}, Maps: twinCalled("shop-rome")},
			[]StoredVolume{{Where: "cluster milan, namespace shop-rome", Phase: "bound"},
				{Where: "cluster milan, namespace shop-rome", Phase: "kept", Why: "namespace shop was deleted", Get: taken + "\nIf it was given this data, nothing else is kept.",
					Delete: listThere + "\nThen here, where this PersistentVolume contains no data:\nkubectl delete pv pvc-u1"}}},
		"a later claim has its data here": {Snapshot{Claims: claims(claimOf("shop", "data", "u2")), Volumes: volumes{volumeFor("u1", "milan", keptFor), volumeFor("u2", "")}},
			[]StoredVolume{{Where: "this cluster, node n1", Phase: "bound"},
				{Where: "cluster milan", Phase: "kept", Why: "namespace shop was deleted", Get: taken, Delete: listThere + "\nThen here:\nkubectl delete pv pvc-u1"}}},
		"to be deleted there": {Snapshot{Volumes: volumes{volumeFor("u1", "milan")}},
			[]StoredVolume{{Where: "cluster milan", Phase: "deleting", Why: "its claim is gone: it is deleted once namespace shop is offloaded and cluster milan reachable, or kept if the namespace is gone"}}},
		"to be deleted here": {Snapshot{Claims: claims(realOf("u1")), Volumes: volumes{volumeFor("u1", "")}},
			[]StoredVolume{{Where: "this cluster, node n1", Phase: "deleting", Why: "its claim is gone: it is deleted, or kept if the namespace is gone"}}},
		"kept here": {Snapshot{Claims: claims(realOf("u1")), Volumes: volumes{volumeFor("u1", "", keptFor)}},
			[]StoredVolume{{Where: "this cluster, node n1, PersistentVolumeClaim liqo-storage/u1", Phase: "kept", Why: "namespace shop was deleted",
				Get: "A claim that is bound again to PersistentVolume pvc-u1 has the data.", Delete: "kubectl -n liqo-storage delete pvc u1\nkubectl delete pv pvc-u1"}}},
		"kept here, for a claim to come": {Snapshot{Claims: claims(realOf("u1")), Volumes: volumes{volumeFor("u1", "", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.UID, v.Status.Phase = "", corev1.VolumeAvailable
		})}},
			[]StoredVolume{{Where: "this cluster, node n1, PersistentVolumeClaim liqo-storage/u1", Phase: "kept", Why: "PersistentVolume pvc-u1 waits for a claim",
				Get: "A claim that is bound again to PersistentVolume pvc-u1 has the data.", Delete: "kubectl -n liqo-storage delete pvc u1\nkubectl delete pv pvc-u1"}}},
		"kept here once": {Snapshot{Volumes: volumes{volumeFor("u1", "", keptFor)}},
			[]StoredVolume{{Where: "this cluster, node n1", Phase: "kept", Why: "namespace shop was deleted; the real claim u1 is gone", Delete: "kubectl delete pv pvc-u1"}}},
		"a real claim alone": {Snapshot{Claims: claims(realOf("u1"))},
			[]StoredVolume{{Where: "this cluster, PersistentVolumeClaim liqo-storage/u1", Phase: "kept", Why: "its claim and PersistentVolume pvc-u1 are gone", Delete: "kubectl -n liqo-storage delete pvc u1"}}},
		"claims may not be read": {Snapshot{Volumes: volumes{volumeFor("u1", "milan", keptFor)}, Unread: map[string]error{ReadStoredClaims: errors.New("forbidden")}},
			[]StoredVolume{{Where: "cluster milan", Phase: "kept", Why: "namespace shop was deleted"}}},
		"a peer's": {Snapshot{Claims: claims(claimOf("shop-rome", "data", "u1", reflected), claimOf("shop-rome", "data", "u2", func(c *corev1.PersistentVolumeClaim) { *c.Spec.StorageClassName = "fast" })), Namespaces: twin("")},
			[]StoredVolume{{Owner: "rome", Where: "this cluster, namespace shop-rome", Phase: "bound"}}},
		"kept for a peer": {Snapshot{Claims: claims(claimOf("shop-rome", "data", "u1", reflected)), Namespaces: twin("no longer asked for")},
			[]StoredVolume{{Owner: "rome", Where: "this cluster, namespace shop-rome", Phase: "kept", Why: "no longer asked for",
				Get:    "Cluster rome has it again once it uses this cluster, and offloads its namespace shop again.\nIn cluster rome:\nliqod offload namespace shop",
				Delete: "kubectl -n shop-rome delete pvc data\nOr all data of the namespace:\nkubectl annotate namespace shop-rome liqo.io/delete-volumes=shop-rome"}}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.is.Program, tc.is.Classes = "liqod", []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: "liqo.io/storage"}}
			for i := range tc.want {
				tc.want[i].Namespace, tc.want[i].Claim, tc.want[i].Size = cmp.Or(tc.want[i].Namespace, "shop"), cmp.Or(tc.want[i].Claim, "data"), "1Gi"
			}
			got := tc.is.Storage()
			require.Equal(t, tc.want, got.Volumes)
			require.NoError(t, got.Err())
		})
	}
}

func TestStorageText(t *testing.T) {
	require.Equal(t, "No volumes of the class liqo, and none of peers.\n", Storage{}.Text())
	require.Error(t, Storage{Unread: []string{ReadStored, ReadStoredClaims}}.Err())
	require.Equal(t, `2 volumes.

CLAIM       OF             SIZE   DATA IN         PHASE
shop/data   this cluster   1Gi    -               waiting for its first pod
shop/old    cluster rome   2Gi    cluster milan   kept

shop/old of cluster rome, 2Gi in cluster milan, is kept: because
  To get it back:
    a
  To delete it:
    b
    c

No right to read StorageClasses.
`, Storage{Unread: []string{ReadStoredClass}, Volumes: []StoredVolume{
		{Namespace: "shop", Claim: "data", Size: "1Gi", Where: "-", Phase: VolumeWaiting, Why: "for its first pod"},
		{Namespace: "shop", Claim: "old", Owner: "rome", Size: "2Gi", Where: "cluster milan", Phase: VolumeKept, Why: "because", Get: "a", Delete: "b\nc"},
	}}.Text())
}
