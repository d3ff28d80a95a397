package network

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
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
	// Median and Late, of which one of a hundred is longer, are round trips of messages of 64 bytes.
	Median time.Duration `json:"median,omitempty"`
	Late   time.Duration `json:"late,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// StreamOptions configure the program of a pod of a measurement.
type StreamOptions struct {
	// Serve answers other pods until ctx is done. Then Targets are not used. Of a target that is pinged,
	// round trips are measured alone.
	Serve   bool
	Targets []Target
	// For is how long each of the measurements of a target takes; each sends mostBytes at most.
	For time.Duration
	Out io.Writer
}

// mostBytes ends a measurement before its time.
const mostBytes = 8 << 30

const (
	streamPort = 5475
	// most is the number of connections that a pod answers at a time, lasts how long one of them may last.
	most       = 32
	lasts      = 2 * time.Minute
	dialing    = 10 * time.Second
	chunk      = 256 << 10
	message    = 64
	mostTrips  = 20000
	perHundred = 100

	// A client asks for one of these by its path, and takes the connection over.
	modeTake = "/take" // the server reads all, and answers with the number of bytes
	modeGive = "/give" // the server writes until the client closes the connection
	modeEcho = "/echo" // the server returns messages

	streamUpgrade = "Connection: Upgrade\r\nUpgrade: liqod-stream\r\n\r\n"
	streamOpens   = "HTTP/1.1 101 Switching Protocols\r\n" + streamUpgrade
)

// streams returns the numbers of streams that are measured.
func streams() []int { return []int{1, 8} }

// Stream measures the way to each target in turn, and prints a Report; or it answers others.
func Stream(ctx context.Context, o StreamOptions) error {
	if o.Serve {
		server, err := listenStreams(ctx, ":"+strconv.Itoa(streamPort))
		if err != nil {
			return fmt.Errorf("listening for streams: %w", err)
		}
		return server.Run(ctx)
	}
	var report Report
	for _, t := range o.Targets {
		if t.Kind == kindPing {
			report.Rates = append(report.Rates, pings(ctx, t, o.For))
			continue
		}
		s := streamer{at: netip.AddrPortFrom(t.Address, streamPort), lasts: o.For, most: mostBytes}
		report.Rates = append(report.Rates, s.rate(ctx, t.Name))
	}
	text, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	_, err = fmt.Fprintf(o.Out, "%s\n", text)
	return err
}

// listenStreams opens the port of a server of streams.
func listenStreams(ctx context.Context, address string) (*serve.Server, error) {
	return serve.Listen(ctx, serve.Config{
		Address: address, Connections: most, PerAddress: most, Headers: 1 << 12, Request: dialing, Answer: dialing, Grace: time.Second,
		Count: func() {}, Log: zap.NewNop(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer serve.Working(r.Context())()
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			defer context.AfterFunc(r.Context(), func() { conn.Close() })()
			_ = conn.SetDeadline(time.Now().Add(lasts))
			if _, err := io.WriteString(conn, streamOpens); err == nil {
				answerStream(conn, r.URL.Path)
			}
		}),
	})
}

// answerStream serves a stream. The other side sees how it ends.
func answerStream(conn net.Conn, mode string) {
	buffer := make([]byte, chunk)
	switch mode {
	case modeTake:
		var n uint64
		for {
			got, err := conn.Read(buffer)
			n += uint64(got)
			if errors.Is(err, io.EOF) {
				_ = binary.Write(conn, binary.BigEndian, n)
			}
			if err != nil {
				return
			}
		}
	case modeGive:
		for {
			if _, err := conn.Write(buffer); err != nil {
				return
			}
		}
	case modeEcho:
		for {
			if _, err := io.ReadFull(conn, buffer[:message]); err != nil {
				return
			}
			if _, err := conn.Write(buffer[:message]); err != nil {
				return
			}
		}
	}
}

// streamer measures the way to one server.
type streamer struct {
	at    netip.AddrPort
	lasts time.Duration // of each measurement
	most  int64         // bytes of each measurement
}

// rate makes all measurements. The first that fails ends them.
func (s streamer) rate(ctx context.Context, to string) Rate {
	out := Rate{To: to, There: map[int]float64{}, Back: map[int]float64{}}
	err := s.trips(ctx, &out)
	for _, n := range streams() {
		if err == nil {
			out.There[n], err = s.bulk(ctx, n, modeTake, send)
		}
		if err == nil {
			out.Back[n], err = s.bulk(ctx, n, modeGive, receive)
		}
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// dial opens a connection that ends with ctx.
func (s streamer) dial(ctx context.Context, mode string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialing}).DialContext(ctx, "tcp", s.at.String())
	if err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(s.lasts + dialing))
	answer := make([]byte, len(streamOpens))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s", mode, s.at, streamUpgrade)
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err == nil && string(answer) != streamOpens {
		err = errors.New("the other end serves no streams")
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	return conn, nil
}

// trips measures round trips of messages, one after the other.
func (s streamer) trips(ctx context.Context, out *Rate) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := s.dial(ctx, modeEcho)
	if err != nil {
		return err
	}
	defer conn.Close()
	text, begin := make([]byte, message), time.Now()
	var times []time.Duration
	for len(times) == 0 || len(times) < mostTrips && time.Since(begin) < s.lasts {
		sent := time.Now()
		if _, err := conn.Write(text); err != nil {
			return fmt.Errorf("sending a message: %w", err)
		}
		if _, err := io.ReadFull(conn, text); err != nil {
			return fmt.Errorf("waiting for a message: %w", err)
		}
		times = append(times, time.Since(sent))
	}
	out.summarize(times)
	return nil
}

// summarize sets the round trips.
func (r *Rate) summarize(times []time.Duration) {
	slices.Sort(times)
	r.Median, r.Late = times[len(times)/2], times[len(times)-1-len(times)/perHundred]
}

// pings measures the round trips of ICMP packets to a target, one after the other.
func pings(ctx context.Context, t Target, lasts time.Duration) Rate {
	out := Rate{To: t.Name}
	a, err := newAsker(t)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	defer a.close()
	var times []time.Duration
	for begin := time.Now(); len(times) < mostTrips && time.Since(begin) < lasts && ctx.Err() == nil; {
		rtt, _, err := a.ask(probeSize)
		if err != nil {
			out.Error = err.Error() // a packet that is lost is not repeated
			continue
		}
		times = append(times, rtt)
	}
	if len(times) > 0 {
		out.Error = ""
		out.summarize(times)
	}
	return out
}

// bulk runs n streams at the same time, and returns the bytes per second of all. left is what the streams may
// send yet.
func (s streamer) bulk(ctx context.Context, n int, mode string, one func(conn *net.TCPConn, end time.Time, left *atomic.Int64) (int64, error)) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conns := make([]net.Conn, n)
	for i := range conns {
		var err error
		if conns[i], err = s.dial(ctx, mode); err != nil {
			return 0, err
		}
	}
	var all sync.WaitGroup
	var sum, left atomic.Int64
	left.Store(s.most)
	errs, begin := make([]error, n), time.Now()
	for i, conn := range conns {
		all.Go(func() {
			defer conn.Close()
			bytes, err := one(conn.(*net.TCPConn), begin.Add(s.lasts), &left)
			sum.Add(bytes)
			errs[i] = err
		})
	}
	all.Wait()
	return float64(sum.Load()) / time.Since(begin).Seconds(), errors.Join(errs...)
}

// send writes until end, once at least, and returns how many bytes the server has got.
func send(conn *net.TCPConn, end time.Time, left *atomic.Int64) (int64, error) {
	buffer := make([]byte, chunk)
	for again := true; again; again = time.Now().Before(end) && left.Add(-chunk) > 0 {
		if _, err := conn.Write(buffer); err != nil {
			return 0, fmt.Errorf("sending: %w", err)
		}
	}
	if err := conn.CloseWrite(); err != nil {
		return 0, fmt.Errorf("sending: %w", err)
	}
	var got uint64
	if err := binary.Read(conn, binary.BigEndian, &got); err != nil {
		return 0, fmt.Errorf("waiting until all has arrived: %w", err)
	}
	return int64(got), nil
}

// receive reads until end, once at least.
func receive(conn *net.TCPConn, end time.Time, left *atomic.Int64) (n int64, err error) {
	buffer := make([]byte, chunk)
	for {
		got, err := conn.Read(buffer)
		if n == 0 {
			_ = conn.SetReadDeadline(end)
		}
		n += int64(got)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), err == nil && left.Add(-int64(got)) < 0:
			return n, nil
		case err != nil:
			return n, fmt.Errorf("receiving: %w", err)
		}
	}
}
