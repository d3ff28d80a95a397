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
	// longestRefresh bounds the age of a token, as kubelets do.
	longestRefresh = 24 * time.Hour
	// shortestRefresh keeps clocks that disagree from making tokens all the time.
	shortestRefresh = time.Minute
)

// IssuedToken is a token that this cluster's API server has given.
type IssuedToken struct {
	Token
	// Value is secret.
	Value string
	// CA is the certificates of this cluster's API server, Namespace that of the account.
	CA, Namespace string
	// ServiceAccountUID and BoundTo are the objects that the token dies with.
	ServiceAccountUID, BoundTo types.UID
	// Issued and Expires bound its life.
	Issued, Expires time.Time
}

// tokenRecord is the content of the annotation that says what a Secret's token is.
type tokenRecord struct {
	ServiceAccount    string    `json:"serviceAccount"`
	ServiceAccountUID types.UID `json:"serviceAccountUID"`
	Audience          string    `json:"audience,omitempty"`
	BoundTo           types.UID `json:"boundTo"`
	Issued            time.Time `json:"issued"`
	Expires           time.Time `json:"expires"`
	// Digest of the content tells whether somebody has changed it.
	Digest string `json:"digest"`
}

// TokenLabels are on the Secrets with the tokens of one virtual node, and on those that
// they are bound to here. They select both.
func TokenLabels(node string) map[string]string {
	return map[string]string{
		offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByToken,
		offloadingv1beta1.NodeNameLabel:  node,
	}
}

// labels are TokenLabels with the name of the account, if it is not too long for one.
func (t Token) labels(node string) map[string]string {
	out := TokenLabels(node)
	if len(validation.IsValidLabelValue(t.ServiceAccount)) == 0 {
		out[offloadingv1beta1.ServiceAccountNameLabel] = t.ServiceAccount
	}
	return out
}

// BindingSecret returns the Secret without content, in the namespace of the service
// account, that a token is bound to: deleting it revokes the token. It goes with its owner.
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

// TokenSecret returns the Secret in the twin namespace that a pod finds its token in. It
// lacks the destination label of reflected objects: it stands for no Secret here.
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
	// A struct of strings and times of this era is always encoded.
	text, _ := json.Marshal(record)
	s.Annotations = map[string]string{offloadingv1beta1.TokenAnnotation: string(text)}
	return s
}

// TokenDue returns when the token in a Secret is to be replaced: at about 80 % of its
// life, not for all at the same moment. It is the zero time, and so at once, when the
// Secret is nil or spoilt, or its token died with an account or a binding of other UID.
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

// digest is of what we put into a Secret; what others add does not matter. It does not
// betray a token, which is signed.
func digest(data map[string][]byte) string {
	h := sha256.New()
	for _, key := range []string{corev1.ServiceAccountTokenKey, corev1.ServiceAccountRootCAKey, corev1.ServiceAccountNamespaceKey} {
		sum := sha256.Sum256(data[key])
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fraction is a number from 0 to 1 that is always the same for a name.
func fraction(name string) float64 {
	sum := sha256.Sum256([]byte(name))
	return float64(sum[0]) / 255
}
