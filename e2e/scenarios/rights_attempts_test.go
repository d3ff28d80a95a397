package scenarios

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// attempt tries something that must be forbidden.
type attempt func(context.Context) error

func allForbidden(t *testing.T, attempts map[string]attempt) {
	t.Helper()
	for name, try := range attempts {
		t.Run(name, func(t *testing.T) {
			err := try(t.Context())
			require.Error(t, err)
			require.True(t, apierrors.IsForbidden(err), "must be forbidden: %v", err)
		})
	}
}

// byRBAC is how the API server says that an identity lacks a right.
var byRBAC = regexp.MustCompile(`User ".*" cannot`)

// allRefused tries what an identity has the right to do, and an admission policy or the webhook must
// refuse. All that it has the right to do is in testdata/*-rights.txt, so that a try that RBAC
// forbids shows nothing more.
func allRefused(t *testing.T, attempts map[string]attempt) {
	t.Helper()
	for name, try := range attempts {
		t.Run(name, func(t *testing.T) {
			err := try(t.Context())
			require.True(t, apierrors.IsForbidden(err), "must be forbidden: %v", err)
			require.NotRegexp(t, byRBAC, err.Error())
		})
	}
}

// forbidden shows what the peer cannot write although it has the right.
func forbidden(t *testing.T, p attacker) {
	guest := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "guest", Namespace: twinOfRome}, Spec: podSpec("sim/web:1")}
	kubetest.Create(t, p.milan.Client().CoreV1().Pods(twinOfRome), guest)
	kubetest.Create(t, p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome), shadowPod("target"))
	within(t, 30*time.Second, "a pod to attack is there", lab.Exists(p.core.CoreV1().Pods(twinOfRome), "target"))
	collision(t, p)
	allRefused(t, objectAttempts(p.core))
	allRefused(t, sessionAttempts(p.core, "guest"))
	requireSessions(t, p.core, "target")
	allRefused(t, shadowAttempts(p))
	allRefused(t, reflectedAttempts(t, p))
	allRefused(t, sliceAttempts(t, p))
	allRefused(t, negotiationAttempts(t, p))
	allRefused(t, networkAttempts(t, p))
	allRefused(t, heartbeatAttempts(t, p))
}

// collision asks for a pod of a name that the provider's own pod has.
func collision(t *testing.T, p attacker) {
	t.Helper()
	before := kubetest.Get(t, p.milan.Client().CoreV1().Pods(twinOfRome), "guest")
	shadows := p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome)
	kubetest.Create(t, shadows, shadowPod("guest"))
	within(t, 10*time.Second, "the collision shows", lab.Is(shadows, "guest", func(s *offloadingv1beta1.ShadowPod) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
		return c != nil && c.Reason == offloadingv1beta1.ReasonPodCollision
	}))
	require.NoError(t, shadows.Delete(t.Context(), "guest", metav1.DeleteOptions{}))
	after := kubetest.Get(t, p.milan.Client().CoreV1().Pods(twinOfRome), "guest")
	require.Equal(t, before.UID, after.UID)
	require.Equal(t, before.ObjectMeta.Labels, after.ObjectMeta.Labels)
	require.Nil(t, after.DeletionTimestamp)
}

// objectAttempts are attempts with objects that lead to what is the provider's.
func objectAttempts(c kubernetes.Interface) map[string]attempt {
	return map[string]attempt{
		"Service with external address": lab.Creates(c.CoreV1().Services(twinOfRome), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, Spec: corev1.ServiceSpec{
			ExternalIPs: []string{"1.1.1.1"}, Ports: []corev1.ServicePort{{Port: 53}}}}),
		"Secret with a token": lab.Creates(c.CoreV1().Secrets(twinOfRome), &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
			Name: "evil", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}}),
		"deletion of a pod that is not its own": lab.Deletes(c.CoreV1().Pods(twinOfRome), "guest"),
	}
}

// session asks for a session with a pod, without the upgrade of the connection that would
// follow: admission comes before that.
func session(c kubernetes.Interface, verb, pod, kind string) attempt {
	return func(ctx context.Context) error {
		return c.CoreV1().RESTClient().Verb(verb).Namespace(twinOfRome).Resource("pods").Name(pod).SubResource(kind).
			Param("command", "id").Param("stdout", "true").Param("ports", "80").Do(ctx).Error()
	}
}

// sessionAttempts are attempts to get into a pod that the provider runs in a twin.
func sessionAttempts(c kubernetes.Interface, pod string) map[string]attempt {
	tries := map[string]attempt{}
	for _, kind := range []string{"exec", "attach", "portforward"} {
		for _, verb := range []string{"POST", "GET"} {
			tries[kind+" in "+pod+" by "+verb] = session(c, verb, pod, kind)
		}
	}
	return tries
}

// requireSessions requires that a peer gets as far as the connection to a pod of its own.
func requireSessions(t *testing.T, c kubernetes.Interface, pod string) {
	t.Helper()
	for _, kind := range []string{"exec", "attach", "portforward"} {
		err := session(c, "POST", pod, kind)(t.Context())
		require.Error(t, err, kind)
		require.False(t, apierrors.IsForbidden(err), "%s: %v", kind, err)
	}
	err := session(c, "POST", "guest", "exec")(t.Context())
	require.ErrorContains(t, err, "was not made for a ShadowPod")
	require.ErrorContains(t, err, "no setting allows more")
}

// shadowAttempts are attempts with the kinds that a peer may write, where or how it may not.
func shadowAttempts(p attacker) map[string]attempt {
	api := p.liqod.OffloadingV1beta1()
	create := func(change func(*metav1.ObjectMeta)) attempt {
		return func(ctx context.Context) error {
			s := shadowPod("evil")
			s.Namespace = twinOfRome
			change(&s.ObjectMeta)
			return second(api.ShadowPods(twinOfRome).Create(ctx, s, metav1.CreateOptions{}))
		}
	}
	patch := func(data string) attempt {
		return lab.Patches(api.ShadowPods(twinOfRome), "target", types.MergePatchType, []byte(data))
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "kube-root-ca.crt", UID: "1"}
	return map[string]attempt{
		"ShadowPod with an owner":        create(func(m *metav1.ObjectMeta) { m.OwnerReferences = []metav1.OwnerReference{owner} }),
		"ShadowPod with a finalizer":     create(func(m *metav1.ObjectMeta) { m.Finalizers = []string{"example.com/evil"} }),
		"finalizer on a ShadowPod":       patch(`{"metadata":{"finalizers":["example.com/evil"]}}`),
		"owner on a ShadowPod":           patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"1"}]}}`),
		"finalizers of its NamespaceMap": lab.Patches(api.NamespaceMaps(tenantOfRome), "milan", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)),
		"NamespaceMap of another name": func(ctx context.Context) error {
			nm := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}
			return second(api.NamespaceMaps(tenantOfRome).Create(ctx, nm, metav1.CreateOptions{}))
		},
	}
}

// sliceAttempts are attempts with ShadowEndpointSlices, where or how a peer may not.
func sliceAttempts(t *testing.T, p attacker) map[string]attempt {
	t.Helper()
	api := p.liqod.OffloadingV1beta1()
	target := shadowSlice("target", endpoint("10.100.1.1"))
	delete(target.Labels, offloadingv1beta1.DestinationLabel) // or rome's vkubelet removes what it has no EndpointSlice for
	kubetest.Create(t, api.ShadowEndpointSlices(twinOfRome), target)
	create := func(change func(*metav1.ObjectMeta)) attempt {
		return func(ctx context.Context) error {
			s := shadowSlice("evil", endpoint("169.254.169.254"))
			change(&s.ObjectMeta)
			return second(api.ShadowEndpointSlices(twinOfRome).Create(ctx, s, metav1.CreateOptions{}))
		}
	}
	patch := func(data string) attempt {
		return lab.Patches(api.ShadowEndpointSlices(twinOfRome), "target", types.MergePatchType, []byte(data))
	}
	return map[string]attempt{
		"ShadowEndpointSlice with an owner": create(func(m *metav1.ObjectMeta) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "kube-root-ca.crt", UID: "1"}}
		}),
		"ShadowEndpointSlice with a finalizer": create(func(m *metav1.ObjectMeta) { m.Finalizers = []string{"example.com/evil"} }),
		"finalizer on a ShadowEndpointSlice":   patch(`{"metadata":{"finalizers":["example.com/evil"]}}`),
	}
}
