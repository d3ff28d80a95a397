package health

import (
	"bytes"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// mostPages bounds the pages of metrics in memory.
const mostPages = 4

// pages serves metrics. A page stays in memory until its readers have it, and slow ones take
// long. Beyond mostPages such pages, a further reader gets the newest one, which is then as old
// as an answer may last.
type pages struct {
	gatherer prometheus.Gatherer

	mu     sync.Mutex
	newest *page
	being  int // pages with readers
}

// page has metrics as text.
type page struct {
	text    []byte
	readers int
}

// ServeHTTP implements http.Handler.
func (p *pages) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	one, err := p.open()
	if err != nil {
		http.Error(w, "gathering metrics: "+err.Error(), http.StatusInternalServerError)
		return
	}
	defer p.close(one)
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	_, _ = w.Write(one.text) // the reader is gone
}

// open returns a page for a reader.
func (p *pages) open() (*page, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.being < mostPages {
		text, err := p.gather()
		if err != nil {
			return nil, err
		}
		p.newest = &page{text: text}
		p.being++
	}
	p.newest.readers++
	return p.newest, nil
}

func (p *pages) close(one *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.readers--; one.readers == 0 {
		p.being--
	}
}

func (p *pages) gather() ([]byte, error) {
	families, err := p.gatherer.Gather()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
