package pod

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	liqofake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func TestShadowPodRule(t *testing.T) {
	liqo := externalversions.NewSharedInformerFactory(liqofake.NewSimpleClientset(), 0).Offloading().V1beta1().Quotas()
	ranges := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().LimitRanges()
	require.NoError(t, liqo.Informer().GetIndexer().Add(&offloadingv1beta1.Quota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "q"},
		Spec:       offloadingv1beta1.QuotaSpec{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}))
	known := true
	rule := Rule{Quotas: liqo.Lister(), LimitRanges: ranges.Lister()}
	rule.Synced = append(rule.Synced, func() bool { return known })
	asks := func(cpu string) *offloadingv1beta1.ShadowPod {
		s := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Labels: map[string]string{offloadingv1beta1.OriginLabel: "rome"}}}
		s.Spec.Pod.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}
		return s
	}
	user := "liqo.io:peer:rome:1"
	var cause metav1.CauseType
	decide := func(op admissionv1.Operation, obj any) (bool, string) {
		raw, err := json.Marshal(obj)
		require.NoError(t, err)
		a, err := rule.Decide(t.Context(), &admissionv1.AdmissionRequest{UID: "u", Kind: metav1.GroupVersionKind{Kind: "ShadowPod"}, Operation: op, UserInfo: authenticationv1.UserInfo{Username: user}, Object: runtime.RawExtension{Raw: raw}})
		require.NoError(t, err)
		cause = a.Cause
		return a.Allowed, a.Message
	}
	allowed, _ := decide(admissionv1.Create, asks("1"))
	require.True(t, allowed)
	allowed, message := decide(admissionv1.Create, asks("2"))
	require.False(t, allowed)
	require.Equal(t, "the pod alone is larger than the quota of cluster rome (cpu: 2 requested, 1 allowed in all)", message)
	require.EqualValues(t, offloadingv1beta1.ReasonQuotaTooSmall, cause)
	for _, other := range []string{"liqo.io:peer:turin:1", "system:serviceaccount:liqo-tenant-turin:peer-1", "kubernetes-admin"} {
		user = other
		allowed, message = decide(admissionv1.Create, asks("2"))
		require.True(t, allowed, "%s reads the Quota of rome by its label: %s", user, message)
	}
	user = "system:serviceaccount:liqo-tenant-rome:peer-1"
	allowed, _ = decide(admissionv1.Update, asks("2"))
	require.True(t, allowed, "what is there is changed: the controller decides")
	allowed, message = decide(admissionv1.Create, "no object")
	require.False(t, allowed)
	require.Contains(t, message, "reading the ShadowPod")
	known = false
	allowed, _ = decide(admissionv1.Create, asks("2"))
	require.True(t, allowed, "not before it knows")
}
