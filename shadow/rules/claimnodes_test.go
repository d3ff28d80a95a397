package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOnOwnNodesOnly(t *testing.T) {
	t.Parallel()
	class := func(name, provisioner string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	}
	usual := class("local-path", "rancher.io/local-path")
	usual.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	all := []*storagev1.StorageClass{usual, class("liqo", "liqo.io/storage"), class("static", "kubernetes.io/no-provisioner")}
	type m = map[string]string
	type answer struct{ only, decided bool }
	own, elsewhere, look := answer{true, true}, answer{false, true}, answer{false, false}
	volume := func(by string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: m{"pv.kubernetes.io/provisioned-by": by}}}
	}
	for name, tc := range map[string]struct {
		class       *string
		annotations m
		bound       bool
		to          string // the volume that somebody has chosen
		volume      *corev1.PersistentVolume
		classes     []*storagev1.StorageClass
		want        answer
	}{
		"the default class":                    {classes: all, want: own},
		"no default class":                     {classes: all[1:], want: own},
		"a class of this cluster":              {class: new("local-path"), classes: all, want: own},
		"a class of this cluster, bound":       {class: new("local-path"), bound: true, classes: all, want: own},
		"volumes that people make":             {class: new("static"), classes: all, want: own},
		"no class":                             {class: new(""), classes: all, want: own},
		"the virtual class":                    {class: new("liqo"), classes: all, want: elsewhere},
		"the virtual class, bound":             {class: new("liqo"), bound: true, classes: all, want: elsewhere},
		"the virtual class, by annotation":     {annotations: m{"volume.beta.kubernetes.io/storage-class": "liqo"}, classes: all, want: elsewhere},
		"a former virtual class":               {class: new("old"), annotations: m{"volume.kubernetes.io/storage-provisioner": "liqo.io/storage"}, bound: true, classes: all, want: elsewhere},
		"a former virtual class, beta":         {class: new("old"), annotations: m{"volume.beta.kubernetes.io/storage-provisioner": "liqo.io/storage"}, bound: true, classes: all, want: elsewhere},
		"the virtual class, another volume":    {class: new("liqo"), to: "mine", classes: all, want: look},
		"the virtual class, an own volume":     {class: new("liqo"), to: "mine", volume: volume(""), classes: all, want: own},
		"the virtual class, a former volume":   {class: new("liqo"), to: "pvc-former", volume: volume("liqo.io/storage"), classes: all, want: elsewhere},
		"no such class":                        {class: new("manual"), classes: all, want: own},
		"no such class, bound, not looked at":  {class: new("manual"), bound: true, classes: all, want: look},
		"no such class, bound to own":          {class: new("manual"), bound: true, volume: volume(""), classes: all, want: own},
		"no such class, bound to a provider's": {class: new("old"), bound: true, volume: volume("liqo.io/storage"), classes: all, want: elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: tc.class}}
			if tc.bound {
				claim.UID, claim.Spec.VolumeName = "u", "pvc-u"
			}
			if tc.to != "" {
				claim.Spec.VolumeName = tc.to
			}
			only, decided := OnOwnNodesOnly(claim, tc.volume, tc.classes)
			require.Equal(t, tc.want, answer{only, decided})
		})
	}
}

// TestAddedTerms: KeepHome and WithStorage add a requirement to each term of a pod.
func TestAddedTerms(t *testing.T) {
	t.Parallel()
	storage := req{Key: "offloading.liqo.io/no-storage", Operator: corev1.NodeSelectorOpDoesNotExist}
	zone, region := in("zone", "a"), in("region", "eu")
	withStorage := func(pod *corev1.Pod) (*corev1.Pod, error) { return WithStorage(pod, true) }
	for name, tc := range map[string]struct {
		add  func(*corev1.Pod) (*corev1.Pod, error)
		this req
	}{"home": {KeepHome, notIn("liqo.io/type", "virtual-node")}, "storage": {withStorage, storage}} {
		for of, terms := range map[string]struct{ own, want []term }{
			"free":            {nil, []term{exprs(tc.this)}},
			"with own terms":  {[]term{exprs(zone), exprs(region)}, []term{exprs(zone, tc.this), exprs(region, tc.this)}},
			"says it already": {[]term{exprs(tc.this, zone)}, []term{exprs(tc.this, zone)}},
			"matches no node": {[]term{{}}, []term{{}}},
		} {
			t.Run(name+", "+of, func(t *testing.T) {
				t.Parallel()
				pod := bound(terms.own)
				before := pod.DeepCopy()
				got, err := tc.add(pod)
				require.NoError(t, err)
				require.Equal(t, before, pod, "the argument is not changed")
				require.Equal(t, terms.want, required(got))
				require.Empty(t, got.Spec.Tolerations, "it tolerates no virtual node")
			})
		}
		placed := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}
		got, err := tc.add(placed)
		require.NoError(t, err)
		require.Same(t, placed, got)
	}
	got, err := WithStorage(bound(nil), false)
	require.NoError(t, err)
	require.Equal(t, []term{exprs(in("liqo.io/type", "virtual-node"), storage)}, required(got))
}

func TestFollowsPod(t *testing.T) {
	t.Parallel()
	classes := []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: "liqo.io/storage"}, {ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.org"}}
	for name, tc := range map[string]struct {
		class, volume string
		want          bool
	}{
		"of liqod":          {"liqo", "", true},
		"of liqod, bound":   {"liqo", "pvc-u", false},
		"of another":        {"fast", "", false},
		"of no known class": {"gone", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &tc.class, VolumeName: tc.volume}}
			require.Equal(t, tc.want, FollowsPod(claim, classes))
		})
	}
}

func TestAsksForVirtualNodes(t *testing.T) {
	t.Parallel()
	virtual, zone := in("liqo.io/type", "virtual-node"), in("zone", "a")
	selects := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"liqo.io/type": "virtual-node"}}}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"nothing":          {bound(nil), false},
		"a selector":       {selects, true},
		"an affinity":      {bound([]term{exprs(zone, virtual)}), true},
		"one of two terms": {bound([]term{exprs(virtual), exprs(zone)}), false},
		"another label":    {bound([]term{exprs(zone)}), false},
		"no virtual node":  {bound([]term{exprs(notIn("liqo.io/type", "virtual-node"))}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, AsksForVirtualNodes(tc.pod))
		})
	}
}
