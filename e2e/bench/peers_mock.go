package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// The ids of the consumer and of the one cluster behind all of its providers. A mask replaces them by
// ids of the same length, with the number of the provider at their end.
const (
	consumerID = "home-000"
	mockID     = "mock-000"
)

// numbered returns a name or a UID with a number as its last three characters.
func numbered(name string, i int) string { return fmt.Sprintf("%s%03d", name[:len(name)-3], i) }

// newMask starts a way from the consumer to one cluster behind all providers, on which the cluster
// appears as provider i and the consumer as consumer i: the provider has an id and a kube-system UID of
// its own in the consumer, and the consumer has a tenant namespace, rights and twin namespaces of its own
// in the cluster. kubeconfig is that of consumer i, and uid the UID of kube-system there. The mask replaces names by
// others of the same length, which is right in JSON and in protobuf. It returns its kubeconfig.
func newMask(mock *site.Site, uid string, i int, kubeconfig []byte) (*http.Server, []byte, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	config.DisableCompression = true
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making the transport of a mask: %w", err)
	}
	target, err := url.Parse(mock.APIServer)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the API server's URL: %w", err)
	}
	certificate, err := maskCertificate(mock)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("listening as provider %d: %w", i, err)
	}
	silent := stdlog.New(io.Discard, "", 0)
	there := newRenaming(consumerID, numbered(consumerID, i), numbered(mockID, i), mockID)
	back := newRenaming(numbered(consumerID, i), consumerID, mockID, numbered(mockID, i), uid, numbered(uid, i))
	server := &http.Server{
		ErrorLog: silent, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		Handler: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(target)
				r.Out.URL.Path, r.Out.URL.RawPath = there.replacer.Replace(r.Out.URL.Path), ""
				r.Out.URL.RawQuery = there.replacer.Replace(r.Out.URL.RawQuery)
				if r.Out.Body != nil {
					r.Out.Body = &renamed{ReadCloser: r.Out.Body, names: there}
				}
			},
			ModifyResponse: func(r *http.Response) error {
				r.Body = &renamed{ReadCloser: r.Body, names: back}
				return nil
			},
			Transport: transport, FlushInterval: -1, ErrorLog: silent,
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return server, bytes.ReplaceAll(kubeconfig, []byte(mock.APIServer), []byte("https://"+listener.Addr().String())), nil
}

// maskCertificate returns a serving certificate that clients of the cluster trust.
func maskCertificate(mock *site.Site) (tls.Certificate, error) {
	certificate, key, err := mock.Authority().Issue(lab.CertificateRequest{CommonName: "mask", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, key)
}

// renaming replaces names by others of the same length.
type renaming struct {
	from     []string
	replacer *strings.Replacer
}

// newRenaming returns a renaming from pairs of a name and the one in its place.
func newRenaming(pairs ...string) renaming {
	r := renaming{replacer: strings.NewReplacer(pairs...)}
	for pair := range slices.Chunk(pairs, 2) {
		r.from = append(r.from, pair[0])
	}
	return r
}

// begun returns the length of the end of a text that may be the beginning of a name.
func (r renaming) begun(text string) int {
	longest := len(slices.MaxFunc(r.from, func(a, b string) int { return len(a) - len(b) })) - 1
	for n := min(longest, len(text)); n > 0; n-- {
		end := text[len(text)-n:]
		if slices.ContainsFunc(r.from, func(name string) bool { return len(name) > n && strings.HasPrefix(name, end) }) {
			return n
		}
	}
	return 0
}

// renamed is a stream with other names. It holds the beginning of a name back until the rest
// arrives. An event of a watch ends with none, so that none of it waits for the next one.
type renamed struct {
	io.ReadCloser

	names       renaming
	ready, held string
	err         error
}

// Read implements io.Reader.
func (r *renamed) Read(p []byte) (int, error) {
	for r.ready == "" && r.err == nil {
		var n int
		n, r.err = r.ReadCloser.Read(p)
		text := r.names.replacer.Replace(r.held + string(p[:n]))
		begun := 0
		if r.err == nil {
			begun = r.names.begun(text)
		}
		r.ready, r.held = text[:len(text)-begun], text[len(text)-begun:]
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	if r.ready != "" {
		return n, nil
	}
	return n, r.err
}
