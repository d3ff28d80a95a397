package scenarios

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/trust"
)

// applicant is a cluster that asks for an identity in another one, by nothing but HTTP.
type applicant struct {
	id, uid string
	key     []byte
	grant   trust.Grant
}

func newApplicant(t *testing.T, id string) *applicant {
	t.Helper()
	key := must(trust.NewKey())(t)
	return &applicant{id: id, uid: "uid-of-" + id, key: key}
}

// csr returns a request for a fresh key, as user or, at an enrolment, as the key's own.
func csr(t *testing.T, id, user string, key []byte) string {
	t.Helper()
	signer, err := trust.ParseKey(key)
	require.NoError(t, err)
	if user == "" {
		user, err = trust.User(id, signer.Public())
		require.NoError(t, err)
	}
	return must(trust.MakeCSR(signer, user))(t)
}

// post sends a request to the endpoint that a token leads to. The answer is a Refusal or
// goes into out.
func post(ctx context.Context, token trust.Token, path string, cert *tls.Certificate, bearer string, body, out any) (refused *trust.Refusal, err error) {
	config := trust.PinnedTLS(token.CA)
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, token.AuthURL+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(resp.Body, trust.MaxBody)); err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return nil, json.Unmarshal(text, out)
	}
	refused = &trust.Refusal{}
	return refused, json.Unmarshal(text, refused)
}

// enroll asks for an identity, and returns why there is none.
func (a *applicant) enroll(t *testing.T, token trust.Token) string {
	t.Helper()
	refused := must(post(t.Context(), token, trust.EnrollPath, nil, "", trust.EnrollRequest{
		Token: token.String(), ClusterID: a.id, ClusterUID: a.uid, CSR: csr(t, a.id, "", a.key), Version: "test",
	}, &a.grant))(t)
	if refused != nil {
		t.Logf("%s: %s", refused.Reason, refused.Message)
		return refused.Reason
	}
	return ""
}

// renew asks for new credentials with a fresh key, and returns why there are none.
func (a *applicant) renew(t *testing.T, token trust.Token) string {
	t.Helper()
	key := must(trust.NewKey())(t)
	req := trust.RenewRequest{ClusterID: a.id}
	if a.grant.Certificate != "" {
		req.CSR = csr(t, a.id, a.grant.User, key)
	}
	var next trust.Grant
	refused := must(post(t.Context(), token, trust.RenewPath, a.certificate(t), a.grant.Token, req, &next))(t)
	if refused != nil {
		t.Logf("%s: %s", refused.Reason, refused.Message)
		return refused.Reason
	}
	require.Equal(t, a.grant.User, next.User)
	a.key, a.grant = key, next
	return ""
}

// certificate is what a presents; nil if it has a token.
func (a *applicant) certificate(t *testing.T) *tls.Certificate {
	t.Helper()
	if a.grant.Certificate == "" {
		return nil
	}
	pair := must(tls.X509KeyPair([]byte(a.grant.Certificate), a.key))(t)
	return &pair
}

// config reaches the API server as the grant says.
func (a *applicant) config(t *testing.T) *rest.Config {
	t.Helper()
	kubeconfig := must(trust.Kubeconfig(a.grant, a.key, corev1beta1.APIServerOverride{}))(t)
	config := must(clientcmd.RESTConfigFromKubeConfig(kubeconfig))(t)
	config.QPS = -1
	return config
}

// works returns a condition: the identity has the rights of a peer that nothing has been
// offered to yet.
func (a *applicant) works(t *testing.T) func(context.Context) error {
	t.Helper()
	core, liqod := clients(t, a.config(t))
	return lab.Together(lab.Exists(core.CoreV1().Namespaces(), "kube-system"), lab.Lists(liqod.OffloadingV1beta1().NamespaceMaps(corev1beta1.TenantNamespace(a.id))))
}

// fails returns a condition: the identity has no rights.
func (a *applicant) fails(t *testing.T) func(context.Context) error {
	t.Helper()
	core, liqod := clients(t, a.config(t))
	return func(ctx context.Context) error {
		for _, try := range []attempt{lab.Exists(core.CoreV1().Namespaces(), "kube-system"), lab.Lists(liqod.OffloadingV1beta1().NamespaceMaps(corev1beta1.TenantNamespace(a.id)))} {
			if err := try(ctx); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("not refused: %w", err)
			}
		}
		return nil
	}
}

// enrolments are the tests of one provider's endpoint.
type enrolments struct {
	*world
}

// token makes a token by the command.
func (e enrolments) token(t *testing.T, args ...string) trust.Token {
	t.Helper()
	out := await(t, quickly, "a token", func(ctx context.Context) (string, error) {
		text, code, err := e.command(ctx, e.milan, append([]string{"token", "create"}, args...)...)
		return text, lab.Wrong(err, code != 0, "%s", text)
	})
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return must(trust.ParseToken(lines[len(lines)-1]))(t)
}

// enrolled is a cluster that has an identity, and the token that it has it by.
func (e enrolments) enrolled(t *testing.T, id string) (*applicant, trust.Token) {
	t.Helper()
	a, token := newApplicant(t, id), e.token(t)
	begin := time.Now()
	require.Empty(t, a.enroll(t, token))
	t.Logf("enrolled: %s", time.Since(begin).Round(time.Millisecond))
	within(t, quickly, "it has its rights", a.works(t))
	return a, token
}

func (e enrolments) revoke(t *testing.T, id string) {
	t.Helper()
	kubetest.Patch(t, e.milan.Liqod().CoreV1beta1().ForeignClusters(), id, types.MergePatchType, []byte(`{"spec":{"userName":""}}`))
}

// testEnrolment gets identities from milan by its endpoint, uses and abuses them. TestPeerings kills the
// controller at each write of an enrolment.
func testEnrolment(t *testing.T, w *world) {
	e := enrolments{w}
	t.Run("rights", e.rights)
	t.Run("renewed", e.renewed)
	t.Run("revoked", e.revoked)
	t.Run("replaced", e.replaced)
	t.Run("left", e.left)
	t.Run("replicas", e.replicas)
	t.Run("refused", e.refused)
	t.Run("by tokens", e.byTokens)
	t.Run("controller", e.controller)
	requests := kubetest.List(t, e.milan.Client().CertificatesV1().CertificateSigningRequests(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=liqod"})
	require.Empty(t, requests.Items, "nothing is left of what was signed")
}

func (e enrolments) rights(t *testing.T) {
	begin := time.Now()
	rome, _ := e.enrolled(t, "rome")
	require.True(t, strings.HasPrefix(rome.grant.User, "liqo.io:peer:rome:"))
	require.True(t, rome.grant.NotAfter.After(begin.Add(9*time.Minute)), "about 10 minutes from its request: %s", rome.grant.NotAfter)
	require.True(t, rome.grant.NotAfter.Before(time.Now().Add(11*time.Minute)), "about 10 minutes from its request: %s", rome.grant.NotAfter)
	scopes := []string{tenantOfRome, "default", "kube-system", "liqod"}
	enrolled := func() {
		golden(t, "enrolled-rights.txt", "What a cluster (rome) may do in its provider (milan) once it is enrolled, and nothing has been offered to it yet.",
			holder{in: e.milan, as: rome.config(t), scopes: scopes})
	}
	enrolled()

	// It may ask for namespaces, and gets none.
	_, liqod := clients(t, rome.config(t))
	labels := map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": "rome", "liqo.io/remote-cluster-id": "rome"}
	kubetest.Create(t, liqod.OffloadingV1beta1().NamespaceMaps(tenantOfRome), &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: labels},
		Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}}})
	answered := func(phase offloadingv1beta1.MappingPhase, says string) func(context.Context) error {
		return lab.Is(liqod.OffloadingV1beta1().NamespaceMaps(tenantOfRome), "milan", func(nm *offloadingv1beta1.NamespaceMap) bool {
			have := nm.Status.CurrentMapping["shop"]
			return have.Phase == phase && strings.Contains(have.Message, says)
		})
	}
	within(t, quickly, "there is no namespace for it", answered(offloadingv1beta1.MappingCreationLoopBackOff, "cluster rome has no offer yet"))
	require.NoError(t, absent(e.milan.Client().CoreV1().Namespaces().Get(t.Context(), "shop-rome", metav1.GetOptions{})))
	enrolled()

	kubetest.Create(t, liqod.SharingV1alpha1().ResourceRequests(tenantOfRome), &sharingv1alpha1.ResourceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: labels},
		Spec: sharingv1alpha1.ResourceRequestSpec{ConsumerClusterID: "rome", ProviderClusterID: "milan",
			CapacityRequest: corev1beta1.CapacityRequest{Resources: asking("1", "1Gi")}}})
	within(t, quickly, "offered capacity, it gets the namespace", answered(offloadingv1beta1.MappingAccepted, ""))
	golden(t, "offered-rights.txt", "What a cluster (rome) may do in its provider (milan) that it was enrolled in, once it is offered capacity and has a namespace there.",
		holder{in: e.milan, as: rome.config(t), scopes: append([]string{"shop-rome"}, scopes...)})

	// What it was given goes with what it has asked for.
	require.NoError(t, liqod.SharingV1alpha1().ResourceRequests(tenantOfRome).Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	require.NoError(t, liqod.OffloadingV1beta1().NamespaceMaps(tenantOfRome).Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	within(t, quickly, "the namespace is gone", isGone(e.milan.Client().CoreV1().Namespaces(), "shop-rome"))
	enrolled()
	e.revoke(t, "rome")
	within(t, 5*time.Second, "all rights are gone", rome.fails(t))
	golden(t, "revoked-rights.txt", "What a cluster (rome) may do in its provider (milan) when its identity there was revoked.",
		holder{in: e.milan, as: rome.config(t), scopes: scopes})
}

// renewed uses one identity through many certificates, and watches through all of them.
func (e enrolments) renewed(t *testing.T) {
	turin, token := e.enrolled(t, "turin")
	_, liqod := clients(t, turin.config(t))
	tenant := corev1beta1.TenantNamespace("turin")
	watch := must(liqod.OffloadingV1beta1().NamespaceMaps(tenant).Watch(t.Context(), metav1.ListOptions{}))(t)
	defer watch.Stop()
	serials := map[string]bool{}
	for range 5 {
		begin := time.Now()
		require.Empty(t, turin.renew(t, token))
		require.NoError(t, turin.works(t)(t.Context()), "no moment without rights")
		pair := turin.certificate(t)
		serials[pair.Leaf.SerialNumber.String()] = true
		require.True(t, turin.grant.NotAfter.After(begin.Add(9*time.Minute)), "about 10 minutes from its renewal: %s", turin.grant.NotAfter)
	}
	require.Len(t, serials, 5)
	_, liqod = clients(t, turin.config(t))
	kubetest.Create(t, liqod.OffloadingV1beta1().NamespaceMaps(tenant), &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Name: "milan", Labels: map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": "turin", "liqo.io/remote-cluster-id": "turin"}}})
	select {
	case event := <-watch.ResultChan():
		require.NotNil(t, event.Object, "the watch of the first certificate goes on")
	case <-time.After(quickly):
		t.Fatal("the watch has told nothing")
	}
}

func (e enrolments) revoked(t *testing.T) {
	genoa, token := e.enrolled(t, "genoa")
	again := *genoa
	e.revoke(t, "genoa")
	within(t, 5*time.Second, "all rights are gone", genoa.fails(t))
	require.Equal(t, trust.ReasonUnauthorized, genoa.renew(t, token))
	require.Equal(t, trust.ReasonUnauthorized, again.enroll(t, token), "the request that made it does not bring it back")
	require.Equal(t, trust.ReasonUnauthorized, again.enroll(t, e.token(t)), "nor does its key")
	require.NoError(t, genoa.fails(t)(t.Context()))

	fresh, _ := e.enrolled(t, "genoa")
	require.NotEqual(t, genoa.grant.User, fresh.grant.User)
	require.NoError(t, genoa.fails(t)(t.Context()), "the old certificate stays dead")
	require.Equal(t, trust.ReasonUnauthorized, genoa.renew(t, token))
}

// replaced gives a cluster that has an identity another one.
func (e enrolments) replaced(t *testing.T) {
	pisa, first := e.enrolled(t, "pisa")
	next := newApplicant(t, "pisa")
	require.Equal(t, trust.ReasonUnauthorized, next.enroll(t, e.token(t)), "by a token for anybody it is not to be had")
	require.Equal(t, trust.ReasonUnauthorized, next.enroll(t, e.token(t, "--uses=0", "--ttl=0")))
	require.NoError(t, pisa.works(t)(t.Context()))

	trusted := func() corev1beta1.Trust {
		fc := kubetest.Get(t, e.milan.Liqod().CoreV1beta1().ForeignClusters(), "pisa")
		return fc.Spec.Trust
	}
	require.Empty(t, trusted())
	require.Empty(t, next.enroll(t, e.token(t, "--for=pisa", "--trust=Organisation")))
	require.Equal(t, corev1beta1.TrustOrganisation, trusted())
	within(t, 5*time.Second, "the new one has the rights", next.works(t))
	within(t, 5*time.Second, "the old one has none", pisa.fails(t))
	require.Equal(t, trust.ReasonUnauthorized, pisa.enroll(t, first))
	require.NoError(t, next.works(t)(t.Context()))
}

func (e enrolments) left(t *testing.T) {
	lucca, token := e.enrolled(t, "lucca")
	refused := must(post(t.Context(), token, trust.LeavePath, lucca.certificate(t), "", trust.LeaveRequest{ClusterID: "lucca"}, &struct{}{}))(t)
	require.Nil(t, refused)
	within(t, 5*time.Second, "all rights are gone", lucca.fails(t))
}

// atOnce redeems a token for one by many at the same time, at one endpoint or several.
func (e enrolments) atOnce(t *testing.T, at ...trust.Token) {
	const many = 200
	crowd := "crowd-" + at[0].ID[:8] + "-"
	all := make([]*applicant, many)
	reasons := make([]string, many)
	for i := range many {
		all[i] = newApplicant(t, fmt.Sprintf("%s%d", crowd, i))
	}
	var group sync.WaitGroup
	begin := time.Now()
	for i, a := range all {
		group.Go(func() {
			reasons[i] = trust.ReasonBusy
			for reasons[i] == trust.ReasonBusy {
				reasons[i] = a.enroll(t, at[i%len(at)])
			}
		})
	}
	group.Wait()
	t.Logf("%d redemptions: %s", many, time.Since(begin).Round(time.Millisecond))
	won := 0
	for i, reason := range reasons {
		if reason == "" {
			won++
			within(t, quickly, all[i].id+" has won", all[i].works(t))
			continue
		}
		require.Equal(t, trust.ReasonUnauthorized, reason)
	}
	require.Equal(t, 1, won)
	for _, fc := range kubetest.List(t, e.milan.Liqod().CoreV1beta1().ForeignClusters()).Items {
		won -= strings.Count(fc.Name, crowd)
	}
	require.Zero(t, won)
}

// replicas of the controller serve the same tokens and identities: what is done at one of
// them the other knows.
func (e enrolments) replicas(t *testing.T) {
	standby := must(e.sites.Replica(e.milan.Controller, "-standby", "POD_NAME=standby-of-milan"))(t)
	defer standby.Kill()
	beside := func(token trust.Token) trust.Token {
		token.AuthURL = "https://" + standby.Flag("authentication.address")
		return token
	}
	token := e.token(t)
	parma := newApplicant(t, "parma")
	request := csr(t, parma.id, "", parma.key)
	within(t, quickly, "the standby serves", func(ctx context.Context) error { return e.again(ctx, parma, beside(token), request) })
	within(t, quickly, "who leads gives the rights", parma.works(t))

	t.Run("a token for one", func(t *testing.T) {
		token := e.token(t)
		e.atOnce(t, token, beside(token))
	})
	t.Run("a request at both at once", func(t *testing.T) {
		for n := range 20 {
			token := e.token(t)
			id := fmt.Sprintf("modena-%d", n)
			here := newApplicant(t, id)
			there, request := *here, csr(t, id, "", here.key)
			ctx, cancel := context.WithTimeout(t.Context(), longest)
			errs := make(chan error, 2)
			for a, token := range map[*applicant]trust.Token{here: token, &there: beside(token)} {
				go func() {
					errs <- lab.Eventually(ctx, func(ctx context.Context) error { return e.again(ctx, a, token, request) })
				}()
			}
			err := errors.Join(<-errs, <-errs)
			cancel()
			require.NoError(t, err)
			require.Equal(t, here.grant.User, there.grant.User, "it is one identity")
			require.Equal(t, trust.ReasonUnauthorized, newApplicant(t, id).enroll(t, beside(token)))
			within(t, quickly, "it has its rights", here.works(t))
			require.NoError(t, there.works(t)(t.Context()))
		}
	})
	t.Run("renewed and revoked", func(t *testing.T) {
		require.Empty(t, parma.renew(t, token))
		require.Empty(t, parma.renew(t, beside(token)))
		e.revoke(t, "parma")
		require.Equal(t, trust.ReasonUnauthorized, parma.renew(t, beside(token)))
		require.Equal(t, trust.ReasonUnauthorized, parma.renew(t, token))
		within(t, 5*time.Second, "all rights are gone", parma.fails(t))
	})
	t.Run("the leader is gone", func(t *testing.T) {
		token := e.token(t)
		e.milan.Controller.Kill()
		pavia := newApplicant(t, "pavia")
		request := csr(t, pavia.id, "", pavia.key)
		within(t, quickly, "the standby serves", func(ctx context.Context) error {
			return e.again(ctx, pavia, beside(token), request)
		})
		within(t, 3*quickly, "it leads", pavia.works(t))
		require.NoError(t, e.sites.Restart(&e.milan.Controller))
	})
	last, lastToken := newApplicant(t, "asti"), e.token(t)
	request = csr(t, last.id, "", last.key)
	within(t, quickly, "the endpoint is served again", func(ctx context.Context) error { return e.again(ctx, last, lastToken, request) })
}

// refused: the provider's people take a token back. What else an endpoint refuses is tested in package auth.
func (e enrolments) refused(t *testing.T) {
	revoked, good := e.token(t), e.token(t)
	e.done(t, e.milan, "token", "revoke", revoked.ID)
	require.Equal(t, trust.ReasonUnauthorized, newApplicant(t, "siena").enroll(t, revoked))
	out := e.done(t, e.milan, "token", "list")
	require.Contains(t, out, "rome")
	require.NotContains(t, out, good.Secret)
}

// again asks once for an identity, as the same request may be sent again.
func (e enrolments) again(ctx context.Context, a *applicant, token trust.Token, csr string) error {
	refused, err := post(ctx, token, trust.EnrollPath, nil, "", trust.EnrollRequest{Token: token.String(), ClusterID: a.id, ClusterUID: a.uid, CSR: csr}, &a.grant)
	if err == nil && refused != nil {
		err = errors.New(refused.Message)
	}
	return err
}

// byTokens gives identities as a cluster does that signs no certificates.
func (e enrolments) byTokens(t *testing.T) {
	args := e.milan.Controller.Options.Args
	e.milan.Controller.Options.Args = append(args[:len(args):len(args)], "--authentication.identity=token")
	require.NoError(t, e.sites.Restart(&e.milan.Controller))
	defer func() {
		e.milan.Controller.Options.Args = args
		require.NoError(t, e.sites.Restart(&e.milan.Controller))
	}()
	a, token := newApplicant(t, "trieste"), e.token(t)
	within(t, 3*quickly, "there is a leader, who has rights in a new tenant namespace", func(ctx context.Context) error {
		return e.again(ctx, a, token, csr(t, a.id, "", a.key))
	})
	require.NotEmpty(t, a.grant.Token)
	within(t, quickly, "it has its rights", a.works(t))
	old := *a
	require.Empty(t, a.renew(t, token))
	require.NotEqual(t, old.grant.Token, a.grant.Token)
	require.NoError(t, a.works(t)(t.Context()))

	next := newApplicant(t, "trieste")
	require.Empty(t, next.enroll(t, e.token(t, "--for=trieste")))
	within(t, quickly, "the new one has the rights", next.works(t))
	within(t, 15*time.Second, "the old tokens are dead", a.fails(t))
	require.NoError(t, old.fails(t)(t.Context()))
	require.Equal(t, trust.ReasonUnauthorized, a.renew(t, token))
	e.revoke(t, "trieste")
	within(t, 5*time.Second, "all rights are gone", next.fails(t))
}

// controller tries, as the controller, what its part in this does not need.
func (e enrolments) controller(t *testing.T) {
	c, _ := clients(t, holder{in: e.milan, namespace: "liqod", account: "liqod-controller"}.config(t))
	account := func(namespace, name string) {
		kubetest.Create(t, e.milan.Client().CoreV1().ServiceAccounts(namespace), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	account(tenantOfRome, "vk-victim")
	key := must(trust.NewKey())(t)
	request := func(name, signer string, usages ...certificatesv1.KeyUsage) attempt {
		return lab.Creates(c.CertificatesV1().CertificateSigningRequests(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{Request: []byte(csr(t, "rome", "", key)), SignerName: signer, Usages: usages, ExpirationSeconds: ptr.To[int32](600)}})
	}
	token := func(namespace, name string) attempt {
		return func(ctx context.Context) error {
			return second(c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
		}
	}
	secret := func(s *corev1.Secret) attempt {
		return lab.Creates(c.CoreV1().Secrets("liqod"), s)
	}
	secretGone := func(name string) attempt {
		return lab.Deletes(c.CoreV1().Secrets("liqod"), name)
	}
	theirs := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "liqod-peer-theirs"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: []byte(csr(t, "rome", "", key)), SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{"client auth"}, ExpirationSeconds: ptr.To[int32](600)}}
	theirs = kubetest.Create(t, e.milan.Client().CertificatesV1().CertificateSigningRequests(), theirs)
	theirs.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: "Approved", Status: "True", Reason: "a", Message: "b"}}
	peering := e.token(t)
	changed := func(key, value string) attempt {
		return lab.Changes(c.CoreV1().Secrets("liqod"), trust.SecretName(peering.ID), func(secret *corev1.Secret) { secret.Data[key] = []byte(value) })
	}
	victim := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "victim"}}
	kubetest.Create(t, e.milan.Client().CoreV1().Secrets("liqod"), victim)
	allForbidden(t, map[string]attempt{
		"a request of another name":   request("evil", certificatesv1.KubeAPIServerClientSignerName, "client auth"),
		"a request to another signer": request("liqod-peer-evil", certificatesv1.KubeAPIServerClientKubeletSignerName, "client auth"),
		"a request for a server":      request("liqod-peer-evil", certificatesv1.KubeAPIServerClientSignerName, "server auth"),
		"another's request": func(ctx context.Context) error {
			return second(c.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, theirs.Name, theirs, metav1.UpdateOptions{}))
		},
		"another's request's end": func(ctx context.Context) error {
			return c.CertificatesV1().CertificateSigningRequests().Delete(ctx, theirs.Name, metav1.DeleteOptions{})
		},
		"a token of a vkubelet":    token(tenantOfRome, "vk-victim"),
		"a token of another":       token("kube-system", "default"),
		"a namespace":              namespace(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}),
		"a tenant without a label": namespace(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-evil"}}),
		"a tenant of another": namespace(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-evil",
			Labels: map[string]string{"liqo.io/remote-cluster-id": "rome", "liqo.io/tenant-namespace": "true"}}}),
		"a tenant and more": namespace(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-evil",
			Labels: map[string]string{"liqo.io/remote-cluster-id": "evil", "liqo.io/tenant-namespace": "true", "pod-security.kubernetes.io/enforce": "privileged"}}}),
		"the cluster's own end":            lab.Deletes(c.CoreV1().Namespaces(), "liqod"),
		"a Secret":                         secret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}),
		"a token for peers":                secret(trust.NewSecret("liqod", trust.Record{ID: "evil", Hash: trust.Hash("")})),
		"a token in return without an end": secret(trust.NewSecret("liqod", trust.Record{ID: "back-evil", Hash: trust.Hash(""), Uses: 1, ClusterID: "evil"})),
		"a token in return for anybody":    secret(trust.NewSecret("liqod", trust.Record{ID: "back-evil", Hash: trust.Hash(""), Uses: 1, Expiration: time.Now()})),
		"a token in return for many":       secret(trust.NewSecret("liqod", trust.Record{ID: "back-evil", Hash: trust.Hash(""), Uses: 9, Expiration: time.Now(), ClusterID: "evil"})),
		"a token in return with a trust":   secret(trust.NewSecret("liqod", trust.Record{ID: "back-evil", Hash: trust.Hash(""), Uses: 1, Expiration: time.Now(), ClusterID: "evil", Trust: corev1beta1.TrustOrganisation})),
		"what only looks received":         secret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "peer-rome-back"}}),
		"what is received elsewhere":       secret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, Type: corev1beta1.BackTokenType}),
		"a Secret's end":                   secretGone("victim"),
		"a token's end":                    secretGone(trust.SecretName(peering.ID)),
		"the certificates' end":            secretGone(corev1beta1.AuthCertificatesName),
		"another's Secret":                 lab.Updates(c.CoreV1().Secrets("liqod"), victim),
		"a longer life of a token":         changed(trust.ExpirationKey, "2100-01-01T00:00:00Z"),
		"more trust by a token":            changed(trust.TrustKey, string(corev1beta1.TrustOrganisation)),
		"the Secrets of its namespace":     lab.Lists(c.CoreV1().Secrets("liqod")),
	})
	require.NoError(t, e.milan.Client().CertificatesV1().CertificateSigningRequests().Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}))
}

func namespace(c kubernetes.Interface, ns *corev1.Namespace) attempt {
	return lab.Creates(c.CoreV1().Namespaces(), ns)
}
