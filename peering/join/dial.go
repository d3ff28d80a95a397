package join

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/liqod/liqod/peering/trust"
)

const (
	dialTimeout = 3 * time.Second
	// The peer may have to wait for a signer.
	answerTimeout = 30 * time.Second
)

// target is the authentication endpoint of a peer and the authorities that it is verified
// with.
type target struct {
	url string
	// ca has the authorities of the endpoint's certificate as PEM; its host name is
	// verified, too. pins are fingerprints of authorities that issue certificates for this
	// purpose only; the host name is not verified then. If both are empty, the system's
	// authorities apply.
	ca   string
	pins []string
	// proxy is the URL of a proxy; empty: from the environment.
	proxy string
}

// proof is the existing identity that authenticates a renewal.
type proof struct {
	certificate *tls.Certificate
	token       string
}

// post sends one request and returns the grant in the answer. It keeps no connection open.
func post(ctx context.Context, to target, path string, body any, by proof) (trust.Grant, error) {
	client, err := to.client(by)
	if err != nil {
		return trust.Grant{}, err
	}
	defer client.CloseIdleConnections()
	text, err := json.Marshal(body)
	if err != nil {
		return trust.Grant{}, fmt.Errorf("encoding the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(to.url, "/")+path, bytes.NewReader(text))
	if err != nil {
		return trust.Grant{}, fmt.Errorf("addressing %s: %w", to.url, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if by.token != "" {
		req.Header.Set("Authorization", "Bearer "+by.token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return trust.Grant{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, trust.MaxBody+1))
	switch {
	case err != nil:
		return trust.Grant{}, fmt.Errorf("reading the answer: %w", err)
	case len(answer) > trust.MaxBody:
		return trust.Grant{}, fmt.Errorf("an answer of more than %d bytes", trust.MaxBody)
	case resp.StatusCode != http.StatusOK:
		return trust.Grant{}, refused(resp.StatusCode, answer)
	}
	var grant trust.Grant
	if err := json.Unmarshal(answer, &grant); err != nil {
		return trust.Grant{}, fmt.Errorf("an invalid answer: %w", err)
	}
	return grant, nil
}

// refused parses an error answer. An answer that does not come from an authentication
// endpoint of liqod is not a refusal.
func refused(status int, answer []byte) error {
	r := &trust.Refusal{}
	if json.Unmarshal(answer, r) != nil || r.Reason == "" {
		return fmt.Errorf("it answers with status %d %s, so it is not an authentication endpoint of liqod", status, http.StatusText(status))
	}
	r.Message = legible(r.Message)
	return r
}

// legible limits a peer's text to printable characters and a length for conditions.
func legible(s string) string {
	const longest = 500
	s = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s), "?")
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

func (t target) client(by proof) (*http.Client, error) {
	config, err := t.tls()
	if err != nil {
		return nil, err
	}
	if by.certificate != nil {
		config.Certificates = []tls.Certificate{*by.certificate}
	}
	proxy := http.ProxyFromEnvironment
	if t.proxy != "" {
		u, err := url.Parse(t.proxy)
		if err != nil {
			return nil, fmt.Errorf("proxy %q: %w", t.proxy, err)
		}
		proxy = http.ProxyURL(u)
	}
	return &http.Client{
		Timeout: answerTimeout,
		Transport: &http.Transport{
			DisableCompression: true,
			Proxy:              proxy, TLSClientConfig: config, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: 2 * dialTimeout, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10,
		},
		// A redirect would send the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it is a redirect, which is not followed")
		},
	}, nil
}

func (t target) tls() (*tls.Config, error) {
	switch {
	case t.ca != "":
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(t.ca)) {
			return nil, errors.New("spec.authCA holds no certificate as PEM")
		}
		return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
	case len(t.pins) > 0:
		return trust.PinnedTLS(t.pins...), nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}, nil
}

// pins returns the fingerprints of PEM certificates, or s itself if it is a fingerprint.
func pins(s string) (out []string) {
	for block, rest := pem.Decode([]byte(s)); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, trust.Fingerprint(cert))
		}
	}
	if s != "" && len(out) == 0 {
		out = []string{strings.TrimSpace(s)}
	}
	return out
}

// cause returns the part of an error that is the same at each attempt. Ports or times in
// the message would change the condition at each attempt.
func cause(err error) string {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer in time"
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return fmt.Sprintf("the name %s is not found", dns.Name)
	}
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) {
		return unverified.Err.Error()
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return legible(err.Error())
}
