package scenarios

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/kube/kubetest"
)

// triesVariable is the environment variable with the tries of a process of this program, which
// does nothing else.
const triesVariable = "LIQOD_TEST_TRIES"

// tries are connections and packets that a process with root on a gateway sends.
type tries struct {
	Connect []string // host:port
	Inject  [][]byte // IPv4, into the tunnel as they are
}

// tryAll writes the problems of the connections, by their addresses. An empty one is none.
func tryAll(text string, out io.Writer) error {
	var what tries
	if err := json.Unmarshal([]byte(text), &what); err != nil {
		return err
	}
	if err := inject("liqod-wg", what.Inject); err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	problems := map[string]string{}
	for _, address := range what.Connect {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			problem := ""
			if err != nil {
				problem = err.Error()
			} else {
				_ = c.Close()
			}
			mu.Lock()
			problems[address] = problem
			mu.Unlock()
		})
	}
	wg.Wait()
	return json.NewEncoder(out).Encode(problems)
}

// inject sends IPv4 packets by a device, past the routes and rules of this host.
func inject(device string, packets [][]byte) error {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, p := range packets {
		if err := unix.Sendto(fd, p, 0, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8, Ifindex: link.Index}); err != nil {
			return err
		}
	}
	return nil
}

// injected are packets that rome's gateway sends past its own guards: two with sources of others,
// VXLAN to a node, an error about the packets of a tunnel, and one to a node.
func injected(t *testing.T, w *fullWorld, view func(string) string) [][]byte {
	t.Helper()
	pod := kubetest.Get(t, w.milan.Client().CoreV1().Pods("default"), hidden)
	node := kubetest.Get(t, w.milan.Client().CoreV1().Nodes(), pod.Spec.NodeName)
	cni := view(netip.MustParsePrefix(node.Spec.PodCIDR).Addr().Next().String())
	conn := kubetest.Get(t, w.rome.Liqod().NetworkingV1beta1().Connections(tenantOfMilan), "milan")
	mine := netip.MustParsePrefix(string(conn.Spec.Local[0].View)).Addr().Next().Next().String()
	tunnel := ipPacket("192.0.2.1", "192.0.2.2", unix.IPPROTO_UDP, udpTo(51840))
	fault := append([]byte{3, 4, 0, 0, 0, 0, 2, 88}, tunnel...) // too large: 600 bytes
	binary.BigEndian.PutUint16(fault[2:], internetSum(fault))
	return [][]byte{
		ipPacket(pod.Status.PodIP, view(pod.Status.PodIP), unix.IPPROTO_UDP, udpTo(hiddenPort)),
		ipPacket("192.0.2.9", view(pod.Status.PodIP), unix.IPPROTO_UDP, udpTo(hiddenPort)),
		ipPacket(mine, cni, unix.IPPROTO_UDP, udpTo(6091)),
		ipPacket(mine, view("10.70.0.1"), unix.IPPROTO_ICMP, fault),
		ipPacket(mine, cni, unix.IPPROTO_UDP, udpTo(bastionPort)),
	}
}

func udpTo(port uint16) []byte {
	out := binary.BigEndian.AppendUint16([]byte{0x9c, 0x40}, port)
	return append(out, 0, 12, 0, 0, 'm', 'i', 'n', 'e') // without a checksum
}

func ipPacket(from, to string, proto byte, body []byte) []byte {
	head := []byte{0x45, 0, 0, 0, 0, 1, 0, 0, 64, proto, 0, 0}
	binary.BigEndian.PutUint16(head[2:], uint16(20+len(body)))
	head = slices.Concat(head, netip.MustParseAddr(from).AsSlice(), netip.MustParseAddr(to).AsSlice())
	binary.BigEndian.PutUint16(head[10:], internetSum(head))
	return append(head, body...)
}

// internetSum is the checksum of RFC 1071.
func internetSum(data []byte) uint16 {
	sum := uint32(0)
	for i, b := range data {
		sum += uint32(b) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
