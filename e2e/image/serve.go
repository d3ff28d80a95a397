package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// serveAll answers HTTP and UDP.
func serveAll(ctx context.Context, port string) error {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", ":"+port)
	if err != nil {
		return err
	}
	defer conn.Close()
	go answerUDP(conn)
	return serve(ctx, port, logged(handler()))
}

// serve answers until ctx ends, then lets the requests in flight finish.
func serve(ctx context.Context, port string, handler http.Handler) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	fmt.Println("serving on port", port)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() {
		<-ctx.Done()
		fmt.Println("stopping")
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		done <- server.Shutdown(grace)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-done
}

func handler() http.Handler {
	var unready atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		host, _ := os.Hostname()
		fmt.Fprintln(w, host)
	})
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, strings.Join(os.Environ(), "\n"))
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		_ = r.Header.Write(w)
	})
	mux.HandleFunc("/ip", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintln(w, host)
	})
	mux.HandleFunc("/who", serveWho)
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, r.URL.Query().Get("path"))
	})
	mux.HandleFunc("/exit", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("code"))
		os.Exit(n)
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if unready.Load() {
			http.Error(w, "unready", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/unready", func(http.ResponseWriter, *http.Request) { unready.Store(true) })
	mux.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) { unready.Store(false) })
	return mux
}

// logged prints one line for each request; probes would drown the rest.
func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains([]string{"/healthz", "/readyz"}, r.URL.Path) {
			fmt.Println(r.Method, r.URL, "from", r.RemoteAddr)
		}
		next.ServeHTTP(w, r)
	})
}
