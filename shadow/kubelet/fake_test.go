package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// authority signs certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
	require.NoError(t, err)
	return &authority{key, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))}
}

func (a *authority) issue(t *testing.T, name string, groups ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// home is an API server that knows one token, the client CA, and what is allowed.
type home struct {
	mu      sync.Mutex
	ca      string
	away    bool
	allowed func(authorizationv1.SubjectAccessReviewSpec) bool
	reviews []authorizationv1.ResourceAttributes
}

func (h *home) set(change func(*home)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

func (h *home) asked() []authorizationv1.ResourceAttributes {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]authorizationv1.ResourceAttributes(nil), h.reviews...)
}

func (h *home) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	switch r.URL.Path {
	case "/api/v1/namespaces/kube-system/configmaps":
		h.configMaps(w, r)
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status.Authenticated = review.Spec.Token == "good"
		review.Status.User.Username = "somebody"
		reply(w, review)
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		h.reviews = append(h.reviews, *review.Spec.ResourceAttributes)
		review.Status.Allowed = h.allowed(review.Spec)
		reply(w, review)
	default:
		http.NotFound(w, r)
	}
}

func (h *home) configMaps(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		// A short watch makes the informer list again soon.
		w.Header().Set("Content-Type", "application/json")
		return
	}
	list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	if h.ca != "" {
		list.Items = []corev1.ConfigMap{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: clientCAConfigMap, ResourceVersion: "1"},
			Data:       map[string]string{clientCAKey: h.ca},
		}}
	}
	reply(w, list)
}

func reply(w http.ResponseWriter, obj any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(obj)
}

// podMap is a Pods with the pods of one node; each runs in its namespace with -twin.
type podMap map[string]*corev1.Pod

func (m podMap) Get(namespace, name string) (*corev1.Pod, string, string, error) {
	pod, ok := m[namespace+"/"+name]
	if !ok {
		return nil, "", "", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	return pod, namespace + "-twin", name, nil
}

func (m podMap) List() ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, pod := range m {
		pods = append(pods, pod)
	}
	return pods, nil
}

func (m podMap) Twin(namespace string) (string, error) { return namespace + "-twin", nil }

func onePod() podMap {
	return podMap{"shop/web": {
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1"},
		Spec: corev1.PodSpec{
			InitContainers:      []corev1.Container{{Name: "setup"}},
			Containers:          []corev1.Container{{Name: "app"}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
		},
	}}
}

// rig is a running Server between a fake home and a fake provider.
type rig struct {
	home   *home
	url    string
	client *http.Client // shows nothing
	ca     *authority
	stop   func() error
}

func newRig(t *testing.T, provider http.Handler, setup ...func(*home)) *rig {
	t.Helper()
	return newRigOf(t, provider, func(*Config) {}, setup...)
}

// newRigOf is newRig with a configuration that is changed before the Server is made.
func newRigOf(t *testing.T, provider http.Handler, change func(*Config), setup ...func(*home)) *rig {
	t.Helper()
	ca := newAuthority(t, "cluster")
	h := &home{ca: ca.pem, allowed: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }}
	for _, of := range setup {
		of(h)
	}
	homeServer := httptest.NewServer(h)
	t.Cleanup(homeServer.Close)
	remoteServer := httptest.NewServer(provider)
	t.Cleanup(remoteServer.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: homeServer.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, QPS: -1})
	require.NoError(t, err)
	serving := ca.issue(t, "system:node:milan", "system:nodes")
	remote := &rest.Config{Host: remoteServer.URL}
	cfg := Config{
		NodeName:       "milan",
		Address:        "127.0.0.1:0",
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
		Kube:           client,
		Remote:         func() (*rest.Config, error) { return remote, nil },
		Pods:           onePod(),
		Clock:          clock.RealClock{},
		Closed:         func() {},
		Log:            zap.NewNop(),
	}
	change(&cfg)
	server, err := New(cfg)
	require.NoError(t, err)
	port, err := server.listen(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.serve(ctx, port) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { require.NoError(t, stop()) })
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.pool()}}
	t.Cleanup(transport.CloseIdleConnections)
	return &rig{home: h, url: "https://" + port.Addr().String(), client: &http.Client{Transport: transport}, ca: ca, stop: stop}
}

// do sends a request with a token, if there is one, and returns the code and the body.
func (r *rig) do(t *testing.T, method, path, token string, header http.Header) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, r.url+path, nil)
	require.NoError(t, err)
	for name, values := range header {
		request.Header[name] = values
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := r.client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func dialAndSay(t *testing.T, port uint16) string {
	t.Helper()
	conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = conn.Write([]byte("hello"))
	require.NoError(t, err)
	answer := make([]byte, 5)
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)
	return string(answer)
}
