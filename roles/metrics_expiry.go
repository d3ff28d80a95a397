package roles

import (
	"crypto/tls"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/liqod/liqod/kube/client"
)

// expiry is the life of one certificate or token that this process uses.
type expiry struct {
	certificate string // webhook, authentication, kubelet or identity
	peer        string // of an identity
	life        client.Life
}

// expiries collects the lives of certificates from all roles of the process. A nil one
// collects nothing.
type expiries struct {
	described

	until, from *prometheus.Desc

	mu      sync.Mutex
	sources []func() []expiry
}

func newExpiries() *expiries {
	e := &expiries{
		until: describe("liqod_certificate_expiry_timestamp_seconds",
			"Time at which a certificate or token expires; certificate is webhook, authentication, kubelet, or identity (of this cluster in a peer).", "certificate", "peer"),
		from: describe("liqod_certificate_issued_timestamp_seconds", "Time from which the same certificate or token is valid.", "certificate", "peer"),
	}
	e.described = described{e.until, e.from}
	return e
}

// add adds a source. It must be safe for concurrent use.
func (e *expiries) add(source func() []expiry) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sources = append(e.sources, source)
}

// serving adds the certificate of a server. get returns an error while there is none.
func (e *expiries) serving(name string, get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) {
	e.add(func() []expiry {
		cert, err := get(nil)
		if err != nil || cert.Leaf == nil {
			return nil
		}
		return []expiry{{certificate: name, life: client.CertificateLife(cert.Leaf)}}
	})
}

// Collect implements prometheus.Collector.
func (e *expiries) Collect(out chan<- prometheus.Metric) {
	e.mu.Lock()
	sources := e.sources
	e.mu.Unlock()
	type series struct{ certificate, peer string }
	sent := map[series]bool{}
	for _, source := range sources {
		for _, x := range source() {
			s := series{x.certificate, x.peer}
			if x.life.Until.IsZero() || sent[s] || len(sent) >= mostValues {
				continue
			}
			sent[s] = true
			gauges(out).send(e.until, float64(x.life.Until.Unix()), x.certificate, x.peer)
			gauges(out).send(e.from, float64(x.life.From.Unix()), x.certificate, x.peer)
		}
	}
}
