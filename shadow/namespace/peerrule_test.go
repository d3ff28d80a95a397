package namespace

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/admit"
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

// TestPeersAnnotations: annotations that peers may not set are left out of what they write,
// and those of others stay.
func TestPeersAnnotations(t *testing.T) {
	t.Parallel()
	allowed := rules.Annotations{"service.kubernetes.io/topology-mode"}
	services := PeerServiceRule{Bounds: rules.ServiceBounds{Types: []string{"ClusterIP"}}, Annotations: allowed}
	ingresses := PeerAnnotationsRule{Annotations: allowed}
	given := map[string]string{
		"note": "a", "service.kubernetes.io/topology-mode": "Auto", "cert-manager.io/cluster-issuer": "x",
		"nginx.ingress.kubernetes.io/server-snippet": "x", "external-dns.alpha.kubernetes.io/hostname": "www.bank.example", "theirs.example/a": "changed",
	}
	service, ingress := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: given}}, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: given}}
	old := map[string]string{"theirs.example/a": "1", "cert-manager.io/cluster-issuer": "x"}
	for name, tc := range map[string]struct {
		answer admit.Response
		kept   map[string]string
	}{
		"a Service":                {services.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", service)), map[string]string{"note": "a", "service.kubernetes.io/topology-mode": "Auto"}},
		"an Ingress":               {ingresses.Decide(t.Context(), written(t, "system:serviceaccount:liqo-tenant-rome:peer-1", ingress)), map[string]string{"note": "a", "service.kubernetes.io/topology-mode": "Auto"}},
		"a Service that is there":  {services.Decide(t.Context(), rewritten(t, "liqo.io:peer:rome:1", service, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: old}})), map[string]string{"note": "a", "service.kubernetes.io/topology-mode": "Auto", "theirs.example/a": "1", "cert-manager.io/cluster-issuer": "x"}},
		"an Ingress that is there": {ingresses.Decide(t.Context(), rewritten(t, "liqo.io:peer:rome:1", ingress, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: old}})), map[string]string{"note": "a", "service.kubernetes.io/topology-mode": "Auto", "theirs.example/a": "1", "cert-manager.io/cluster-issuer": "x"}},
	} {
		require.True(t, tc.answer.Allowed, name)
		require.Equal(t, []admit.Operation{{Op: "replace", Path: "/metadata/annotations", Value: tc.kept}}, tc.answer.Patch, name)
		require.Len(t, tc.answer.Warnings, 1, name)
		require.Contains(t, tc.answer.Warnings[0], "sharing.annotations", name)
	}
	for name, answer := range map[string]admit.Response{
		"a Service of others":  services.Decide(t.Context(), written(t, "kubernetes-admin", service)),
		"an Ingress of others": ingresses.Decide(t.Context(), written(t, "system:serviceaccount:liqo-tenant-rome:vk-rome", ingress)),
		"nothing to leave out": services.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", &corev1.Service{})),
		"everything allowed":   PeerAnnotationsRule{Annotations: rules.Annotations{rules.AllKeys}}.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", ingress)),
	} {
		require.Equal(t, admit.Allow(), answer, name)
	}
	require.False(t, services.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: given}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}})).Allowed)
	require.Equal(t, int32(400), ingresses.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", "text")).Code)
}

// TestPeerSessions: a peer execs, attaches and port-forwards only to pods of its own.
func TestPeerSessions(t *testing.T) {
	t.Parallel()
	pod := func(name, managedBy, shadow string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
		if managedBy != "" {
			p.Labels[offloadingv1beta1.ManagedByLabel] = managedBy
		}
		if shadow != "" {
			p.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation] = shadow
		}
		return p
	}
	kube := fake.NewClientset(pod("own", offloadingv1beta1.ManagedByShadowPod, "uid"), pod("guest", "", ""), pod("other", "somebody", "uid"), pod("half", offloadingv1beta1.ManagedByShadowPod, ""))
	sessions := PeerSessionRule{Pods: kube.CoreV1()}
	ask := func(user, name string) admit.Response {
		return sessions.Decide(t.Context(), &admissionv1.AdmissionRequest{Operation: admissionv1.Connect, Namespace: "shop-rome", Name: name, UserInfo: authenticationv1.UserInfo{Username: user}})
	}
	for _, user := range []string{"liqo.io:peer:rome:1", "system:serviceaccount:liqo-tenant-rome:peer-1"} {
		require.Equal(t, admit.Allow(), ask(user, "own"), user)
		for _, name := range []string{"guest", "other", "half"} {
			answer := ask(user, name)
			require.False(t, answer.Allowed, name)
			require.Contains(t, answer.Message, "pod shop-rome/"+name+" was not made for a ShadowPod")
			require.Zero(t, answer.Code, "forbidden")
		}
		require.Equal(t, int32(404), ask(user, "gone").Code)
	}
	kube.ClearActions()
	for _, user := range []string{"kubernetes-admin", "system:serviceaccount:liqo-tenant-rome:vk-rome"} {
		require.Equal(t, admit.Allow(), ask(user, "guest"), user)
	}
	require.Empty(t, kube.Actions(), "sessions of others cost nothing")
	kube.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
	require.Equal(t, int32(503), ask("liqo.io:peer:rome:1", "own").Code)
}

func rewritten(t *testing.T, user string, obj, old any) *admissionv1.AdmissionRequest {
	t.Helper()
	req := written(t, user, obj)
	req.Operation = admissionv1.Update
	var err error
	req.OldObject.Raw, err = json.Marshal(old)
	require.NoError(t, err)
	return req
}
