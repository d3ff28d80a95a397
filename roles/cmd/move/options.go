package move

import (
	"crypto/x509"
	"io"
	"time"

	"github.com/liqod/liqod/kube/serve"
)

// Parts of a copy, which are the names in the certificates of its ends.
const (
	Sender   = "sender"
	Receiver = "receiver"
)

// Options configure one end of a copy.
type Options struct {
	// Folder is the root of the files. Send sends them; else they are written. Without it, what one end
	// sends is passed on to the other one.
	Folder string
	Send   bool
	// Plain leaves out what gives rights to whoever runs a file: the bits setuid and setgid, and
	// capabilities. Both ends have the same.
	Plain bool
	// Connect are the addresses to connect to: one, or without a Folder those of sender and receiver.
	Connect []string
	// Listen is the address to listen at, if Connect is empty. Such an end serves until ctx is done.
	Listen string
	// Keys is a folder with tls.crt and tls.key of this end, and the certificate of each other end, named by its
	// part as in sender.crt. Nobody else is accepted.
	Keys string
	// Out gets the state as lines of JSON, each second.
	Out io.Writer
	// Every is the time between two attempts to connect, and between two lines.
	Every time.Duration
}

// NewKey returns a new certificate with its key as PEM, for an end that has these parts.
func NewKey(now time.Time, parts ...string) (certificate, key []byte, err error) {
	pair, err := serve.Sign(&x509.Certificate{
		DNSNames: parts, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, // it signs no other one
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	key, err = pair.KeyPEM()
	return pair.CertPEM(), key, err
}
