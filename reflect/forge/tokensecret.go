package forge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	// longestRefresh is the maximum age of a token. Kubelets use the same limit.
	longestRefresh = 24 * time.Hour
	// shortestRefresh is the minimum age. It prevents continuous renewals if the clocks of
	// two clusters differ.
	shortestRefresh = time.Minute
)

// IssuedToken is a token that this cluster's API server has issued.
type IssuedToken struct {
	Token
	// Value is the token itself. It is secret.
	Value string
	// CA has the CA certificates of this cluster's API server in PEM format. Namespace is
	// the namespace of the service account.
	CA, Namespace string
	// ServiceAccountUID and BoundTo are the UIDs of the objects whose deletion invalidates
	// the token.
	ServiceAccountUID, BoundTo types.UID
	// Issued and Expires are the bounds of the token's lifetime.
	Issued, Expires time.Time
}

// tokenRecord is the content of the annotation that describes the token in a Secret.
type tokenRecord struct {
	ServiceAccount    string    `json:"serviceAccount"`
	ServiceAccountUID types.UID `json:"serviceAccountUID"`
	Audience          string    `json:"audience,omitempty"`
	BoundTo           types.UID `json:"boundTo"`
	Issued            time.Time `json:"issued"`
	Expires           time.Time `json:"expires"`
	// Digest is the hash of the content. It reveals changes by other clients.
	Digest string `json:"digest"`
}

// TokenLabels are the labels of the Secrets with the tokens of one virtual node, and of
// the local Secrets that the tokens are bound to. They serve as the selector of both.
func TokenLabels(node string) map[string]string {
	return map[string]string{
		offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByToken,
		offloadingv1beta1.NodeNameLabel:  node,
	}
}

// labels returns TokenLabels and the name of the service account, if it is a valid label
// value.
func (t Token) labels(node string) map[string]string {
	out := TokenLabels(node)
	if len(validation.IsValidLabelValue(t.ServiceAccount)) == 0 {
		out[offloadingv1beta1.ServiceAccountNameLabel] = t.ServiceAccount
	}
	return out
}

// BindingSecret returns the empty Secret in the namespace of the service account that a
// token is bound to. Deleting it revokes the token. The garbage collector deletes it with
// its owner.
func BindingSecret(t Token, namespace, node string, owner metav1.OwnerReference) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: t.Name, Namespace: namespace, Labels: t.labels(node),
			Annotations:     map[string]string{offloadingv1beta1.SkipReflectionAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Type: corev1.SecretTypeOpaque,
	}
}

// TokenSecret returns the Secret in the twin namespace from which a pod reads its token.
// It has no destination label, because it is not the reflection of a local Secret.
func TokenSecret(t IssuedToken, o PodOptions) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: t.Name, Namespace: o.RemoteNamespace, Labels: t.labels(o.NodeName)},
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			corev1.ServiceAccountTokenKey:     []byte(t.Value),
			corev1.ServiceAccountRootCAKey:    []byte(t.CA),
			corev1.ServiceAccountNamespaceKey: []byte(t.Namespace),
		},
	}
	s.Labels[offloadingv1beta1.OriginLabel] = o.OriginClusterID
	record := tokenRecord{
		ServiceAccount: t.ServiceAccount, ServiceAccountUID: t.ServiceAccountUID, Audience: t.Audience, BoundTo: t.BoundTo,
		Issued: t.Issued.UTC().Truncate(time.Second), Expires: t.Expires.UTC().Truncate(time.Second), Digest: digest(s.Data),
	}
	// Encoding strings and times never fails.
	text, _ := json.Marshal(record)
	s.Annotations = map[string]string{offloadingv1beta1.TokenAnnotation: string(text)}
	return s
}

// TokenDue returns when the token in a Secret must be renewed: at 75 to 80 % of its
// lifetime, at a different moment for each token, but not before a minute and not after
// 24 hours. The zero time means at once: have is nil, was modified, or its token is no
// longer valid because the service account or the bound object has another UID.
func TokenDue(have *corev1.Secret, account, bound types.UID) time.Time {
	if have == nil || have.Type != corev1.SecretTypeOpaque {
		return time.Time{}
	}
	var r tokenRecord
	if json.Unmarshal([]byte(have.Annotations[offloadingv1beta1.TokenAnnotation]), &r) != nil ||
		r.ServiceAccountUID != account || r.BoundTo != bound || r.Digest != digest(have.Data) {
		return time.Time{}
	}
	life := r.Expires.Sub(r.Issued)
	part := 0.80 - 0.05*fraction(have.Name+string(bound))
	age := min(time.Duration(float64(life)*part), longestRefresh)
	return r.Issued.Add(max(age, shortestRefresh))
}

// digest returns the hash of the keys that TokenSecret writes; other keys are ignored. It
// does not reveal the token, whose signature cannot be guessed.
func digest(data map[string][]byte) string {
	h := sha256.New()
	for _, key := range []string{corev1.ServiceAccountTokenKey, corev1.ServiceAccountRootCAKey, corev1.ServiceAccountNamespaceKey} {
		sum := sha256.Sum256(data[key])
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fraction returns a number from 0 to 1 that is derived from the name.
func fraction(name string) float64 {
	sum := sha256.Sum256([]byte(name))
	return float64(sum[0]) / 255
}
