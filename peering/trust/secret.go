package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

// Keys of a token's Secret, which has the type corev1beta1.PeeringTokenType. People may
// write such a Secret by hand.
const (
	// HashKey has the Hash of the token's secret. TokenKey may be used instead, with the
	// whole token in clear text.
	HashKey  = "hash"
	TokenKey = "token"
	// ExpirationKey has the time at which the token expires (RFC 3339). Default: never.
	ExpirationKey = "expiration"
	// UsesKey has the number of identities that the token is good for; "0" means any
	// number. Default: 1.
	UsesKey = "uses"
	// ClusterIDKey has the id of the only cluster that may use the token. Default: any
	// cluster that is not enrolled.
	ClusterIDKey = "clusterID"
	// TrustKey has the trust in the clusters that use the token: spec.trust of their
	// ForeignClusters, as corev1beta1.Trust. Default: none.
	TrustKey = "trust"
	// redemptionsKey has a JSON list of Redemption, written by the endpoint.
	redemptionsKey = "redemptions"
)

// MostUses is the maximum limit of a token's uses, because each use is stored in its
// Secret.
const MostUses = 100

// Record is the content of a token's Secret.
type Record struct {
	// ID is the id of the token.
	ID string
	// Hash is the Hash of the token's secret.
	Hash string
	// Expiration is when the token expires; zero: never.
	Expiration time.Time
	// Uses is the number of identities that the token is good for. 0 means any number; the
	// uses are not stored then.
	Uses int
	// ClusterID is the id of the only cluster that may use the token. If it is empty, any
	// cluster that is not enrolled may.
	ClusterID string
	// Trust is set in the ForeignCluster of a cluster that uses the token, if that has none.
	Trust corev1beta1.Trust
	// Owner is the UID of the ForeignCluster that owns the Secret of a token that was sent
	// to a peer. It is empty for a token that a person created.
	Owner types.UID
	// Redemptions are the uses so far.
	Redemptions []Redemption
}

// Redemption is one use of a token.
type Redemption struct {
	ClusterID string `json:"clusterID"`
	// Serial is the Serial of the enrolled key.
	Serial string `json:"serial"`
	// Replaces is the serial of the peer's previous enrolment, if there was one.
	Replaces string `json:"replaces,omitempty"`
	// Granted is when the enrolment was completed; zero: not yet.
	Granted time.Time `json:"granted,omitzero"`
}

// Expired reports whether the token has expired.
func (r Record) Expired(now time.Time) bool {
	return !r.Expiration.IsZero() && !now.Before(r.Expiration)
}

// UsedUp reports whether the token has no use left.
func (r Record) UsedUp() bool { return r.Uses > 0 && len(r.Redemptions) >= r.Uses }

// Redemption returns the index of the redemption by a cluster with a key, or -1.
func (r Record) Redemption(clusterID, serial string) int {
	return slices.IndexFunc(r.Redemptions, func(d Redemption) bool { return d.ClusterID == clusterID && d.Serial == serial })
}

// SecretName returns the name of the Secret of a token.
func SecretName(id string) string { return corev1beta1.PeeringTokenPrefix + id }

// ReadSecret parses a token's Secret. It returns an error for any content that it does not
// understand, so that such a token cannot be used.
func ReadSecret(secret *corev1.Secret) (Record, error) {
	fail := func(key, accepts string) (Record, error) {
		return Record{}, fmt.Errorf("secret %s/%s, key %s: %s is accepted", secret.Namespace, secret.Name, key, accepts)
	}
	r := Record{Uses: 1, ClusterID: string(secret.Data[ClusterIDKey])}
	if secret.Type != corev1beta1.PeeringTokenType || len(secret.Name) <= len(corev1beta1.PeeringTokenPrefix) {
		return Record{}, fmt.Errorf("secret %s/%s is not that of a token: its type is %q, not %s", secret.Namespace, secret.Name, secret.Type, corev1beta1.PeeringTokenType)
	}
	r.ID = secret.Name[len(corev1beta1.PeeringTokenPrefix):]
	if r.ClusterID != "" && CheckClusterID(r.ClusterID) != nil {
		return fail(ClusterIDKey, "the id of a cluster")
	}
	switch r.Trust = corev1beta1.Trust(secret.Data[TrustKey]); r.Trust {
	case "", corev1beta1.TrustStrict, corev1beta1.TrustOrganisation:
	default:
		return fail(TrustKey, fmt.Sprintf("%s or %s", corev1beta1.TrustStrict, corev1beta1.TrustOrganisation))
	}
	for _, owner := range secret.OwnerReferences {
		if owner.APIVersion == corev1beta1.SchemeGroupVersion.String() && owner.Kind == "ForeignCluster" {
			r.Owner = owner.UID
		}
	}
	var err error
	if text, ok := secret.Data[ExpirationKey]; ok {
		if r.Expiration, err = time.Parse(time.RFC3339, string(text)); err != nil || r.Expiration.IsZero() {
			return fail(ExpirationKey, "a time as 2030-01-02T15:04:05Z")
		}
	}
	if text, ok := secret.Data[UsesKey]; ok {
		if r.Uses, err = strconv.Atoi(string(text)); err != nil || r.Uses < 0 || r.Uses > MostUses {
			return fail(UsesKey, fmt.Sprintf("a number from 0 (any number of uses) to %d", MostUses))
		}
	}
	if text, ok := secret.Data[redemptionsKey]; ok {
		if err := json.Unmarshal(text, &r.Redemptions); err != nil {
			return fail(redemptionsKey, "what liqod has written there")
		}
	}
	if r.Hash, err = hashOf(secret, r.ID); err != nil {
		return Record{}, fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return r, nil
}

func hashOf(secret *corev1.Secret, id string) (string, error) {
	hash, clear := string(secret.Data[HashKey]), string(secret.Data[TokenKey])
	switch {
	case (hash == "") == (clear == ""):
		return "", fmt.Errorf("one of the keys %s and %s is accepted", HashKey, TokenKey)
	case hash != "" && len(hash) != len(Hash("")):
		return "", fmt.Errorf("key %s: 64 hexadecimal digits are accepted", HashKey)
	case hash != "":
		return hash, nil
	}
	token, err := ParseToken(clear)
	if err != nil {
		return "", fmt.Errorf("key %s: %w", TokenKey, err)
	}
	if token.ID != id {
		return "", errors.New("its name and the id of its token differ: the name is " + SecretName(token.ID))
	}
	return Hash(token.Secret), nil
}

// NewSecret returns the Secret of a token without redemptions.
func NewSecret(namespace string, r Record) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: SecretName(r.ID), Labels: map[string]string{corev1beta1.PeeringTokenLabel: "true"},
		},
		Type: corev1beta1.PeeringTokenType,
		Data: map[string][]byte{HashKey: []byte(r.Hash), UsesKey: []byte(strconv.Itoa(r.Uses))},
	}
	if !r.Expiration.IsZero() {
		secret.Data[ExpirationKey] = []byte(r.Expiration.UTC().Format(time.RFC3339))
	}
	if r.ClusterID != "" {
		secret.Data[ClusterIDKey] = []byte(r.ClusterID)
	}
	if r.Trust != "" {
		secret.Data[TrustKey] = []byte(r.Trust)
	}
	return secret
}

// WithRedemptions returns a copy of a token's Secret with the given redemptions.
func WithRedemptions(secret *corev1.Secret, uses []Redemption) (*corev1.Secret, error) {
	text, err := json.Marshal(uses)
	if err != nil {
		return nil, fmt.Errorf("encoding the uses of a token: %w", err)
	}
	out := secret.DeepCopy()
	out.Data = maps.Clone(out.Data)
	out.Data[redemptionsKey] = text
	return out, nil
}
