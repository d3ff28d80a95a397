// Package discovery finds clusters by DNS-SD (RFC 6763), in configured domains and, by
// multicast DNS (RFC 6762), on local networks. It creates a ForeignCluster for each cluster
// that it finds, with a label that names the source. DNS answers are not authenticated, so
// such a ForeignCluster has no effect until a person or a policy wants the peering.
// docs/peering.md#finding-clusters describes the records.
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
