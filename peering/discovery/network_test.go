package discovery

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	clocktesting "k8s.io/utils/clock/testing"
)

func record(id, url string) *Record {
	return &Record{ClusterID: id, Name: `The "` + id + `"`, URL: url, Instance: OwnInstance(id)}
}

// carried packs and unpacks a message.
func carried(t testing.TB, m *dns.Msg) *dns.Msg {
	t.Helper()
	data, err := m.Pack()
	require.NoError(t, err)
	out := new(dns.Msg)
	require.NoError(t, out.Unpack(data))
	return out
}

func TestAnnouncementIsRead(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, r := range map[string]*Record{
		"a name":          record("milan", "https://auth.milan.example:8443"),
		"the usual port":  record("milan", "https://auth.milan.example"),
		"an IPv4 address": record("milan", "https://192.0.2.1:8443"),
		"an IPv6 address": record("milan", "https://[2001:db8::1]:8443/auth"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rome := newNetwork(nil)
			rome.take(now, carried(t, newNetwork(r).announce(false)))
			require.Equal(t, []Record{*r}, rome.answer(now).Clusters)
			require.Equal(t, []Record{*r}, rome.answer(now.Add(10*time.Minute)).Clusters, "its host is forgotten, and not needed")
			rome.take(now, carried(t, newNetwork(r).announce(true)))
			require.NotEmpty(t, rome.answer(now).Clusters)
			require.Empty(t, rome.answer(now.Add(2*goodbye)).Clusters)
		})
	}
	rome := newNetwork(nil)
	rome.take(now, newNetwork(record("milan", "https://a")).announce(false))
	require.Empty(t, rome.answer(now.Add(2*maxTTL)).Clusters, "nobody says so any more")
	require.Empty(t, rome.cached)
}

func TestQuestionsAndAnswers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	milan, rome := newNetwork(record("milan", "https://192.0.2.1:8443")), newNetwork(nil)
	question := carried(t, rome.question(now))
	require.Len(t, question.Question, 1)
	answer := milan.respond(question)
	require.NotNil(t, answer)
	rome.take(now, carried(t, answer))
	require.Len(t, rome.answer(now).Clusters, 1)

	question = carried(t, rome.question(now))
	require.Len(t, question.Answer, 1, "what is known well is named")
	require.Nil(t, milan.respond(question), "and not said again")
	question = carried(t, rome.question(now.Add(time.Minute)))
	require.Len(t, question.Question, 3, "what ends soon is asked for")
	require.NotNil(t, milan.respond(question))

	ask := func(name string, kind uint16) *dns.Msg { return new(dns.Msg).SetQuestion(name, kind) }
	require.NotNil(t, milan.respond(ask("milan.local.", dns.TypeA)))
	require.NotNil(t, milan.respond(ask("Milan._liqod._tcp.local.", dns.TypeTXT)))
	require.Nil(t, milan.respond(ask("milan.local.", dns.TypeMX)))
	require.Nil(t, milan.respond(ask("_http._tcp.local.", dns.TypePTR)))
	require.Nil(t, milan.respond(ask("turin._liqod._tcp.local.", dns.TypeTXT)))
	require.Nil(t, rome.respond(ask(localService, dns.TypePTR)), "who announces nothing is silent")
}

func TestContestedName(t *testing.T) {
	t.Parallel()
	now := time.Now()
	milan, replica, other := newNetwork(record("milan", "https://a")), newNetwork(record("milan", "https://a")), newNetwork(record("milan", "https://b"))
	milan.take(now, carried(t, replica.announce(false)))
	milan.claimed(now, carried(t, replica.probe()))
	require.Zero(t, milan.contested, "a replica says the same")
	milan.claimed(now, carried(t, other.probe()))
	require.Equal(t, now, milan.contested, "who has the name hears who wants it")
	require.NotNil(t, milan.respond(carried(t, other.probe())), "and defends it")
	other.take(now, carried(t, milan.announce(false)))
	require.Equal(t, now, other.contested)
	require.Empty(t, other.answer(now).Clusters, "a cluster does not find itself")
}

// TestHostileNetwork: unsolicited records cost no more than the limits allow.
func TestHostileNetwork(t *testing.T) {
	t.Parallel()
	n, now := newNetwork(nil), time.Now()
	m := new(dns.Msg)
	m.Response = true
	for i := range 2 * maxRecords {
		name := "c" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)) + "." + localService
		m.Answer = append(m.Answer, &dns.PTR{Hdr: dns.RR_Header{Name: localService, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: 1 << 31}, Ptr: name})
	}
	n.take(now, m)
	require.Len(t, n.cached, maxClusters)
	a := n.answer(now)
	require.Empty(t, a.Clusters)
	require.Equal(t, maxRecords-maxClusters, a.Ignored[IgnoredTooMany])
	_, err := n.question(now).Pack()
	require.NoError(t, err)
	require.LessOrEqual(t, len(n.question(now).Question), 18)
}

// TestHostileNetworkFillsNoMemory: of large records nothing is kept.
func TestHostileNetworkFillsNoMemory(t *testing.T) {
	t.Parallel()
	n, now := newNetwork(nil), time.Now()
	large := make([]string, 32)
	for i := range large {
		large[i] = strings.Repeat("x", 255)
	}
	for i := range 20 * maxClusters {
		name := fmt.Sprintf("c%d.%s", i, localService)
		header := func(kind uint16) dns.RR_Header {
			return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: 1 << 30}
		}
		n.take(now, carried(t, &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: []dns.RR{
			&dns.SRV{Hdr: header(dns.TypeSRV), Port: 1, Target: "host.local."}, &dns.TXT{Hdr: header(dns.TypeTXT), Txt: large},
		}}))
	}
	held := 0
	for name, i := range n.cached {
		held += len(name) + len(i.srv.Target)
		if i.txt != nil {
			held += len(strings.Join(i.txt.Txt, ""))
		}
	}
	require.Len(t, n.cached, maxClusters)
	require.LessOrEqual(t, held, maxClusters*200)
	require.Equal(t, 20*maxClusters, n.answer(now).Ignored[IgnoredMalformed])
}

// TestManyPacketsAreEvaluatedTogether: each evaluation parses all records.
func TestManyPacketsAreEvaluatedTogether(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Now())
	answers := make(chan Answer, 2000)
	m := Multicast{Found: func(a Answer) { answers <- a }, Clock: fake, Log: zaptest.NewLogger(t)}
	talk := &talk{Multicast: m, sockets: sockets{}, network: newNetwork(nil), began: fake.Now(), nextAsk: fake.Now(), gap: time.Second}
	packets, ctx := make(chan *dns.Msg), t.Context()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- talk.run(ctx, packets, nil, nil) }()
	for i := range 1000 {
		packets <- newNetwork(record("milan", fmt.Sprintf("https://%d.example", i))).announce(false)
	}
	for len(answers) == 0 {
		fake.Step(tellEvery)
		require.NoError(t, ctx.Err())
		runtime.Gosched()
	}
	require.Equal(t, "https://999.example", (<-answers).Clusters[0].URL)
	require.Empty(t, answers, "one answer for all packets")
	cancel()
	require.NoError(t, <-done)
}

func FuzzNetwork(f *testing.F) {
	for _, m := range []*dns.Msg{newNetwork(record("milan", "https://a")).announce(false), newNetwork(record("rome", "https://b")).probe(), newNetwork(nil).question(time.Time{})} {
		data, err := m.Pack()
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, now := new(dns.Msg), time.Unix(1e9, 0)
		if m.Unpack(data) != nil {
			return
		}
		n := newNetwork(record("rome", "https://192.0.2.1"))
		n.take(now, m)
		n.claimed(now, m)
		if answer := n.respond(m); answer != nil {
			carried(t, answer)
		}
		carried(t, n.question(now))
		for _, r := range n.answer(now).Clusters {
			require.Regexp(t, `^[a-z0-9]([-a-z0-9]{0,49}[a-z0-9])?$`, r.ClusterID)
			require.NoError(t, goodURL(r.URL))
		}
		require.Positive(t, n.next(now))
	})
}
