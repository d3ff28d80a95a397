package roles

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/link"
)

// TestPodLookup: of all that may be missing only the pod itself means that it is not on the
// node. The VirtualNodes that it looks up are those among which the reflection elects its leader.
func TestPodLookup(t *testing.T) {
	const tenant = "liqo-tenant-milan"
	core := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "milan"}})
	liqod := liqodfake.NewSimpleClientset(
		&offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}},
		&offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"},
			Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"shop": {RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingAccepted},
			}},
		})
	v := &vkubelet{
		home: home{plain: clients{kube: core, liqo: liqod}}, namespace: tenant, name: "milan",
		tenant: externalversions.NewSharedInformerFactory(liqod, 0), kube: informers.NewSharedInformerFactory(core, 0),
	}
	v.credentials = &link.Credentials{
		VirtualNodes: v.tenant.Offloading().V1beta1().VirtualNodes(), Secrets: v.kube.Core().V1().Secrets(),
		Namespace: tenant, Name: "milan", Log: zap.NewNop(),
	}
	require.NoError(t, v.credentials.Watch())
	v.nodes = v.kube
	kubetest.Run(t, v.runCaches)
	lookup := v.lookup()

	_, _, _, err := lookup.Get("shop", "other")
	require.True(t, apierrors.IsNotFound(err), err)
	require.Eventually(t, func() bool {
		_, _, _, err = lookup.Get("shop", "web")
		return err != nil && strings.Contains(err.Error(), "kubeconfigSecretRef")
	}, time.Minute, 5*time.Millisecond, "the Secret with the credentials is not there")
	require.False(t, apierrors.IsNotFound(err), err)
	require.True(t, v.alone())
	kubetest.Create(t, liqod.OffloadingV1beta1().VirtualNodes(tenant), &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan-b"}})
	require.Eventually(t, func() bool { return !v.alone() }, time.Minute, 5*time.Millisecond, "of two virtual nodes none is alone")
}
