package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/roles/cmd/report"
)

// Figures are what a measurement found out.
type Figures struct {
	// From and Near are nodes of this cluster: pods on From send to the peer, and to a pod on Near.
	From, Near string
	// Ways are those to the pod in the peer, to the peer's gateway, and to the pod on Near.
	Ways []Way
}

const (
	nearPod   = "near"
	serverPod = "there-0"
	clientPod = "from"
	// parts is the number of measurements: five of each pod, which are round trips, and two directions for
	// each number of streams; and one of the gateway.
	parts = 11
)

// Perf measures the way to a pod in one peer, and, to compare, to a pod of this cluster. Each of the
// measurements takes as long as each says. Perf removes what it has made, also when ctx ends.
func Perf(ctx context.Context, cfg Config, each time.Duration) (Figures, error) {
	c := &checker{Config: cfg}
	if err := c.read(ctx); err != nil {
		return Figures{}, err
	}
	switch {
	case len(c.peers) != 1:
		return Figures{}, fmt.Errorf("name one peer: %s", report.KnownPeers(c.all))
	case !c.peers[0].connected():
		return Figures{}, fmt.Errorf("the tunnel to cluster %s does not carry packets: `%s network check` says why", c.peers[0].ID, c.Program)
	case c.peers[0].virtual == "":
		return Figures{}, fmt.Errorf("this cluster runs no pods in cluster %s, so nothing answers there: run the command in the other cluster", c.peers[0].ID)
	case len(c.nodes) == 0:
		return Figures{}, errors.New("no node of this cluster is Ready")
	}
	out := Figures{From: c.nodes[0].Name, Near: c.nodes[len(c.nodes)-1].Name}
	err := c.measure(ctx, &out, each)
	return out, errors.Join(err, c.clear(ctx))
}

// measure makes the pods, and waits for the report.
func (c *checker) measure(ctx context.Context, out *Figures, each time.Duration) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	p := c.peers[0]
	if why := c.offloaded(ctx, p); why != "" {
		return errors.New(why)
	}
	for _, pod := range []*corev1.Pod{c.forge(c.space, nearPod, out.Near, "--serve", "--streams"), c.forge(p.space, serverPod, p.virtual, "--serve", "--streams")} {
		if err := c.create(ctx, pod); err != nil {
			return err
		}
	}
	if err := c.started(ctx, nearPod, serverPod); err != nil {
		return err
	}
	for _, name := range []string{nearPod, serverPod} {
		if !addressOf(c.running[name]).IsValid() {
			return errors.New(waits(c.running[name]))
		}
	}
	targets := to(Target{kindPod, toPodIn(p.ID), addressOf(c.running[serverPod])}, Target{kindPing, toGatewayOf(p.ID), p.address},
		Target{kindPod, "the pod on " + out.Near, addressOf(c.running[nearPod])})
	if err := c.Say(fmt.Sprintf("measuring for some %s, from a pod in namespace %s", parts*each, c.space)); err != nil {
		return err
	}
	if err := c.create(ctx, c.forge(c.space, clientPod, out.From, append(targets, "--for", each.String())...)); err != nil {
		return err
	}
	c.Wait += parts*each + lasts
	var found *Report
	err := c.until(ctx, func(pods map[string]*corev1.Pod) bool {
		if client := pods[clientPod]; client != nil && client.Status.Phase != corev1.PodPending {
			found = c.report(ctx, client)
			return found != nil || client.Status.Phase == corev1.PodFailed
		}
		return false
	})
	if err != nil {
		return err
	}
	if found == nil {
		return errors.New(waits(c.running[clientPod]))
	}
	out.Ways = found.Ways
	return nil
}

// Failed reports whether a part of the measurement failed.
func (f Figures) Failed() bool {
	return slices.ContainsFunc(f.Ways, func(r Way) bool { return r.Error != "" })
}

// Text returns the figures for people.
func (f Figures) Text() string {
	text := report.Table("POD ON "+f.From+" >\tTHERE, 1 STREAM\t8 STREAMS\tBACK, 1 STREAM\t8 STREAMS\tROUND TRIP\t99 %", f.Ways, func(r Way) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", r.To, bits(r.There[one]), bits(r.There[several]), bits(r.Back[one]), bits(r.Back[several]), short(r.RTT), short(r.Late))
	})
	for _, r := range f.Ways {
		if r.Error != "" {
			text += fmt.Sprintf("✘ %s: %s\n", r.To, r.Error)
		}
	}
	return text
}

func short(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return d.Round(10 * time.Microsecond).String()
}

// bits returns a rate of bytes per second as people write it.
func bits(bytes float64) string {
	rate := bytes * 8
	switch {
	case rate == 0:
		return "–"
	case rate >= 1e9:
		return fmt.Sprintf("%.2f Gbit/s", rate/1e9)
	case rate >= 1e6:
		return fmt.Sprintf("%.0f Mbit/s", rate/1e6)
	}
	return fmt.Sprintf("%.0f kbit/s", rate/1e3)
}

const (
	streamPort = 5475
	// one and several are the numbers of streams that are measured.
	one, several = 1, 8
	// mostBytes ends a measurement before its time.
	mostBytes = 8 << 30
	// most is the number of connections that a pod answers at a time, lasts how long one of them may last.
	most    = 32
	lasts   = 2 * time.Minute
	dialing = 10 * time.Second
	chunk   = 256 << 10
)

// listenStreams opens the port of a server of streams. It reads what is posted, and answers with the number of bytes.
// To a GET it writes until the client closes the connection.
func listenStreams(ctx context.Context, address string) (*serve.Server, error) {
	return serve.Listen(ctx, serve.Config{
		Address: address, Connections: most, PerAddress: most, Headers: 1 << 12, Request: lasts, Answer: lasts, Grace: time.Second,
		Count: func() {}, Log: zap.NewNop(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer serve.Working(r.Context())()
			if r.Method == http.MethodPost {
				n, _ := io.Copy(io.Discard, r.Body) // the client sees how many bytes have come
				fmt.Fprint(w, n)
				return
			}
			for buffer := make([]byte, chunk); r.Context().Err() == nil; {
				if _, err := w.Write(buffer); err != nil {
					return
				}
			}
		}),
	})
}

// throughput measures one stream and several, in both directions. The first measurement that fails is the last.
func (w *Way) throughput(ctx context.Context, to netip.Addr, each time.Duration) (err error) {
	at := netip.AddrPortFrom(to, streamPort)
	w.There, w.Back = map[int]float64{}, map[int]float64{}
	for _, n := range []int{one, several} {
		if w.There[n], err = bulk(ctx, at, http.MethodPost, n, each, mostBytes); err != nil {
			return err
		}
		if w.Back[n], err = bulk(ctx, at, http.MethodGet, n, each, mostBytes); err != nil {
			return err
		}
	}
	return nil
}

// bulk runs n streams at the same time, and returns the bytes per second of all, of which most bytes pass.
func bulk(ctx context.Context, at netip.AddrPort, method string, n int, each time.Duration, most int64) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, each+dialing)
	defer cancel()
	var group errgroup.Group
	begin := time.Now()
	f := &flood{end: begin.Add(each)}
	f.left.Store(most)
	for range n {
		group.Go(func() error { return f.stream(ctx, at, method) })
	}
	err := group.Wait()
	return float64(f.passed.Load()) / time.Since(begin).Seconds(), err
}

// flood is data without meaning that ends at a time, or when nothing is left to pass.
type flood struct {
	end          time.Time
	left, passed atomic.Int64
}

// errEnough ends a stream that is received.
var errEnough = errors.New("enough has been received")

func (f *flood) over() bool { return f.left.Load() <= 0 || !time.Now().Before(f.end) }

// Read implements io.Reader.
func (f *flood) Read(to []byte) (int, error) {
	if f.over() {
		return 0, io.EOF
	}
	f.left.Add(-int64(len(to)))
	return len(to), nil
}

// Write implements io.Writer.
func (f *flood) Write(data []byte) (int, error) {
	if f.left.Add(-int64(len(data))); f.over() {
		return len(data), errEnough
	}
	return len(data), nil
}

// stream sends or receives until the end, and adds what has passed: of what was sent, what the server has got.
func (f *flood) stream(ctx context.Context, at netip.AddrPort, method string) error {
	transport := &http.Transport{WriteBufferSize: chunk, ReadBufferSize: chunk, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var body io.Reader
	if method == http.MethodPost {
		body = io.NopCloser(f)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+at.String()+"/", body)
	if err != nil {
		return fmt.Errorf("opening a stream: %w", err)
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("opening a stream: %w", err)
	}
	defer answer.Body.Close()
	var n int64
	if method == http.MethodPost {
		_, err = fmt.Fscan(answer.Body, &n)
	} else if n, err = io.Copy(f, answer.Body); errors.Is(err, errEnough) {
		err = nil
	}
	if f.passed.Add(n); err != nil {
		return fmt.Errorf("waiting until all has arrived: %w", err)
	}
	return nil
}
