package namespace

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/shadow/rules"
)

func written(t *testing.T, user string, obj any) *admissionv1.AdmissionRequest {
	t.Helper()
	req := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{Username: user}}
	var err error
	req.Object.Raw, err = json.Marshal(obj)
	require.NoError(t, err)
	return req
}

// TestPeerRules: the rules bind peers, whatever kind of user they have, and nobody else.
func TestPeerRules(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	bank := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "bank"}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "bank.example.com"}}}}
	own := bank.DeepCopy()
	own.Namespace, own.Labels, own.Spec.Rules[0].Host = "shop-rome", map[string]string{offloadingv1beta1.OriginLabel: "rome"}, "rome.example.com"
	require.NoError(t, indexer.Add(bank))
	require.NoError(t, indexer.Add(own))
	known := true
	ingresses := PeerIngressRule{Ingresses: networkinglisters.NewIngressLister(indexer), Synced: func() bool { return known }}
	services := PeerServiceRule{Bounds: rules.ServiceBounds{Types: []string{"ClusterIP"}}}
	claims := PeerClaimRule{Bounds: rules.ClaimBounds{Classes: []string{"*"}, Provisioned: func(string) bool { return false }}, Synced: func() bool { return known }}
	manual := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("manual")}}
	external := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}
	for user, peer := range map[string]bool{
		"liqo.io:peer:rome:1": true, "system:serviceaccount:liqo-tenant-rome:peer-1": true,
		"system:serviceaccount:liqo-tenant-rome:vk-rome": false, "kubernetes-admin": false, "system:serviceaccount:bank:default": false,
	} {
		require.Equal(t, !peer, services.Decide(t.Context(), written(t, user, external)).Allowed, user)
		require.True(t, services.Decide(t.Context(), written(t, user, &corev1.Service{})).Allowed, user)
		require.Equal(t, !peer, claims.Decide(t.Context(), written(t, user, manual)).Allowed, user)
		require.Equal(t, !peer, ingresses.Decide(t.Context(), written(t, user, bank)).Allowed, user)
		require.Equal(t, user != "system:serviceaccount:liqo-tenant-oslo:peer-1", ingresses.Decide(t.Context(), written(t, user, own)).Allowed, user)
	}
	require.False(t, ingresses.Decide(t.Context(), written(t, "liqo.io:peer:oslo:1", own)).Allowed, "another peer's")
	known = false
	require.Equal(t, int32(503), ingresses.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", own)).Code)
	require.True(t, ingresses.Decide(t.Context(), written(t, "kubernetes-admin", own)).Allowed)
	require.Equal(t, int32(503), claims.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", manual)).Code)
}
