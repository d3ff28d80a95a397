package virtualnode

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// Facts are the inputs of the decision on a certificate request.
type Facts struct {
	// VirtualNode is the one whose vkubelet sent the request; nil: there is none.
	VirtualNode *offloadingv1beta1.VirtualNode
	// Refused says why the VirtualNode may not have a Node; empty: it may.
	Refused string
	// Addresses are the addresses at which that vkubelet may serve.
	Addresses []netip.Addr
}

// Approve decides on a request for a serving certificate. It returns true only if the
// vkubelet of facts.VirtualNode requests a certificate for its own node name and its own
// addresses. Otherwise the string is the reason for the refusal. It is pure.
func Approve(csr *certificatesv1.CertificateSigningRequest, facts Facts) (bool, string) {
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return false, fmt.Sprintf("the signer is %s: only %s is accepted", csr.Spec.SignerName, certificatesv1.KubeletServingSignerName)
	}
	vn := facts.VirtualNode
	key, ok := Requestor(csr.Spec.Username)
	if !ok || vn == nil || key.Namespace != vn.Namespace || key.Name != vn.Name {
		return false, fmt.Sprintf("the requestor %s is not the vkubelet of a VirtualNode", csr.Spec.Username)
	}
	if !valid(vn) || facts.Refused != "" {
		return false, fmt.Sprintf("VirtualNode %s/%s may not have a Node: %s", vn.Namespace, vn.Name, facts.Refused)
	}
	request, err := parseRequest(csr.Spec.Request)
	if err != nil {
		return false, err.Error()
	}
	for _, check := range []error{
		checkUsages(csr.Spec.Usages),
		checkSubject(request, vn.Name),
		checkNames(request, vn.Name, facts.Addresses),
	} {
		if check != nil {
			return false, check.Error()
		}
	}
	return true, ""
}

func parseRequest(raw []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, errors.New("the request is not one PEM block of type CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing the request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("checking the signature of the request: %w", err)
	}
	return request, nil
}

func checkUsages(have []certificatesv1.KeyUsage) error {
	accepted := []certificatesv1.KeyUsage{
		certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth,
	}
	for _, usage := range have {
		if !slices.Contains(accepted, usage) {
			return fmt.Errorf("usage %q is not accepted: the usages must be %q, %q and at most %q",
				usage, certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth, certificatesv1.UsageKeyEncipherment)
		}
	}
	for _, usage := range []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth} {
		if !slices.Contains(have, usage) {
			return fmt.Errorf("usage %q is missing", usage)
		}
	}
	return nil
}

func checkSubject(request *x509.CertificateRequest, nodeName string) error {
	subject := request.Subject
	if want := nodeUserPrefix + nodeName; subject.CommonName != want {
		return fmt.Errorf("the common name is %q: it must be %q", subject.CommonName, want)
	}
	if !slices.Equal(subject.Organization, []string{nodesGroup}) {
		return fmt.Errorf("the organizations are %q: they must be exactly %q", subject.Organization, []string{nodesGroup})
	}
	// The signer copies a second common name or any other attribute into the certificate.
	if len(subject.Names) != 2 {
		return fmt.Errorf("the subject has %d attributes: it must have a common name and an organization only", len(subject.Names))
	}
	return nil
}

func checkNames(request *x509.CertificateRequest, nodeName string, addresses []netip.Addr) error {
	if len(request.EmailAddresses) > 0 || len(request.URIs) > 0 {
		return errors.New("email addresses and URIs are not accepted as names")
	}
	if len(request.DNSNames)+len(request.IPAddresses) == 0 {
		return errors.New("the request names no DNS name and no address")
	}
	for _, name := range request.DNSNames {
		if name != nodeName {
			return fmt.Errorf("DNS name %q is not the node's name %q", name, nodeName)
		}
	}
	for _, ip := range request.IPAddresses {
		addr, ok := netip.AddrFromSlice(ip)
		if !ok || !slices.Contains(addresses, addr.Unmap()) {
			return fmt.Errorf("address %s is none of the vkubelet's: %s", ip, addresses)
		}
	}
	return nil
}
