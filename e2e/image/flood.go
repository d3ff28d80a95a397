package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// floodAtOnce is how many connections a flood opens at the same time.
	floodAtOnce = 64
	// floodPatience is how long one may take.
	floodPatience = 30 * time.Second
	// floodFiles is how many files more the program needs.
	floodFiles = 100
)

// waits are what each third of the connections has sent, after which the server waits: nothing,
// the begin of a handshake of TLS, and half a request.
func waits() []string {
	return []string{"", "\x16\x03\x01\x02\x00", "GET / HTTP/1.1\r\nHost: flood\r\n"}
}

// flood opens connections to an address, and holds them until ctx ends. It keeps nothing of a
// connection but the connection, also of one that the server has closed. It is ready once all are
// open, and answers with their number.
func flood(ctx context.Context, address, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil || n <= 0 {
		return fmt.Errorf("the number of connections is %q: more than 0 is accepted", number)
	}
	var files syscall.Rlimit // of which a Go program uses all that it may
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if files.Max < uint64(n+floodFiles) {
		return fmt.Errorf("%d connections need %d open files, and the limit is %d", n, n+floodFiles, files.Max)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var open atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- openAll(ctx, address, n, &open)
		stop()
	}()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, open.Load()) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if open.Load() < int64(n) {
			http.Error(w, "not all connections are open", http.StatusServiceUnavailable)
		}
	})
	err = serve(ctx, "8080", mux)
	stop()
	return errors.Join(err, <-ended)
}

// openAll opens the connections, and closes them when ctx ends. The kernel chooses their ports.
func openAll(ctx context.Context, address string, n int, open *atomic.Int64) error {
	all, errs := make([]net.Conn, n), make([]error, floodAtOnce)
	var workers sync.WaitGroup
	for i := range floodAtOnce {
		workers.Go(func() {
			for j := i; j < n && errs[i] == nil; j += floodAtOnce {
				if all[j], errs[i] = openOne(ctx, address, waits()[j%len(waits())]); errs[i] == nil {
					open.Add(1)
				}
			}
		})
	}
	workers.Wait()
	err := errors.Join(errs...)
	if err == nil {
		<-ctx.Done()
	}
	for _, conn := range all {
		if conn != nil {
			_ = conn.Close()
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func openOne(ctx context.Context, address, send string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: floodPatience, KeepAlive: -1}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	_ = conn.(*net.TCPConn).SetLinger(0) // the end leaves nothing on the nodes
	_, _ = conn.Write([]byte(send))      // the server may have closed it
	return conn, nil
}
