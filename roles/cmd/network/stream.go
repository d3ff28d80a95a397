package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/liqod/liqod/kube/serve"
)

// Rate is what a pod of a measurement found out about the way to another pod.
type Rate struct {
	To string `json:"to"`
	// There and Back are in bytes per second, by the number of TCP streams.
	There map[int]float64 `json:"there,omitempty"`
	Back  map[int]float64 `json:"back,omitempty"`
	// Median and Late, of which one of a hundred is longer, are round trips of packets of probeSize bytes.
	Median time.Duration `json:"median,omitempty"`
	Late   time.Duration `json:"late,omitempty"`
	Error  string        `json:"error,omitempty"`
}

const (
	streamPort = 5475
	// one and several are the numbers of streams that are measured.
	one, several = 1, 8
	// mostBytes ends a measurement before its time.
	mostBytes = 8 << 30
	// most is the number of connections that a pod answers at a time, lasts how long one of them may last.
	most       = 32
	lasts      = 2 * time.Minute
	dialing    = 10 * time.Second
	chunk      = 256 << 10
	mostTrips  = 20000
	perHundred = 100
)

// listenStreams opens the port of a server of streams. It reads what is posted, and answers with the number of bytes.
// To a GET it writes until the client closes the connection.
func listenStreams(ctx context.Context, address string) (*serve.Server, error) {
	return serve.Listen(ctx, serve.Config{
		Address: address, Connections: most, PerAddress: most, Headers: 1 << 12, Request: lasts, Answer: lasts, Grace: time.Second,
		Count: func() {}, Log: zap.NewNop(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer serve.Working(r.Context())()
			switch r.Method {
			case http.MethodPost:
				n, _ := io.Copy(io.Discard, r.Body) // the client sees how many bytes have come
				fmt.Fprint(w, n)
			case http.MethodGet:
				for buffer := make([]byte, chunk); ; {
					if _, err := w.Write(buffer); err != nil || r.Context().Err() != nil {
						return
					}
				}
			}
		}),
	})
}

// rate measures the way to a target: round trips, and of a pod the throughput. The first measurement that fails is the last.
func rate(ctx context.Context, t Target, each time.Duration) Rate {
	out := Rate{To: t.Name, There: map[int]float64{}, Back: map[int]float64{}}
	err := out.trips(ctx, t, each)
	if t.Kind == kindPod {
		s := streamer{at: netip.AddrPortFrom(t.Address, streamPort), each: each, most: mostBytes}
		for _, n := range []int{one, several} {
			if err == nil {
				out.There[n], err = s.bulk(ctx, n, s.send)
			}
			if err == nil {
				out.Back[n], err = s.bulk(ctx, n, s.receive)
			}
		}
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// trips measures the round trips of packets to a target, one after the other. A packet that is lost is not repeated.
func (r *Rate) trips(ctx context.Context, t Target, each time.Duration) error {
	a, err := newAsker(t)
	if err != nil {
		return err
	}
	defer a.close()
	var times []time.Duration
	for begin := time.Now(); len(times) < mostTrips && time.Since(begin) < each && ctx.Err() == nil; {
		rtt, _, failed := a.ask(probeSize)
		if err = failed; err == nil {
			times = append(times, rtt)
		}
	}
	if len(times) == 0 {
		return cmp.Or(err, ctx.Err())
	}
	slices.Sort(times)
	r.Median, r.Late = times[len(times)/2], times[len(times)-1-len(times)/perHundred]
	return nil
}

// streamer measures streams to one server.
type streamer struct {
	at   netip.AddrPort
	each time.Duration // how long a measurement takes
	most int64         // bytes of a measurement
}

// bulk runs n streams at the same time, and returns the bytes per second of all. Their connections are open before. left
// is what the streams may send yet.
func (s streamer) bulk(ctx context.Context, n int, run func(context.Context, *http.Client, time.Time, *atomic.Int64) (int64, error)) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.each+dialing)
	defer cancel()
	clients := make([]*http.Client, n)
	for i := range clients {
		transport := &http.Transport{WriteBufferSize: chunk, ReadBufferSize: chunk, DisableCompression: true}
		defer transport.CloseIdleConnections()
		clients[i] = &http.Client{Transport: transport}
		if _, err := s.request(ctx, clients[i], http.MethodHead, nil); err != nil {
			return 0, err
		}
	}
	var all sync.WaitGroup
	var sum, left atomic.Int64
	left.Store(s.most)
	errs, begin := make([]error, n), time.Now()
	for i, client := range clients {
		all.Go(func() {
			bytes, err := run(ctx, client, begin.Add(s.each), &left)
			sum.Add(bytes)
			errs[i] = err
		})
	}
	all.Wait()
	return float64(sum.Load()) / time.Since(begin).Seconds(), errors.Join(errs...)
}

// request sends a request. Of HEAD the answer has no body, and the connection is free again.
func (s streamer) request(ctx context.Context, client *http.Client, method string, body io.Reader) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.at.String()+"/", body)
	if err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	return answer.Body, nil
}

// send writes until end, once at least, and returns how many bytes the server has got.
func (s streamer) send(ctx context.Context, client *http.Client, end time.Time, left *atomic.Int64) (n int64, err error) {
	answer, err := s.request(ctx, client, http.MethodPost, &flood{end: end, left: left})
	if err != nil {
		return 0, err
	}
	defer answer.Close()
	if _, err := fmt.Fscan(answer, &n); err != nil {
		return 0, fmt.Errorf("waiting until all has arrived: %w", err)
	}
	return n, nil
}

// flood is a text without meaning that ends at a time, or when nothing is left to send.
type flood struct {
	end   time.Time
	left  *atomic.Int64
	begun bool
}

// Read implements io.Reader.
func (f *flood) Read(to []byte) (int, error) {
	if f.begun && (f.left.Load() <= 0 || !time.Now().Before(f.end)) {
		return 0, io.EOF
	}
	f.begun = true
	f.left.Add(-int64(len(to)))
	return len(to), nil
}

// receive reads until end, once at least.
func (s streamer) receive(ctx context.Context, client *http.Client, end time.Time, left *atomic.Int64) (n int64, err error) {
	answer, err := s.request(ctx, client, http.MethodGet, nil)
	if err != nil {
		return 0, err
	}
	defer answer.Close()
	for buffer := make([]byte, chunk); ; {
		got, err := answer.Read(buffer)
		n += int64(got)
		switch {
		case err != nil && (n == 0 || !errors.Is(err, context.DeadlineExceeded)):
			return n, fmt.Errorf("receiving: %w", err)
		case err != nil, left.Add(-int64(got)) <= 0, !time.Now().Before(end):
			return n, nil
		}
	}
}
