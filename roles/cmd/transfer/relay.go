//go:build linux

package transfer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Relay connects to both ends of a copy, which listen, and passes on to each what the other one sends.
// It connects again after each broken connection, until ctx is done.
func Relay(ctx context.Context, o Options, addresses [2]string) error {
	secure, err := configuration(o)
	if err != nil {
		return err
	}
	p := &Progress{}
	p.begin(Connecting)
	printing, stop := context.WithCancel(ctx)
	var printer sync.WaitGroup
	printer.Go(func() { p.print(printing, o.Out, o.Every) })
	defer printer.Wait()
	defer stop()
	for ctx.Err() == nil {
		p.away(pass(ctx, secure, addresses, p))
		select {
		case <-time.After(o.Every):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// pass passes on until one end closes its connection, or ctx is done. It returns why.
func pass(ctx context.Context, secure *tls.Config, addresses [2]string, p *Progress) error {
	var ends [2]net.Conn
	for i, address := range addresses {
		conn, err := connect(ctx, address, secure)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		ends[i] = conn
	}
	p.begin(Copying)
	var both sync.WaitGroup
	var errs [2]error
	for i := range ends {
		both.Go(func() {
			_, errs[i] = io.Copy(ends[1-i], ends[i])
			_ = ends[1-i].Close() // an end that closes its connection expects no answer
		})
	}
	both.Wait()
	return errors.Join(errBroken, errs[0], errs[1])
}
