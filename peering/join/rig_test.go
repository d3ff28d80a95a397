package join

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
)

const (
	ownUID   = "uid-rome"
	peerUID  = "uid-milan"
	lifetime = 10 * time.Minute
)

// provider is the fake authentication endpoint of cluster milan.
type provider struct {
	t      *testing.T
	server *httptest.Server
	ca     *serve.Pair // of the endpoint
	signer *serve.Pair // of client certificates
	token  trust.Token
	now    func() time.Time

	mu        sync.Mutex
	asked     []string        // paths of the requests
	keys      map[string]bool // serials of the keys with a grant
	owner     string          // serial of the key that used the token
	ended     string          // serial of the key whose enrolment was ended
	users     map[string]bool // users that may renew
	ranges    []string        // announced ranges
	backs     []string        // tokens sent in return
	asToken   bool            // grants are tokens
	lose      int             // number of answers to lose
	refuse    *trust.Refusal  // the answer to every request
	tamper    func(*trust.Grant)
	rawAnswer func(http.ResponseWriter) bool
}

func newProvider(t *testing.T, now func() time.Time) *provider {
	t.Helper()
	p := &provider{t: t, now: now, keys: map[string]bool{}, users: map[string]bool{}}
	var err error
	p.ca, err = serve.NewCA("endpoint", time.Now(), 24*time.Hour)
	require.NoError(t, err)
	p.signer, err = serve.NewCA("cluster", time.Now(), 24*time.Hour)
	require.NoError(t, err)
	serving, err := serve.NewCertificate(p.ca, []string{"127.0.0.1"}, time.Now(), time.Hour)
	require.NoError(t, err)
	certificate := serving.TLS()
	certificate.Certificate = append(certificate.Certificate, p.ca.Cert.Raw)
	p.server = httptest.NewUnstartedServer(p)
	p.server.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	p.server.StartTLS()
	t.Cleanup(p.server.Close)
	p.token = p.newToken("milan")
	return p
}

func (p *provider) newToken(id string) trust.Token {
	token, err := trust.NewToken(p.server.URL, id, trust.Fingerprint(p.ca.Cert))
	require.NoError(p.t, err)
	return token
}

// set changes the behaviour of the endpoint.
func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *provider) count(path string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, asked := range p.asked {
		if asked == path {
			n++
		}
	}
	return n
}

// ServeHTTP implements http.Handler.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r.URL.Path)
	if p.rawAnswer != nil && p.rawAnswer(w) {
		return
	}
	grant, refusal := p.answer(r)
	if p.refuse != nil {
		refusal = p.refuse
	}
	if p.lose > 0 {
		p.lose--
		panic(http.ErrAbortHandler)
	}
	if refusal != nil {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(refusal)
		return
	}
	if p.tamper != nil {
		p.tamper(grant)
	}
	_ = json.NewEncoder(w).Encode(grant)
}

func (p *provider) answer(r *http.Request) (*trust.Grant, *trust.Refusal) {
	no := func(text string) (*trust.Grant, *trust.Refusal) {
		return nil, &trust.Refusal{Reason: trust.ReasonUnauthorized, Message: text}
	}
	if r.URL.Path == trust.RenewPath {
		var ask trust.RenewRequest
		if json.NewDecoder(r.Body).Decode(&ask) != nil {
			return no("broken")
		}
		if ask.Back != nil {
			p.backs = append(p.backs, ask.Back.Token)
		}
		if p.asToken {
			if !p.users[r.Header.Get("Authorization")] {
				return no("the token is not known")
			}
			return p.grant("", "")
		}
		if len(r.TLS.PeerCertificates) == 0 || !p.users[r.TLS.PeerCertificates[0].Subject.CommonName] {
			return no("the identity is not known")
		}
		return p.grant(ask.CSR, r.TLS.PeerCertificates[0].Subject.CommonName)
	}
	var ask trust.EnrollRequest
	if json.NewDecoder(r.Body).Decode(&ask) != nil || ask.ClusterUID != ownUID {
		return no("broken")
	}
	if ask.Back != nil {
		p.backs = append(p.backs, ask.Back.Token)
	}
	csr, err := trust.CheckCSR(ask.CSR)
	if err != nil || ask.Token != p.token.String() || p.owner != "" && p.owner != csr.Serial {
		return no("the token is not known, or used up")
	}
	if csr.Serial == p.ended {
		return nil, &trust.Refusal{Reason: trust.ReasonUnauthorized, Message: "the enrolment was ended", NewKey: true}
	}
	p.owner, p.ranges = csr.Serial, ask.AddressRanges
	return p.grant(ask.CSR, csr.User)
}

func (p *provider) grant(csr, user string) (*trust.Grant, *trust.Refusal) {
	g := &trust.Grant{ClusterID: "milan", ClusterUID: peerUID, User: user, NotAfter: p.now().Add(lifetime).Truncate(time.Second),
		APIServerURL: "https://milan.example:6443", APIServerCA: string(p.ca.CertPEM()), Version: "v1"}
	if p.asToken {
		g.User, g.Token = "system:serviceaccount:liqo-tenant-rome:peer-1", "token-"+hex.EncodeToString(must(rand.Int(rand.Reader, big.NewInt(1<<60))).Bytes())
		p.users["Bearer "+g.Token] = true
		return g, nil
	}
	block, _ := pem.Decode([]byte(csr))
	request, err := x509.ParseCertificateRequest(block.Bytes)
	require.NoError(p.t, err)
	g.Certificate = p.issue(user, request.PublicKey, g.NotAfter)
	serial, err := trust.Serial(request.PublicKey)
	require.NoError(p.t, err)
	p.keys[serial], p.users[user] = true, true
	return g, nil
}

func (p *provider) issue(user string, key crypto.PublicKey, until time.Time) string {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user, Organization: []string{corev1beta1.PeersGroup}}, NotBefore: p.now().Add(-time.Minute), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, p.signer.Cert, key, p.signer.Key)
	require.NoError(p.t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// rig is cluster rome; the test calls its sync.
type rig struct {
	t     *testing.T
	core  *corefake.Clientset
	liqo  *fake.Clientset
	clock *clocktesting.FakePassiveClock
	peer  *provider
	fcs   cache.SharedIndexInformer
	nss   cache.SharedIndexInformer
	join  *Join
	told  int
	said  *record.FakeRecorder
}

func newRig(t *testing.T, change ...func(*corev1beta1.ForeignCluster)) *rig {
	t.Helper()
	r := &rig{t: t, clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second)), said: record.NewFakeRecorder(10)}
	r.peer = newProvider(t, r.clock.Now)
	fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan", UID: "fc", Generation: 1}, Spec: corev1beta1.ForeignClusterSpec{
		ClusterID: "milan", TokenSecretRef: &corev1beta1.SecretReference{Name: "peer-milan-token"}, OutgoingPeeringEnabled: corev1beta1.PeeringYes}}
	for _, c := range change {
		c(fc)
	}
	r.liqo = fake.NewSimpleClientset(fc)
	r.core = corefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: ownUID}}, r.tokenSecret(r.peer.token.String()))
	r.restart()
	return r
}

func (r *rig) tokenSecret(token string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "peer-milan-token"}, Data: map[string][]byte{
		corev1beta1.TokenSecretKey: []byte(token + "\n")}}
}

// restart replaces the Join by one without state.
func (r *rig) restart() {
	r.t.Helper()
	cores, liqos := coreinformers.NewSharedInformerFactory(r.core, 0), externalversions.NewSharedInformerFactory(r.liqo, 0)
	r.join = New(Config{
		Base: link.Base{Env: loop.Env{Clock: r.clock, Log: zaptest.NewLogger(r.t)}, ClusterID: "rome", Kube: r.core, Liqo: r.liqo,
			ForeignClusters: liqos.Core().V1beta1().ForeignClusters(), Namespaces: cores.Core().V1().Namespaces()},
		Version: "v2", OwnNamespace: "liqod", RenewAt: 0.5, AddressRanges: []string{"10.1.0.0/16"},
		Wanted: func(fc *corev1beta1.ForeignCluster) bool {
			return fc.Spec.OutgoingPeeringEnabled == corev1beta1.PeeringYes && fc.DeletionTimestamp == nil
		},
		Back: Back{URL: "https://rome:8443", Offered: func(fc *corev1beta1.ForeignCluster) bool {
			return fc.Spec.IncomingPeeringEnabled == corev1beta1.PeeringYes
		}},
		Events: r.said,
	})
	r.join.Subscribe(func(string) { r.told++ })
	r.fcs, r.nss = liqos.Core().V1beta1().ForeignClusters().Informer(), cores.Core().V1().Namespaces().Informer()
	r.observe()
}

// observe fills the caches from the fake API servers, without watches.
func (r *rig) observe() {
	fcs, err := r.liqo.CoreV1beta1().ForeignClusters().List(context.Background(), metav1.ListOptions{})
	require.NoError(r.t, err)
	var clusters, namespaces []any
	for i := range fcs.Items {
		clusters = append(clusters, &fcs.Items[i])
	}
	nss, err := r.core.CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
	require.NoError(r.t, err)
	for i := range nss.Items {
		namespaces = append(namespaces, &nss.Items[i])
	}
	require.NoError(r.t, r.fcs.GetStore().Replace(clusters, ""))
	require.NoError(r.t, r.nss.GetStore().Replace(namespaces, ""))
}

// sync runs one sync.
func (r *rig) sync() error {
	r.observe()
	return r.join.sync(r.t.Context(), loop.Key{Name: "milan"})
}

// says returns the condition as "Status Reason: message".
func (r *rig) says() string {
	fc := kubetest.Get(r.t, r.liqo.CoreV1beta1().ForeignClusters(), "milan")
	c := r.join.Condition(fc)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

// enrolled syncs until there is an identity.
func (r *rig) enrolled() {
	r.t.Helper()
	for range 3 {
		_ = r.sync()
	}
	require.Contains(r.t, r.says(), "True Enrolled")
}

func (r *rig) secret() *corev1.Secret {
	r.t.Helper()
	return kubetest.Get(r.t, r.core.CoreV1().Secrets("liqo-tenant-milan"), "milan")
}

func (r *rig) change(f func(*corev1beta1.ForeignCluster)) {
	r.t.Helper()
	fc := kubetest.Get(r.t, r.liqo.CoreV1beta1().ForeignClusters(), "milan")
	f(fc)
	fc.Generation++
	kubetest.Update(r.t, r.liqo.CoreV1beta1().ForeignClusters(), fc)
}

func (r *rig) setToken(token string) {
	r.t.Helper()
	kubetest.Update(r.t, r.core.CoreV1().Secrets("liqod"), r.tokenSecret(token))
}

func (r *rig) pass(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

func secretNamed(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + name, Name: name}}
}
