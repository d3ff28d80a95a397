package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/trust"
)

const (
	milan    = "milan" // the serving cluster
	milanUID = "uid-of-milan"
	rome     = "rome"
	romeUID  = "uid-of-rome"
)

var fingerprint = strings.Repeat("ab", 32)

// cluster implements Cluster in memory, with compare-and-swap as in an API server.
type cluster struct {
	mu       sync.Mutex
	version  int
	secrets  map[string]*corev1.Secret
	peers    map[string]*corev1beta1.ForeignCluster
	tenants  map[string]bool
	accounts map[string]string // tokens by "cluster id/account"
	backs    map[string]string // tokens that peers sent, by cluster id
	signings int
	proofs   atomic.Int32 // chains that were verified
	events   []string
	own      []netip.Prefix

	now  func() time.Time
	ca   *x509.Certificate
	key  crypto.Signer
	mute bool // signs nothing
	// before is called ahead of each write. It may change the state; its error is the
	// result of the write.
	before func(what string) error
	// forge changes each certificate before it is signed.
	forge func(*x509.Certificate)
}

func newCluster(t *testing.T, now func() time.Time) *cluster {
	t.Helper()
	c := &cluster{secrets: map[string]*corev1.Secret{}, peers: map[string]*corev1beta1.ForeignCluster{}, tenants: map[string]bool{}, accounts: map[string]string{}, backs: map[string]string{}, now: now}
	c.before = func(string) error { return nil }
	c.forge = func(*x509.Certificate) {}
	c.key = newKey(t)
	c.ca = c.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "cluster"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: now().Add(1000 * time.Hour)}, c.key.Public())
	return c
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func (c *cluster) issue(t *testing.T, template *x509.Certificate, public crypto.PublicKey) *x509.Certificate {
	t.Helper()
	cert, err := c.sign(template, public)
	require.NoError(t, err)
	return cert
}

func (c *cluster) sign(template *x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error) {
	template.SerialNumber, template.NotBefore = big.NewInt(1), c.now().Add(-time.Minute)
	parent := c.ca
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, c.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func conflict(name string) error {
	return fmt.Errorf("writing: %w", apierrors.NewConflict(schema.GroupResource{Resource: "things"}, name, errors.New("it has changed")))
}

func (c *cluster) next() string {
	c.version++
	return strconv.Itoa(c.version)
}

// at makes the n'th write of a kind do f before, whose error is its result.
func (c *cluster) at(what string, n int, f func() error) {
	c.before = func(now string) error {
		if now != what {
			return nil
		}
		if n--; n != 0 {
			return nil
		}
		return f()
	}
}

// write does a write of a kind.
func (c *cluster) write(what string, do func() error) error {
	if err := c.before(what); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return do()
}

func (c *cluster) UID(context.Context) (string, error) { return milanUID, nil }

func (c *cluster) Namespaces(context.Context) ([]string, error) {
	return []string{"kube-system", "payments-blue"}, nil
}

func (c *cluster) Token(_ context.Context, id string) (*corev1.Secret, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.secrets[trust.SecretName(id)].DeepCopy(), nil
}

func (c *cluster) SaveToken(_ context.Context, _, secret *corev1.Secret) error {
	return c.write("token", func() error {
		have := c.secrets[secret.Name]
		if have == nil || have.ResourceVersion != secret.ResourceVersion {
			return conflict(secret.Name)
		}
		secret = secret.DeepCopy()
		secret.ResourceVersion = c.next()
		c.secrets[secret.Name] = secret
		return nil
	})
}

func (c *cluster) Peers(context.Context) (all []*corev1beta1.ForeignCluster, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fc := range c.peers {
		all = append(all, fc.DeepCopy())
	}
	return all, nil
}

func (c *cluster) Own(context.Context) ([]netip.Prefix, error) { return c.own, c.before("own") }

func (c *cluster) SavePeer(_ context.Context, read, fc *corev1beta1.ForeignCluster) error {
	if equality.Semantic.DeepEqual(read, fc) {
		return nil
	}
	return c.write("peer", func() error {
		have := c.peers[fc.Name]
		switch {
		case read == nil && have != nil:
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "foreignclusters"}, fc.Name)
		case read != nil && (have == nil || have.ResourceVersion != fc.ResourceVersion):
			return conflict(fc.Name)
		}
		fc = fc.DeepCopy()
		fc.ResourceVersion, fc.UID = c.next(), types.UID("fc-"+fc.Name)
		c.peers[fc.Name] = fc
		return nil
	})
}

func (c *cluster) Tenant(_ context.Context, id string) error {
	return c.write("tenant", func() error { c.tenants[id] = true; return nil })
}

func (c *cluster) Sign(_ context.Context, _ string, csr trust.CSR, lifetime time.Duration) (chain string, err error) {
	err = c.write("sign", func() error {
		if c.mute {
			return ErrNotSigned
		}
		c.signings++
		block, _ := pem.Decode(csr.PEM)
		req, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			return err
		}
		template := &x509.Certificate{Subject: req.Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: c.now().Add(lifetime)}
		c.forge(template)
		cert, err := c.sign(template, req.PublicKey)
		if err == nil {
			chain = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
		}
		return err
	})
	return chain, err
}

func (c *cluster) AccountToken(_ context.Context, id, account string, lifetime time.Duration) (string, time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := "token of " + corev1beta1.PeerAccountUser(id, account)
	c.accounts[id+"/"+account] = token
	return token, c.now().Add(lifetime), nil
}

func (c *cluster) Retire(_ context.Context, id, account string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.accounts {
		if strings.HasPrefix(name, id+"/") && name != id+"/"+account {
			delete(c.accounts, name)
		}
	}
	return nil
}

func (c *cluster) Authenticate(_ context.Context, token string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, have := range c.accounts {
		if have == token {
			id, account, _ := strings.Cut(name, "/")
			return corev1beta1.PeerAccountUser(id, account), nil
		}
	}
	return "", nil
}

func (c *cluster) ClientCAs(context.Context) (*x509.CertPool, error) {
	c.proofs.Add(1)
	pool := x509.NewCertPool()
	pool.AddCert(c.ca)
	return pool, nil
}

func (c *cluster) APIServer(context.Context) (url, ca string, err error) {
	return "https://milan:6443", "ca of milan", nil
}

func (c *cluster) KeepBack(_ context.Context, fc *corev1beta1.ForeignCluster, token string) error {
	return c.write("back", func() error { c.backs[fc.Spec.ClusterID] = token; return nil })
}

func (c *cluster) Told(about runtime.Object, reason, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, about.(metav1.Object).GetName()+" "+reason)
}

// world is a running endpoint with its cluster.
type world struct {
	*cluster
	t      *testing.T
	clock  *testingclock.FakeClock
	cfg    Config
	server *httptest.Server
	counts map[string]int
}

func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, clock: testingclock.NewFakeClock(time.Now()), counts: map[string]int{}}
	w.cluster = newCluster(t, w.clock.Now)
	var mu sync.Mutex
	cfg := Config{
		ClusterID: milan, Version: "v1", Home: w.cluster, Authorities: func() string { return "authorities" }, Identity: IdentityAuto, Lifetime: time.Hour,
		Wanted: func(fc *corev1beta1.ForeignCluster) bool {
			return fc.Spec.OutgoingPeeringEnabled == corev1beta1.PeeringYes
		},
		PerMinute: 1e6, PerAddress: 1e6, Connections: 1000, ConnectionsPerAddress: 1000, MaxPeers: 1000, AcceptRanges: private(), Clock: w.clock, Log: zap.NewNop(),
		Count: func(path, result string) {
			mu.Lock()
			defer mu.Unlock()
			w.counts[path+" "+result]++
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	w.cfg = cfg
	w.server = httptest.NewUnstartedServer(New(cfg).Handler())
	w.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	w.server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	return w
}

// private returns the ranges that are accepted by default.
func private() []netip.Prefix {
	return prefixes([]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"})
}

// token creates a token, as "liqod token create" does.
func (w *world) token(change ...func(*trust.Record)) trust.Token {
	w.t.Helper()
	token, err := trust.NewToken("https://milan:8443", milan, fingerprint)
	require.NoError(w.t, err)
	record := trust.Record{ID: token.ID, Hash: trust.Hash(token.Secret), Uses: 1, Expiration: w.clock.Now().Add(15 * time.Minute)}
	for _, f := range change {
		f(&record)
	}
	secret := trust.NewSecret("liqod", record)
	secret.ResourceVersion = "0"
	w.secrets[secret.Name] = secret
	return token
}

func forCluster(id string) func(*trust.Record) { return func(r *trust.Record) { r.ClusterID = id } }

func uses(n int) func(*trust.Record) { return func(r *trust.Record) { r.Uses = n } }

// client is a cluster that sends requests.
type client struct {
	id, uid string
	key     crypto.Signer
}

func newClient(t *testing.T, id, uid string) client { return client{id, uid, newKey(t)} }

func (c client) user(t *testing.T) string {
	t.Helper()
	user, err := trust.User(c.id, c.key.Public())
	require.NoError(t, err)
	return user
}

func (c client) csr(t *testing.T) string {
	t.Helper()
	csr, err := trust.MakeCSR(c.key, c.user(t))
	require.NoError(t, err)
	return csr
}

func (c client) request(t *testing.T, token trust.Token) trust.EnrollRequest {
	t.Helper()
	return trust.EnrollRequest{Token: token.String(), ClusterID: c.id, ClusterUID: c.uid, CSR: c.csr(t)}
}

// answer is a response: a grant or a refusal.
type answer struct {
	trust.Grant
	trust.Refusal
	status int
}

// post sends a body, with a client certificate or a bearer token if given.
func (w *world) post(path string, body io.Reader, cert *tls.Certificate, bearer string) answer {
	w.t.Helper()
	transport := w.server.Client().Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	if cert != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*cert}
	}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.server.URL+path, body)
	require.NoError(w.t, err)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := transport.RoundTrip(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	out := answer{status: resp.StatusCode}
	if resp.StatusCode == http.StatusOK {
		require.NoError(w.t, json.Unmarshal(text, &out.Grant))
	} else {
		require.NoError(w.t, json.Unmarshal(text, &out.Refusal), "%s", text)
		require.NotEmpty(w.t, out.Reason)
		require.NotEmpty(w.t, out.Message)
	}
	return out
}

func encode(t *testing.T, body any) io.Reader {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	return bytes.NewReader(text)
}

func (w *world) enroll(req trust.EnrollRequest) answer {
	w.t.Helper()
	return w.post(trust.EnrollPath, encode(w.t, req), nil, "")
}

// enrolled enrols a client with a token of its own, and returns the grant.
func (w *world) enrolled(c client, change ...func(*trust.Record)) trust.Grant {
	w.t.Helper()
	a := w.enroll(c.request(w.t, w.token(change...)))
	require.Equal(w.t, http.StatusOK, a.status, a.Refusal)
	return a.Grant
}

// rome is an enrolled cluster.
func (w *world) rome() (client, trust.Grant) {
	c := newClient(w.t, rome, romeUID)
	return c, w.enrolled(c)
}

// pair returns the client certificate of a grant with the client's key.
func (c client) pair(t *testing.T, g trust.Grant) *tls.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(g.Certificate))
	require.NotNil(t, block)
	return &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: c.key}
}

func (w *world) user(id string) string {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.peers[id] == nil {
		return "none"
	}
	return w.peers[id].Spec.UserName
}
