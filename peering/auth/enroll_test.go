package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/trust"
)

func TestEnrollGrants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newClient(t, rome, romeUID)
	req := c.request(t, w.token())
	req.AddressRanges, req.Version = []string{"10.2.0.0/16", "10.1.0.0/16"}, "v2"
	a := w.enroll(req)
	require.Equal(t, http.StatusOK, a.status, a.Refusal)
	g := a.Grant
	require.Equal(t, c.user(t), g.User)
	require.Equal(t, [5]string{milan, milanUID, "https://milan:6443", "ca of milan", "authorities"}, [5]string{g.ClusterID, g.ClusterUID, g.APIServerURL, g.APIServerCA, g.AuthCA})
	require.Empty(t, g.Token)
	require.WithinDuration(t, w.clock.Now().Add(time.Hour), g.NotAfter, time.Second)
	cert, err := x509.ParseCertificate(c.pair(t, g).Certificate[0])
	require.NoError(t, err)
	require.Equal(t, g.User, cert.Subject.CommonName)

	fc := w.peers[rome]
	require.Equal(t, corev1beta1.ForeignClusterSpec{
		ClusterID: rome, UserName: g.User, AddressRanges: []string{"10.1.0.0/16", "10.2.0.0/16"},
		OutgoingPeeringEnabled: corev1beta1.PeeringAuto, IncomingPeeringEnabled: corev1beta1.PeeringAuto,
	}, fc.Spec)
	require.Equal(t, romeUID, fc.Annotations[corev1beta1.EnrolledUIDAnnotation])
	require.Equal(t, "10.1.0.0/16,10.2.0.0/16", fc.Annotations[corev1beta1.EnrolledRangesAnnotation])
	require.True(t, w.tenants[rome])
	require.Equal(t, 1, w.counts[trust.EnrollPath+" granted"])
}

func TestEnrollKeepsWhatPeopleWrote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.peers["rome"] = &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rome", UID: "1", Annotations: map[string]string{"a": "b"}},
		Spec: corev1beta1.ForeignClusterSpec{ClusterID: rome, ClusterName: "Roma", AddressRanges: []string{"10.9.0.0/16"},
			OutgoingPeeringEnabled: corev1beta1.PeeringYes, AuthURL: "https://rome:8443"},
	}
	c := newClient(t, rome, romeUID)
	req := c.request(t, w.token())
	req.AddressRanges = []string{"10.1.0.0/16"}
	require.Equal(t, http.StatusOK, w.enroll(req).status)
	fc := w.peers["rome"]
	require.Len(t, w.peers, 1)
	require.Equal(t, corev1beta1.ForeignClusterSpec{ClusterID: rome, ClusterName: "Roma", AddressRanges: []string{"10.9.0.0/16"},
		OutgoingPeeringEnabled: corev1beta1.PeeringYes, AuthURL: "https://rome:8443", UserName: c.user(t)}, fc.Spec)
	require.Equal(t, "b", fc.Annotations["a"])
	require.NotContains(t, fc.Annotations, corev1beta1.EnrolledRangesAnnotation)
}

// TestEnrollTrustsByTheToken: the trust in a new peer is that of its token, whatever the peer
// sends. What people wrote stays, and a token of people does not change it.
func TestEnrollTrustsByTheToken(t *testing.T) {
	t.Parallel()
	given := func(trusted corev1beta1.Trust) func(*trust.Record) {
		return func(r *trust.Record) { r.Trust, r.ClusterID = trusted, rome }
	}
	for name, tc := range map[string]struct{ written, given, want corev1beta1.Trust }{
		"nobody says":           {},
		"the token":             {given: corev1beta1.TrustOrganisation, want: corev1beta1.TrustOrganisation},
		"the token, Strict":     {given: corev1beta1.TrustStrict, want: corev1beta1.TrustStrict},
		"people":                {written: corev1beta1.TrustStrict, want: corev1beta1.TrustStrict},
		"people, then a token":  {written: corev1beta1.TrustStrict, given: corev1beta1.TrustOrganisation, want: corev1beta1.TrustStrict},
		"people, and the token": {written: corev1beta1.TrustOrganisation, given: corev1beta1.TrustStrict, want: corev1beta1.TrustOrganisation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.written != "" {
				w.peers[rome] = &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: rome, UID: "1"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: rome, Trust: tc.written}}
			}
			c := newClient(t, rome, romeUID)
			a := w.enroll(c.request(t, w.token(given(tc.given))))
			require.Equal(t, http.StatusOK, a.status, a.Refusal)
			require.Equal(t, tc.want, w.peers[rome].Spec.Trust)
			require.Equal(t, http.StatusOK, w.enroll(newClient(t, rome, romeUID).request(t, w.token(given("")))).status, "another enrolment")
			require.Equal(t, tc.want, w.peers[rome].Spec.Trust)
		})
	}
}

// TestEnrollLeavesOutOwnRanges: a peer cannot announce ranges that contain addresses of
// this cluster.
func TestEnrollLeavesOutOwnRanges(t *testing.T) {
	t.Parallel()
	left := []string{"rome AddressRangesLeftOut"}
	record := func(ranges ...string) *corev1beta1.ForeignCluster {
		return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: rome, UID: "1"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: rome, AddressRanges: ranges}}
	}
	for name, tc := range map[string]struct {
		have   *corev1beta1.ForeignCluster
		asks   []string
		want   []string
		events []string
	}{
		"its own":                       {nil, []string{"10.1.0.0/16", "2001:db8:1::/48"}, []string{"10.1.0.0/16", "2001:db8:1::/48"}, nil},
		"another peer's":                {nil, []string{"10.1.0.0/16", "10.3.0.0/16"}, []string{"10.1.0.0/16", "10.3.0.0/16"}, nil},
		"all of a network":              {nil, []string{"10.0.0.0/8"}, nil, left},
		"our pods'":                     {nil, []string{"10.1.0.0/16", "10.2.7.0/24"}, []string{"10.1.0.0/16"}, left},
		"around a node":                 {nil, []string{"192.168.7.0/24", "10.1.0.0/16"}, []string{"10.1.0.0/16"}, left},
		"our Services', IPv6":           {nil, []string{"2001:db8:2::/64"}, nil, left},
		"a record without ranges":       {record(), []string{"10.1.0.0/16", "10.2.0.0/16"}, []string{"10.1.0.0/16"}, left},
		"what people wrote stays":       {record("10.2.0.0/16"), []string{"10.2.0.0/16"}, []string{"10.2.0.0/16"}, nil},
		"what people wrote, in public":  {record("203.0.113.0/24"), []string{"203.0.113.0/24"}, []string{"203.0.113.0/24"}, nil},
		"what people wrote, and others": {record("10.9.0.0/16"), []string{"10.1.0.0/16", "10.2.0.0/16"}, []string{"10.9.0.0/16"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *Config) { c.AcceptRanges = append(private(), prefixes([]string{"2001:db8::/32"})...) })
			w.own = prefixes([]string{"10.2.0.0/24", "10.2.7.0/24", "192.168.7.4", "2001:db8:2::/112"})
			w.peers["turin"] = &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "turin", UID: "2"},
				Spec: corev1beta1.ForeignClusterSpec{ClusterID: "turin", AddressRanges: []string{"10.3.0.0/16"}}}
			if tc.have != nil {
				w.peers[rome] = tc.have
			}
			req := newClient(t, rome, romeUID).request(t, w.token())
			req.AddressRanges = tc.asks
			a := w.enroll(req)
			require.Equal(t, http.StatusOK, a.status, a.Refusal)
			require.Equal(t, tc.want, w.peers[rome].Spec.AddressRanges)
			require.Equal(t, tc.events, w.events)
		})
	}
}

func TestEnrollByToken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		identity string
		mute     bool
		reason   string
	}{
		"chosen":                            {IdentityToken, false, ""},
		"where nothing is signed":           {IdentityAuto, true, ""},
		"not where certificates are chosen": {IdentityCertificate, true, trust.ReasonBusy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *Config) { c.Identity = tc.identity })
			w.mute = tc.mute
			c := newClient(t, rome, romeUID)
			a := w.enroll(c.request(t, w.token()))
			require.Equal(t, tc.reason, a.Reason)
			if tc.reason != "" {
				require.Equal(t, "none", w.user(rome))
				return
			}
			serial, err := trust.Serial(c.key.Public())
			require.NoError(t, err)
			require.Equal(t, "system:serviceaccount:liqo-tenant-rome:peer-"+serial, a.User)
			require.Equal(t, a.User, w.user(rome))
			require.Empty(t, a.Certificate)
			require.Zero(t, w.signings)
		})
	}
}

// TestEnrollChecksTheSigner: a certificate with another name is not handed out.
func TestEnrollChecksTheSigner(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(*x509.Certificate){
		"a name":          func(c *x509.Certificate) { c.Subject.CommonName = "system:admin" },
		"a group":         func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} },
		"an authority":    func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true },
		"a server's":      func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
		"ended long ago":  func(c *x509.Certificate) { c.NotAfter = c.NotAfter.Add(-2 * time.Hour) },
		"without a usage": func(c *x509.Certificate) { c.ExtKeyUsage = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *Config) { c.Identity = IdentityCertificate })
			w.forge = forge
			a := w.enroll(newClient(t, rome, romeUID).request(t, w.token()))
			require.Equal(t, trust.ReasonBusy, a.Reason)
			require.Equal(t, "none", w.user(rome))
		})
	}
}

// TestEnrollAgainAfterACut: a repeated request succeeds, wherever the first one was cut
// off.
func TestEnrollAgainAfterACut(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"tenant", "sign", "peer", "answer"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c, token := newClient(t, rome, romeUID), w.token()
			req := c.request(t, token)
			w.at(at, 1, func() error { return errors.New("cut") })
			if at == "answer" {
				require.Equal(t, http.StatusOK, w.enroll(req).status)
			} else {
				require.Equal(t, trust.ReasonBusy, w.enroll(req).Reason)
			}
			for range 3 {
				a := w.enroll(req)
				require.Equal(t, http.StatusOK, a.status, a.Refusal)
				require.Equal(t, c.user(t), a.User)
			}
			// Other keys are still refused.
			require.Equal(t, trust.ReasonUnauthorized, w.enroll(newClient(t, rome, romeUID).request(t, token)).Reason)
		})
	}
}

func TestEnrollRefusesTokens(t *testing.T) {
	t.Parallel()
	other, err := trust.NewToken("https://milan:8443", milan, fingerprint)
	require.NoError(t, err)
	for name, spoil := range map[string]func(*world, *trust.Token, *corev1.Secret){
		"unknown":                  func(_ *world, token *trust.Token, _ *corev1.Secret) { *token = other },
		"another's":                func(w *world, token *trust.Token, _ *corev1.Secret) { *token = w.token(forCluster("paris")) },
		"guessed":                  func(_ *world, token *trust.Token, _ *corev1.Secret) { token.Secret = other.Secret },
		"revoked":                  func(w *world, _ *trust.Token, secret *corev1.Secret) { delete(w.secrets, secret.Name) },
		"expired":                  func(w *world, _ *trust.Token, _ *corev1.Secret) { w.clock.Step(15 * time.Minute) },
		"of no sense":              func(_ *world, _ *trust.Token, secret *corev1.Secret) { secret.Data["uses"] = []byte("x") },
		"a Secret of another type": func(_ *world, _ *trust.Token, secret *corev1.Secret) { secret.Type = "Opaque" },
		"used up": func(w *world, token *trust.Token, _ *corev1.Secret) {
			require.Equal(w.t, http.StatusOK, w.enroll(newClient(w.t, "paris", "uid-of-paris").request(w.t, *token)).status)
		},
		"of another cluster": func(_ *world, token *trust.Token, _ *corev1.Secret) { token.ClusterID = "turin" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			token := w.token()
			spoil(w, &token, w.secrets[trust.SecretName(token.ID)])
			a := w.enroll(newClient(t, rome, romeUID).request(t, token))
			if name == "of another cluster" {
				require.Equal(t, trust.ReasonInvalid, a.Reason, a.Message)
			} else {
				require.Equal(t, trust.ReasonUnauthorized, a.Reason, a.Message)
				require.Equal(t, badToken().Message, a.Message, "who guesses learns nothing")
			}
			require.Equal(t, "none", w.user(rome))
			require.False(t, w.tenants[rome])
		})
	}
}

// TestEnrollRecordsARival: a claim of another cluster's id is recorded once on that
// cluster, until the claimant is enrolled under its own id.
func TestEnrollRecordsARival(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrolled(newClient(t, rome, romeUID))
	rival := func() string { return w.peers[rome].Annotations[corev1beta1.RivalUIDAnnotation] }
	require.Empty(t, rival())
	bad := w.token(func(r *trust.Record) { r.Hash = strings.Repeat("0", len(r.Hash)) })
	require.Equal(t, trust.ReasonUnauthorized, w.enroll(newClient(t, rome, "uid-of-another").request(t, bad)).Reason)
	require.Empty(t, rival(), "without a token nobody writes anything")
	var version string
	for _, uid := range []string{"uid-of-another", "uid-of-another", "uid-of-a-third"} {
		require.Equal(t, trust.ReasonConflict, w.enroll(newClient(t, rome, uid).request(t, w.token())).Reason)
		require.Equal(t, "uid-of-another", rival())
		if version == "" {
			version = w.peers[rome].ResourceVersion
		}
		require.Equal(t, version, w.peers[rome].ResourceVersion, "written once")
	}
	w.enrolled(newClient(t, "genoa", "uid-of-a-third"))
	require.Equal(t, "uid-of-another", rival(), "it is not that one")
	w.enrolled(newClient(t, rome, romeUID), forCluster(rome))
	require.Equal(t, "uid-of-another", rival(), "a new identity of the peer does not end it")
	w.enrolled(newClient(t, "turin", "uid-of-another"))
	require.Empty(t, rival())
	require.NotEmpty(t, w.peers[rome].Spec.UserName, "the peer was never disturbed")
}

func TestEnrollRefusesClusters(t *testing.T) {
	t.Parallel()
	peer := func(change func(*corev1beta1.ForeignCluster)) func(*world) {
		return func(w *world) {
			fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: rome, UID: "1", Annotations: map[string]string{}}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: rome}}
			change(fc)
			w.peers[fc.Name] = fc
		}
	}
	const user = "liqo.io:peer:rome:0"
	for name, tc := range map[string]struct {
		have    func(*world)
		id, uid string
		change  []func(*trust.Record)
		reason  string
		event   bool
	}{
		"this cluster's id":          {nil, milan, "uid-of-another", nil, trust.ReasonConflict, false},
		"this cluster by two ids":    {nil, rome, milanUID, nil, trust.ReasonConflict, false},
		"another of the id, by UID":  {peer(func(fc *corev1beta1.ForeignCluster) { fc.Status.ClusterUID = "other" }), rome, romeUID, nil, trust.ReasonConflict, true},
		"another of the id, it said": {peer(func(fc *corev1beta1.ForeignCluster) { fc.Annotations[corev1beta1.EnrolledUIDAnnotation] = "other" }), rome, romeUID, nil, trust.ReasonConflict, true},
		"even by a token for it":     {peer(func(fc *corev1beta1.ForeignCluster) { fc.Status.ClusterUID = "other" }), rome, romeUID, []func(*trust.Record){forCluster(rome)}, trust.ReasonConflict, true},
		"one cluster by two ids": {peer(func(fc *corev1beta1.ForeignCluster) {
			fc.Name, fc.Spec.ClusterID = "turin", "turin"
			fc.Status.ClusterUID = types.UID(romeUID)
		}), rome, romeUID, nil, trust.ReasonRefused, true},
		"a live enrolment":         {peer(func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = user }), rome, romeUID, nil, trust.ReasonUnauthorized, true},
		"by a token for many":      {peer(func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = user }), rome, romeUID, []func(*trust.Record){uses(0)}, trust.ReasonUnauthorized, true},
		"by one for it":            {peer(func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = user }), rome, romeUID, []func(*trust.Record){forCluster(rome)}, "", false},
		"one that lost its rights": {peer(func(fc *corev1beta1.ForeignCluster) { fc.Annotations[corev1beta1.EnrolmentAnnotation] = "0" }), rome, romeUID, nil, "", false},
		"not wanted":               {peer(func(fc *corev1beta1.ForeignCluster) { fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo }), rome, romeUID, nil, trust.ReasonRefused, true},
		"being removed":            {peer(func(fc *corev1beta1.ForeignCluster) { fc.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), rome, romeUID, nil, trust.ReasonBusy, true},
		"a product's name":         {nil, "manager", romeUID, nil, trust.ReasonRefused, true},
		"an end of a namespace":    {nil, "blue", romeUID, nil, trust.ReasonRefused, true},
		"people named it so":       {nil, "manager", romeUID, []func(*trust.Record){forCluster("manager")}, "", false},
		"people wrote its record":  {peer(func(fc *corev1beta1.ForeignCluster) { fc.Name, fc.Spec.ClusterID = "blue", "blue" }), "blue", romeUID, nil, "", false},
		"only discovery has it": {peer(func(fc *corev1beta1.ForeignCluster) {
			fc.Name, fc.Spec.ClusterID, fc.Labels = "blue", "blue", map[string]string{corev1beta1.DiscoveredLabel: "mdns"}
		}), "blue", romeUID, nil, trust.ReasonRefused, true},
		"it ends like another peer":  {peer(func(*corev1beta1.ForeignCluster) {}), "north-rome", "uid-of-north", nil, trust.ReasonRefused, true},
		"no id":                      {nil, "", romeUID, nil, trust.ReasonInvalid, false},
		"a long id":                  {nil, strings.Repeat("a", 52), romeUID, nil, trust.ReasonInvalid, false},
		"an id of two parts":         {nil, "rome:x", romeUID, nil, trust.ReasonInvalid, false},
		"no UID":                     {nil, rome, "", nil, trust.ReasonInvalid, false},
		"a UID of more than letters": {nil, rome, "a\nb", nil, trust.ReasonInvalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.have != nil {
				tc.have(w)
			}
			token := w.token(tc.change...)
			a := w.enroll(newClient(t, tc.id, tc.uid).request(t, token))
			require.Equal(t, tc.reason, a.Reason, a.Message)
			require.Equal(t, tc.event, len(w.events) > 0)
			record, err := trust.ReadSecret(w.secrets[trust.SecretName(token.ID)])
			require.NoError(t, err)
			if tc.reason != "" {
				require.Empty(t, record.Redemptions, "a token that has given nothing is not used up")
			}
		})
	}
}

// TestEnrollBoundsPeers: a token for any cluster gives no identity beyond the limit of enrolled
// peers, and its Secret has an event. Peers that people have named come in, and those that are
// enrolled go on.
func TestEnrollBoundsPeers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.MaxPeers = 2 })
	w.peers["by-hand"] = &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "by-hand", UID: "1"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "by-hand"}}
	token := w.token(uses(0))
	ask := func(id string, token trust.Token) answer {
		return w.enroll(newClient(t, id, "uid-of-"+id).request(t, token))
	}
	first := newClient(t, "first", "uid-of-first").request(t, token)
	require.Equal(t, http.StatusOK, w.enroll(first).status)
	var granted atomic.Int32
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			if ask(fmt.Sprintf("cluster-%d", i), token).status == http.StatusOK {
				granted.Add(1)
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 1, granted.Load(), "of many at once as many as there is room for")
	a := ask("third", token)
	require.Equal(t, trust.ReasonRefused, a.Reason)
	require.Contains(t, a.Message, "authentication.maxPeers")
	require.Contains(t, w.events, trust.SecretName(token.ID)+" EnrolmentRefused")
	require.NotContains(t, ask("third", w.token(forCluster("turin"))).Message, "maxPeers", "a stranger is told nothing")

	require.Equal(t, http.StatusOK, w.enroll(first).status, "again, with the same key")
	require.Equal(t, http.StatusOK, ask("third", w.token(forCluster("third"))).status, "a token for it alone")
	require.Equal(t, http.StatusOK, ask("by-hand", token).status, "people have written its ForeignCluster")
}

func TestEnrollRefusesRanges(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "10.0.0.0", "10.0.0.1/8", "0.0.0.0/0", "::/0", "169.254.169.254/32", "127.0.0.0/8", "128.0.0.0/1", "fe80::/64", "::ffff:10.0.0.0/104", "224.0.0.0/24", "64:ff9b::/96", "64:ff9b:1::/64", "2002:a9fe::/32",
		"100.100.100.200/32", "100.100.100.0/24", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::254/128", "2001:0:a9fe::/48"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			require.Error(t, checkRanges([]string{text}))
		})
	}
	require.NoError(t, checkRanges([]string{"10.42.0.0/16", "192.168.1.0/24", "fd00::/8", "2001:db8::/32", "100.64.0.0/10"}))
	require.Error(t, checkRanges(make([]string, 17)))
}

// TestEnrollAtOnce: if hundreds of clients redeem a token at once, as many succeed as it
// has uses.
func TestEnrollAtOnce(t *testing.T) {
	t.Parallel()
	const many, some = 200, 3
	w := newWorld(t)
	token := w.token(uses(some))
	reasons := make([]string, many)
	var group sync.WaitGroup
	for i := range many {
		id := "c" + strings.Repeat("x", i%40) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		req := newClient(t, id, "uid-of-"+id).request(t, token)
		group.Go(func() {
			a := w.enroll(req)
			for a.Reason == trust.ReasonBusy {
				a = w.enroll(req)
			}
			reasons[i] = a.Reason
		})
	}
	group.Wait()
	won := 0
	for _, reason := range reasons {
		if reason == "" {
			won++
			continue
		}
		require.Equal(t, trust.ReasonUnauthorized, reason)
	}
	require.Equal(t, some, won)
	require.Len(t, w.peers, some)
}

// TestEnrollAtTwoReplicas: two replicas coordinate the uses of a token through the API
// server only.
func TestEnrollAtTwoReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token()
	first := newClient(t, rome, romeUID).request(t, token)
	second := newClient(t, "paris", "uid-of-paris").request(t, token)
	w.at("token", 1, func() error { // the other replica was faster
		secret, err := trust.WithRedemptions(w.secrets[trust.SecretName(token.ID)], []trust.Redemption{{ClusterID: "paris", Serial: "0"}})
		require.NoError(t, err)
		secret.ResourceVersion = "changed"
		w.secrets[secret.Name] = secret
		return nil
	})
	require.Equal(t, trust.ReasonUnauthorized, w.enroll(first).Reason)
	require.Equal(t, trust.ReasonUnauthorized, w.enroll(second).Reason, "the use is another key's")
}

// TestEnrollOneClusterTwice: if one cluster uses two tokens at once, the key that was
// granted last is the enrolled one.
func TestEnrollOneClusterTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := newClient(t, rome, romeUID), newClient(t, rome, romeUID)
	reqA, reqB := a.request(t, w.token()), b.request(t, w.token())
	w.at("peer", 1, func() error {
		require.Equal(t, http.StatusOK, w.enroll(reqB).status)
		return nil
	})
	require.Equal(t, trust.ReasonUnauthorized, w.enroll(reqA).Reason)
	require.Equal(t, b.user(t), w.user(rome))
}

// TestEnrollDoesNotReviveWhatWasEnded: a repeated request does not revive an enrolment that
// was ended.
func TestEnrollDoesNotReviveWhatWasEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world){
		"revoked":   func(w *world) { w.peers[rome].Spec.UserName = "" },
		"forgotten": func(w *world) { delete(w.peers, rome) },
		"replaced":  func(w *world) { w.enrolled(newClient(w.t, rome, romeUID), forCluster(rome)) },
		"replaced, revoked": func(w *world) {
			w.enrolled(newClient(w.t, rome, romeUID), forCluster(rome))
			w.peers[rome].Spec.UserName = ""
		},
	} {
		for kind, change := range map[string]func(*trust.Record){"for anybody": uses(2), "for it": func(r *trust.Record) { r.Uses, r.ClusterID = 2, rome }} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				req := newClient(t, rome, romeUID).request(t, w.token(change))
				require.Equal(t, http.StatusOK, w.enroll(req).status)
				end(w)
				before := w.user(rome)
				require.Equal(t, trust.ReasonUnauthorized, w.enroll(req).Reason)
				require.Equal(t, before, w.user(rome))
			})
		}
	}
}

func TestEnrollWithAnEndedKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newClient(t, rome, romeUID)
	w.enrolled(c)
	w.peers[rome].Spec.UserName = ""
	a := w.enroll(c.request(t, w.token()))
	require.Equal(t, trust.ReasonUnauthorized, a.Reason, "its certificates may still be about")
	require.True(t, a.NewKey)
	w.enrolled(newClient(t, rome, romeUID))
}

func TestEnrollRetiresAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Identity = IdentityToken })
	first := w.enrolled(newClient(t, rome, romeUID))
	w.enrolled(newClient(t, "paris", "uid-of-paris"))
	w.enrolled(newClient(t, rome, romeUID), forCluster(rome))
	require.Len(t, w.accounts, 2)
	user, err := w.Authenticate(t.Context(), first.Token)
	require.NoError(t, err)
	require.Empty(t, user)
}

// TestEnrollAcceptsRanges: a peer gets no endpoints in public ranges, unless a setting
// allows it. The token stays good.
func TestEnrollAcceptsRanges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		accept []netip.Prefix
		ranges []string
		ok     bool
	}{
		"private":         {private(), []string{"10.42.0.0/16", "172.16.0.0/12", "100.64.0.0/12", "fd00:7::/48"}, true},
		"none":            {private(), nil, true},
		"none, and none":  {nil, nil, true},
		"public":          {private(), []string{"10.42.0.0/16", "203.0.113.0/24"}, false},
		"public of IPv6":  {private(), []string{"2001:db8::/48"}, false},
		"wider":           {private(), []string{"172.0.0.0/8"}, false},
		"allowed":         {prefixes([]string{"203.0.113.0/24"}), []string{"203.0.113.128/25"}, true},
		"nothing allowed": {nil, []string{"10.42.0.0/16"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *Config) { c.AcceptRanges = tc.accept })
			c := newClient(t, rome, romeUID)
			token := w.token()
			req := c.request(t, token)
			req.AddressRanges = tc.ranges
			a := w.enroll(req)
			if tc.ok {
				require.Equal(t, http.StatusOK, a.status, a.Refusal)
				require.ElementsMatch(t, tc.ranges, w.peers[rome].Spec.AddressRanges)
				return
			}
			require.Equal(t, trust.ReasonRefused, a.Reason)
			require.Contains(t, a.Message, "authentication.acceptRanges")
			stranger := req
			stranger.Token = w.token(forCluster("turin")).String()
			require.NotContains(t, w.enroll(stranger).Message, "acceptRanges", "a stranger is told nothing")
			req.AddressRanges = nil
			require.Equal(t, http.StatusOK, w.enroll(req).status, "the token is still good")
		})
	}
}

// FuzzCheckRanges: what is accepted has no address that no pod has.
func FuzzCheckRanges(f *testing.F) {
	for _, text := range []string{"10.42.0.0/16", "::/0", "64:ff9b::/96", "0.0.0.0/1", "::ffff:0:0/90", "fe80::%eth0/64", "10.0.0.0/33"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if checkRanges([]string{a, b}) != nil {
			return
		}
		for _, text := range []string{a, b} {
			r, err := netip.ParsePrefix(text)
			require.NoError(t, err)
			require.Equal(t, r, r.Masked())
			for _, never := range []string{"169.254.169.254", "127.0.0.1", "0.0.0.0", "::1", "::", "fe80::1", "ff02::1", "224.0.0.1", "255.255.255.255", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:169.254.169.254", "192.0.0.192"} {
				require.False(t, r.Contains(netip.MustParseAddr(never)), "%s has %s", text, never)
			}
			for _, service := range []string{"100.100.100.200", "168.63.129.16", "fd00:ec2::254"} {
				require.False(t, r.Contains(netip.MustParseAddr(service)) && r.Addr().BitLen()-r.Bits() <= 8, "%s is about %s", text, service)
			}
			if accepts(enrolment{ranges: []string{text}}, private()) == nil {
				last := r.Addr().AsSlice()
				for i := range r.Addr().BitLen() - r.Bits() {
					last[len(last)-1-i/8] |= 1 << (i % 8)
				}
				end, _ := netip.AddrFromSlice(last)
				for _, a := range []netip.Addr{r.Addr(), end} {
					require.True(t, slices.ContainsFunc(private(), func(p netip.Prefix) bool { return p.Contains(a) }), "%s has %s", text, a)
				}
			}
		}
	})
}
