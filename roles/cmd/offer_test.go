package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
)

// TestOfferRevoke: an approval is taken back where people give it. Where the controller does, it
// would be given again at once, and nothing would end.
func TestOfferRevoke(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config, says string
		code         int
		approved     bool
	}{
		"by people":         {"\nsharing: {mode: Manual}", "is taken back", 0, false},
		"by the controller": {"", "sharing.mode is not Manual: the controller approves it again at once; set incomingPeeringEnabled: No in the ForeignCluster of milan", ExitProblem, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rome := installation(t, "rome"+tc.config)
			offers := rome.liqod.SharingV1alpha1().ResourceOffers("liqo-tenant-milan")
			kubetest.Create(t, offers, &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Name: "rome"},
				Spec: sharingv1alpha1.ResourceOfferSpec{ProviderClusterID: "rome", ConsumerClusterID: "milan", Approved: true}})
			said, err := rome.run(t, "offer", "revoke", "rome")
			require.Equal(t, tc.code, code(err))
			if err != nil {
				said = err.Error()
			}
			require.Contains(t, said, tc.says)
			o := kubetest.Get(t, offers, "rome")
			require.Equal(t, tc.approved, o.Spec.Approved)
		})
	}
}

// TestOfferListIsAList: kubectl takes what offer list prints.
func TestOfferListIsAList(t *testing.T) {
	t.Parallel()
	c := newCluster()
	for want := range 2 {
		out := c.ran(t, "offer", "list", "-o", "json")
		list := must(runtime.Decode(unstructured.UnstructuredJSONScheme, []byte(out)))
		require.Equal(t, "v1, Kind=List", list.GetObjectKind().GroupVersionKind().String()[len("/"):])
		require.Len(t, list.(*unstructured.UnstructuredList).Items, want)
		for _, o := range list.(*unstructured.UnstructuredList).Items {
			require.Equal(t, "sharing.liqo.io/v1alpha1, Kind=ResourceOffer", o.GroupVersionKind().String())
		}
		if want == 1 {
			return
		}
		kubetest.Create(t, c.liqod.SharingV1alpha1().ResourceOffers("liqo-tenant-milan"), &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Name: "rome"}})
	}
}
