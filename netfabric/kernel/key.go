package kernel

import (
	"fmt"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Key is the private key of a tunnel device, from GenerateKey or ParseKey. Printing it does
// not reveal it.
type Key [wgtypes.KeyLen]byte

// GenerateKey returns a new key.
func GenerateKey() (Key, error) {
	k, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return Key{}, fmt.Errorf("generating a WireGuard key: %w", err)
	}
	return Key(k), nil
}

// ParseKey parses the result of Private. The error does not contain text.
func ParseKey(text string) (Key, error) {
	k, err := wgtypes.ParseKey(text)
	if err != nil {
		return Key{}, fmt.Errorf("a WireGuard private key is 32 bytes in base64")
	}
	k[0] &^= 7 // RFC 7748, section 5, as every implementation does: so that keys compare equal
	k[31] = k[31]&127 | 64
	return Key(k), nil
}

// Private returns the key in base64, as wg writes it: a secret.
func (k Key) Private() string { return wgtypes.Key(k).String() }

// Public returns the public key in base64, as in plan.Tunnel.
func (k Key) Public() string { return wgtypes.Key(k).PublicKey().String() }

// Format hides the key from logs, whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(private key)") }
