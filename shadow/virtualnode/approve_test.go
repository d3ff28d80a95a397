package virtualnode

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// goodTemplate returns the request of VirtualNode milan's vkubelet.
func goodTemplate() *x509.CertificateRequest {
	return &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:milan", Organization: []string{"system:nodes"}},
		DNSNames:    []string{"milan"},
		IPAddresses: []net.IP{net.ParseIP("10.0.0.7")},
	}
}

func encode(t *testing.T, template *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func request(t *testing.T, name string, template *x509.CertificateRequest) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "csr-uid"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName,
			Username:   "system:serviceaccount:liqo-tenant-milano:vk-milan",
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
			Request:    encode(t, template),
		},
	}
}

func TestApprove(t *testing.T) {
	type spec = certificatesv1.CertificateSigningRequestSpec
	for name, tc := range map[string]struct {
		template func(*x509.CertificateRequest)
		spec     func(*spec)
		facts    func(*Facts)
		says     string // empty: approved
	}{
		"exactly what it may": {},
		"an RSA key's usages": {spec: func(s *spec) { s.Usages = append(s.Usages, certificatesv1.UsageKeyEncipherment) }},
		"only an address":     {template: func(r *x509.CertificateRequest) { r.DNSNames = nil }},
		"only the name":       {template: func(r *x509.CertificateRequest) { r.IPAddresses = nil }},
		"an IPv6 address": {
			template: func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP("fd00::7")) },
			facts:    func(f *Facts) { f.Addresses = append(f.Addresses, netip.MustParseAddr("fd00::7")) },
		},

		"another signer":             {spec: func(s *spec) { s.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName }, says: "only kubernetes.io/kubelet-serving"},
		"another tenant's vkubelet":  {spec: func(s *spec) { s.Username = "system:serviceaccount:liqo-tenant-other:vk-milan" }, says: "not the vkubelet"},
		"another vkubelet":           {spec: func(s *spec) { s.Username = "system:serviceaccount:liqo-tenant-milano:vk-turin" }, says: "not the vkubelet"},
		"another account of it":      {spec: func(s *spec) { s.Username = "system:serviceaccount:liqo-tenant-milano:default" }, says: "not the vkubelet"},
		"an account elsewhere":       {spec: func(s *spec) { s.Username = "system:serviceaccount:default:vk-milan" }, says: "not the vkubelet"},
		"a node itself":              {spec: func(s *spec) { s.Username = "system:node:milan" }, says: "not the vkubelet"},
		"no VirtualNode":             {facts: func(f *Facts) { f.VirtualNode = nil }, says: "not the vkubelet"},
		"a VirtualNode that may not": {facts: func(f *Facts) { f.Refused = "the name is taken" }, says: "the name is taken"},
		"a misplaced VirtualNode":    {facts: func(f *Facts) { f.VirtualNode.Spec.ClusterID = "other" }, says: "may not have a Node"},
		"another node's name":        {template: func(r *x509.CertificateRequest) { r.Subject.CommonName = "system:node:worker-1" }, says: "common name"},
		"no prefix":                  {template: func(r *x509.CertificateRequest) { r.Subject.CommonName = "milan" }, says: "common name"},
		"no organization":            {template: func(r *x509.CertificateRequest) { r.Subject.Organization = nil }, says: "organizations"},
		"another organization":       {template: func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} }, says: "organizations"},
		"one organization more":      {template: func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:nodes", "system:masters"} }, says: "organizations"},
		"an organizational unit":     {template: func(r *x509.CertificateRequest) { r.Subject.OrganizationalUnit = []string{"x"} }, says: "attributes"},
		"client use":                 {spec: func(s *spec) { s.Usages = append(s.Usages, certificatesv1.UsageClientAuth) }, says: `"client auth" is not accepted`},
		"no serving use":             {spec: func(s *spec) { s.Usages = s.Usages[:1] }, says: `"server auth" is missing`},
		"no signature use":           {spec: func(s *spec) { s.Usages = s.Usages[1:] }, says: `"digital signature" is missing`},
		"another name":               {template: func(r *x509.CertificateRequest) { r.DNSNames = []string{"milan", "kubernetes.default"} }, says: "kubernetes.default"},
		"a wildcard":                 {template: func(r *x509.CertificateRequest) { r.DNSNames = []string{"*"} }, says: "not the node's name"},
		"another address":            {template: func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.ParseIP("10.96.0.1")} }, says: "10.96.0.1"},
		"one address more":           {template: func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP("10.0.0.8")) }, says: "10.0.0.8"},
		"an address, none known":     {facts: func(f *Facts) { f.Addresses = nil }, says: "none of the vkubelet's"},
		"an email address":           {template: func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@b.c"} }, says: "email"},
		"a URI":                      {template: func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, says: "URIs"},
		"neither name nor address":   {template: func(r *x509.CertificateRequest) { r.DNSNames, r.IPAddresses = nil, nil }, says: "no DNS name and no address"},
		"no PEM":                     {spec: func(s *spec) { s.Request = []byte("x") }, says: "PEM"},
		"a certificate":              {spec: func(s *spec) { s.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}) }, says: "PEM"},
		"two requests":               {spec: func(s *spec) { s.Request = append(s.Request, s.Request...) }, says: "one PEM block"},
		"a request that cannot be one": {spec: func(s *spec) {
			s.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte{1}})
		}, says: "parsing"},
		"a second common name": {template: func(r *x509.CertificateRequest) {
			r.Subject.ExtraNames = []pkix.AttributeTypeAndValue{
				{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:node:worker-1"},
				{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:node:milan"},
				{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "system:nodes"},
			}
		}, says: "attributes"},
	} {
		t.Run(name, func(t *testing.T) {
			template := goodTemplate()
			if tc.template != nil {
				tc.template(template)
			}
			csr := request(t, "csr", template)
			if tc.spec != nil {
				tc.spec(&csr.Spec)
			}
			facts := Facts{VirtualNode: virtualNode(), Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}}
			if tc.facts != nil {
				tc.facts(&facts)
			}
			ok, reason := Approve(csr, facts)
			require.Equal(t, tc.says == "", ok, reason)
			require.Contains(t, reason, tc.says)
		})
	}
}

func TestApproveChecksTheSignature(t *testing.T) {
	csr := request(t, "csr", goodTemplate())
	block, _ := pem.Decode(csr.Spec.Request)
	block.Bytes[len(block.Bytes)-1] ^= 1
	csr.Spec.Request = pem.EncodeToMemory(block)
	ok, reason := Approve(csr, Facts{VirtualNode: virtualNode(), Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}})
	require.False(t, ok)
	require.Contains(t, reason, "signature")
}

func TestRequestor(t *testing.T) {
	for user, want := range map[string]string{
		"system:serviceaccount:liqo-tenant-milano:vk-milan": "liqo-tenant-milano/milan",
		"system:serviceaccount:liqo-tenant-milano:vk-":      "",
		"system:serviceaccount:liqo-tenant-milano:milan":    "",
		"system:serviceaccount:kube-system:vk-milan":        "",
		"system:serviceaccount:liqo-tenant-milano":          "",
		"system:node:milan":                                 "",
		"":                                                  "",
	} {
		key, ok := Requestor(user)
		require.Equal(t, want != "", ok, user)
		if ok {
			require.Equal(t, want, key.String())
		}
	}
}

func TestApproveDelay(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		-time.Second: approveFirst, 0: approveFirst, 3 * time.Second: 1500 * time.Millisecond, time.Minute: approveRetry,
	} {
		require.Equal(t, want, approveDelay(age), age)
	}
}
