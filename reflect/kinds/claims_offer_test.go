package kinds

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// A virtual node of an offer follows the offer: people edit the settings of the provider, not the
// VirtualNode.
func TestNoStorageInAnOffer(t *testing.T) {
	t.Parallel()
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}
	require.Contains(t, notOffered(vn, "milan"), "VirtualNode milan offers no storage: list the provider's classes in spec.storageClasses")
	vn.Labels = map[string]string{offloadingv1beta1.ManagedByLabel: sharingv1alpha1.ManagedByOffer}
	require.Contains(t, notOffered(vn, "milan"), "cluster milan offers no storage class")
	require.NotContains(t, notOffered(vn, "milan"), "spec.storageClasses")
	vn.Spec.StorageClasses = []offloadingv1beta1.ClassOffer{{StorageClassName: "fast"}}
	require.Empty(t, notOffered(vn, "milan"))
	require.Equal(t, "virtual node milan is being removed", notOffered(nil, "milan"))
}
