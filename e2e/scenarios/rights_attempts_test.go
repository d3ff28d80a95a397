package scenarios

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
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
		s := shadowPod("evil")
		s.Namespace = twinOfRome
		change(&s.ObjectMeta)
		return lab.Creates(api.ShadowPods(twinOfRome), s)
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
		"NamespaceMap of another name":   lab.Creates(api.NamespaceMaps(tenantOfRome), &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}),
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
		s := shadowSlice("evil", endpoint("169.254.169.254"))
		change(&s.ObjectMeta)
		return lab.Creates(api.ShadowEndpointSlices(twinOfRome), s)
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

// heartbeatAttempts are attempts to write Leases of others, or more of the own one than its
// times. What a peer may write is written first.
func heartbeatAttempts(t *testing.T, p attacker) map[string]attempt {
	t.Helper()
	const renewal = `{"spec":{"renewTime":"2026-01-02T03:04:05.000006Z"}}`
	patch := func(namespace, name, data string) attempt {
		return lab.Patches(p.core.CoordinationV1().Leases(namespace), name, types.MergePatchType, []byte(data))
	}
	require.NoError(t, patch(tenantOfRome, corev1beta1.HeartbeatLease, renewal)(t.Context()))
	require.NoError(t, patch(tenantOfRome, corev1beta1.HeartbeatLease, `{"spec":{"renewTime":null}}`)(t.Context()))
	return map[string]attempt{
		"who holds its Lease": patch(tenantOfRome, corev1beta1.HeartbeatLease, `{"spec":{"holderIdentity":"x"}}`),
		"labels of its Lease": patch(tenantOfRome, corev1beta1.HeartbeatLease, `{"metadata":{"labels":{"a":"b"}}}`),
		"annotations of it":   patch(tenantOfRome, corev1beta1.HeartbeatLease, `{"metadata":{"annotations":{"a":"b"}}}`),
	}
}

// withoutLabel shows that the rules for a peer hold in a namespace where it has the rights
// of a twin, but whose label somebody has taken off.
func withoutLabel(t *testing.T, p attacker) {
	const ns = "unlabelled"
	admin := p.milan.Client()
	kubetest.Create(t, admin.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	kubetest.Create(t, admin.RbacV1().RoleBindings(ns), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "twin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqod-peer-twin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenantOfRome, Name: "peer-1"}},
	})
	meta := func(name, origin string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"offloading.liqo.io/origin": origin}}
	}
	within(t, time.Minute, "the peer has the rights of a twin", func(ctx context.Context) error {
		return unlessThere(second(p.core.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta("own", "rome")}, metav1.CreateOptions{})))
	})
	configMap := func(change func(*metav1.ObjectMeta)) attempt {
		m := meta("evil", "rome")
		change(&m)
		return lab.Creates(p.core.CoreV1().ConfigMaps(ns), &corev1.ConfigMap{ObjectMeta: m})
	}
	theirs := kubetest.Create(t, admin.CoreV1().Secrets(ns), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}})
	allRefused(t, map[string]attempt{
		"a finalizer": configMap(func(m *metav1.ObjectMeta) { m.Finalizers = []string{"example.com/evil"} }),
		"an owner": configMap(func(m *metav1.ObjectMeta) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: theirs.Name, UID: theirs.UID}}
		}),
		"no origin":         configMap(func(m *metav1.ObjectMeta) { m.Labels = nil }),
		"another's origin":  configMap(func(m *metav1.ObjectMeta) { m.Labels["offloading.liqo.io/origin"] = "paris" }),
		"deletes of others": lab.Deletes(p.core.CoreV1().Secrets(ns), theirs.Name),
		"an identity of the cluster": func(ctx context.Context) error {
			m := meta("token", "rome")
			m.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
			return second(p.core.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: m, Type: corev1.SecretTypeServiceAccountToken}, metav1.CreateOptions{}))
		},
		"external addresses": lab.Creates(p.core.CoreV1().Services(ns), &corev1.Service{ObjectMeta: meta("evil", "rome"), Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: 80}}, ExternalIPs: []string{"192.0.2.1"},
		}}),
	})
}

// negotiationAttempts are attempts to be given more than is offered.
func negotiationAttempts(t *testing.T, p attacker) map[string]attempt {
	t.Helper()
	requests, offers := p.liqod.SharingV1alpha1().ResourceRequests(tenantOfRome), p.liqod.SharingV1alpha1().ResourceOffers(tenantOfRome)
	asks := func(name, consumer, provider string) attempt {
		return lab.Creates(requests, &sharingv1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: sharingv1alpha1.ResourceRequestSpec{ConsumerClusterID: consumer, ProviderClusterID: provider}})
	}
	offer := func(provider string) *sharingv1alpha1.ResourceOffer {
		return &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Name: provider},
			Spec: sharingv1alpha1.ResourceOfferSpec{ConsumerClusterID: "rome", ProviderClusterID: provider, Approved: true}}
	}
	// Rome offers milan something, too: this is milan's copy.
	copied := offer("rome")
	copied.Labels = map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}
	copied = kubetest.Create(t, p.milan.Liqod().SharingV1alpha1().ResourceOffers(tenantOfRome), copied)
	return map[string]attempt{
		"a request of another name":    asks("rome", "rome", "milan"),
		"a request in another's name":  asks("milan", "paris", "milan"),
		"a request to another cluster": asks("milan", "rome", "paris"),
		"the answer of this cluster": func(ctx context.Context) error {
			// This cluster's controller writes it meanwhile: a conflict is no answer.
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				have, err := p.milan.Liqod().SharingV1alpha1().ResourceOffers(tenantOfRome).Get(ctx, copied.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				return second(offers.UpdateStatus(ctx, have, metav1.UpdateOptions{}))
			})
		},
	}
}

// networkAttempts are attempts to have a say in the network of another cluster. What a peer
// may write of it is written first.
func networkAttempts(t *testing.T, p attacker) map[string]attempt {
	t.Helper()
	configurations := p.liqod.NetworkingV1beta1().Configurations(tenantOfRome)
	// Without labels: rome's controller takes back copies of what it does not publish.
	says := func(name string) *networkingv1beta1.Configuration {
		c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: []networkingv1beta1.CIDR{"10.42.0.0/16"}, External: []networkingv1beta1.CIDR{"10.70.0.0/27"}}
		return c
	}
	// Its own, and this cluster's own for it, which it answers.
	said := kubetest.Create(t, configurations, says("milan"))
	t.Cleanup(func() {
		here := p.milan.Liqod().NetworkingV1beta1().Configurations(tenantOfRome)
		require.NoError(t, here.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
	said.Spec.MTU = 1400
	said = kubetest.Update(t, configurations, said)
	asked := kubetest.Create(t, p.milan.Liqod().NetworkingV1beta1().Configurations(tenantOfRome), says("rome"))
	asked.Status.ObservedGeneration = asked.Generation
	kubetest.UpdateStatus(t, configurations, asked)
	networkSchemas(t, p)
	return map[string]attempt{
		"the answer to its own Configuration": func(ctx context.Context) error {
			next := said.DeepCopy()
			next.Status.ObservedGeneration = next.Generation
			return second(configurations.UpdateStatus(ctx, next, metav1.UpdateOptions{}))
		},
		"a Configuration of another name": lab.Creates(configurations, says("paris")),
	}
}

// networkSchemas shows what the API server takes of what people and clusters say of networks.
func networkSchemas(t *testing.T, p attacker) {
	t.Helper()
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	configurations := p.milan.Liqod().NetworkingV1beta1().Configurations(tenantOfRome)
	for external, says := range map[networkingv1beta1.CIDR]string{
		"10.70.0.0/27": "", "fd70::/123": "", "10.70.0.0/28": "at least 32 addresses", "fd70::/124": "at least 32 addresses", "10.42.1.0/24": "overlap",
	} {
		c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}
		c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: []networkingv1beta1.CIDR{"10.42.0.0/16"}, External: []networkingv1beta1.CIDR{external}}
		_, err := configurations.Create(t.Context(), c, dry)
		if says == "" {
			require.NoError(t, err, external)
		} else {
			require.ErrorContains(t, err, says, external)
		}
	}
	for _, enabled := range []bool{true, false} {
		fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "dry"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "dry", NetworkingEnabled: &enabled}}
		_, err := p.milan.Liqod().CoreV1beta1().ForeignClusters().Create(t.Context(), fc, dry)
		require.NoError(t, err, enabled)
	}
}
