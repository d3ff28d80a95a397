package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

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
	for {
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
		timer := d.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}
