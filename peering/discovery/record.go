// Package discovery finds clusters by DNS-SD (RFC 6763): in domains that are configured,
// and on local networks by multicast (RFC 6762). What it finds becomes ForeignClusters that
// say where they come from, and that nothing is done for until somebody wants it: whoever
// answers a DNS query is not to be trusted. Reading answers is apart from asking for them.
package discovery

import (
	"cmp"
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

	"github.com/liqod/liqod/peering/trust"
)

// Service is the DNS-SD service type of the authentication endpoint.
const Service = "_liqod._tcp"

// Keys of a TXT record. Of each the first counts; others are ignored.
const (
	keyID   = "id"
	keyName = "name"
	keyURL  = "url"
)

// Limits of what an answer may make of us.
const (
	maxClusters = 256  // records that one answer, or one network, may hold
	maxURL      = 2048 // bytes, as in the schema of ForeignClusters
	maxName     = 253  // bytes
	maxTXT      = 4096 // bytes of all strings of a TXT record

	minTTL = 30 * time.Second // also what asking again after a failure takes
	maxTTL = time.Hour
)

// Record is a cluster as a record describes it.
type Record struct {
	// ClusterID is what the cluster calls itself.
	ClusterID string
	// Name for people; may be empty.
	Name string
	// URL of the authentication endpoint.
	URL string
	// Instance is the record's DNS-SD instance name, with its domain.
	Instance string
}

// read makes a Record of the SRV and TXT records of an instance.
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

// attributes reads the strings of a TXT record (RFC 6763, section 6). The library has them
// in presentation form.
func attributes(texts []string) (map[string]string, error) {
	pairs, size := map[string]string{}, 0
	for _, t := range texts {
		if size += len(t); size > maxTXT {
			return nil, fmt.Errorf("a TXT record of more than %d bytes", maxTXT)
		}
		key, value, _ := strings.Cut(unescape(t), "=")
		key = strings.ToLower(key)
		if _, twice := pairs[key]; key != "" && !twice {
			pairs[key] = value
		}
	}
	return pairs, nil
}

// unescape reads the presentation form of a string: \DDD for a byte, \X for X.
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

// address is where an SRV record leads.
func address(srv *dns.SRV) (string, error) {
	if srv == nil || srv.Port == 0 {
		return "", errors.New("neither a url in the TXT record nor an SRV record with a port")
	}
	host := strings.ToLower(strings.TrimSuffix(srv.Target, "."))
	if host == "" { // a target of one dot says that there is no such service
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
		return errors.New("url: accepted is https with host, port and path, and nothing else")
	}
	if _, err := net.LookupPort("tcp", cmp.Or(u.Port(), "443")); err != nil {
		return errors.New("url: the port is none")
	}
	return nil
}

// Answer is what asking about clusters has brought.
type Answer struct {
	// Clusters that were described well, in the order of their instance names.
	Clusters []Record
	// Ignored counts the records that were not, by reason.
	Ignored map[string]int
	// TTL is for how long the answer holds.
	TTL time.Duration
	// Partial says that more may come: what was known before stays.
	Partial bool
}

// Reasons why a record is ignored.
const (
	IgnoredMalformed = "malformed" // it cannot be read, or holds what is not accepted
	IgnoredForeign   = "foreign"   // it is not of the service that was asked for
	IgnoredTooMany   = "too-many"  // there are more than the limit
	IgnoredDuplicate = "duplicate" // another record has the same cluster id
)

func (a *Answer) ignore(reason string) {
	if a.Ignored == nil {
		a.Ignored = map[string]int{}
	}
	a.Ignored[reason]++
}

// settle orders the clusters, and keeps one of each id: the first by instance name, so that
// every replica takes the same.
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

// clampTTL bounds what a record says of its own life: a cluster that says 0 is not asked
// about all the time, and one that says years goes when it is gone.
func clampTTL(seconds uint32) time.Duration {
	return min(max(time.Duration(seconds)*time.Second, minTTL), maxTTL)
}

// instances returns the instance names that a PTR answer points to, of those that are of
// the service.
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

// isInstance reports whether a canonical name is <instance>.<service>: one label more.
func isInstance(name, service string) bool {
	_, valid := dns.IsDomainName(name)
	return valid && dns.IsSubDomain(service, name) && dns.CountLabel(name) == dns.CountLabel(service)+1
}

func equalNames(a, b string) bool { return dns.CanonicalName(a) == dns.CanonicalName(b) }

// lives shortens the life of the answer to that of one of its records.
func (a *Answer) lives(seconds uint32) {
	if ttl := clampTTL(seconds); a.TTL == 0 || ttl < a.TTL {
		a.TTL = ttl
	}
}

// describe takes the SRV and TXT records of an instance from what was answered.
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
