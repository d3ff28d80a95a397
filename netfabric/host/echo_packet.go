package host

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"net/netip"

	"github.com/liqod/liqod/health"
)

// Sizes of a probe's UDP payload in bytes. Padding up to MaxProbeSize makes a probe as
// large as the packets whose way it tests.
const (
	ProbeSize    = 90
	MaxProbeSize = 9216
)

// A probe is, in network byte order: magic and version (4 bytes), kind, verdict, hears,
// away (1 each), size (2), sender (16), run, asker, sequence, time (8 each), the
// HMAC-SHA256 of all of these (32), padding. The padding is zero when sent, and not read.
const (
	probeMagic   = "lqd"
	probeVersion = 1
	probeHeader  = ProbeSize - sha256.Size
	probeLabel   = "liqod tunnel probe, version 1, from and to: "
)

// ProbeKind tells requests from answers.
type ProbeKind uint8

// Kinds of probes.
const (
	ProbeRequest ProbeKind = 1
	ProbeAnswer  ProbeKind = 2
)

// String returns the kind's name.
func (k ProbeKind) String() string {
	if k == ProbeAnswer {
		return "answer"
	}
	return "request"
}

// ProbeGarbage is the reason for dropping a packet, as in the metrics.
type ProbeGarbage string

// Reasons for dropping a packet. DecodeProbe returns the first five.
const (
	GarbageSize    ProbeGarbage = "size"    // not the length of a probe, or not the stated one
	GarbageMagic   ProbeGarbage = "magic"   // not a probe
	GarbageVersion ProbeGarbage = "version" // a probe of another version
	GarbageMAC     ProbeGarbage = "mac"     // not made with the key of its sender
	GarbageKind    ProbeGarbage = "kind"    // neither a request nor an answer
	GarbageSource  ProbeGarbage = "source"  // from an address without a peer
	GarbageSender  ProbeGarbage = "sender"  // of another cluster than the address
	GarbageReplay  ProbeGarbage = "replay"  // a second copy of a request, or an old request
	GarbageUnasked ProbeGarbage = "unasked" // an answer without a request, or a second answer
	GarbageRate    ProbeGarbage = "rate"    // a request above the rate: read, but not answered
)

// ClusterHash stands for the id of a cluster.
type ClusterHash [16]byte

// HashCluster returns the beginning of the SHA-256 of a cluster's id.
func HashCluster(id string) ClusterHash {
	sum := sha256.Sum256([]byte(id))
	return ClusterHash(sum[:16])
}

// Probe is the content of a probe.
type Probe struct {
	Kind      ProbeKind
	APIServer health.Verdict // verdict of the sender on the API server of its own cluster
	Hears     bool           // the sender has received something from the receiver of late
	Away      bool           // the receiver is to use another gateway of the sender's cluster, if it can
	Sender    ClusterHash
	Run       uint64        // random number under which the sender counts its requests
	Asker     uint64        // in an answer: Run of the request. In a request: the KeyHash of the receiver's next key, which the sender accepts; 0: none
	Sequence  uint64        // of the request, counted from 1; an answer repeats it
	Time      time.Duration // from the start of the asking process to the request; an answer repeats it
	Size      int           // of the packet, in bytes, from ProbeSize to MaxProbeSize
}

// KeyHash stands for a WireGuard public key; 0 for none.
func KeyHash(key string) uint64 {
	if key == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:])
}

// ProbeKey authenticates probes in one direction. Printing it does not reveal it.
type ProbeKey [sha256.Size]byte

// Format hides the key from logs, whatever the verb.
func (k ProbeKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(probe key)") }

// ProbeKeys are the keys between two gateways. Each direction has its own, so that a
// request that is sent back to its sender is garbage there.
type ProbeKeys struct {
	Send, Receive ProbeKey
}

// NewProbeKeys derives keys from the WireGuard keys of two gateways, by X25519 and HKDF:
// the own private one, and the public one of the other in base64. Only these two gateways
// can derive them.
func NewProbeKeys(private [32]byte, peer string) (ProbeKeys, error) {
	own, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return ProbeKeys{}, fmt.Errorf("reading the own WireGuard key: %w", err)
	}
	raw, err := base64.StdEncoding.DecodeString(peer)
	if err != nil {
		return ProbeKeys{}, fmt.Errorf("reading WireGuard public key %q: %w", peer, err)
	}
	theirs, err := ecdh.X25519().NewPublicKey(raw)
	if err != nil {
		return ProbeKeys{}, fmt.Errorf("reading WireGuard public key %q: %w", peer, err)
	}
	secret, err := own.ECDH(theirs)
	if err != nil {
		return ProbeKeys{}, fmt.Errorf("agreeing with WireGuard public key %q: %w", peer, err)
	}
	send, err := probeKey(secret, own.PublicKey(), theirs)
	if err != nil {
		return ProbeKeys{}, err
	}
	receive, err := probeKey(secret, theirs, own.PublicKey())
	return ProbeKeys{Send: send, Receive: receive}, err
}

func probeKey(secret []byte, from, to *ecdh.PublicKey) (ProbeKey, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, probeLabel+string(from.Bytes())+string(to.Bytes()), sha256.Size)
	if err != nil {
		return ProbeKey{}, fmt.Errorf("deriving a key for probes: %w", err)
	}
	return ProbeKey(key), nil
}

// EncodeProbe returns the packet for p. A size out of range becomes the nearest one in range.
func EncodeProbe(key ProbeKey, p Probe) []byte {
	size := min(max(p.Size, ProbeSize), MaxProbeSize)
	b := make([]byte, 0, size)
	b = append(b, probeMagic...)
	b = append(b, probeVersion, byte(p.Kind), byte(p.APIServer), 0, 0)
	if p.Hears {
		b[6] = 1
	}
	if p.Away {
		b[7] = 1
	}
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	b = append(b, p.Sender[:]...)
	for _, n := range []uint64{p.Run, p.Asker, p.Sequence, uint64(p.Time)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return probeMAC(key, b)[:size]
}

// probeMAC appends the MAC of header to it.
func probeMAC(key ProbeKey, header []byte) []byte {
	mac := hmac.New(sha256.New, key[:])
	mac.Write(header)
	return mac.Sum(header)
}

// DecodeProbe reads a packet that was made with key, or returns the reason for dropping it. It
// keeps nothing of the packet.
func DecodeProbe(key ProbeKey, packet []byte) (p Probe, garbage ProbeGarbage) {
	switch {
	case len(packet) < ProbeSize || len(packet) > MaxProbeSize:
		return Probe{}, GarbageSize
	case string(packet[:3]) != probeMagic:
		return Probe{}, GarbageMagic
	case packet[3] != probeVersion:
		return Probe{}, GarbageVersion
	case int(binary.BigEndian.Uint16(packet[8:])) != len(packet):
		return Probe{}, GarbageSize
	}
	var room [ProbeSize]byte
	signed := probeMAC(key, append(room[:0], packet[:probeHeader]...))
	if !hmac.Equal(signed, packet[:ProbeSize]) {
		return Probe{}, GarbageMAC
	}
	p = Probe{
		Kind: ProbeKind(packet[4]), APIServer: readVerdict(packet[5]), Hears: packet[6] == 1, Away: packet[7] == 1,
		Sender:   ClusterHash(packet[10:26]),
		Run:      binary.BigEndian.Uint64(packet[26:]),
		Asker:    binary.BigEndian.Uint64(packet[34:]),
		Sequence: binary.BigEndian.Uint64(packet[42:]),
		Time:     time.Duration(binary.BigEndian.Uint64(packet[50:])),
		Size:     len(packet),
	}
	if p.Kind != ProbeRequest && p.Kind != ProbeAnswer {
		return Probe{}, GarbageKind
	}
	return p, ""
}

// readVerdict reads a verdict of a later version as Unknown.
func readVerdict(b byte) health.Verdict {
	if v := health.Verdict(b); v == health.Up || v == health.Down {
		return v
	}
	return health.Unknown
}

// EchoPeer is one gateway of a peer.
type EchoPeer struct {
	Cluster string     // id of the peer
	Gateway string     // name among the gateways of the peer
	Address netip.Addr // under which this cluster sees it, plan.ReplicaAddr of the peer's external range
	Key     string     // WireGuard public key, in base64
	Next    string     // another one, which the tunnel device accepts too; empty: none
	Own     string     // public key of this gateway, of which the keys of probes derive
}

// sameGateway reports whether p and q are one gateway, whatever its keys.
func (p EchoPeer) sameGateway(q EchoPeer) bool {
	return p.Cluster == q.Cluster && p.Gateway == q.Gateway && p.Address == q.Address
}

// String names the gateway, for errors and messages.
func (p EchoPeer) String() string {
	return fmt.Sprintf("gateway %s of %s (%s)", p.Gateway, p.Cluster, p.Address)
}

// EchoState is the state of the tunnel to one gateway.
type EchoState struct {
	Verdict   health.Verdict
	Answers   bool           // it answers at present, though Verdict may be Down: after it has come and gone
	Since     time.Time      // when Verdict became what it is
	RTT       time.Duration  // smoothed round trip time; 0 where Verdict is not Up
	APIServer health.Verdict // of the peer on its own API server; Unknown where Verdict is not Up
	Away      bool           // by its last probe, the gateway wants another one of its cluster to be used
	Accepts   uint64         // KeyHash of the next key of this gateway that the other one accepts, by its last request
	Reason    string         // a constant of this package, as ReasonSilent
	Message   string         // a sentence for people
}
