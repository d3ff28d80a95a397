package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/liqod/liqod/kube/serve"
)

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
