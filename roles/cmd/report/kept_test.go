package report

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Only data counts as kept that no claim leads to and that nothing will delete.
func TestKept(t *testing.T) {
	kept := func(twin string, labels map[string]string, change ...func(*offloadingv1beta1.NamespaceMap)) offloadingv1beta1.NamespaceMap {
		m := offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Status: offloadingv1beta1.NamespaceMapStatus{
			CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"shop": {RemoteNamespace: twin, Phase: offloadingv1beta1.MappingTerminating, Message: "it has volumes"},
			},
		}}
		for _, f := range change {
			f(&m)
		}
		return m
	}
	ofPeer := map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}
	const list = "; liqod storage list shows it, and how to get it back or delete it"
	for name, tc := range map[string]struct {
		volumes []corev1.PersistentVolume
		maps    []offloadingv1beta1.NamespaceMap
		want    string
	}{
		"nothing":                  {},
		"to be deleted":            {volumes: []corev1.PersistentVolume{volumeFor("u1", "milan")}},
		"kept":                     {volumes: []corev1.PersistentVolume{volumeFor("u1", "milan", keptFor)}, want: "of 1 volume whose claim is gone" + list},
		"retained twice":           {volumes: []corev1.PersistentVolume{volumeFor("u1", "", retaining), volumeFor("u2", "milan", retaining)}, want: "of 2 volumes whose claim is gone" + list},
		"retained, and never made": {volumes: []corev1.PersistentVolume{volumeFor("u1", "milan", retaining, notMade)}},
		"bound": {volumes: []corev1.PersistentVolume{volumeFor("u1", "milan", retaining, func(v *corev1.PersistentVolume) {
			v.Status.Phase = corev1.VolumeBound
		})}},
		"of another provisioner": {volumes: []corev1.PersistentVolume{volumeFor("u1", "milan", retaining, func(v *corev1.PersistentVolume) {
			v.Annotations[ProvisionedBy] = "example.com/disk"
		})}},
		"for a peer":            {maps: []offloadingv1beta1.NamespaceMap{kept("shop-rome", ofPeer)}, want: "of 1 namespace that no peer offloads any more" + list},
		"by a provider":         {maps: []offloadingv1beta1.NamespaceMap{kept("shop-rome", nil)}},
		"of no peer's own name": {maps: []offloadingv1beta1.NamespaceMap{kept("x; reboot", ofPeer)}},
		"wanted again": {maps: []offloadingv1beta1.NamespaceMap{kept("shop-rome", ofPeer, func(m *offloadingv1beta1.NamespaceMap) {
			m.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			s.Program, s.Volumes, s.Maps = "liqod", tc.volumes, append(s.Maps, tc.maps...)
			status := Summarize(s)
			require.Equal(t, tc.want, status.Kept)
			if tc.want == "" {
				require.NotContains(t, status.Text(false), "Kept data")
				return
			}
			require.Contains(t, status.Text(false), "\nKept data: "+tc.want+"\n")
			require.Contains(t, CheckText(Check(s)), "\nVolumes\n  ✔ kept data: "+tc.want+"\n")
		})
	}
}
