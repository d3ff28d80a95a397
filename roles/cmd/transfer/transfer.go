//go:build linux

package transfer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/kube/serve"
)

// patience bounds handshakes and the sending of an error.
const patience = 10 * time.Second

// silence is the time after which a connection without answers ends.
const silence = time.Minute

// Run copies, and connects again after each broken connection, until both sides have the same files
// or ctx is done. Its error is of a file, or of the other end.
func Run(ctx context.Context, o Options) error {
	secure, err := configuration(o)
	if err != nil {
		return err
	}
	root, err := os.OpenFile(o.Folder, unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("opening the volume: %w", err)
	}
	defer func() { _ = root.Close() }()
	p := &Progress{}
	p.begin(Connecting)
	printing, stop := context.WithCancel(ctx)
	var printer sync.WaitGroup
	printer.Go(func() { p.print(printing, o.Out, o.Every) })
	defer printer.Wait()
	defer stop()
	session := func(ctx context.Context, conn net.Conn) (string, error) {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if o.Send {
			return (&source{wire: newWire(conn), root: root, progress: p}).run(ctx)
		}
		return (&target{wire: newWire(conn), root: root, progress: p}).run(ctx)
	}
	sum := ""
	if o.Listen {
		sum, err = listen(ctx, o, secure, p, session)
	} else {
		sum, err = dial(ctx, o, secure, p, session)
	}
	p.end(sum, err)
	return err
}

// dial connects until a session ends with a result.
func dial(ctx context.Context, o Options, secure *tls.Config, p *Progress, session func(context.Context, net.Conn) (string, error)) (string, error) {
	for {
		sum, err := func() (string, error) {
			conn, err := connect(ctx, o.Address, secure)
			if err != nil {
				return "", err
			}
			defer func() { _ = conn.Close() }()
			return session(ctx, conn)
		}()
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if !errors.Is(err, errBroken) {
			return sum, err
		}
		p.away(err)
		select {
		case <-time.After(o.Every):
		case <-ctx.Done():
		}
	}
}

// impatient ends a connection whose other end is silent.
func impatient(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	return errors.Join(err, failed)
}

// upgrade is the protocol that the connections of HTTP become.
const upgrade = "liqod-copy"

// connect dials, and takes the connection over from HTTP.
func connect(ctx context.Context, address string, secure *tls.Config) (net.Conn, error) {
	dialer := tls.Dialer{Config: secure, NetDialer: &net.Dialer{Timeout: patience, Control: impatient}}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", serverName, upgrade)
	want := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + "\r\n\r\n"
	answer := make([]byte, len(want))
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err == nil && string(answer) != want {
		err = errors.New("the other end is no copy")
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return conn, nil
}

type result struct {
	sum string
	err error
}

// listen serves one connection after the other until a session ends with a result. A new connection
// ends the one before: its other end is gone.
func listen(ctx context.Context, o Options, secure *tls.Config, p *Progress, session func(context.Context, net.Conn) (string, error)) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	stop, turn, results := func() {}, make(chan struct{}, 1), make(chan result, 1)
	server, err := serve.Listen(ctx, serve.Config{
		Address: o.Address, TLS: secure, Connections: 8, PerAddress: 8, Headers: 1 << 12, Request: patience, Answer: patience, Grace: patience,
		Count: func() {}, Log: zap.NewNop(), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			inner, end := context.WithCancel(ctx)
			defer end()
			mu.Lock()
			stop()
			stop = end
			turn <- struct{}{}
			mu.Unlock()
			defer func() { <-turn }()
			if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgrade); err != nil {
				return
			}
			sum, err := session(inner, conn)
			switch {
			case inner.Err() != nil:
			case errors.Is(err, errBroken):
				p.away(err)
			default:
				results <- result{sum, err}
				cancel()
			}
		}),
	})
	if err != nil {
		return "", fmt.Errorf("listening: %w", err)
	}
	err = server.Run(ctx)
	select {
	case r := <-results:
		return r.sum, r.err
	default:
	}
	return "", errors.Join(err, ctx.Err())
}

// configuration has both ends accept only the certificate that both have.
func configuration(o Options) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(o.Certificate, o.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(o.Certificate)
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool, ServerName: serverName,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}, nil
}
