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
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// vkubeletRights shows that a vkubelet's identity is bound to its own node.
func vkubeletRights(t *testing.T, w *world) {
	vk, _ := clients(t, holder{in: w.rome, namespace: tenantOfMilan, account: "vk-milan"}.config(t))
	other := w.rome.SimulatedNodeName(1)
	kubetest.Create(t, w.rome.Client().CoreV1().Pods("default"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec: corev1.PodSpec{NodeName: other, Containers: []corev1.Container{{Name: "c", Image: "sim/web:1"}}}})
	kubetest.Create(t, w.rome.Client().CoreV1().Pods("default"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: corev1.PodSpec{
		NodeName: "milan", Containers: []corev1.Container{{Name: "c", Image: "sim/web:1"}}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}})
	requests := certificateRequests(t, vk, other)

	merge := types.MergePatchType
	tries := map[string]attempt{
		"status of another node's pod":             lab.Patches(vk.CoreV1().Pods("default"), "local", merge, []byte(`{"status":{"phase":"Failed"}}`), "status"),
		"deletion of another node's pod":           lab.Deletes(vk.CoreV1().Pods("default"), "local"),
		"image of its own pod":                     lab.Patches(vk.CoreV1().Pods("default"), "own", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","image":"sim/evil:1"}]}}`)),
		"labels of its own pod":                    lab.Patches(vk.CoreV1().Pods("default"), "own", merge, []byte(`{"metadata":{"labels":{"app":"web"}}}`)),
		"annotations of its own pod":               lab.Patches(vk.CoreV1().Pods("default"), "own", merge, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)),
		"deadline of its own pod":                  lab.Patches(vk.CoreV1().Pods("default"), "own", merge, []byte(`{"spec":{"activeDeadlineSeconds":1}}`)),
		"finalizers of its own pod":                lab.Patches(vk.CoreV1().Pods("default"), "own", merge, []byte(`{"metadata":{"finalizers":["evil.example/x"]}}`)),
		"tolerations of another node's pod":        lab.Patches(vk.CoreV1().Pods("default"), "local", types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/tolerations/-","value":{"operator":"Exists"}}]`)),
		"another Node":                             lab.Patches(vk.CoreV1().Nodes(), other, merge, []byte(`{"spec":{"unschedulable":true}}`)),
		"status of another Node":                   lab.Patches(vk.CoreV1().Nodes(), other, merge, []byte(`{"status":{"conditions":[]}}`), "status"),
		"a new Node":                               lab.Creates(vk.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "evil", Labels: map[string]string{"liqo.io/type": "virtual-node"}}}),
		"Lease of another vkubelet":                lab.Creates(vk.CoordinationV1().Leases(tenantOfMilan), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "vk-other"}}),
		"Lease named as the shared one, elsewhere": lab.Creates(vk.CoordinationV1().Leases("liqod"), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "reflection"}}),
		"a volume that a node could use":           lab.Creates(vk.CoreV1().PersistentVolumes(), evilVolume("/etc", "milan")),
		"a volume in another provider":             lab.Creates(vk.CoreV1().PersistentVolumes(), evilVolume("/var/lib/liqod/in-the-provider", "paris")),
		"a volume of a claim elsewhere": lab.Creates(vk.CoreV1().PersistentVolumes(), evilVolume("/var/lib/liqod/in-the-provider", "milan", func(v *corev1.PersistentVolume) {
			v.Name, v.Spec.ClaimRef.Namespace = "pvc-evil", "liqod"
		})),
		"a volume with the name of another claim's": lab.Creates(vk.CoreV1().PersistentVolumes(), evilVolume("/var/lib/liqod/in-the-provider", "milan", func(v *corev1.PersistentVolume) {
			v.Name = "pvc-other"
		})),
		"Lease of the scheduler": lab.Creates(vk.CoordinationV1().Leases("kube-system"), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}),
	}
	maps.Copy(tries, tokenAttempts(t, w, vk))
	maps.Copy(tries, eventAttempts(t, vk))
	allRefused(t, tries)
	local := kubetest.Get(t, w.rome.Client().CoreV1().Pods("default"), "local")
	require.Nil(t, local.DeletionTimestamp)
	t.Cleanup(func() {
		for _, name := range requests {
			csr := must(w.rome.Client().CertificatesV1().CertificateSigningRequests().Get(context.WithoutCancel(t.Context()), name, metav1.GetOptions{}))(t)
			require.Empty(t, csr.Status.Conditions, "request %s must be left alone", name)
			require.Empty(t, csr.Status.Certificate)
		}
	})
}

// eventAttempts are attempts to write events where or about what a vkubelet may not. Those of
// its namespace it may write.
func eventAttempts(t *testing.T, vk kubernetes.Interface) map[string]attempt {
	t.Helper()
	write := func(namespace, kind string) attempt {
		return lab.Creates(vk.CoreV1().Events(namespace), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "evil-"},
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: "x"}, Reason: "Evil", Type: corev1.EventTypeWarning,
		})
	}
	require.NoError(t, write("shop", "Pod")(t.Context()))
	tries := map[string]attempt{}
	for _, namespace := range []string{"default", "kube-system", "liqod"} {
		tries["event in "+namespace] = write(namespace, "Pod")
	}
	return tries
}

// tokenAttempts are attempts to get tokens, and to write Secrets, beyond what the tokens
// of its own pods need.
func tokenAttempts(t *testing.T, w *world, vk kubernetes.Interface) map[string]attempt {
	t.Helper()
	users := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "users"}}
	kubetest.Create(t, w.rome.Client().CoreV1().Secrets("shop"), users)
	token := func(namespace string, bound *authenticationv1.BoundObjectReference) attempt {
		return func(ctx context.Context) error {
			_, err := vk.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "default",
				&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
			return err
		}
	}
	secret := func(change func(*corev1.Secret)) attempt {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "evil", Labels: tokenLabels("milan")}, Type: corev1.SecretTypeOpaque}
		change(s)
		return lab.Creates(vk.CoreV1().Secrets("shop"), s)
	}
	return map[string]attempt{
		"a token bound to nothing": token("shop", nil),
		"a token bound to a name":  token("shop", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "users"}),
		"a Secret without mark":    secret(func(s *corev1.Secret) { s.Labels = nil }),
		"a Secret of another node": secret(func(s *corev1.Secret) { s.Labels = tokenLabels("paris") }),
		"a Secret with content":    secret(func(s *corev1.Secret) { s.StringData = map[string]string{"a": "b"} }),
		"a Secret with a lasting token": secret(func(s *corev1.Secret) {
			s.Type, s.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: "default"}
		}),
		"deletion of a user's Secret": lab.Deletes(vk.CoreV1().Secrets("shop"), "users"),
	}
}

// certificateRequests asks, as the vkubelet may, for certificates that it may not have.
func certificateRequests(t *testing.T, vk kubernetes.Interface, other string) []string {
	t.Helper()
	serving := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	client := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	nodes := []string{"system:nodes"}
	cases := map[string]struct {
		signer  string
		usages  []certificatesv1.KeyUsage
		request x509.CertificateRequest
	}{
		"another-node": {certificatesv1.KubeletServingSignerName, serving,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + other, Organization: nodes}, DNSNames: []string{other}}},
		"another-address": {certificatesv1.KubeletServingSignerName, serving,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:milan", Organization: nodes}, DNSNames: []string{"milan"}, IPAddresses: []net.IP{{10, 9, 8, 7}}}},
		"another-name": {certificatesv1.KubeletServingSignerName, serving,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:milan", Organization: nodes}, DNSNames: []string{"milan", "kubernetes.default.svc"}}},
		"client-of-its-node": {certificatesv1.KubeAPIServerClientKubeletSignerName, client,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:milan", Organization: nodes}}},
		"client": {certificatesv1.KubeAPIServerClientSignerName, client,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin", Organization: []string{"liqod"}}}},
	}
	var names []string
	for name, tc := range cases {
		key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		der := must(x509.CreateCertificateRequest(rand.Reader, &tc.request, key))(t)
		kubetest.Create(t, vk.CertificatesV1().CertificateSigningRequests(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "evil-" + name},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: tc.signer, Usages: tc.usages,
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
		})
		names = append(names, "evil-"+name)
	}
	return names
}

// evilVolume looks like one of liqod's, but for its path or its provider.
func evilVolume(path, provider string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	claim := statefulSet("evil", 1).Spec.VolumeClaimTemplates[0].DeepCopy()
	claim.Namespace, claim.UID = "shop", "evil"
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "evil", Labels: map[string]string{"liqo.io/remote-cluster-id": provider},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "liqo.io/storage"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: "liqo",
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "liqo.io/remote-cluster-id", Operator: corev1.NodeSelectorOpIn, Values: []string{provider}}},
			}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
		},
	}
	for _, f := range change {
		f(v)
	}
	return v
}
