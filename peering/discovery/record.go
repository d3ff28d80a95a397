// Package discovery finds clusters by DNS-SD (RFC 6763), in configured domains and, by
// multicast DNS (RFC 6762), on local networks. It creates a ForeignCluster for each cluster
// that it finds, with a label that names the source. DNS answers are not authenticated, so
// such a ForeignCluster has no effect until a person or a policy wants the peering.
// docs/peering.md#finding-clusters describes the records.
package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/miekg/dns"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/peering/trust"
)

// Service is the DNS-SD service type of the authentication endpoint.
const Service = "_liqod._tcp"

// Keys of a TXT record. The first occurrence of a key counts; other keys are ignored.
const (
	keyID   = "id"
	keyName = "name"
	keyURL  = "url"
)

// Limits for answers, which are not trusted.
const (
	maxClusters = 256  // clusters in one answer or on one network
	maxURL      = 2048 // bytes, as in the schema of ForeignClusters
	maxName     = 253  // bytes
	maxTXT      = 4096 // bytes of all strings of a TXT record

	minTTL = 30 * time.Second // also the delay after a failed query
	maxTTL = time.Hour
)

// Record is a cluster as DNS records describe it.
type Record struct {
	// ClusterID is the cluster's id.
	ClusterID string
	// Name is a display name; it may be empty.
	Name string
	// URL is the https URL of the authentication endpoint.
	URL string
	// Instance is the DNS-SD instance name, including the domain.
	Instance string
}

// read returns the Record of an instance from its SRV and TXT records. srv may be nil.
func read(instance string, srv *dns.SRV, txt *dns.TXT) (Record, error) {
	if txt == nil {
		return Record{}, errors.New("no TXT record")
	}
	pairs, err := attributes(txt.Txt)
	if err != nil {
		return Record{}, err
	}
	r := Record{ClusterID: pairs[keyID], Name: pairs[keyName], URL: pairs[keyURL], Instance: instance}
	if err := trust.CheckClusterID(r.ClusterID); err != nil {
		return Record{}, err
	}
	if len(r.Name) > maxName || !printable(r.Name) {
		return Record{}, errors.New("name: at most 253 printable characters are accepted")
	}
	if r.URL == "" {
		if r.URL, err = address(srv); err != nil {
			return Record{}, err
		}
	}
	return r, goodURL(r.URL)
}

// attributes parses the strings of a TXT record (RFC 6763, section 6), which the DNS
// library returns in presentation form.
func attributes(texts []string) (map[string]string, error) {
	if tooLarge(texts) {
		return nil, fmt.Errorf("a TXT record of more than %d bytes", maxTXT)
	}
	pairs := map[string]string{}
	for _, t := range texts {
		key, value, _ := strings.Cut(unescape(t), "=")
		key = strings.ToLower(key)
		if _, twice := pairs[key]; key != "" && !twice {
			pairs[key] = value
		}
	}
	return pairs, nil
}

// tooLarge reports whether the strings of a TXT record exceed maxTXT.
func tooLarge(texts []string) bool {
	size := 0
	for _, t := range texts {
		size += len(t)
	}
	return size > maxTXT
}

// unescape decodes the presentation form of a string: \DDD is a byte, and \X is X.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		if i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 10, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		i++
		out.WriteByte(s[i])
	}
	return out.String()
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// address returns the https URL of the target of an SRV record.
func address(srv *dns.SRV) (string, error) {
	if srv == nil || srv.Port == 0 {
		return "", errors.New("neither a url in the TXT record nor an SRV record with a port")
	}
	host := strings.ToLower(strings.TrimSuffix(srv.Target, "."))
	if host == "" { // the target "." means that there is no such service (RFC 2782)
		return "", errors.New("an SRV record without a target")
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(srv.Port))), nil
}

func goodURL(text string) error {
	if len(text) > maxURL || !printable(text) {
		return fmt.Errorf("url: at most %d printable characters are accepted", maxURL)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("url: https with host, port and path is accepted, and nothing else")
	}
	if _, err := net.LookupPort("tcp", cmp.Or(u.Port(), "443")); err != nil {
		return errors.New("url: the port is invalid")
	}
	return nil
}

// Answer is the result of a query for clusters.
type Answer struct {
	// Clusters are the valid records, sorted by instance name.
	Clusters []Record
	// Ignored is the number of ignored records by reason.
	Ignored map[string]int
	// TTL is how long the answer is valid.
	TTL time.Duration
	// Partial means that further clusters may follow, so that earlier results stay.
	Partial bool
}

// Reasons for which a record is ignored.
const (
	IgnoredMalformed = "malformed" // the record cannot be parsed, or has values that are not accepted
	IgnoredForeign   = "foreign"   // the record belongs to another service
	IgnoredTooMany   = "too-many"  // the number of records exceeds the limit
	IgnoredDuplicate = "duplicate" // another record has the same cluster id
	IgnoredTooOften  = "too-often" // records of the source change too often; the write waits
)

func (a *Answer) ignore(reason string) {
	if a.Ignored == nil {
		a.Ignored = map[string]int{}
	}
	a.Ignored[reason]++
}

// settle sorts the clusters and removes duplicate ids. It keeps the first by instance name,
// so that all replicas keep the same one.
func (a *Answer) settle() {
	slices.SortFunc(a.Clusters, func(x, y Record) int { return cmp.Compare(x.Instance, y.Instance) })
	seen := map[string]bool{}
	a.Clusters = slices.DeleteFunc(a.Clusters, func(r Record) bool {
		if seen[r.ClusterID] {
			a.ignore(IgnoredDuplicate)
			return true
		}
		seen[r.ClusterID] = true
		return false
	})
}

// clampTTL limits the TTL of a record. A TTL of 0 must not cause queries without pause, and
// a TTL of years must not keep a cluster that is gone.
func clampTTL(seconds uint32) time.Duration {
	return min(max(time.Duration(seconds)*time.Second, minTTL), maxTTL)
}

// instances returns the instance names in the PTR records of a service.
func (a *Answer) instances(records []dns.RR, service string) (names []string) {
	for _, rr := range records {
		ptr, ok := rr.(*dns.PTR)
		if !ok || !equalNames(ptr.Hdr.Name, service) {
			continue
		}
		name := dns.CanonicalName(ptr.Ptr)
		switch {
		case !isInstance(name, service):
			a.ignore(IgnoredForeign)
		case slices.Contains(names, name):
		case len(names) == maxClusters:
			a.ignore(IgnoredTooMany)
		default:
			names = append(names, name)
			a.lives(ptr.Hdr.Ttl)
		}
	}
	return names
}

// isInstance reports whether a canonical name is <instance>.<service>, with exactly one
// more label.
func isInstance(name, service string) bool {
	_, valid := dns.IsDomainName(name)
	return valid && dns.IsSubDomain(service, name) && dns.CountLabel(name) == dns.CountLabel(service)+1
}

func equalNames(a, b string) bool { return dns.CanonicalName(a) == dns.CanonicalName(b) }

// lives limits the TTL of the answer to the TTL of one of its records.
func (a *Answer) lives(seconds uint32) {
	if ttl := clampTTL(seconds); a.TTL == 0 || ttl < a.TTL {
		a.TTL = ttl
	}
}

// describe returns the SRV and TXT records of an instance. Of several SRV records, it
// returns the one with the lowest priority value.
func describe(instance string, records []dns.RR) (srv *dns.SRV, txt *dns.TXT) {
	for _, rr := range records {
		if !equalNames(rr.Header().Name, instance) {
			continue
		}
		switch r := rr.(type) {
		case *dns.SRV:
			if srv == nil || r.Priority < srv.Priority {
				srv = r
			}
		case *dns.TXT:
			if txt == nil {
				txt = r
			}
		}
	}
	return srv, txt
}

const (
	askTimeout  = 5 * time.Second
	roundLimit  = time.Minute // limit for all queries of one round
	payloadSize = 1232        // bytes; larger datagrams may be fragmented
	resolvConf  = "/etc/resolv.conf"
)

// Exchange sends one DNS query and returns the answer.
type Exchange func(ctx context.Context, question *dns.Msg) (*dns.Msg, error)

// Servers returns an Exchange that queries name servers, given as host:port, in order until
// one answers. Without servers, it uses those in /etc/resolv.conf, and reads that file for
// each query.
func Servers(servers []string) Exchange {
	return func(ctx context.Context, question *dns.Msg) (*dns.Msg, error) {
		ask := servers
		if len(ask) == 0 {
			cfg, err := dns.ClientConfigFromFile(resolvConf)
			if err != nil {
				return nil, fmt.Errorf("reading the name servers: %w", err)
			}
			for _, s := range cfg.Servers {
				ask = append(ask, net.JoinHostPort(s, cfg.Port))
			}
		}
		err := errors.New("no name server is configured")
		for _, server := range ask {
			var answer *dns.Msg
			if answer, err = exchange(ctx, question, server); err == nil {
				return answer, nil
			}
		}
		return nil, err
	}
}

// exchange queries one server, by TCP if the answer is truncated.
func exchange(ctx context.Context, question *dns.Msg, server string) (*dns.Msg, error) {
	client := &dns.Client{Net: "udp", Timeout: askTimeout}
	answer, _, err := client.ExchangeContext(ctx, question, server)
	if err == nil && answer.Truncated {
		client.Net = "tcp"
		answer, _, err = client.ExchangeContext(ctx, question, server)
	}
	if err != nil {
		return nil, fmt.Errorf("asking name server %s for %s: %w", server, question.Question[0].Name, err)
	}
	if answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("name server %s answers %s to %s", server, dns.RcodeToString[answer.Rcode], question.Question[0].Name)
	}
	return answer, nil
}

// Ask queries a domain for its clusters. An error means that the result is unknown, so that
// earlier results stay. An answer without clusters means that there are none.
func Ask(ctx context.Context, ask Exchange, domain string) (Answer, error) {
	var a Answer
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	service := dns.Fqdn(Service + "." + domain)
	found, err := ask(ctx, query(service, dns.TypePTR))
	if err != nil {
		return Answer{}, err
	}
	for _, instance := range a.instances(found.Answer, service) {
		srv, txt := describe(instance, found.Extra)
		if srv == nil {
			if srv, err = lookup[*dns.SRV](ctx, ask, instance, dns.TypeSRV); err != nil {
				return Answer{}, err
			}
		}
		if txt == nil {
			if txt, err = lookup[*dns.TXT](ctx, ask, instance, dns.TypeTXT); err != nil {
				return Answer{}, err
			}
		}
		r, err := read(instance, srv, txt)
		if err != nil {
			a.ignore(IgnoredMalformed)
			continue
		}
		a.Clusters = append(a.Clusters, r)
		a.lives(txt.Hdr.Ttl)
	}
	a.settle()
	if a.TTL == 0 {
		a.TTL = negativeTTL(found)
	}
	return a, nil
}

// lookup returns the record of a type for an instance, or nil if there is none.
func lookup[T dns.RR](ctx context.Context, ask Exchange, instance string, kind uint16) (found T, err error) {
	answer, err := ask(ctx, query(instance, kind))
	if err != nil {
		return found, err
	}
	for _, rr := range answer.Answer {
		if r, ok := rr.(T); ok && equalNames(rr.Header().Name, instance) {
			return r, nil
		}
	}
	return found, nil
}

func query(name string, kind uint16) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name, kind)
	return m.SetEdns0(payloadSize, false)
}

// negativeTTL returns how long a negative answer is valid (RFC 2308, section 5).
func negativeTTL(answer *dns.Msg) time.Duration {
	for _, rr := range answer.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return clampTTL(min(soa.Minttl, soa.Hdr.Ttl))
		}
	}
	return minTTL
}

// Domain queries a domain for its clusters, and repeats the query when the TTL of the
// answer ends.
type Domain struct {
	// Name is the name of the domain, such as clusters.example.com.
	Name string
	Ask  Exchange
	// Found is called with each answer.
	Found func(Answer)
	Clock clock.WithTicker
	Log   *zap.Logger
}

// Run queries until ctx is done.
func (d Domain) Run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		a, err := Ask(ctx, d.Ask, d.Name)
		wait := minTTL
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			d.Log.Warn("looking up the clusters of the domain failed; clusters that were found before are kept", zap.String("domain", d.Name), zap.Error(err))
		case err == nil:
			wait = a.TTL
			d.Found(a)
		}
		failing = err != nil
		_ = loop.Sleep(ctx, d.Clock, wait) // the loop's condition looks at ctx
	}
	return nil
}
