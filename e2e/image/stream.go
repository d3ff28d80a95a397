package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"time"
)

// A hole is a time in which no datagram came back.
type hole struct {
	Began  time.Time
	Length time.Duration
}

// streamed is what came of a stream of datagrams.
type streamed struct {
	Sent, Received int64
	Holes          []hole // of least and more
}

// stream sends a datagram each millisecond to a target, udp://HOST:PORT, which answers each of
// them, for as long as ctx or the given time lasts. It prints the holes of at least 50 ms
// between two answers.
func stream(ctx context.Context, target string, lasts time.Duration, out io.Writer) error {
	const least = 50 * time.Millisecond
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "udp" {
		return fmt.Errorf("the target is %q: udp://HOST:PORT is accepted", target)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var sent atomic.Int64
	go func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				_ = conn.SetReadDeadline(time.Unix(1, 0))
				return
			case <-ticker.C:
			}
			if _, err := conn.Write([]byte("x")); err == nil { // an ICMP error of an earlier one
				sent.Add(1)
			}
		}
	}()
	result, buffer, last := streamed{}, make([]byte, largest), time.Now()
	for {
		_, err := conn.Read(buffer)
		now := time.Now()
		if now.Sub(last) >= least {
			result.Holes = append(result.Holes, hole{last, now.Sub(last)})
		}
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			result.Received++
			last = now
		}
	}
	result.Sent = sent.Load()
	return json.NewEncoder(out).Encode(result)
}
