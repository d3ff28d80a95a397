package discovery

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

func parse(t testing.TB, line string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(line)
	require.NoError(t, err, line)
	return rr
}

func txt(strs ...string) *dns.TXT { return &dns.TXT{Txt: strs} }

func TestRead(t *testing.T) {
	t.Parallel()
	srv := &dns.SRV{Target: "Auth.Milan.Example.", Port: 8443}
	for name, tc := range map[string]struct {
		srv  *dns.SRV
		txt  *dns.TXT
		want Record
		err  string
	}{
		"all":                 {srv, txt("id=milan", "name=Milano", "url=https://milan.example:443/x"), Record{ClusterID: "milan", Name: "Milano", URL: "https://milan.example:443/x"}, ""},
		"by SRV":              {srv, txt("id=milan"), Record{ClusterID: "milan", URL: "https://auth.milan.example:8443"}, ""},
		"keys of any case":    {srv, txt("ID=milan", "Name=M", "x", "", "=y"), Record{ClusterID: "milan", Name: "M", URL: "https://auth.milan.example:8443"}, ""},
		"the first counts":    {srv, txt("id=milan", "id=turin"), Record{ClusterID: "milan", URL: "https://auth.milan.example:8443"}, ""},
		"escaped":             {srv, txt(`id=mil\097n`, `name=\"M\"`), Record{ClusterID: "milan", Name: `"M"`, URL: "https://auth.milan.example:8443"}, ""},
		"letters":             {srv, txt("id=milan", `name=M\195\188`), Record{ClusterID: "milan", Name: "Mü", URL: "https://auth.milan.example:8443"}, ""},
		"no TXT":              {srv, nil, Record{}, "no TXT record"},
		"no id":               {srv, txt("name=x"), Record{}, `id ""`},
		"an id that is none":  {srv, txt("id=Mi lan"), Record{}, "DNS label"},
		"a long id":           {srv, txt("id=" + strings.Repeat("a", 52)), Record{}, "DNS label"},
		"a long name":         {srv, txt("id=a", "name="+strings.Repeat("a", 254)), Record{}, "name: at most"},
		"a name to deceive":   {srv, txt("id=a", `name=a\010b`), Record{}, "name: at most"},
		"half a letter":       {srv, txt("id=a", `name=\195`), Record{}, "name: at most"},
		"no way":              {nil, txt("id=a"), Record{}, "neither a url"},
		"no port":             {&dns.SRV{Target: "a."}, txt("id=a"), Record{}, "neither a url"},
		"no such service":     {&dns.SRV{Target: ".", Port: 1}, txt("id=a"), Record{}, "without a target"},
		"not https":           {srv, txt("id=a", "url=http://a"), Record{}, "url: https with host, port and path is accepted"},
		"a user in a URL":     {srv, txt("id=a", "url=https://u:p@a"), Record{}, "url: https with host, port and path is accepted"},
		"a query in a URL":    {srv, txt("id=a", "url=https://a?b"), Record{}, "url: https with host, port and path is accepted"},
		"no host":             {srv, txt("id=a", "url=https://"), Record{}, "url: https with host, port and path is accepted"},
		"a port that is none": {srv, txt("id=a", "url=https://a:99999"), Record{}, "the port is invalid"},
		"a long URL":          {srv, txt("id=a", "url=https://"+strings.Repeat("a", maxURL)), Record{}, "url: at most"},
		"large":               {srv, txt("id=a", strings.Repeat("b", maxTXT)), Record{}, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := read("", tc.srv, tc.txt)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	const service = "_liqod._tcp.example."
	var a Answer
	got := a.instances([]dns.RR{
		parse(t, `_LIQOD._tcp.example. 60 IN PTR Milan._liqod._tcp.example.`),
		parse(t, `_liqod._tcp.example. 600 IN PTR milan._liqod._tcp.example.`),
		parse(t, `_liqod._tcp.example. 600 IN PTR turin._liqod._tcp.elsewhere.`),
		parse(t, `_liqod._tcp.example. 600 IN PTR a.b._liqod._tcp.example.`),
		parse(t, `_http._tcp.example. 1 IN PTR web._http._tcp.example.`),
		parse(t, `_liqod._tcp.example. 1 IN TXT "x"`),
	}, service)
	require.Equal(t, []string{"milan._liqod._tcp.example."}, got)
	require.Equal(t, map[string]int{IgnoredForeign: 2}, a.Ignored)
	require.Equal(t, time.Minute, a.TTL)

	var many []dns.RR
	for i := range maxClusters + 3 {
		many = append(many, parse(t, `_liqod._tcp.example. 60 IN PTR c`+strings.Repeat("x", i%50)+string(rune('a'+i%26))+strings.Repeat("y", i/50)+`._liqod._tcp.example.`))
	}
	a = Answer{}
	require.LessOrEqual(t, len(a.instances(many, service)), maxClusters)
}

func TestOneRecordOfEachID(t *testing.T) {
	t.Parallel()
	a := Answer{Clusters: []Record{{ClusterID: "a", Instance: "z"}, {ClusterID: "b", Instance: "c"}, {ClusterID: "a", Instance: "x"}}}
	a.settle()
	require.Equal(t, []Record{{ClusterID: "b", Instance: "c"}, {ClusterID: "a", Instance: "x"}}, a.Clusters)
	require.Equal(t, 1, a.Ignored[IgnoredDuplicate])
}

func TestClampTTL(t *testing.T) {
	t.Parallel()
	require.Equal(t, minTTL, clampTTL(0))
	require.Equal(t, 2*time.Minute, clampTTL(120))
	require.Equal(t, maxTTL, clampTTL(1<<31))
}

// FuzzAnswer parses arbitrary packets.
func FuzzAnswer(f *testing.F) {
	m := new(dns.Msg)
	m.Answer = []dns.RR{parse(f, `_liqod._tcp.example. 60 IN PTR milan._liqod._tcp.example.`)}
	m.Extra = []dns.RR{parse(f, `milan._liqod._tcp.example. 60 IN SRV 0 0 8443 milan.example.`), parse(f, `milan._liqod._tcp.example. 60 IN TXT "id=milan"`)}
	packet, err := m.Pack()
	require.NoError(f, err)
	f.Add(packet)
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		var m dns.Msg
		if m.Unpack(packet) != nil {
			return
		}
		var a Answer
		for _, instance := range a.instances(m.Answer, "_liqod._tcp.example.") {
			srv, txt := describe(instance, m.Extra)
			if r, err := read(instance, srv, txt); err == nil {
				a.Clusters = append(a.Clusters, r)
			}
		}
		a.settle()
		for _, r := range a.Clusters {
			require.Regexp(t, `^[a-z0-9]([-a-z0-9]{0,49}[a-z0-9])?$`, r.ClusterID)
			require.True(t, strings.HasPrefix(r.URL, "https://"), r.URL)
			require.LessOrEqual(t, len(r.URL), maxURL)
		}
	})
}
