package kinds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func TestADrainedNodeTakesNoPods(t *testing.T) {
	s := newSite()
	s.offload("shop")
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant, Name: "milan", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{offloadingv1beta1.VirtualNodeFinalizer},
	}}
	require.NoError(t, s.homeLiqod.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("virtualnodes"), vn, tenant))
	s.add(s.home.Tracker(), localPod())
	s.start(t)
	s.idle(t, "shop")
	require.Never(t, func() bool { return s.shadow(t) != nil }, 200*time.Millisecond, 10*time.Millisecond)
}

func TestAnAnswerToAnOlderWishIsNoTwin(t *testing.T) {
	s := newSite()
	s.offload("shop")
	m := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"},
		Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "another"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"shop": {RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingAccepted},
		}},
	}
	require.NoError(t, s.homeLiqod.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("namespacemaps"), m, tenant))
	s.add(s.home.Tracker(), localPod())
	s.start(t)
	eventually(t, func() bool { return s.local(t).Status.Reason == offloadingv1beta1.ReasonOffloadingBackOff }, "the pod waits")
	require.Nil(t, s.shadow(t))
}
