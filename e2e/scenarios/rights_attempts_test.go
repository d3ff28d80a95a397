package scenarios

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
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

// forbidden shows what the peer cannot write at all.
func forbidden(t *testing.T, p attacker) {
	ctx := t.Context()
	guest := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "guest", Namespace: twinOfRome}, Spec: podSpec("sim/web:1")}
	_, err := p.milan.Client().CoreV1().Pods(twinOfRome).Create(ctx, guest, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome).Create(ctx, shadowPod("target"), metav1.CreateOptions{})
	require.NoError(t, err)
	within(t, 30*time.Second, "a pod to attack is there", func(ctx context.Context) error {
		_, err := p.core.CoreV1().Pods(twinOfRome).Get(ctx, "target", metav1.GetOptions{})
		return err
	})
	collision(t, p)
	allForbidden(t, objectAttempts(p.core))
	allForbidden(t, identityAttempts(p.core))
	allForbidden(t, podAttempts(p.core))
	allForbidden(t, sessionAttempts(p.core, "guest"))
	requireSessions(t, p.core, "target")
	allForbidden(t, shadowAttempts(p))
	allForbidden(t, reflectedAttempts(t, p))
	allForbidden(t, sliceAttempts(t, p))
	allForbidden(t, negotiationAttempts(t, p))
	allForbidden(t, networkAttempts(t, p))
	allForbidden(t, heartbeatAttempts(t, p))
	allForbidden(t, trustAttempts(p))
}

// collision asks for a pod of a name that the provider's own pod has.
func collision(t *testing.T, p attacker) {
	t.Helper()
	before, err := p.milan.Client().CoreV1().Pods(twinOfRome).Get(t.Context(), "guest", metav1.GetOptions{})
	require.NoError(t, err)
	shadows := p.liqod.OffloadingV1beta1().ShadowPods(twinOfRome)
	_, err = shadows.Create(t.Context(), shadowPod("guest"), metav1.CreateOptions{})
	require.NoError(t, err)
	within(t, 10*time.Second, "the collision shows", func(ctx context.Context) error {
		s, err := shadows.Get(ctx, "guest", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(s.Status.Conditions, offloadingv1beta1.ShadowPodEnforced); c == nil || c.Reason != offloadingv1beta1.ReasonPodCollision {
			return fmt.Errorf("conditions are %+v", s.Status.Conditions)
		}
		return nil
	})
	require.NoError(t, shadows.Delete(t.Context(), "guest", metav1.DeleteOptions{}))
	after, err := p.milan.Client().CoreV1().Pods(twinOfRome).Get(t.Context(), "guest", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, before.UID, after.UID)
	require.Equal(t, before.ObjectMeta.Labels, after.ObjectMeta.Labels)
	require.Nil(t, after.DeletionTimestamp)
}

// objectAttempts are attempts to create what only the provider makes.
func objectAttempts(c kubernetes.Interface) map[string]attempt {
	named := metav1.ObjectMeta{Name: "evil"}
	none := metav1.CreateOptions{}
	tries := map[string]attempt{
		"namespace": func(ctx context.Context) error {
			_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: named}, none)
			return err
		},
		"pod security of its twin": func(ctx context.Context) error {
			patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)
			_, err := c.CoreV1().Namespaces().Patch(ctx, twinOfRome, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		"its twin's deletion": func(ctx context.Context) error {
			return c.CoreV1().Namespaces().Delete(ctx, twinOfRome, metav1.DeleteOptions{})
		},
	}
	for _, ns := range []string{twinOfRome, tenantOfRome, twinOfParis, "default", "kube-system"} {
		maps.Copy(tries, map[string]attempt{
			"pod in " + ns: func(ctx context.Context) error {
				_, err := c.CoreV1().Pods(ns).Create(ctx, &corev1.Pod{ObjectMeta: named, Spec: podSpec("sim/web:1")}, none)
				return err
			},
			"EndpointSlice in " + ns: func(ctx context.Context) error {
				_, err := c.DiscoveryV1().EndpointSlices(ns).Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: named, AddressType: discoveryv1.AddressTypeIPv4,
					Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"169.254.169.254"}}}}, none)
				return err
			},
			"Service with external address in " + ns: func(ctx context.Context) error {
				_, err := c.CoreV1().Services(ns).Create(ctx, &corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{
					ExternalIPs: []string{"1.1.1.1"}, Ports: []corev1.ServicePort{{Port: 53}}}}, none)
				return err
			},
			"ResourceQuota in " + ns: func(ctx context.Context) error {
				_, err := c.CoreV1().ResourceQuotas(ns).Create(ctx, &corev1.ResourceQuota{ObjectMeta: named}, none)
				return err
			},
		})
		if ns == twinOfRome {
			continue // its own Secrets are there
		}
		tries["reading Secrets in "+ns] = func(ctx context.Context) error {
			_, err := c.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
			return err
		}
	}
	delete(tries, "reading Secrets in "+twinOfRome) // there it keeps its own
	return tries
}

// identityAttempts are attempts to get an identity, or rights, of the provider.
func identityAttempts(c kubernetes.Interface) map[string]attempt {
	named := metav1.ObjectMeta{Name: "evil"}
	none := metav1.CreateOptions{}
	admin := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	tries := map[string]attempt{
		"ClusterRoleBinding": func(ctx context.Context) error {
			_, err := c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: named, RoleRef: admin}, none)
			return err
		},
		"certificate": func(ctx context.Context) error {
			_, err := c.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: named}, none)
			return err
		},
	}
	for _, ns := range []string{twinOfRome, tenantOfRome, "kube-system"} {
		maps.Copy(tries, map[string]attempt{
			"Role in " + ns: func(ctx context.Context) error {
				_, err := c.RbacV1().Roles(ns).Create(ctx, &rbacv1.Role{ObjectMeta: named}, none)
				return err
			},
			"RoleBinding in " + ns: func(ctx context.Context) error {
				_, err := c.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: named, RoleRef: admin}, none)
				return err
			},
			"ServiceAccount in " + ns: func(ctx context.Context) error {
				_, err := c.CoreV1().ServiceAccounts(ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: named}, none)
				return err
			},
			"token of default in " + ns: func(ctx context.Context) error {
				_, err := c.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, none)
				return err
			},
			"Secret with a token in " + ns: func(ctx context.Context) error {
				_, err := c.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
					Name: "evil", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}}, none)
				return err
			},
		})
	}
	tries["token of its own account"] = func(ctx context.Context) error {
		_, err := c.CoreV1().ServiceAccounts(tenantOfRome).CreateToken(ctx, "peer-1", &authenticationv1.TokenRequest{}, none)
		return err
	}
	return tries
}

// podAttempts are attempts on pods that exist in its twin namespace.
func podAttempts(c kubernetes.Interface) map[string]attempt {
	in := c.CoreV1().Pods(twinOfRome)
	patch := func(data string, sub ...string) attempt {
		return func(ctx context.Context) error {
			_, err := in.Patch(ctx, "target", types.StrategicMergePatchType, []byte(data), metav1.PatchOptions{}, sub...)
			return err
		}
	}
	return map[string]attempt{
		"labels of a pod":         patch(`{"metadata":{"labels":{"a":"b"}}}`),
		"image of a pod":          patch(`{"spec":{"containers":[{"name":"c","image":"sim/evil"}]}}`),
		"status of a pod":         patch(`{"status":{"podIP":"169.254.169.254"}}`, "status"),
		"size of a pod":           patch(`{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"100"}}}]}}`, "resize"),
		"ephemeral container":     patch(`{"spec":{"ephemeralContainers":[{"name":"e","image":"sim/web:1"}]}}`, "ephemeralcontainers"),
		"deletion of another pod": func(ctx context.Context) error { return in.Delete(ctx, "guest", metav1.DeleteOptions{}) },
		"deletion of a collection": func(ctx context.Context) error {
			return in.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		"eviction": func(ctx context.Context) error {
			return in.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "guest", Namespace: twinOfRome}})
		},
		"binding": func(ctx context.Context) error {
			return in.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "target", Namespace: twinOfRome}, Target: corev1.ObjectReference{Kind: "Node", Name: vault}}, metav1.CreateOptions{})
		},
		"pods of another peer": func(ctx context.Context) error {
			_, err := c.CoreV1().Pods(twinOfParis).List(ctx, metav1.ListOptions{})
			return err
		},
		"pods of the cluster": func(ctx context.Context) error {
			_, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return err
		},
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
	tries := map[string]attempt{
		"debug container in " + pod: func(ctx context.Context) error {
			_, err := c.CoreV1().Pods(twinOfRome).Patch(ctx, pod, types.StrategicMergePatchType,
				[]byte(`{"spec":{"ephemeralContainers":[{"name":"e","image":"sim/web:1"}]}}`), metav1.PatchOptions{}, "ephemeralcontainers")
			return err
		},
	}
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
	create := func(ns string, change func(*metav1.ObjectMeta)) attempt {
		return func(ctx context.Context) error {
			s := shadowPod("evil")
			s.Namespace = ns
			change(&s.ObjectMeta)
			_, err := api.ShadowPods(ns).Create(ctx, s, metav1.CreateOptions{})
			return err
		}
	}
	patch := func(data string, sub ...string) attempt {
		return func(ctx context.Context) error {
			_, err := api.ShadowPods(twinOfRome).Patch(ctx, "target", types.MergePatchType, []byte(data), metav1.PatchOptions{}, sub...)
			return err
		}
	}
	plain := func(*metav1.ObjectMeta) {}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "kube-root-ca.crt", UID: "1"}
	tries := map[string]attempt{
		"ShadowPod with an owner":    create(twinOfRome, func(m *metav1.ObjectMeta) { m.OwnerReferences = []metav1.OwnerReference{owner} }),
		"ShadowPod with a finalizer": create(twinOfRome, func(m *metav1.ObjectMeta) { m.Finalizers = []string{"example.com/evil"} }),
		"finalizer on a ShadowPod":   patch(`{"metadata":{"finalizers":["example.com/evil"]}}`),
		"owner on a ShadowPod":       patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"1"}]}}`),
		"status of a ShadowPod":      patch(`{"status":{"phase":"Succeeded"}}`, "status"),
		"ShadowPods of the cluster": func(ctx context.Context) error {
			_, err := api.ShadowPods("").List(ctx, metav1.ListOptions{})
			return err
		},
		"deletion of all its ShadowPods": func(ctx context.Context) error {
			return api.ShadowPods(twinOfRome).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		"status of its NamespaceMap": func(ctx context.Context) error {
			_, err := api.NamespaceMaps(tenantOfRome).Patch(ctx, "milan", types.MergePatchType, []byte(`{"status":{"currentMapping":{"x":{"phase":"Accepted"}}}}`), metav1.PatchOptions{}, "status")
			return err
		},
		"finalizers of its NamespaceMap": func(ctx context.Context) error {
			_, err := api.NamespaceMaps(tenantOfRome).Patch(ctx, "milan", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			return err
		},
		"NamespaceMap of another name": func(ctx context.Context) error {
			nm := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}
			_, err := api.NamespaceMaps(tenantOfRome).Create(ctx, nm, metav1.CreateOptions{})
			return err
		},
		"NamespaceMap of another peer": func(ctx context.Context) error {
			_, err := api.NamespaceMaps(tenantOfParis).Patch(ctx, "milan", types.MergePatchType, []byte(`{"spec":{"desiredMapping":{"x":"shop-rome"}}}`), metav1.PatchOptions{})
			return err
		},
		"its own ForeignCluster": func(ctx context.Context) error {
			_, err := p.liqod.CoreV1beta1().ForeignClusters().Patch(ctx, "rome", types.MergePatchType, []byte(`{"spec":{"userName":"x"}}`), metav1.PatchOptions{})
			return err
		},
		"VirtualNode": func(ctx context.Context) error {
			_, err := api.VirtualNodes(tenantOfRome).Create(ctx, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}, metav1.CreateOptions{})
			return err
		},
		"NamespaceOffloading": func(ctx context.Context) error {
			o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: "offloading"}}
			_, err := api.NamespaceOffloadings(twinOfRome).Create(ctx, o, metav1.CreateOptions{})
			return err
		},
	}
	for _, ns := range []string{tenantOfRome, tenantOfParis, twinOfParis, "default", "kube-system", "liqod"} {
		tries["ShadowPod in "+ns] = create(ns, plain)
	}
	return tries
}

// sliceAttempts are attempts with ShadowEndpointSlices, where or how a peer may not.
func sliceAttempts(t *testing.T, p attacker) map[string]attempt {
	t.Helper()
	api := p.liqod.OffloadingV1beta1()
	target := shadowSlice("target", endpoint("10.100.1.1"))
	delete(target.Labels, offloadingv1beta1.DestinationLabel) // or rome's vkubelet removes what it has no EndpointSlice for
	_, err := api.ShadowEndpointSlices(twinOfRome).Create(t.Context(), target, metav1.CreateOptions{})
	require.NoError(t, err)
	create := func(ns string, change func(*metav1.ObjectMeta)) attempt {
		return func(ctx context.Context) error {
			s := shadowSlice("evil", endpoint("169.254.169.254"))
			change(&s.ObjectMeta)
			_, err := api.ShadowEndpointSlices(ns).Create(ctx, s, metav1.CreateOptions{})
			return err
		}
	}
	patch := func(data string, sub ...string) attempt {
		return func(ctx context.Context) error {
			_, err := api.ShadowEndpointSlices(twinOfRome).Patch(ctx, "target", types.MergePatchType, []byte(data), metav1.PatchOptions{}, sub...)
			return err
		}
	}
	enforced := p.core.DiscoveryV1().EndpointSlices(twinOfRome)
	tries := map[string]attempt{
		"ShadowEndpointSlice with an owner": create(twinOfRome, func(m *metav1.ObjectMeta) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "kube-root-ca.crt", UID: "1"}}
		}),
		"ShadowEndpointSlice with a finalizer": create(twinOfRome, func(m *metav1.ObjectMeta) { m.Finalizers = []string{"example.com/evil"} }),
		"finalizer on a ShadowEndpointSlice":   patch(`{"metadata":{"finalizers":["example.com/evil"]}}`),
		"status of a ShadowEndpointSlice":      patch(`{"status":{"conditions":[]}}`, "status"),
		"ShadowEndpointSlices of the cluster": func(ctx context.Context) error {
			_, err := api.ShadowEndpointSlices("").List(ctx, metav1.ListOptions{})
			return err
		},
		"its EndpointSlice": func(ctx context.Context) error {
			_, err := enforced.Patch(ctx, "target", types.MergePatchType, []byte(`{"endpoints":[]}`), metav1.PatchOptions{})
			return err
		},
		"its EndpointSlice's deletion": func(ctx context.Context) error { return enforced.Delete(ctx, "target", metav1.DeleteOptions{}) },
		"reading EndpointSlices": func(ctx context.Context) error {
			_, err := enforced.List(ctx, metav1.ListOptions{})
			return err
		},
		"its own ranges": func(ctx context.Context) error {
			_, err := p.liqod.CoreV1beta1().ForeignClusters().Patch(ctx, "rome", types.MergePatchType, []byte(`{"spec":{"addressRanges":["0.0.0.0/0"]}}`), metav1.PatchOptions{})
			return err
		},
	}
	for _, ns := range []string{tenantOfRome, tenantOfParis, twinOfParis, "default", "kube-system", "liqod"} {
		tries["ShadowEndpointSlice in "+ns] = create(ns, func(*metav1.ObjectMeta) {})
	}
	return tries
}
