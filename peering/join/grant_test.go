package join

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/peering/trust"
)

func TestCheckGrant(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	p := newProvider(t, func() time.Time { return now })
	keyPEM, err := trust.NewKey()
	require.NoError(t, err)
	key, err := trust.ParseKey(keyPEM)
	require.NoError(t, err)
	user, err := trust.User("rome", key.Public())
	require.NoError(t, err)
	other, err := trust.NewKey()
	require.NoError(t, err)
	want := expectation{ownID: "rome", peerID: "milan", ownUID: ownUID, user: user, key: keyPEM, now: now}
	certificate := func() trust.Grant {
		g := trust.Grant{ClusterID: "milan", ClusterUID: peerUID, User: user, NotAfter: now.Add(time.Hour),
			APIServerURL: "https://milan.example", APIServerCA: string(p.ca.CertPEM())}
		g.Certificate = p.issue(user, key.Public(), g.NotAfter)
		return g
	}
	token := func() trust.Grant {
		g := certificate()
		g.Certificate, g.Token, g.User = "", "t", "system:serviceaccount:liqo-tenant-rome:peer-1"
		return g
	}
	require.NoError(t, check(certificate(), want))
	require.NoError(t, check(token(), want))

	long := strings.Repeat("x", longestBundle+1)
	for name, tc := range map[string]struct {
		of     func() trust.Grant
		tamper func(*trust.Grant, *expectation)
		want   string
	}{
		"another cluster":          {certificate, func(g *trust.Grant, _ *expectation) { g.ClusterID = "genoa" }, "it is cluster"},
		"no UID":                   {certificate, func(g *trust.Grant, _ *expectation) { g.ClusterUID = "" }, "UID of its cluster is missing"},
		"itself":                   {certificate, func(g *trust.Grant, _ *expectation) { g.ClusterUID = ownUID }, "this cluster itself"},
		"replaced":                 {certificate, func(_ *trust.Grant, e *expectation) { e.peerUID = "before" }, "another cluster answers"},
		"nothing":                  {certificate, func(g *trust.Grant, _ *expectation) { g.Certificate = "" }, "exactly one of a certificate and a token"},
		"both":                     {certificate, func(g *trust.Grant, _ *expectation) { g.Token = "t" }, "exactly one of"},
		"ended":                    {certificate, func(g *trust.Grant, _ *expectation) { g.NotAfter = now }, "have ended already"},
		"a plain server":           {certificate, func(g *trust.Grant, _ *expectation) { g.APIServerURL = "http://milan.example" }, "an https URL is accepted"},
		"a server with a password": {certificate, func(g *trust.Grant, _ *expectation) { g.APIServerURL = "https://a:b@milan.example" }, "an https URL is accepted"},
		"the metadata service":     {certificate, func(g *trust.Grant, _ *expectation) { g.APIServerURL = "https://169.254.169.254" }, "a peer cannot have a server at this address"},
		"no CA":                    {certificate, func(g *trust.Grant, _ *expectation) { g.APIServerCA = "x" }, "certificates of its API server are invalid"},
		"a long CA":                {certificate, func(g *trust.Grant, _ *expectation) { g.APIServerCA = long }, "of more than"},
		"a long version":           {certificate, func(g *trust.Grant, _ *expectation) { g.Version = long }, "of more than"},
		"another user":             {certificate, func(g *trust.Grant, _ *expectation) { g.User = "liqo.io:peer:genoa:1" }, "a certificate for user"},
		"another key":              {certificate, func(_ *trust.Grant, e *expectation) { e.key = other }, "for another key"},
		"another name in it": {certificate, func(g *trust.Grant, _ *expectation) { g.Certificate = p.issue("admin", key.Public(), g.NotAfter) },
			"a certificate for subject"},
		"a shorter one":          {certificate, func(g *trust.Grant, _ *expectation) { g.NotAfter = now.Add(2 * time.Hour) }, "expires before the time given with it"},
		"a long certificate":     {certificate, func(g *trust.Grant, _ *expectation) { g.Certificate = long }, "of more than"},
		"a user elsewhere":       {token, func(g *trust.Grant, _ *expectation) { g.User = "system:serviceaccount:kube-system:admin" }, "a token for user"},
		"a vkubelet of the peer": {token, func(g *trust.Grant, _ *expectation) { g.User = "system:serviceaccount:liqo-tenant-rome:vk-rome" }, "a token for user"},
		"another user's token": {token, func(g *trust.Grant, _ *expectation) { g.Token = "e30.eyJzdWIiOiJ1In0.x" },
			`a token of "u"`},
		"a token with a line":      {token, func(g *trust.Grant, _ *expectation) { g.Token = "a\r\nb" }, "an invalid token"},
		"another user than before": {token, func(_ *trust.Grant, e *expectation) { e.renewed, e.user = true, "x" }, "a renewed one for x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, e := tc.of(), want
			tc.tamper(&g, &e)
			require.ErrorContains(t, check(g, e), tc.want)
		})
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good := &identity{enrolled: true, issued: now.Add(-time.Minute), grant: trust.Grant{User: "u", NotAfter: now.Add(time.Hour)}}
	old := &identity{enrolled: true, issued: now.Add(-50 * time.Minute), grant: trust.Grant{User: "u", NotAfter: now.Add(10 * time.Minute)}}
	ended := &identity{enrolled: true, issued: now.Add(-time.Hour), grant: trust.Grant{User: "u", NotAfter: now}}
	for name, tc := range map[string]struct {
		have            *identity
		wanted, invited bool
		want            step
	}{
		"nothing":               {nil, false, false, stepNone},
		"invited only":          {nil, false, true, stepNone},
		"wanted":                {nil, true, false, stepUnasked},
		"wanted and invited":    {nil, true, true, stepEnrol},
		"begun":                 {&identity{enrolled: true}, true, true, stepEnrol},
		"good":                  {good, true, true, stepKeep},
		"good and not wanted":   {good, false, false, stepKeep},
		"old":                   {old, true, false, stepRenew},
		"ended":                 {ended, true, true, stepEnrol},
		"ended, and no way":     {ended, true, false, stepUnasked},
		"ended, and not wanted": {ended, false, true, stepNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.have != nil {
				tc.have = &identity{secret: secretNamed("milan"), enrolled: tc.have.enrolled, grant: tc.have.grant, issued: tc.have.issued}
			}
			require.Equal(t, tc.want, decide(tc.have, now, tc.wanted, tc.invited, 0.67))
		})
	}
	at := good.renewal(0.5)
	require.Equal(t, at, good.renewal(0.5), "the same each time")
	life := good.grant.NotAfter.Sub(good.issued)
	require.WithinRange(t, at, good.issued.Add(life*45/100), good.issued.Add(life/2))
}
