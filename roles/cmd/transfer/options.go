// Package transfer copies the files of one volume to another over a connection. It compares what is
// there already, so that a copy that was interrupted anywhere is resumed, and ends when both sides
// have read all files again and have the same checksum. Owners, modes, times, symbolic and hard
// links, holes, special files and extended attributes are those of the source.
package transfer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"time"
)

// serverName is the name in the certificate of both ends.
const serverName = "liqod-move"

// Options configure one end of a copy.
type Options struct {
	// Folder is the root of the files. Send sends them; else they are written.
	Folder string
	Send   bool
	// Address is dialed, or listened on if Listen is set.
	Address string
	Listen  bool
	// Certificate and Key are PEM. Both ends have the same.
	Certificate, Key []byte
	// Out gets the state as lines of JSON, each second.
	Out io.Writer
	// Every is the time between two attempts to connect, and between two lines.
	Every time.Duration
}

// NewKey returns a new certificate with its key as PEM, for both ends of one copy.
func NewKey(now time.Time) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{serverName}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
