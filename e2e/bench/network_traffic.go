package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
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

const (
	smallPacket = 64 // payload of UDP packets, in bytes
	bigWrite    = 128 << 10
	// lateness is how long the first answer, and the end of a connection, may take.
	lateness = time.Minute
)

// receiver takes what senders send.
type receiver struct{ packets atomic.Uint64 }

// runReceiver takes traffic, and answers how many packets it has counted.
func runReceiver(context.Context, []string) error {
	r := &receiver{}
	listener, err := net.Listen("tcp4", fmt.Sprintf(":%d", tcpPort))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer listener.Close()
	go r.takeConnections(listener)
	for port, take := range map[int]func(net.PacketConn){countPort: r.count, echoPort: echo} {
		packets, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return fmt.Errorf("listening: %w", err)
		}
		defer packets.Close()
		go take(packets)
	}
	return answerAll(func(struct{}) (answer, error) { return answer{Packets: r.packets.Load()}, nil })
}

// takeConnections reads each connection to its end, and then closes it.
func (r *receiver) takeConnections(listener net.Listener) {
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

func (r *receiver) count(packets net.PacketConn) {
	buf := make([]byte, 2*smallPacket)
	for {
		if _, _, err := packets.ReadFrom(buf); err != nil {
			return
		}
		r.packets.Add(1)
	}
}

func echo(packets net.PacketConn) {
	buf := make([]byte, 2*smallPacket)
	for {
		n, from, err := packets.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = packets.WriteTo(buf[:n], from)
		}
	}
}

// sent is what a sender has seen.
type sent struct {
	Seconds float64 `json:"seconds"`
	Bytes   float64 `json:"bytes"`  // that the receiver has taken, of TCP
	RTT     float64 `json:"rtt"`    // median, in microseconds
	RTT99   float64 `json:"rtt99"`  // 99th percentile, in microseconds
	Missed  int     `json:"missed"` // answers that have not come
}

type senderOptions struct {
	to, kind string
	streams  int
	each     time.Duration
}

// What senders send.
const (
	kindTCP = "tcp"
	kindUDP = "udp"
	kindRTT = "rtt"
)

func parseSender(args []string) (senderOptions, error) {
	var o senderOptions
	flags := flag.NewFlagSet(senderCommand, flag.ContinueOnError)
	flags.StringVar(&o.to, "to", "", "address of the receiver")
	flags.StringVar(&o.kind, "kind", kindTCP, "tcp, udp or rtt")
	flags.IntVar(&o.streams, "streams", 1, "TCP connections at once")
	flags.DurationVar(&o.each, "for", time.Second, "how long it sends")
	err := flags.Parse(args)
	return o, err
}

// runSender sends for a while, and prints what came of it.
func runSender(ctx context.Context, args []string) error {
	o, err := parseSender(args)
	if err != nil {
		return err
	}
	send, ok := map[string]func(context.Context, senderOptions) (sent, error){kindTCP: sendTCP, kindUDP: sendUDP, kindRTT: sendRTT}[o.kind]
	if !ok {
		return fmt.Errorf("--kind is %q: %s, %s or %s is accepted", o.kind, kindTCP, kindUDP, kindRTT)
	}
	out, err := send(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func (o senderOptions) dial(ctx context.Context, network string, port int) (net.Conn, error) {
	d := net.Dialer{Timeout: lateness}
	return d.DialContext(ctx, network, net.JoinHostPort(o.to, fmt.Sprint(port)))
}

// sendTCP fills connections, and waits until the receiver has read all of each.
func sendTCP(ctx context.Context, o senderOptions) (sent, error) {
	var conns []net.Conn
	for range o.streams {
		c, err := o.dial(ctx, "tcp4", tcpPort)
		if err != nil {
			return sent{}, err
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
			n, err := fill(c, begin.Add(o.each))
			total.Add(n)
			errs[i] = err
		})
	}
	wg.Wait()
	return sent{Seconds: time.Since(begin).Seconds(), Bytes: float64(total.Load())}, errors.Join(errs...)
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

// sendUDP sends small packets as fast as it can.
func sendUDP(ctx context.Context, o senderOptions) (sent, error) {
	c, err := o.dial(ctx, "udp4", countPort)
	if err != nil {
		return sent{}, err
	}
	defer c.Close()
	buf, begin := make([]byte, smallPacket), time.Now()
	for time.Since(begin) < o.each {
		_, _ = c.Write(buf) // a packet that is not sent is one that does not arrive
	}
	return sent{Seconds: time.Since(begin).Seconds()}, nil
}

// sendRTT sends a packet at a time, each after the answer to the one before.
func sendRTT(ctx context.Context, o senderOptions) (sent, error) {
	c, err := o.dial(ctx, "udp4", echoPort)
	if err != nil {
		return sent{}, err
	}
	defer c.Close()
	var times []float64
	out, begin := sent{}, time.Now()
	for number := uint64(1); time.Since(begin) < o.each || len(times) == 0 && time.Since(begin) < lateness; number++ {
		at := time.Now()
		if err := exchange(c, number, at.Add(time.Second)); err != nil {
			out.Missed++
			continue
		}
		times = append(times, float64(time.Since(at).Nanoseconds())/1e3)
	}
	out.Seconds, out.RTT, out.RTT99 = time.Since(begin).Seconds(), quantile(times, 0.5), quantile(times, 0.99)
	if len(times) == 0 {
		return out, fmt.Errorf("asking %s for %s: no answer", o.to, lateness)
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
