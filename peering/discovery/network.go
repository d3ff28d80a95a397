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
	// RFC 6762, section 10: records that contain a host name have a shorter TTL. Both are
	// in seconds.
	hostTTL, otherTTL = 120, 4500
	cacheFlush        = 1 << 15          // bit of a record's class: the record replaces all others (RFC 6762, section 10.2)
	goodbye           = time.Second      // remaining lifetime of a record with TTL 0 (section 10.1)
	maxRecords        = 1024             // in one packet
	claimAgain        = time.Minute      // delay after another cluster has defended the name
	refresh           = 90 * time.Second // how long before its expiry a record is queried again
)

// network is the state of a local network: a cache of records, and this cluster's own
// record. It is pure: its inputs are packets and times, its outputs packets.
type network struct {
	own    *Record // nil: nothing is announced
	ours   []dns.RR
	cached map[string]*instance

	ignored map[string]int
	// contested is when a packet of another cluster with this cluster's instance name was
	// last received.
	contested time.Time
}

// instance has the cached records of one instance and their expiry times. until is the
// expiry of the PTR record.
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

// OwnInstance returns the instance name of a cluster on a local network.
func OwnInstance(clusterID string) string { return clusterID + "." + localService }

// announcement returns the records of a cluster on a local network: PTR, SRV and TXT, and A
// or AAAA if the host of its URL is an IP address.
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
	if len(r.URL)+len(keyURL) < 255 { // the maximum length of a string in a TXT record
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

// ownHost returns the host and the port of a record's URL, which was validated before.
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

// escape returns the presentation form of a string, from which the DNS library packs it.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
}

// take processes a response. It skips records of other services.
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
			if tooLarge(r.Txt) { // the cache keeps what it may use
				n.ignored[IgnoredMalformed]++
				continue
			}
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

// described returns the instance with the given name, or nil if the name is not of this
// service.
func (n *network) described(name string) *instance {
	name = dns.CanonicalName(name)
	if !isInstance(name, localService) {
		return nil
	}
	return n.instance(name)
}

// instance returns the instance with the given canonical name, and creates it if necessary.
// It returns nil if the name is not of this service or this cluster's own, or if the cache
// is full.
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

// contest records that another cluster uses this cluster's instance name.
func (n *network) contest(now time.Time, r *dns.TXT) {
	if n.own == nil || !equalNames(r.Hdr.Name, n.own.Instance) || r.Hdr.Ttl == 0 {
		return
	}
	theirs, err := attributes(r.Txt)
	if err == nil && theirs[keyURL] == n.own.URL && theirs[keyID] == n.own.ClusterID {
		return // another replica of this cluster, or an own packet
	}
	n.contested = now
	n.ignored[IgnoredDuplicate]++
}

// claimed checks the proposed records of a probe for this cluster's instance name.
func (n *network) claimed(now time.Time, m *dns.Msg) {
	for _, rr := range m.Ns {
		if r, ok := rr.(*dns.TXT); ok {
			n.contest(now, r)
		}
	}
}

// answer deletes expired records, and returns the clusters that are left.
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

// next returns the time until the first cached record expires.
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

// question returns a query for all clusters, with those whose records are still fresh as
// known answers (RFC 6762, section 7.1), and for missing or expiring records.
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

// probe returns a probe for this cluster's instance name (RFC 6762, section 8.1).
func (n *network) probe() *dns.Msg {
	m := new(dns.Msg)
	m.Question = []dns.Question{{Name: n.own.Instance, Qtype: dns.TypeANY, Qclass: dns.ClassINET}}
	m.Ns = append(m.Ns, n.ours[1:3]...)
	return m
}

// announce returns an unsolicited response with all of this cluster's records. With
// leaving, it is a goodbye with TTL 0.
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

// respond returns the response to a query, or nil if the query does not concern this
// cluster or already lists its record as known.
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

// known reports whether a known answer of a query is this cluster's PTR record with at
// least half of its TTL left.
func (n *network) known(rr dns.RR) bool {
	ptr, ok := rr.(*dns.PTR)
	return ok && equalNames(ptr.Ptr, n.own.Instance) && ptr.Hdr.Ttl >= otherTTL/2
}
