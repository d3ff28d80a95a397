package discovery

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	localService = Service + ".local."
	// RFC 6762, section 10: what names a host lives shorter than what does not.
	hostTTL, otherTTL = 120, 4500
	cacheFlush        = 1 << 15          // of the class of a record: it replaces all others
	goodbye           = time.Second      // how long a record that says goodbye lives on (section 10.1)
	maxRecords        = 1024             // of one packet
	claimAgain        = time.Minute      // after another cluster has defended the name
	refresh           = 90 * time.Second // before a record ends it is asked for again
)

// network is what is known of a local network: a cache of records, and this cluster's own
// record. It is pure: packets and times go in, packets come out.
type network struct {
	own    *Record // nil: nothing is announced
	ours   []dns.RR
	cached map[string]*instance

	ignored map[string]int
	// contested is when another cluster was last seen with this one's instance name.
	contested time.Time
}

// instance is what packets have said of one instance, and until when it holds.
type instance struct {
	until, srvUntil, txtUntil time.Time
	srv                       *dns.SRV
	txt                       *dns.TXT
}

func newNetwork(own *Record) *network {
	n := &network{own: own, cached: map[string]*instance{}, ignored: map[string]int{}}
	if own != nil {
		n.ours = announcement(*own)
	}
	return n
}

// OwnInstance is the instance name of a cluster on a local network.
func OwnInstance(clusterID string) string { return clusterID + "." + localService }

// announcement returns the records that describe a cluster on a local network: PTR, SRV,
// TXT, and the address of its host where that is none of the DNS.
func announcement(r Record) []dns.RR {
	header := func(name string, kind uint16, ttl uint32, unique bool) dns.RR_Header {
		class := uint16(dns.ClassINET)
		if unique {
			class |= cacheFlush
		}
		return dns.RR_Header{Name: name, Rrtype: kind, Class: class, Ttl: ttl}
	}
	host, port := ownHost(r)
	texts := []string{keyID + "=" + r.ClusterID}
	if r.Name != "" {
		texts = append(texts, keyName+"="+escape(r.Name))
	}
	if len(r.URL)+len(keyURL) < 255 { // the most that one string holds
		texts = append(texts, keyURL+"="+escape(r.URL))
	}
	target := host
	address, err := netip.ParseAddr(host)
	if err == nil {
		target = r.ClusterID + ".local"
	}
	out := []dns.RR{
		&dns.PTR{Hdr: header(localService, dns.TypePTR, otherTTL, false), Ptr: r.Instance},
		&dns.SRV{Hdr: header(r.Instance, dns.TypeSRV, hostTTL, true), Port: port, Target: dns.Fqdn(target)},
		&dns.TXT{Hdr: header(r.Instance, dns.TypeTXT, otherTTL, true), Txt: texts},
	}
	switch {
	case err != nil:
	case address.Is4():
		out = append(out, &dns.A{Hdr: header(dns.Fqdn(target), dns.TypeA, hostTTL, true), A: address.AsSlice()})
	default:
		out = append(out, &dns.AAAA{Hdr: header(dns.Fqdn(target), dns.TypeAAAA, hostTTL, true), AAAA: address.AsSlice()})
	}
	return out
}

// ownHost returns host and port of a record's URL, which has been checked.
func ownHost(r Record) (string, uint16) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return "", 0
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		port = 443
	}
	return u.Hostname(), uint16(port)
}

// escape is the presentation form that the library packs.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
}

// take reads a response. Records of other services pass unnoticed: they are none of ours.
func (n *network) take(now time.Time, m *dns.Msg) {
	records := slices.Concat(m.Answer, m.Extra)
	for _, rr := range records[:min(len(records), maxRecords)] {
		h := rr.Header()
		if h.Class&^cacheFlush != dns.ClassINET {
			continue
		}
		switch r := rr.(type) {
		case *dns.PTR:
			if equalNames(h.Name, localService) {
				if i := n.instance(dns.CanonicalName(r.Ptr)); i != nil {
					i.until = lives(now, h.Ttl)
				}
			}
		case *dns.SRV:
			if i := n.described(h.Name); i != nil {
				i.srv, i.srvUntil = r, lives(now, h.Ttl)
			}
		case *dns.TXT:
			n.contest(now, r)
			if i := n.described(h.Name); i != nil {
				i.txt, i.txtUntil = r, lives(now, h.Ttl)
			}
		}
	}
}

func lives(now time.Time, ttl uint32) time.Time {
	if ttl == 0 {
		return now.Add(goodbye)
	}
	return now.Add(clampTTL(ttl))
}

// described returns the instance that a record describes, nil if it is of another service.
func (n *network) described(name string) *instance {
	name = dns.CanonicalName(name)
	if !isInstance(name, localService) {
		return nil
	}
	return n.instance(name)
}

// instance returns an instance of the service by its canonical name, nil for one that is
// none, is this cluster's own, or for which there is no room.
func (n *network) instance(name string) *instance {
	switch have := n.cached[name]; {
	case have != nil:
		return have
	case n.own != nil && name == n.own.Instance:
		return nil
	case !isInstance(name, localService):
		n.ignored[IgnoredForeign]++
		return nil
	case len(n.cached) >= maxClusters:
		n.ignored[IgnoredTooMany]++
		return nil
	}
	n.cached[name] = &instance{}
	return n.cached[name]
}

// contest notices another cluster that has this one's instance name.
func (n *network) contest(now time.Time, r *dns.TXT) {
	if n.own == nil || !equalNames(r.Hdr.Name, n.own.Instance) || r.Hdr.Ttl == 0 {
		return
	}
	theirs, err := attributes(r.Txt)
	if err == nil && theirs[keyURL] == n.own.URL && theirs[keyID] == n.own.ClusterID {
		return // another replica of this one, or its echo
	}
	n.contested = now
	n.ignored[IgnoredDuplicate]++
}

// claimed notices, in another's probe, that it wants this cluster's instance name.
func (n *network) claimed(now time.Time, m *dns.Msg) {
	for _, rr := range m.Ns {
		if r, ok := rr.(*dns.TXT); ok {
			n.contest(now, r)
		}
	}
}

// answer forgets what has had its time, and returns what is left.
func (n *network) answer(now time.Time) Answer {
	a := Answer{Ignored: n.ignored, TTL: minTTL}
	n.ignored = map[string]int{}
	for name, i := range n.cached {
		if !i.until.After(now) && !i.srvUntil.After(now) && !i.txtUntil.After(now) {
			delete(n.cached, name)
			continue
		}
		if !i.until.After(now) || !i.txtUntil.After(now) {
			continue
		}
		srv := i.srv
		if !i.srvUntil.After(now) {
			srv = nil
		}
		r, err := read(name, srv, i.txt)
		if err != nil {
			a.ignore(IgnoredMalformed)
			continue
		}
		a.Clusters = append(a.Clusters, r)
	}
	a.settle()
	return a
}

// next returns when the first of what is cached has had its time.
func (n *network) next(now time.Time) time.Duration {
	soonest := maxTTL
	for _, i := range n.cached {
		for _, until := range []time.Time{i.until, i.srvUntil, i.txtUntil} {
			if d := until.Sub(now); d > 0 {
				soonest = min(soonest, d)
			}
		}
	}
	return soonest
}

// question asks who is there, naming those that are known well (section 7.1), and for what
// is missing.
func (n *network) question(now time.Time) *dns.Msg {
	m := new(dns.Msg)
	ask := func(name string, kind uint16) {
		m.Question = append(m.Question, dns.Question{Name: name, Qtype: kind, Qclass: dns.ClassINET})
	}
	ask(localService, dns.TypePTR)
	for name, i := range n.cached {
		switch {
		case !i.txtUntil.After(now.Add(refresh)), !i.srvUntil.After(now.Add(refresh)):
			ask(name, dns.TypeTXT)
			ask(name, dns.TypeSRV)
		case i.until.After(now.Add(otherTTL*time.Second/2)) && len(m.Answer) < 16:
			m.Answer = append(m.Answer, &dns.PTR{Hdr: dns.RR_Header{Name: localService, Rrtype: dns.TypePTR, Class: dns.ClassINET,
				Ttl: uint32(i.until.Sub(now) / time.Second)}, Ptr: name})
		}
		if len(m.Question) > 16 {
			break
		}
	}
	return m
}

// probe asks whether somebody has this cluster's instance name (section 8.1).
func (n *network) probe() *dns.Msg {
	m := new(dns.Msg)
	m.Question = []dns.Question{{Name: n.own.Instance, Qtype: dns.TypeANY, Qclass: dns.ClassINET}}
	m.Ns = append(m.Ns, n.ours[1:3]...)
	return m
}

// announce is an unasked response with all of this cluster's records; or a goodbye.
func (n *network) announce(leaving bool) *dns.Msg {
	m := new(dns.Msg)
	m.Response, m.Authoritative = true, true
	for _, rr := range n.ours {
		rr = dns.Copy(rr)
		if leaving {
			rr.Header().Ttl = 0
		}
		m.Answer = append(m.Answer, rr)
	}
	return m
}

// respond answers a query about this cluster; nil where there is nothing to say.
func (n *network) respond(m *dns.Msg) *dns.Msg {
	if n.own == nil || !slices.ContainsFunc(m.Question, n.concerns) {
		return nil
	}
	named := slices.ContainsFunc(m.Question, func(q dns.Question) bool { return equalNames(q.Name, n.own.Instance) })
	if !named && slices.ContainsFunc(m.Answer, n.known) {
		return nil
	}
	return n.announce(false)
}

func (n *network) concerns(q dns.Question) bool {
	switch {
	case q.Qclass&^cacheFlush != dns.ClassINET && q.Qclass != dns.ClassANY:
		return false
	case equalNames(q.Name, localService):
		return q.Qtype == dns.TypePTR || q.Qtype == dns.TypeANY
	case equalNames(q.Name, n.own.Instance):
		return true
	}
	host := n.ours[1].(*dns.SRV).Target
	return equalNames(q.Name, host) && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeAAAA || q.Qtype == dns.TypeANY)
}

// known reports whether an answer that the asker has already is this cluster's, and fresh.
func (n *network) known(rr dns.RR) bool {
	ptr, ok := rr.(*dns.PTR)
	return ok && equalNames(ptr.Ptr, n.own.Instance) && ptr.Hdr.Ttl >= otherTTL/2
}
