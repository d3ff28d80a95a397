package cmd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
)

// TestPeersDoNotSteerTheTerminal: what a peer has written is shown as text, and takes no line of
// its own.
func TestPeersDoNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	const evil = "fine\x1b[2J\x1b]0;title\a\r\nPEER\tall is well\u009b31m"
	rome := installation(t, "rome")
	kubetest.Create(t, rome.liqod.SharingV1alpha1().ResourceOffers("liqo-tenant-milan"), &sharingv1alpha1.ResourceOffer{
		ObjectMeta: metav1.ObjectMeta{Name: "rome"},
		Spec:       sharingv1alpha1.ResourceOfferSpec{ProviderClusterID: "rome", ConsumerClusterID: "milan", Approved: true},
		Status:     sharingv1alpha1.ResourceOfferStatus{Phase: sharingv1alpha1.OfferRefused, Message: evil},
	})
	rome.add(t, &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"},
		Status: corev1beta1.ForeignClusterStatus{Conditions: []metav1.Condition{is(corev1beta1.ConditionIncomingPeering, metav1.ConditionFalse, "OfferNotUsed", evil)}},
	})
	kubetest.Create(t, rome.core.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{
		offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, corev1beta1.RemoteClusterIDLabel: "milan"}}})
	kubetest.Create(t, rome.core.CoreV1().Pods("shop"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{NodeName: "milan"},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Reason: "Refused" + evil, Message: evil}})
	for _, args := range [][]string{{"offer", "list"}, {"status"}, {"status", "-o", "wide"}, {"status", "milan"}, {"check"}} {
		said, _ := rome.run(t, args...)
		require.Contains(t, said, "fine", args)
		require.NotContains(t, said, "\nPEER\tall", args)
		for _, r := range said {
			require.True(t, r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && !(r >= 0x80 && r < 0xa0), "%v: %q", args, said)
		}
	}
}

// TestTextsSteerNoTerminal: whoever has written a part of a text.
func TestTextsSteerNoTerminal(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, printText(&b, "lost\x1b[2J\x1b]0;title\a\r\n\t\u009b31mpasses\n"))
	require.Equal(t, "lost [2J ]0;title  \n\t 31mpasses\n", b.String())
}
