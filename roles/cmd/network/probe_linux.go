package network

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// socket sends packets to one target from a connected socket, which no privilege is needed for. The
// kernel neither fragments them nor lets others do so.
type socket struct {
	Target
	conn   net.Conn
	raw    syscall.RawConn
	nonce  uint64
	seen   string
	buffer []byte
}

func newAsker(t Target) (asker, error) {
	kind, protocol, port := unix.SOCK_DGRAM, 0, echoPort
	switch t.Kind {
	case kindPing:
		port, protocol = 0, unix.IPPROTO_ICMP
		if t.Address.Is6() {
			protocol = unix.IPPROTO_ICMPV6
		}
	case kindGateway:
		port = plan.ProbePort
	}
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: t.Address.As16(), Port: port}
	family, level, option, value := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	if t.Address.Is4() {
		to = &unix.SockaddrInet4{Addr: t.Address.As4(), Port: port}
		family, level, option, value = unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	err = unix.SetsockoptInt(fd, level, option, value)
	if err == nil {
		err = unix.Connect(fd, to)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to %s: %w", t.Address, err), unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), t.Name)
	defer file.Close() // conn has a copy
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails, since Go 1.24
	return &socket{Target: t, conn: conn, raw: raw, nonce: binary.BigEndian.Uint64(nonce[:]), buffer: make([]byte, 1<<16)}, nil
}

func (s *socket) close() { s.conn.Close() }

func (s *socket) source() string { return s.seen }

// header is the size of the headers of IP, and of UDP or ICMP.
func (s *socket) header() int {
	if s.Address.Is6() {
		return 40 + 8
	}
	return 20 + 8
}

func (s *socket) limit() (mtu int) {
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if s.Address.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	_ = s.raw.Control(func(fd uintptr) { mtu, _ = unix.GetsockoptInt(int(fd), level, option) })
	return max(mtu, smallest)
}

func (s *socket) ask(size int) (rtt time.Duration, tooLarge bool, err error) {
	s.nonce++
	begin := time.Now()
	if err := s.conn.SetDeadline(begin.Add(patience)); err != nil {
		return 0, false, fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := s.conn.Write(s.packet(size - s.header())); err != nil {
		return 0, errors.Is(err, syscall.EMSGSIZE), fmt.Errorf("sending: %w", err)
	}
	for {
		n, err := s.conn.Read(s.buffer)
		if err != nil {
			return 0, errors.Is(err, syscall.EMSGSIZE), fmt.Errorf("waiting for the answer: %w", err)
		}
		if s.answers(s.buffer[:n]) {
			return time.Since(begin), false, nil
		}
	}
}

// Types of ICMP messages.
const (
	echoRequest, echoReply   = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// packet returns a packet with size bytes of payload.
func (s *socket) packet(size int) []byte {
	if s.Kind == kindGateway {
		return host.NodeProbe(s.nonce, size)
	}
	packet := binary.BigEndian.AppendUint64(nil, s.nonce)
	packet = append(packet, make([]byte, max(0, size-len(packet)))...)
	if s.Kind == kindPod {
		packet[8] = question
		return packet
	}
	kind := byte(echoRequest)
	if s.Address.Is6() {
		kind = echoRequest6
	}
	return append([]byte{kind, 0, 0, 0, 0, 0, 0, 1}, packet...) // the kernel fills in checksum and identifier
}

// answers reports whether a packet answers the last one, and keeps the source in it.
func (s *socket) answers(packet []byte) bool {
	switch s.Kind {
	case kindGateway:
		return host.IsNodeAnswer(packet, s.nonce)
	case kindPing:
		if len(packet) < 16 || packet[0] != echoReply && packet[0] != echoReply6 {
			return false
		}
		return binary.BigEndian.Uint64(packet[8:]) == s.nonce
	}
	if len(packet) < probeSize/2 || packet[8] != reply || binary.BigEndian.Uint64(packet) != s.nonce {
		return false
	}
	text, _, _ := strings.Cut(string(packet[9:probeSize/2]), "\x00")
	s.seen = text
	return true
}

// readHost reads the state of this host's network.
func readHost(targets []Target) *Host {
	var to []netip.Addr
	for _, t := range targets {
		to = append(to, t.Address)
	}
	h := &Host{Tracked: number("/proc/sys/net/netfilter/nf_conntrack_count"), Most: number("/proc/sys/net/netfilter/nf_conntrack_max")}
	rule, lost := kernel.Leads(to)
	h.Rule = rule
	for _, a := range lost {
		h.Lost = append(h.Lost, a.String())
	}
	return h
}

// number reads a number from a file of /proc; 0: there is none.
func number(file string) int {
	text, _ := os.ReadFile(file)
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}
