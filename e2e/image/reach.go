package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// largest is the most bytes of a datagram that the server answers.
	largest = 32 << 10
	// attempts are how often a target is tried: a datagram may be lost, or be the one by
	// which the size of the way is learned.
	attempts       = 3
	attemptTimeout = 2 * time.Second

	icmp6EchoRequest = 128
	icmp6EchoReply   = 129
	icmpEchoReply    = 0
	icmpEchoRequest  = 8
)

// An arrival says what came of one target.
type arrival struct {
	Target string
	// Name of the host that answered; of ICMP its address.
	Name string `json:",omitempty"`
	// Seen is the address of this host, as the one that answered sees it.
	Seen string `json:",omitempty"`
	// Problem is why nothing arrived.
	Problem string `json:",omitempty"`
}

// reach tries all targets at once and prints the arrivals, in the order of the targets.
func reach(ctx context.Context, targets []string, out io.Writer) error {
	arrivals := make([]arrival, len(targets))
	var wg sync.WaitGroup
	for i, target := range targets {
		wg.Go(func() { arrivals[i] = tryTarget(ctx, target) })
	}
	wg.Wait()
	return json.NewEncoder(out).Encode(arrivals)
}

func tryTarget(ctx context.Context, target string) arrival {
	var errs []error
	for range attempts {
		name, seen, err := askTarget(ctx, target)
		if err == nil {
			return arrival{Target: target, Name: name, Seen: seen}
		}
		errs = append(errs, err)
	}
	return arrival{Target: target, Problem: strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; ")}
}

func askTarget(ctx context.Context, target string) (name, seen string, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	u, err := url.Parse(target)
	if err != nil {
		return "", "", err
	}
	size, err := strconv.Atoi(arg(strings.Fields(strings.Trim(u.Path, "/")), 0, "64"))
	if err != nil || size < 0 || size > largest-512 {
		return "", "", fmt.Errorf("the size in %s is not a number from 0 to %d", target, largest-512)
	}
	payload := bytes.Repeat([]byte("x"), size)
	switch u.Scheme {
	case "tcp", "tcp4", "tcp6":
		return askTCP(ctx, u.Scheme, u.Host, size)
	case "udp", "udp4", "udp6":
		return askUDP(ctx, u.Scheme, u.Host, payload)
	case "icmp":
		return askICMP(ctx, u.Hostname(), payload)
	case "connect":
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return "", "", err
		}
		return "", "", conn.Close()
	}
	return "", "", fmt.Errorf("the scheme of %s is none of tcp, udp, icmp, connect, and none of tcp and udp with 4 or 6 behind them", target)
}

// askTCP reads an answer of at least size bytes over a connection of its own.
func askTCP(ctx context.Context, network, host string, size int) (name, seen string, err error) {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	body, err := fetch(ctx, client, fmt.Sprintf("http://%s/who?size=%d", host, size))
	if err != nil {
		return "", "", err
	}
	return parseWho(body, size)
}

// askUDP sends a datagram and reads the answer, which repeats it.
func askUDP(ctx context.Context, network, host string, payload []byte) (name, seen string, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, host)
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", "", err
	}
	if _, err := conn.Write(payload); err != nil {
		return "", "", err
	}
	buffer := make([]byte, 2*largest)
	n, err := conn.Read(buffer)
	if err != nil {
		return "", "", err
	}
	return parseWho(buffer[:n], len(payload))
}

// who is the answer to TCP and UDP: the name of this host, the address of the other, and
// as many bytes more as were asked for.
func who(remote net.Addr, padding []byte) []byte {
	host, _ := os.Hostname()
	address, _, _ := net.SplitHostPort(remote.String())
	return append(fmt.Appendf(nil, "%s %s ", host, address), padding...)
}

func parseWho(answer []byte, size int) (name, seen string, err error) {
	parts := bytes.SplitN(answer, []byte(" "), 3)
	if len(parts) != 3 || len(parts[2]) != size {
		return "", "", fmt.Errorf("the answer has %d bytes and begins with %.60q", len(answer), answer)
	}
	return string(parts[0]), string(parts[1]), nil
}

// serveWho answers TCP.
func serveWho(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(r.URL.Query().Get("size"))
	if err != nil || size < 0 || size > largest {
		http.Error(w, "size is not a number, or too large", http.StatusBadRequest)
		return
	}
	remote, err := net.ResolveTCPAddr("tcp", r.RemoteAddr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(who(remote, bytes.Repeat([]byte("x"), size)))
}

// answerUDP answers datagrams until the connection is closed.
func answerUDP(conn net.PacketConn) {
	buffer := make([]byte, largest)
	for {
		n, remote, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = conn.WriteTo(who(remote, buffer[:n]), remote)
		}
	}
}

// askICMP sends an echo request and waits for its answer.
func askICMP(ctx context.Context, host string, payload []byte) (name, seen string, err error) {
	to, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return "", "", err
	}
	six := to.IP.To4() == nil
	network, local, request, reply := "ip4:icmp", "0.0.0.0", byte(icmpEchoRequest), byte(icmpEchoReply)
	if six {
		network, local, request, reply = "ip6:ipv6-icmp", "::", icmp6EchoRequest, icmp6EchoReply
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, network, local)
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", "", err
	}
	id := uint16(time.Now().UnixNano())
	if _, err := conn.WriteTo(echoMessage(request, id, payload), to); err != nil {
		return "", "", err
	}
	want := echoMessage(reply, id, payload)
	buffer := make([]byte, 2*largest)
	for { // what others are answered arrives here, too
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return "", "", err
		}
		if six && n > 4 { // the kernel writes and verifies this checksum, which covers addresses, too
			copy(buffer[2:4], want[2:4])
		}
		if from.String() == to.String() && bytes.Equal(buffer[:n], want) {
			return from.String(), "", nil
		}
	}
}

// echoMessage is an ICMP echo request or its answer.
func echoMessage(kind byte, id uint16, payload []byte) []byte {
	message := append(make([]byte, 8), payload...)
	message[0] = kind
	binary.BigEndian.PutUint16(message[4:], id)
	binary.BigEndian.PutUint16(message[6:], 1)
	binary.BigEndian.PutUint16(message[2:], checksum(message))
	return message
}

// checksum of RFC 1071.
func checksum(data []byte) uint16 {
	var sum uint32
	for i, b := range data {
		if i%2 == 0 {
			sum += uint32(b) << 8
		} else {
			sum += uint32(b)
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
