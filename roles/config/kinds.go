package config

import (
	"crypto/x509"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/netfabric/ipam"
	"github.com/liqod/liqod/peering/trust"
)

// A kind is what a setting accepts. parse takes what YAML, the environment (a string) or
// a flag (a string or []string) gave, and returns the value in the type of the field.
type kind struct {
	name    string // in --help
	accepts string // in errors
	parse   func(raw any) (value any, ok bool)
	// schema describes the same values in YAML, as far as JSON Schema can say it.
	schema map[string]any
}

var (
	dnsLabel     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	dnsSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	namePattern  = regexp.MustCompile(`^[-a-z0-9*]+$`)
	// The names that the kernel accepts, without unusual characters.
	interfaceName = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]*$`)
	metadataKey   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
)

// commonName has the characters of the names of components and hosts.
var commonName = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.:@/*]*$`)

// text accepts strings for which ok returns true.
func text(name, accepts string, ok func(string) bool) kind {
	return kind{name, accepts, func(raw any) (any, bool) {
		s, isText := raw.(string)
		return s, isText && ok(s)
	}, map[string]any{"type": "string"}}
}

func anyText(what string) kind {
	return text("string", what, func(string) bool { return true })
}

func matching(name, accepts string, pattern *regexp.Regexp, most int) kind {
	k := text(name, accepts, func(s string) bool { return len(s) <= most && pattern.MatchString(s) })
	k.schema = map[string]any{"type": "string", "pattern": pattern.String(), "maxLength": most}
	return k
}

func label(most int) kind {
	return matching("name", fmt.Sprintf("a DNS label of at most %d characters (a-z, 0-9 and -, as in rome-1)", most), dnsLabel, most)
}

func objectName() kind {
	return matching("name", "the name of an object (a-z, 0-9, - and ., at most 253 characters)", dnsSubdomain, 253)
}

// labelPattern accepts DNS labels in which * stands for any characters.
func labelPattern() kind {
	return matching("pattern", "a DNS label in which * stands for any characters (shop-*, or * for all names)", namePattern, 63)
}

// labelSelector accepts the selectors of kubectl's --selector, and the empty string.
func labelSelector() kind {
	return text("selector", "a label selector, as tier=partner,region in (eu,us), or \"\"", func(s string) bool {
		_, err := labels.Parse(s)
		return err == nil
	})
}

// orEmpty also accepts the empty string.
func (k kind) orEmpty() kind {
	schema := maps.Clone(k.schema)
	if pattern, found := schema["pattern"]; found {
		schema["pattern"] = fmt.Sprintf("^$|%s", pattern)
	}
	return kind{k.name, k.accepts + ", or \"\"", func(raw any) (any, bool) {
		if raw == "" {
			return "", true
		}
		return k.parse(raw)
	}, schema}
}

func oneOf(words ...string) kind {
	k := text("word", "one of "+strings.Join(words, ", "), func(s string) bool { return slices.Contains(words, s) })
	k.schema = map[string]any{"enum": words}
	return k
}

func boolean() kind {
	return kind{"bool", "true or false", func(raw any) (any, bool) {
		switch v := raw.(type) {
		case bool:
			return v, true
		case string:
			return v == "true", v == "true" || v == "false"
		}
		return nil, false
	}, map[string]any{"type": "boolean"}}
}

func integer(least, most int) kind {
	accepts := fmt.Sprintf("a whole number from %d to %d", least, most)
	if most == math.MaxInt32 {
		accepts = fmt.Sprintf("a whole number of at least %d", least)
	}
	return kind{"int", accepts, func(raw any) (any, bool) {
		n, ok := raw.(int)
		if s, isText := raw.(string); isText {
			var err error
			n, err = strconv.Atoi(s)
			ok = err == nil
		}
		return n, ok && n >= least && n <= most
	}, map[string]any{"type": "integer", "minimum": least, "maximum": most}}
}

func fraction(least, most float64) kind {
	return kind{"fraction", fmt.Sprintf("a number from %v to %v", least, most), func(raw any) (any, bool) {
		f, ok := raw.(float64)
		if s, isText := raw.(string); isText {
			var err error
			f, err = strconv.ParseFloat(s, 64)
			ok = err == nil
		}
		return f, ok && f >= least && f <= most
	}, map[string]any{"type": "number", "minimum": least, "maximum": most}}
}

func duration(least, most time.Duration) kind {
	accepts := fmt.Sprintf("a duration with its unit, from %s to %s", short(least), short(most))
	return kind{"duration", accepts, func(raw any) (any, bool) {
		s, _ := raw.(string)
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= least && d <= most
	}, map[string]any{"type": "string", "pattern": durationPattern}}
}

// durationPattern is the form of time.ParseDuration, without signs. JSON Schema cannot say
// the least and the longest duration.
const durationPattern = `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`

// short prints a duration as people write it: 5m, not 5m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func address() kind {
	return text("host:port", "host:port or :port", func(s string) bool {
		host, port, err := net.SplitHostPort(s)
		if err != nil || strings.ContainsAny(host, " /") {
			return false
		}
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n <= math.MaxUint16
	})
}

// remoteAddress accepts the listen address of another process.
func remoteAddress() kind {
	return text("host:port", "host:port, as in 192.0.2.1:6443", func(s string) bool {
		name, port, err := net.SplitHostPort(s)
		if _, ok := host().parse(name); err != nil || !ok {
			return false
		}
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n > 0
	})
}

// gatewayEndpoint accepts an endpoint, behind the number of its gateway where there are several.
func gatewayEndpoint() kind {
	return text("[number=]host:port", "host:port, as in 192.0.2.1:51840, or that behind the number of a gateway, as in 2=192.0.2.1:51840", func(s string) bool {
		number, rest, found := strings.Cut(s, "=")
		if !found {
			rest = s
		} else if _, ok := integer(1, 14).parse(number); !ok {
			return false
		}
		_, ok := remoteAddress().parse(rest)
		return ok
	})
}

// httpsURL accepts the URL of an endpoint that other clusters dial.
func httpsURL() kind {
	return text("URL", "an https URL of a host and a port, as https://milan.example:6443", func(s string) bool { return trust.CheckURL(s) == nil })
}

func addressRange() kind {
	return text("range", "a CIDR without host bits, as 10.42.0.0/16", func(s string) bool {
		r, err := netip.ParsePrefix(s)
		return err == nil && r.Masked() == r
	})
}

// allocatable accepts a range that role ipam may allocate from.
func allocatable() kind {
	return text("range", "a CIDR without host bits and longer than /0, as 10.42.0.0/16", func(s string) bool {
		r, err := netip.ParsePrefix(s)
		return err == nil && ipam.WellFormed(r)
	})
}

// Prefixes reads ranges that addressRange or allocatable has accepted.
func Prefixes(ranges []string) []netip.Prefix { return ipamv1alpha1.Ranges(ranges) }

func certificates() kind {
	return text("certificates", "certificates as PEM", func(s string) bool { return x509.NewCertPool().AppendCertsFromPEM([]byte(s)) })
}

func ipAddress() kind { return text("address", "an IP address", isIP) }

func host() kind {
	return text("host", "an IP address or a DNS name", func(s string) bool {
		return isIP(s) || len(s) <= 253 && dnsSubdomain.MatchString(s)
	})
}

func isIP(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == ""
}

func directory() kind { return text("directory", "an absolute path", filepath.IsAbs) }

func quantity() kind {
	return text("quantity", "a Kubernetes quantity such as 50m or 64Mi", func(s string) bool {
		q, err := resource.ParseQuantity(s)
		return err == nil && q.Sign() > 0
	})
}

func namespacedName() kind {
	return text("namespace/name", "namespace/name, as in liqo-tenant-milan/milan", func(s string) bool {
		namespace, name, found := strings.Cut(s, "/")
		return found && len(namespace) <= 63 && dnsLabel.MatchString(namespace) && len(name) <= 253 && dnsSubdomain.MatchString(name)
	})
}

// list accepts a list of what element accepts. In the environment its elements are
// separated by commas.
func list(element kind) kind {
	return kind{"list", "a list, each element " + element.accepts, func(raw any) (any, bool) {
		values := []string{}
		for _, one := range elements(raw) {
			v, ok := element.parse(one)
			s, isText := v.(string)
			if !ok || !isText {
				return nil, false
			}
			values = append(values, s)
		}
		return values, isList(raw)
	}, map[string]any{"type": "array", "items": element.schema}}
}

func isList(raw any) bool {
	switch raw.(type) {
	case []any, []string, string:
		return true
	}
	return false
}

func elements(raw any) (out []any) {
	switch v := raw.(type) {
	case []any:
		return v
	case []string:
		for _, s := range v {
			out = append(out, s)
		}
	case string:
		for s := range strings.SplitSeq(v, ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

// The least MTU of an underlay leaves room for IPv6 packets within a tunnel.
const leastUnderlayMTU, mostMTU = 1360, 65535

func underlayMTU() kind {
	k := integer(0, mostMTU)
	within := k.parse
	k.accepts = fmt.Sprintf("0, or a number of bytes from %d to %d", leastUnderlayMTU, mostMTU)
	k.parse = func(raw any) (any, bool) {
		n, ok := within(raw)
		if bytes, isInt := n.(int); isInt && bytes != 0 && bytes < leastUnderlayMTU {
			return nil, false
		}
		return n, ok
	}
	return k
}
