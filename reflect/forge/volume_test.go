package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// claimFields has a rule for each field of a reflected PersistentVolumeClaim.
var claimFields = map[string]rule{
	"TypeMeta":   {apart, "nobody's"},
	"ObjectMeta": {apart, "see metaFields; without the notes of the volume controllers"},
	"Spec":       {partly, "see claimSpecFields; only the size changes afterwards"},
	"Status":     {removed, "of the volume here"},
}

// claimSpecFields has a rule for each field of its spec.
var claimSpecFields = map[string]rule{
	"AccessModes":               {apart, "kept, unless the annotation lists others"},
	"Selector":                  {removed, "selects volumes of this cluster"},
	"Resources":                 {apart, "kept; grows once the claim is bound"},
	"VolumeName":                {removed, "a volume of this cluster"},
	"StorageClassName":          {apart, "the annotation's, else the offered default"},
	"VolumeMode":                {apart, "kept"},
	"DataSource":                {apart, "a claim of the same namespace is kept, anything else refused"},
	"DataSourceRef":             {apart, "likewise"},
	"VolumeAttributesClassName": {removed, "a class of this cluster"},
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: uid},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, Resources: size("10Gi")},
	}
}

func size(s string) corev1.VolumeResourceRequirements {
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(s)}}
}

func TestEveryFieldOfAClaimHasARule(t *testing.T) {
	k := kind[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaim]{
		local: claim,
		forge: func(c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
			return PersistentVolumeClaim(c, objectOptions(), nil)
		},
		merge: MergePersistentVolumeClaim,
	}
	requireRules(t, claimFields, k)
	k.here = func(c *corev1.PersistentVolumeClaim) any { return &c.Spec }
	k.remote = k.here
	requireRules(t, claimSpecFields, k)
}

func TestPersistentVolumeClaim(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	offered := []Class{{Name: "liqo"}, {Name: "fast", Default: true}}
	for name, tc := range map[string]struct {
		local   func(*corev1.PersistentVolumeClaim)
		offered []Class
		want    func(*corev1.PersistentVolumeClaimSpec) // on one with mode and size
		notes   []string                                // annotations beside the record
	}{
		"own class is of this cluster": {local: func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("liqo") }, offered: offered,
			want: func(s *corev1.PersistentVolumeClaimSpec) { s.StorageClassName = new("fast") }},
		"class asked for": {local: func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{offloadingv1beta1.RemoteStorageClassAnnotation: "slow"}
		},
			offered: offered, want: func(s *corev1.PersistentVolumeClaimSpec) { s.StorageClassName = new("slow") }, notes: []string{"liqo.io/remote-storage-class"}},
		"modes asked for": {local: func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{offloadingv1beta1.RemoteAccessModesAnnotation: "RWX, ROX"}
		},
			want: func(s *corev1.PersistentVolumeClaimSpec) {
				s.AccessModes = []corev1.PersistentVolumeAccessMode{"ReadWriteMany", "ReadOnlyMany"}
			},
			notes: []string{"liqo.io/remote-access-modes"}},
		"notes of controllers": {local: func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "milan", "volume.beta.kubernetes.io/storage-class": "x",
				"pv.kubernetes.io/bind-completed": "yes", "note": "x"}
		}, want: func(*corev1.PersistentVolumeClaimSpec) {}, notes: []string{"note"}},
		"block device": {local: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }, want: func(s *corev1.PersistentVolumeClaimSpec) { s.VolumeMode = &block }},
		"copy of a claim": {local: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		}, want: func(s *corev1.PersistentVolumeClaimSpec) {
			s.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			local := claim()
			tc.local(local)
			before := local.DeepCopy()
			got, err := PersistentVolumeClaim(local, objectOptions(), tc.offered)
			require.NoError(t, err)
			require.Equal(t, before, local, "the argument is not changed")
			want := claim().Spec
			tc.want(&want)
			require.Equal(t, want, got.Spec)
			var notes []string
			for key := range got.Annotations {
				if key != offloadingv1beta1.ReflectedAnnotation {
					notes = append(notes, key)
				}
			}
			require.ElementsMatch(t, tc.notes, notes)
		})
	}
}

// TestClaimOfAPod: only the claim of an ephemeral volume is marked in the provider, whatever label it has at home.
func TestClaimOfAPod(t *testing.T) {
	local := claim()
	local.Labels = map[string]string{offloadingv1beta1.EphemeralVolumeLabel: "true"}
	got, err := PersistentVolumeClaim(local, objectOptions(), nil)
	require.NoError(t, err)
	require.NotContains(t, got.Labels, offloadingv1beta1.EphemeralVolumeLabel)
	local.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "web", UID: "pod-1", Controller: new(true)}}
	got, err = PersistentVolumeClaim(local, objectOptions(), nil)
	require.NoError(t, err)
	require.Equal(t, "true", got.Labels[offloadingv1beta1.EphemeralVolumeLabel])
}

func TestClaimRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		local  func(*corev1.PersistentVolumeClaim)
		reason string
	}{
		"a snapshot": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"}
		}, offloadingv1beta1.ReasonDataSource},
		"a claim elsewhere": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "s", Namespace: new("other")}
		}, offloadingv1beta1.ReasonDataSource},
		"unknown mode": {func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{offloadingv1beta1.RemoteAccessModesAnnotation: "RWO,all"}
		}, reasons.AccessModesInvalid},
		"no mode": {func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{offloadingv1beta1.RemoteAccessModesAnnotation: ""}
		}, reasons.AccessModesInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			local := claim()
			tc.local(local)
			_, err := PersistentVolumeClaim(local, objectOptions(), nil)
			var r *Refused
			require.ErrorAs(t, err, &r)
			require.Equal(t, tc.reason, r.Reason)
			require.Contains(t, r.Message, "PersistentVolumeClaim data")
		})
	}
}

func TestMergePersistentVolumeClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		phase           corev1.PersistentVolumeClaimPhase
		have, got, want string // asked for there, given there, asked for here
		merged          string
	}{
		"given more than asked for":     {"Bound", "10Gi", "12Gi", "10Gi", "10Gi"},
		"grows":                         {"Bound", "10Gi", "10Gi", "20Gi", "20Gi"},
		"not bound yet":                 {"Pending", "10Gi", "0", "20Gi", "10Gi"},
		"has grown there":               {"Bound", "20Gi", "20Gi", "10Gi", "20Gi"},
		"could not grow, wants less":    {"Bound", "20Gi", "10Gi", "15Gi", "15Gi"},
		"could not grow, wants to stay": {"Bound", "20Gi", "10Gi", "10Gi", "20Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			have, want := claim(), claim()
			have.Spec.Resources, want.Spec.Resources = size(tc.have), size(tc.want)
			have.Spec.VolumeName, have.Spec.StorageClassName = "pv-1", new("fast")
			have.Status.Phase, have.Status.Capacity = tc.phase, size(tc.got).Requests
			expected := have.Spec.DeepCopy()
			expected.Resources = size(tc.merged)
			got := MergePersistentVolumeClaim(have, want).Spec
			require.Zero(t, expected.Resources.Requests.Storage().Cmp(*got.Resources.Requests.Storage()))
			got.Resources = expected.Resources
			require.Equal(t, *expected, got)
		})
	}
}

func TestPersistentVolume(t *testing.T) {
	local := claim()
	local.Spec.StorageClassName = new("liqo")
	got := PersistentVolume(local, nil, "milan")
	require.Equal(t, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + uid, Labels: map[string]string{"liqo.io/remote-cluster-id": "milan"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "liqo.io/storage"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:         size("10Gi").Requests,
			AccessModes:      []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
			ClaimRef:         &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: uid},
			StorageClassName: "liqo",
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "liqo.io/remote-cluster-id", Operator: "In", Values: []string{"milan"}}},
			}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/var/lib/liqod/in-the-provider"}},
		},
	}, got)

	remote := claim()
	remote.Status.Capacity = size("12Gi").Requests
	require.Equal(t, "12Gi", PersistentVolume(local, remote, "milan").Spec.Capacity.Storage().String())
	remote.Status.Capacity = size("8Gi").Requests
	require.Equal(t, "10Gi", PersistentVolume(local, remote, "milan").Spec.Capacity.Storage().String(), "a smaller one would not be bound")
}

func TestRealVolume(t *testing.T) {
	no := corev1.NodeSelectorRequirement{Key: "liqo.io/type", Operator: "NotIn", Values: []string{"virtual-node"}}
	zone := func(values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "zone", Operator: "In", Values: values}
	}
	affinity := func(terms ...[]corev1.NodeSelectorRequirement) *corev1.VolumeNodeAffinity {
		out := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
		for _, t := range terms {
			out.Required.NodeSelectorTerms = append(out.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: t})
		}
		return out
	}
	for name, row := range map[string]struct{ have, want *corev1.VolumeNodeAffinity }{
		"everywhere": {nil, affinity([]corev1.NodeSelectorRequirement{no})},
		"each term": {
			affinity([]corev1.NodeSelectorRequirement{zone("a")}, []corev1.NodeSelectorRequirement{zone("b")}),
			affinity([]corev1.NodeSelectorRequirement{zone("a"), no}, []corev1.NodeSelectorRequirement{zone("b"), no}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			local, mode := claim(), corev1.PersistentVolumeBlock
			local.Spec.StorageClassName = new("liqo")
			real := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pvc-other", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{ProvisionedBy: "example.com/disk"}},
				Spec: corev1.PersistentVolumeSpec{
					Capacity: size("12Gi").Requests, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}, VolumeMode: &mode, MountOptions: []string{"noatime"},
					StorageClassName: "disk", VolumeAttributesClassName: new("gold"), NodeAffinity: row.have, ClaimRef: &corev1.ObjectReference{Name: "other"},
					PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com/disk", VolumeHandle: "7"}},
				},
			}
			require.Equal(t, &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{
					Name: "pvc-" + uid, Labels: map[string]string{"zone": "a", "offloading.liqo.io/local-claim-uid": uid}, Annotations: map[string]string{ProvisionedBy: "liqo.io/storage"},
				},
				Spec: corev1.PersistentVolumeSpec{
					Capacity: size("12Gi").Requests, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}, VolumeMode: &mode, MountOptions: []string{"noatime"},
					StorageClassName: "liqo", NodeAffinity: row.want,
					ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: uid},
					PersistentVolumeSource: real.Spec.PersistentVolumeSource,
				},
			}, RealVolume(local, real))
			require.Equal(t, row.have, real.Spec.NodeAffinity, "the source is not changed")
		})
	}
}
