package serve

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
)

// keptFile holds the chain, followed by the key. They are in one file so that they always
// match.
const keptFile = "kubelet-server.pem"

// restore uses the certificate that an earlier process has stored, if it is valid for the
// current names and addresses of the server.
func (k *KubeletCertificate) restore(now time.Time) {
	if k.cfg.Directory == "" {
		return
	}
	cert, err := k.kept(now)
	if err != nil {
		k.cfg.Log.Info("no stored serving certificate is used", zap.String("node", k.cfg.NodeName), zap.Error(err))
		return
	}
	k.current.Store(cert)
	k.issued.Store(true)
}

func (k *KubeletCertificate) kept(now time.Time) (*tls.Certificate, error) {
	data, err := os.ReadFile(k.keptPath())
	if err != nil {
		return nil, fmt.Errorf("reading the stored certificate: %w", err)
	}
	cert, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, fmt.Errorf("decoding the stored certificate: %w", err)
	}
	if now.Before(cert.Leaf.NotBefore) || now.After(cert.Leaf.NotAfter) {
		return nil, fmt.Errorf("the stored certificate is valid from %s to %s", cert.Leaf.NotBefore, cert.Leaf.NotAfter)
	}
	if name := nodePrefix + k.cfg.NodeName; cert.Leaf.Subject.CommonName != name {
		return nil, fmt.Errorf("the stored certificate is for %s, not for %s", cert.Leaf.Subject.CommonName, name)
	}
	hosts := slices.Clone(k.cfg.DNSNames)
	for _, a := range k.cfg.Addresses {
		hosts = append(hosts, a.Unmap().String())
	}
	for _, host := range hosts {
		if err := cert.Leaf.VerifyHostname(host); err != nil {
			return nil, fmt.Errorf("checking the stored certificate: %w", err)
		}
	}
	return &cert, nil
}

// keep stores the certificate for the next process in this place. Without it, that process
// requests another one.
func (k *KubeletCertificate) keep(cert *tls.Certificate) {
	if k.cfg.Directory == "" {
		return
	}
	if err := k.write(cert); err != nil {
		k.cfg.Log.Warn("serving certificate not stored", zap.String("node", k.cfg.NodeName), zap.Error(err))
	}
}

func (k *KubeletCertificate) write(cert *tls.Certificate) error {
	var data []byte
	for _, der := range cert.Certificate {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	key, err := encodeKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(k.cfg.Directory, 0o700); err != nil {
		return fmt.Errorf("making the directory of the certificate: %w", err)
	}
	next, err := os.CreateTemp(k.cfg.Directory, keptFile+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("making a file for the certificate: %w", err)
	}
	_, err = next.Write(append(data, key...))
	if closing := next.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(next.Name(), k.keptPath())
	}
	if err != nil {
		_ = os.Remove(next.Name()) // the first error has the cause
		return fmt.Errorf("writing the certificate: %w", err)
	}
	return nil
}

func (k *KubeletCertificate) keptPath() string { return filepath.Join(k.cfg.Directory, keptFile) }
