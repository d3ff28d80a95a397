package check

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProofs: the holder of a private key proves it for its own cluster. A proof is not valid for another
// key, nor for another cluster that copies the proof.
func TestProofs(t *testing.T) {
	t.Parallel()
	var last, lastProof string
	for range 50 {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		require.NoError(t, err)
		public := base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
		proof := Prove([32]byte(key.Bytes()), "milan")
		require.Equal(t, proof, Prove([32]byte(key.Bytes()), "milan"), "it is announced once")
		require.True(t, Proved(public, "milan", []string{"", proof}))
		require.False(t, Proved(public, "turin", []string{proof}))
		require.False(t, Proved(public, "milan", nil))
		require.False(t, Proved(public, "milan", []string{"", "?", proof}), "two proofs are read")
		if last != "" {
			require.False(t, Proved(last, "milan", []string{proof}))
			require.False(t, Proved(public, "milan", []string{lastProof}))
		}
		last, lastProof = public, proof
	}
	for name, raw := range map[string][32]byte{"the point at infinity": {}, "one": {1}, "no inverse": {0xec, 0xff, 31: 0x7f}, "on the twist": {2}} {
		require.False(t, Proved(base64.StdEncoding.EncodeToString(raw[:]), "milan", []string{lastProof}), name)
	}
	require.False(t, Proved("short", "milan", []string{lastProof}))
	var unclamped [32]byte
	_, _ = rand.Read(unclamped[:])
	key, err := ecdh.X25519().NewPrivateKey(unclamped[:])
	require.NoError(t, err)
	require.True(t, Proved(base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()), "milan", []string{Prove(unclamped, "milan")}))
}
