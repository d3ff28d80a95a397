package scenarios

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// Writes of the tests below change nothing.
var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryPatch  = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	dryUpdate = metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	dryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

// allowed shows that each policy of the chart lets pass what the identities write that it is about. A
// policy that refuses everything would pass all other tests of rights.
func allowed(t *testing.T, w *world) {
	byController, byVKubelet := holder{in: w.rome, namespace: "liqod", account: "liqod-controller"}, holder{in: w.rome, namespace: tenantOfMilan, account: "vk-milan"}
	controller, _ := clients(t, byController.config(t))
	vk, _ := clients(t, byVKubelet.config(t))
	peer, _ := clients(t, holder{in: w.milan, namespace: tenantOfRome, account: "peer-1"}.config(t))
	ofMilan, _ := clients(t, holder{in: w.milan, namespace: "liqod", account: "liqod-controller"}.config(t))
	bound := secretOfToken(t, vk)
	podAndClaim(t, w)

	tries := map[string]map[string]attempt{
		"liqod-peer":            peerWrites(peer),
		"liqod-vkubelet":        vkubeletWrites(vk),
		"liqod-controller":      controllerWrites(controller, ofMilan),
		"liqod-controller-pods": writesOfPods(vk, peer, ofMilan),
		"liqod-peer-others": {"a Lease of a vkubelet in a tenant namespace": func(ctx context.Context) error {
			leases := vk.CoordinationV1().Leases(tenantOfMilan)
			return unchanged(ctx, leases, leases, "vk-milan")
		}},
		"liqod-vkubelet-tokens": {"a token that a Secret revokes": func(ctx context.Context) error {
			_, err := vk.CoreV1().ServiceAccounts("shop").CreateToken(ctx, "default", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: bound.Name, UID: bound.UID}}}, metav1.CreateOptions{})
			return err
		}},
		"liqod-secrets": {
			"the deletion of a Secret that a token was bound to": lab.Deletes(vk.CoreV1().Secrets("shop"), bound.Name, dryDelete),
			"the identity in a peer":                             lab.Creates(ofMilan.CoreV1().Secrets(tenantOfRome), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "rome", Labels: map[string]string{"liqo.io/enrolled": "true"}}}, dryCreate),
			"its serving certificate": func(ctx context.Context) error {
				return unchanged(ctx, ofMilan.CoreV1().Secrets("liqod"), w.milan.Client().CoreV1().Secrets("liqod"), "liqod-auth-certs")
			},
		},
		"liqod-controller-bindings": bindingWrites(controller, ofMilan),
		"liqod-controller-peers": {
			"a token of a peer's account": func(ctx context.Context) error {
				return second(ofMilan.CoreV1().ServiceAccounts(tenantOfRome).CreateToken(ctx, "peer-1", &authenticationv1.TokenRequest{}, dryCreate))
			},
			"a certificate of a peer": lab.Creates(ofMilan.CertificatesV1().CertificateSigningRequests(), requestOfPeer(t), dryCreate),
		},
		"liqod-controller-deployments": {"the Deployment of a vkubelet": func(ctx context.Context) error {
			return unchanged(ctx, controller.AppsV1().Deployments(tenantOfMilan), w.rome.Client().AppsV1().Deployments(tenantOfMilan), "vk-milan")
		}},
		"liqod-controller-storage": {"a claim for a claim": func(ctx context.Context) error {
			const uid = "5a1c9c5e-5f5e-4d0c-9a57-2f4f4b4d6a11"
			claim := claimOf(uid)
			claim.Labels = map[string]string{"offloading.liqo.io/local-claim-uid": uid}
			return second(controller.CoreV1().PersistentVolumeClaims("liqo-storage").Create(ctx, claim, dryCreate))
		}},
		"liqod-tenants": {"the deletion of a tenant namespace by hand": lab.Deletes(w.rome.Client().CoreV1().Namespaces(), tenantOfMilan, dryDelete)},
	}
	// Volumes and events are tried beside what is refused, with the same builders.
	tries["liqod-controller-bindings"]["the binding of a vkubelet"] = func(ctx context.Context) error {
		return unchanged(ctx, controller.RbacV1().RoleBindings("shop"), w.rome.Client().RbacV1().RoleBindings("shop"), "liqod-vkubelet-namespace:"+tenantOfMilan+":milan")
	}
	beside := []string{"liqod-events"}
	require.ElementsMatch(t, policiesOf(t, w.rome), append(slices.Collect(maps.Keys(tries)), beside...), "a try for each policy")
	for policy, of := range tries {
		for name, try := range of {
			t.Run(policy+"/"+name, func(t *testing.T) { require.NoError(t, try(t.Context())) })
		}
	}
	require.NoError(t, w.rome.Client().CoreV1().Pods("shop").Delete(t.Context(), "allowed", metav1.DeleteOptions{}))
	require.NoError(t, vk.CoreV1().Secrets("shop").Delete(t.Context(), bound.Name, metav1.DeleteOptions{}))
}

// policiesOf are the names of liqod's admission policies in a cluster.
func policiesOf(t *testing.T, s *site.Site) []string {
	t.Helper()
	var names []string
	for _, p := range kubetest.List(t, s.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies()).Items {
		if strings.HasPrefix(p.Name, "liqod-") {
			names = append(names, p.Name)
		}
	}
	return names
}

// secretOfToken makes a Secret as the vkubelet makes them for the tokens of its pods.
func secretOfToken(t *testing.T, vk kubernetes.Interface) *corev1.Secret {
	t.Helper()
	return kubetest.Create(t, vk.CoreV1().Secrets("shop"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "allowed", Labels: tokenLabels("milan")}})
}

// podAndClaim make pod allowed on virtual node milan, and in the provider, and a claim that liqod
// provisions.
func podAndClaim(t *testing.T, w *world) {
	t.Helper()
	home := w.rome.Client().CoreV1()
	claim := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	claim.Name, claim.Annotations = "allowed", map[string]string{"volume.kubernetes.io/storage-provisioner": "liqo.io/storage"}
	kubetest.Create(t, home.PersistentVolumeClaims("shop"), &claim)
	spec := podSpec("sim/web:1")
	spec.NodeName = "milan"
	kubetest.Create(t, home.Pods("shop"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "allowed"}, Spec: spec})
	within(t, longest, "the pod is in the provider", lab.Exists(w.milan.Client().CoreV1().Pods(twinOfRome), "allowed"))
}

func dryPatches[T any](c lab.Patcher[T], name string, kind types.PatchType, body string, sub ...string) attempt {
	return func(ctx context.Context) error {
		return second(c.Patch(ctx, name, kind, []byte(body), dryPatch, sub...))
	}
}

// api is what a typed client of one kind reads and updates.
type api[T any] interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}

// unchanged writes an object as it is, which another client has read.
func unchanged[T any](ctx context.Context, c, reader api[T], name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		obj, err := reader.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return second(c.Update(ctx, obj, dryUpdate))
	})
}

func peerWrites(peer kubernetes.Interface) map[string]attempt {
	own := metav1.ObjectMeta{Name: "allowed-too", Labels: map[string]string{"offloading.liqo.io/origin": "rome"}}
	claim := func(source *corev1.TypedLocalObjectReference, later *corev1.TypedObjectReference) attempt {
		it := claimOf("x")
		it.ObjectMeta, it.Spec.DataSource, it.Spec.DataSourceRef = own, source, later
		return lab.Creates(peer.CoreV1().PersistentVolumeClaims(twinOfRome), it, dryCreate)
	}
	return map[string]attempt{
		"a claim":                              claim(nil, nil),
		"a claim with the data of another one": claim(&corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}, nil),
		"a claim with a data source by the later field": claim(nil, &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}),
		"a Secret": lab.Creates(peer.CoreV1().Secrets(twinOfRome), &corev1.Secret{ObjectMeta: own, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": nil, "tls.key": nil}}, dryCreate),
		"an Ingress without a class": func(ctx context.Context) error {
			ing := ingressOf("x", "")
			ing.ObjectMeta = own
			return second(peer.NetworkingV1().Ingresses(twinOfRome).Create(ctx, ing, dryCreate))
		},
		"the renewal of its heartbeat": dryPatches(peer.CoordinationV1().Leases(tenantOfRome), "liqod-heartbeat", types.MergePatchType, `{"spec":{"renewTime":"2026-01-02T03:04:05.000006Z"}}`),
	}
}

func vkubeletWrites(vk kubernetes.Interface) map[string]attempt {
	core, merge := vk.CoreV1(), types.MergePatchType
	nodeLeases, leases := vk.CoordinationV1().Leases("kube-node-lease"), vk.CoordinationV1().Leases(tenantOfMilan)
	event := func(namespace, kind, name string) attempt {
		return lab.Creates(core.Events(namespace), &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "allowed-"}, Reason: "X",
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: strings.TrimPrefix(namespace, "default"), Name: name}}, dryCreate)
	}
	const patch = `{"metadata":{"annotations":{"a":"1"}}}`
	return map[string]attempt{
		"its Node":          dryPatches(core.Nodes(), "milan", merge, patch),
		"its Node's status": dryPatches(core.Nodes(), "milan", merge, `{"status":{"nodeInfo":{"kernelVersion":"x"}}}`, "status"),
		"a volume of a claim in its provider": func(ctx context.Context) error {
			v := evilVolume("/var/lib/liqod/in-the-provider", "milan")
			v.Name = "pvc-" + string(v.Spec.ClaimRef.UID)
			return second(core.PersistentVolumes().Create(ctx, v, dryCreate))
		},
		"a claim that it provisions": dryPatches(core.PersistentVolumeClaims("shop"), "allowed", merge, patch),
		"the size of such a claim":   dryPatches(core.PersistentVolumeClaims("shop"), "allowed", merge, `{"status":{"capacity":{"storage":"2Gi"}}}`, "status"),
		"an event about a claim":     event("shop", "PersistentVolumeClaim", "allowed"),
		"an event about its Node":    event("default", "Node", "milan"),
		"an event about a volume":    event("default", "PersistentVolume", "pvc-1"),
		"its Node's Lease":           func(ctx context.Context) error { return unchanged(ctx, nodeLeases, nodeLeases, "milan") },
		"the Lease by which the vkubelets of a provider agree on who reflects": func(ctx context.Context) error { return unchanged(ctx, leases, leases, "reflection") },
	}
}

func controllerWrites(home, provider kubernetes.Interface) map[string]attempt {
	merge := types.MergePatchType
	twin := metav1.ObjectMeta{Name: "liqod-twin", Labels: map[string]string{"liqo.io/managed-by": "namespacemap"}}
	return map[string]attempt{
		"the cordon of a virtual node":       dryPatches(home.CoreV1().Nodes(), "milan", merge, `{"spec":{"unschedulable":true}}`),
		"the mark of an offloaded namespace": dryPatches(home.CoreV1().Namespaces(), "shop", merge, `{"metadata":{"labels":{"liqo.io/scheduling-enabled":null}}}`),
		"a tenant namespace": lab.Creates(home.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-berlin", Labels: map[string]string{
			"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": "berlin", "pod-security.kubernetes.io/enforce": "restricted"}}}, dryCreate),
		"the deletion of a twin": lab.Deletes(provider.CoreV1().Namespaces(), twinOfRome, dryDelete),
		"the deletion of what is in a twin": func(ctx context.Context) error {
			return provider.CoreV1().ConfigMaps(twinOfRome).DeleteCollection(ctx, dryDelete, metav1.ListOptions{})
		},
		"the quota of a twin": func(ctx context.Context) error {
			return unlessThere(second(provider.CoreV1().ResourceQuotas(twinOfRome).Create(ctx, &corev1.ResourceQuota{ObjectMeta: twin}, dryCreate)))
		},
		"the policy of a twin": func(ctx context.Context) error {
			return unlessThere(second(provider.NetworkingV1().NetworkPolicies(twinOfRome).Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: twin}, dryCreate)))
		},
	}
}

// unlessThere is nil for an object that exists: admission was asked before that was seen.
func unlessThere(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func writesOfPods(vk, peer, provider kubernetes.Interface) map[string]attempt {
	patch := func(kind types.PatchType, body string, sub ...string) attempt {
		return dryPatches(vk.CoreV1().Pods("shop"), "allowed", kind, body, sub...)
	}
	return map[string]attempt{
		"the status of its pod":                patch(types.MergePatchType, `{"status":{"message":"x"}}`, "status"),
		"what becomes of it without provider":  patch(types.MergePatchType, `{"metadata":{"annotations":{"offloading.liqo.io/on-provider-loss":"Keep"}}}`),
		"a toleration of its pod":              patch(types.JSONPatchType, `[{"op":"add","path":"/spec/tolerations/-","value":{"key":"x","operator":"Exists"}}]`),
		"the deletion of its pod":              lab.Deletes(vk.CoreV1().Pods("shop"), "allowed", dryDelete),
		"the deletion of the pod of a peer":    lab.Deletes(peer.CoreV1().Pods(twinOfRome), "allowed", dryDelete),
		"the same, by the provider's own role": lab.Deletes(provider.CoreV1().Pods(twinOfRome), "allowed", dryDelete),
	}
}

// bindingWrites are the bindings of each role of the chart that the controller binds.
func bindingWrites(home, provider kubernetes.Interface) map[string]attempt {
	tries := map[string]attempt{"a vkubelet's, in the whole cluster": lab.Creates(home.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqod-vkubelet-cluster:" + tenantOfMilan + ":allowed"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqod-vkubelet-cluster"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenantOfMilan, Name: "vk-milan"}}}, dryCreate)}
	account := func(namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	rome := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccount:" + tenantOfRome + ":peer-1"}
	for role, of := range map[string]struct {
		by        kubernetes.Interface
		namespace string
		to        rbacv1.Subject
	}{
		"liqod-controller-tenant": {home, tenantOfMilan, account("liqod", "liqod-controller")},
		"liqod-vkubelet-tenant":   {home, tenantOfMilan, account(tenantOfMilan, "vk-milan")},
		"liqod-peer-tenant":       {provider, tenantOfRome, rome},
		"liqod-peer-twin":         {provider, twinOfRome, rome},
		"liqod-controller-twin":   {provider, twinOfRome, account("liqod", "liqod-controller")},
	} {
		tries[role] = lab.Creates(of.by.RbacV1().RoleBindings(of.namespace), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role + ":allowed"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{of.to}}, dryCreate)
	}
	return tries
}

// requestOfPeer is a certificate request as the controller makes it for a peer.
func requestOfPeer(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "liqo.io:peer:rome:1"}}, key))(t)
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "liqod-peer-rome-1"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: ptr.To[int32](3600), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
}
