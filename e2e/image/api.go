package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// accountDir is where kubelets put what a pod needs to talk to its API server.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// account is what a pod needs to talk to the API server of its cluster, found as every
// in-cluster client finds it: address in the environment, token and CA in files.
type account struct {
	dir, server, namespace string
	client                 *http.Client
}

func newAccount(dir string) (*account, error) {
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("ca.crt has no certificate")
	}
	return &account{
		dir: dir, namespace: string(namespace),
		server: "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")),
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}},
	}, nil
}

// get asks the API server for a path, or a server for a whole URL.
func (a *account) get(ctx context.Context, path string) (*http.Response, error) {
	token, err := os.ReadFile(filepath.Join(a.dir, "token"))
	if err != nil {
		return nil, err
	}
	url := path
	if !strings.HasPrefix(path, "https://") {
		url = a.server + "/" + path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+string(token))
	return a.client.Do(req)
}

// api prints what the API server of the pod's cluster answers. NAMESPACE in the path
// stands for the pod's own.
func api(ctx context.Context, dir, path string) error {
	a, err := newAccount(dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := a.get(ctx, strings.ReplaceAll(path, "NAMESPACE", a.namespace))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", resp.Request.URL, resp.Status)
	}
	return nil
}
