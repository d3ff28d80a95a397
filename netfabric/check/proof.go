package check

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/base64"
	"math/big"
	"slices"
)

// maxProofs is the number of proofs of one gateway that are read: of its key, and of the next one.
const maxProofs = 2

// proofLabel begins what a proof signs. The id of the cluster follows.
const proofLabel = "liqod gateway key, version 1, of cluster "

// field and order are the primes of Curve25519: of its coordinates, and of its scalars.
func field() *big.Int { return new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19)) }

func order() *big.Int {
	rest, _ := new(big.Int).SetString("27742317777372353535851937790883648493", 10)
	return rest.Add(rest, new(big.Int).Lsh(big.NewInt(1), 252))
}

// Prove returns a proof that the cluster has a private WireGuard key: the signature of its id with this key, by XEdDSA,
// in base64. It is always the same one. It proves nothing for another cluster, which may have seen it.
func Prove(private [32]byte, cluster string) string {
	key, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return "" // not for 32 bytes
	}
	public, message := edwards(key.PublicKey().Bytes()), []byte(proofLabel+cluster)
	seed := sha512.Sum512(slices.Concat([]byte("nonce of a "+proofLabel), private[:], message))
	once := ed25519.NewKeyFromSeed(seed[:ed25519.SeedSize])
	expanded := sha512.Sum512(once.Seed())
	point := once.Public().(ed25519.PublicKey)
	digest := sha512.Sum512(slices.Concat(point, public, message))
	product := new(big.Int).Mul(number(digest[:]), clamped(private[:]))
	// Of the two points with one Montgomery coordinate, a signature is for the one with the sign 0.
	for _, product := range []*big.Int{product, new(big.Int).Neg(product)} {
		sum := product.Add(product, clamped(expanded[:32]))
		scalar := sum.Mod(sum, order()).FillBytes(make([]byte, 32))
		slices.Reverse(scalar)
		if proof := slices.Concat(point, scalar); ed25519.Verify(public, message, proof) {
			return base64.StdEncoding.EncodeToString(proof)
		}
	}
	return ""
}

// Proved reports whether one of the proofs shows that a cluster has the private key of a public one.
func Proved(public, cluster string, proofs []string) bool {
	raw, err := base64.StdEncoding.DecodeString(public)
	if err != nil || len(raw) != 32 {
		return false
	}
	point := edwards(raw)
	return point != nil && slices.ContainsFunc(proofs[:min(len(proofs), maxProofs)], func(text string) bool {
		proof, err := base64.StdEncoding.DecodeString(text)
		return err == nil && ed25519.Verify(point, []byte(proofLabel+cluster), proof)
	})
}

// edwards returns the Ed25519 key with the sign 0 of a WireGuard key: y = (u-1)/(u+1). It is nil where there is none.
func edwards(public []byte) ed25519.PublicKey {
	u := number(public)
	u.SetBit(u, 255, 0)
	below := new(big.Int).ModInverse(new(big.Int).Add(u, big.NewInt(1)), field())
	if below == nil {
		return nil
	}
	y := new(big.Int).Mul(new(big.Int).Sub(u, big.NewInt(1)), below)
	out := y.Mod(y, field()).FillBytes(make([]byte, 32))
	slices.Reverse(out)
	return out
}

// clamped returns the scalar of a private key: RFC 7748, section 5.
func clamped(raw []byte) *big.Int {
	out := slices.Clone(raw)
	out[0] &^= 7
	out[31] = out[31]&127 | 64
	return number(out)
}

// number reads a number with the least byte first.
func number(raw []byte) *big.Int {
	raw = slices.Clone(raw)
	slices.Reverse(raw)
	return new(big.Int).SetBytes(raw)
}
