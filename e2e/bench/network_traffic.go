package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Ports of the receiver.
const (
	tcpPort   = 7000 // TCP: reads everything
	countPort = 7001 // UDP: counts packets
	echoPort  = 7002 // UDP: sends packets back
)

// What senders send.
const (
	kindTCP = "tcp"
	kindUDP = "udp"
	kindRTT = "rtt"
)

const (
	smallPacket = 64 // payload of UDP packets, in bytes
	bigWrite    = 128 << 10
	// lateness is how long the first answer, and the end of a connection, may take.
	lateness = time.Minute
)

// runReceiver takes traffic, and answers how many packets it has counted.
func runReceiver(context.Context, []string) error {
	listener, err := net.Listen("tcp4", fmt.Sprintf(":%d", tcpPort))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer listener.Close()
	go takeConnections(listener)
	var counted atomic.Uint64
	for port, take := range map[int]func(net.PacketConn, net.Addr, []byte){
		countPort: func(net.PacketConn, net.Addr, []byte) { counted.Add(1) },
		echoPort:  func(c net.PacketConn, from net.Addr, packet []byte) { _, _ = c.WriteTo(packet, from) },
	} {
		packets, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return fmt.Errorf("listening: %w", err)
		}
		defer packets.Close()
		go takePackets(packets, take)
	}
	return answerAll(func(struct{}) (answer, error) { return answer{Packets: counted.Load()}, nil })
}

// takeConnections reads each connection to its end, and then closes it.
func takeConnections(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, bigWrite))
		}()
	}
}

func takePackets(packets net.PacketConn, take func(net.PacketConn, net.Addr, []byte)) {
	buf := make([]byte, 2*smallPacket)
	for {
		n, from, err := packets.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			take(packets, from, buf[:n])
		}
	}
}

// sendRequest is what a sender sends, and to which receiver.
type sendRequest struct {
	To      string        `json:"to"`
	Kind    string        `json:"kind"`
	Streams int           `json:"streams"` // TCP connections at once
	Each    time.Duration `json:"each"`
}

// runSender sends for a while, and answers what came of it.
func runSender(ctx context.Context, _ []string) error {
	kinds := map[string]func(sendRequest, context.Context) (answer, error){kindTCP: sendRequest.tcp, kindUDP: sendRequest.udp, kindRTT: sendRequest.rtt}
	return answerAll(func(r sendRequest) (answer, error) { return kinds[r.Kind](r, ctx) })
}

func (r sendRequest) dial(ctx context.Context, network string, port int) (net.Conn, error) {
	d := net.Dialer{Timeout: lateness}
	return d.DialContext(ctx, network, net.JoinHostPort(r.To, fmt.Sprint(port)))
}

// tcp fills connections, and waits until the receiver has read all of each.
func (r sendRequest) tcp(ctx context.Context) (answer, error) {
	var conns []net.Conn
	for range r.Streams {
		c, err := r.dial(ctx, "tcp4", tcpPort)
		if err != nil {
			return answer{}, err
		}
		defer c.Close()
		conns = append(conns, c)
	}
	begin := time.Now()
	var total atomic.Uint64
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			n, err := fill(c, begin.Add(r.Each))
			total.Add(n)
			errs[i] = err
		})
	}
	wg.Wait()
	return answer{Seconds: time.Since(begin).Seconds(), Bytes: float64(total.Load())}, errors.Join(errs...)
}

func fill(c net.Conn, end time.Time) (total uint64, err error) {
	buf := make([]byte, bigWrite)
	if err := c.SetDeadline(end.Add(lateness)); err != nil {
		return 0, err
	}
	for time.Now().Before(end) {
		n, err := c.Write(buf)
		total += uint64(n)
		if err != nil {
			return total, fmt.Errorf("sending: %w", err)
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return total, fmt.Errorf("ending a connection: %w", err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return total, fmt.Errorf("waiting for the receiver: %w", err)
	}
	return total, nil
}

// udp sends small packets as fast as it can.
func (r sendRequest) udp(ctx context.Context) (answer, error) {
	c, err := r.dial(ctx, "udp4", countPort)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	buf, begin := make([]byte, smallPacket), time.Now()
	for time.Since(begin) < r.Each {
		_, _ = c.Write(buf) // a packet that is not sent is one that does not arrive
	}
	return answer{Seconds: time.Since(begin).Seconds()}, nil
}

// rtt sends a packet at a time, each after the answer to the one before.
func (r sendRequest) rtt(ctx context.Context) (answer, error) {
	c, err := r.dial(ctx, "udp4", echoPort)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	var times []float64
	out, begin := answer{}, time.Now()
	for number := uint64(1); time.Since(begin) < r.Each || len(times) == 0 && time.Since(begin) < lateness; number++ {
		at := time.Now()
		if err := exchange(c, number, at.Add(time.Second)); err != nil {
			out.Missed++
			continue
		}
		times = append(times, float64(time.Since(at).Nanoseconds())/1e3)
	}
	out.RTT, out.RTT99 = quantile(times, 0.5), quantile(times, 0.99)
	if len(times) == 0 {
		return out, fmt.Errorf("sending to %s for %s: no answer", r.To, lateness)
	}
	return out, nil
}

// exchange sends a packet with a number and waits for it to come back. Late answers to
// earlier ones are passed over.
func exchange(c net.Conn, number uint64, end time.Time) error {
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	out, in := make([]byte, smallPacket), make([]byte, smallPacket)
	binary.BigEndian.PutUint64(out, number)
	if _, err := c.Write(out); err != nil {
		return err
	}
	for {
		if _, err := c.Read(in); err != nil {
			return err
		}
		if binary.BigEndian.Uint64(in) == number {
			return nil
		}
	}
}
