package trust

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

func TestSecretThereAndBack(t *testing.T) {
	t.Parallel()
	full := Record{ID: "a1", Hash: Hash("secret"), Expiration: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Uses: 3, ClusterID: "rome", Trust: corev1beta1.TrustOrganisation}
	for name, record := range map[string]Record{"full": full, "for ever": {ID: "a1", Hash: Hash("secret")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := NewSecret("liqod", record)
			require.Equal(t, "token-a1", secret.Name)
			have, err := ReadSecret(secret)
			require.NoError(t, err)
			require.Equal(t, record, have)

			record.Redemptions = []Redemption{{ClusterID: "rome", Serial: "1", Replaces: "0", Granted: full.Expiration}, {ClusterID: "paris", Serial: "2"}}
			used, err := WithRedemptions(secret, record.Redemptions)
			require.NoError(t, err)
			have, err = ReadSecret(used)
			require.NoError(t, err)
			require.Equal(t, record, have)
			require.NotContains(t, secret.Data, redemptionsKey)
			require.Equal(t, 1, have.Redemption("paris", "2"))
			require.Equal(t, -1, have.Redemption("paris", "1"))
		})
	}
}

func TestReadSecretByHand(t *testing.T) {
	t.Parallel()
	token := newToken(t)
	secret := func(data map[string]string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: SecretName(token.ID)}, Type: corev1beta1.PeeringTokenType, Data: map[string][]byte{}}
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		return s
	}
	have, err := ReadSecret(secret(map[string]string{TokenKey: token.String()}))
	require.NoError(t, err)
	require.Equal(t, Record{ID: token.ID, Hash: Hash(token.Secret), Uses: 1}, have)

	hash := Hash(token.Secret)
	wrong := map[string]*corev1.Secret{
		"neither":          secret(nil),
		"both":             secret(map[string]string{TokenKey: token.String(), HashKey: hash}),
		"half a hash":      secret(map[string]string{HashKey: hash[:32]}),
		"another token":    secret(map[string]string{TokenKey: newToken(t).String()}),
		"no token":         secret(map[string]string{TokenKey: "secret"}),
		"no time":          secret(map[string]string{HashKey: hash, ExpirationKey: "tomorrow"}),
		"an empty time":    secret(map[string]string{HashKey: hash, ExpirationKey: ""}),
		"a zero time":      secret(map[string]string{HashKey: hash, ExpirationKey: "0001-01-01T00:00:00Z"}),
		"no number":        secret(map[string]string{HashKey: hash, UsesKey: "many"}),
		"a negative":       secret(map[string]string{HashKey: hash, UsesKey: "-1"}),
		"too many":         secret(map[string]string{HashKey: hash, UsesKey: "101"}),
		"no number at all": secret(map[string]string{HashKey: hash, UsesKey: ""}),
		"no cluster":       secret(map[string]string{HashKey: hash, ClusterIDKey: "Rome!"}),
		"no trust":         secret(map[string]string{HashKey: hash, TrustKey: "organisation"}),
		"no uses":          secret(map[string]string{HashKey: hash, redemptionsKey: "{"}),
	}
	opaque := secret(map[string]string{HashKey: hash})
	opaque.Type = corev1.SecretTypeOpaque
	wrong["of another type"] = opaque
	for name, secret := range wrong {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadSecret(secret)
			require.Error(t, err)
			require.NotContains(t, err.Error(), token.Secret)
		})
	}
}

func TestRecordEnds(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	require.False(t, Record{}.Expired(now))
	require.False(t, Record{Expiration: now.Add(time.Second)}.Expired(now))
	require.True(t, Record{Expiration: now}.Expired(now))
	require.False(t, Record{Uses: 0, Redemptions: make([]Redemption, 5)}.UsedUp())
	require.False(t, Record{Uses: 2, Redemptions: make([]Redemption, 1)}.UsedUp())
	require.True(t, Record{Uses: 2, Redemptions: make([]Redemption, 2)}.UsedUp())
}

func FuzzReadSecret(f *testing.F) {
	f.Add(Hash("a"), "", "2030-01-02T03:04:05Z", "1", "rome", "[]")
	f.Fuzz(func(t *testing.T, hash, token, expiration, uses, cluster, redemptions string) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token-a"}, Type: corev1beta1.PeeringTokenType, Data: map[string][]byte{
			HashKey: []byte(hash), TokenKey: []byte(token), ExpirationKey: []byte(expiration), UsesKey: []byte(uses), ClusterIDKey: []byte(cluster), redemptionsKey: []byte(redemptions),
		}}
		record, err := ReadSecret(secret)
		if err == nil {
			require.Len(t, record.Hash, 64)
		}
	})
}
