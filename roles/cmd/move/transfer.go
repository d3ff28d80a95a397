//go:build linux

package move

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
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/kube/serve"
)

const (
	// patience bounds handshakes and the sending of an error.
	patience = 10 * time.Second
	// silence is the time after which a connection without answers ends, and another one may begin.
	silence = 30 * time.Second
	// upgrade is the protocol that the connections of HTTP become.
	upgrade = "liqod-copy"
)

// Copy copies, and connects again after each broken connection, until both ends have the same files
// or ctx is done. Its error is of a file, or of the other end. An end that listens goes on until ctx
// is done, so that the other one may lose the last answer.
func Copy(ctx context.Context, o Options) error {
	p := &Progress{}
	p.begin(Connecting, "")
	printing, stop := context.WithCancel(ctx)
	var printer sync.WaitGroup
	printer.Go(func() { p.print(printing, o.Out, o.Every) })
	defer printer.Wait()
	defer stop()
	sum, err := transfer(ctx, o, p)
	p.end(sum, err)
	return err
}

func transfer(ctx context.Context, o Options, p *Progress) (string, error) {
	if o.Folder == "" {
		return dial(ctx, o, p, func(ctx context.Context, ends []net.Conn) (string, error) {
			return pass(ctx, newWire(ends[0]), newWire(ends[1]), p)
		}, Sender, Receiver)
	}
	root, err := os.OpenFile(o.Folder, unix.O_DIRECTORY, 0)
	if err != nil {
		return "", fmt.Errorf("opening the volume: %w", err)
	}
	defer func() { _ = root.Close() }()
	other, run := Receiver, (*end).send
	if !o.Send {
		other, run = Sender, (*end).receive
	}
	session := func(ctx context.Context, ends []net.Conn) (string, error) {
		return run(&end{wire: newWire(ends[0]), root: root, plain: o.Plain, progress: p}, ctx)
	}
	if len(o.Connect) == 0 {
		return "", listen(ctx, o, p, session, other)
	}
	return dial(ctx, o, p, session, other)
}

// dial connects to the ends that have these parts, until a session ends with a result.
func dial(ctx context.Context, o Options, p *Progress, session func(context.Context, []net.Conn) (string, error), parts ...string) (string, error) {
	attempt := func() (string, error) {
		var ends []net.Conn
		for i, part := range parts {
			conn, err := connect(ctx, o, o.Connect[i], part)
			if err != nil {
				return "", err
			}
			defer func() { _ = conn.Close() }()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			ends = append(ends, conn)
		}
		return session(ctx, ends)
	}
	for {
		sum, err := attempt()
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if !errors.Is(err, errBroken) {
			return sum, err
		}
		p.begin(Connecting, err.Error())
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

// connect dials the end that has a part, and takes the connection over from HTTP.
func connect(ctx context.Context, o Options, address, part string) (net.Conn, error) {
	secure, err := configuration(o, part)
	if err != nil {
		return nil, err
	}
	dialer := tls.Dialer{Config: secure, NetDialer: &net.Dialer{Timeout: patience, Control: impatient}}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", part, upgrade)
	want := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + "\r\n\r\n"
	answer := make([]byte, len(want))
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err == nil && string(answer) != want {
		err = errors.New("the other end serves another connection, or is no copy")
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return conn, nil
}

// listen serves one connection after the other, until one ends with an error that another connection
// does not change. While one is alive, others are refused.
func listen(ctx context.Context, o Options, p *Progress, session func(context.Context, []net.Conn) (string, error), part string) error {
	secure, err := configuration(o, part)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var busy atomic.Bool
	server, err := serve.Listen(ctx, serve.Config{
		Address: o.Listen, TLS: secure, Connections: 8, PerAddress: 8, Headers: 1 << 12, Request: patience, Answer: patience, Grace: patience,
		Control: impatient, Count: func() {}, Log: zap.NewNop(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !busy.CompareAndSwap(false, true) {
				http.Error(w, "another connection is alive", http.StatusConflict)
				return
			}
			defer busy.Store(false)
			defer serve.Working(r.Context())()
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgrade); err != nil {
				return
			}
			switch sum, err := session(ctx, []net.Conn{conn}); {
			case err == nil:
				p.end(sum, nil)
			case errors.Is(err, errBroken):
				p.begin(Connecting, err.Error())
			default:
				cancel(err)
			}
		}),
	})
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	err = server.Run(ctx)
	return errors.Join(err, context.Cause(ctx))
}

// configuration has this end accept only the certificate of the end that has a part.
func configuration(o Options, part string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(o.Keys, "tls.crt"), filepath.Join(o.Keys, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	pool := x509.NewCertPool()
	other, _ := os.ReadFile(filepath.Join(o.Keys, part+".crt")) // a file that is missing has no certificate
	if !pool.AppendCertsFromPEM(other) {
		return nil, fmt.Errorf("there is no certificate of the %s", part)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool, ServerName: part,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
		VerifyConnection: func(s tls.ConnectionState) error { return s.PeerCertificates[0].VerifyHostname(part) },
	}, nil
}
