package host

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/health"
)

// privateKey is a WireGuard key made of one byte, and its public half as wg writes it.
func privateKey(t testing.TB, b byte) (private [32]byte, public string) {
	t.Helper()
	copy(private[:], bytes.Repeat([]byte{b}, 32))
	key, err := ecdh.X25519().NewPrivateKey(private[:])
	require.NoError(t, err)
	return private, base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
}

var someProbe = Probe{
	Kind: ProbeAnswer, APIServer: health.Down, Hears: true, Sender: HashCluster("rome"),
	Run: 1, Asker: math.MaxUint64, Sequence: 77, Time: 3 * time.Hour, Size: ProbeSize,
}

func TestProbeKeys(t *testing.T) {
	t.Parallel()
	rome, romePublic := privateKey(t, 1)
	milan, milanPublic := privateKey(t, 2)
	turin, turinPublic := privateKey(t, 3)

	ours, err := NewProbeKeys(rome, milanPublic)
	require.NoError(t, err)
	theirs, err := NewProbeKeys(milan, romePublic)
	require.NoError(t, err)
	require.Equal(t, ours.Send, theirs.Receive)
	require.Equal(t, ours.Receive, theirs.Send)
	require.Equal(t, "a7b828c83d586dcba2a05dc0a68921315420ef04b34a914096e9350e31348450", hex.EncodeToString(ours.Send[:]))
	require.Equal(t, "2f358de8357d1ffc8d557799c63fbbb2ceb4c428b9aef66692ff86831ab41fcd", hex.EncodeToString(ours.Receive[:]))

	for _, other := range []struct {
		private [32]byte
		public  string
	}{{rome, turinPublic}, {turin, romePublic}, {turin, milanPublic}} {
		keys, err := NewProbeKeys(other.private, other.public)
		require.NoError(t, err)
		require.NotContains(t, []ProbeKey{ours.Send, ours.Receive}, keys.Send)
		require.NotContains(t, []ProbeKey{ours.Send, ours.Receive}, keys.Receive)
	}
	require.Equal(t, "{Send:(probe key) Receive:(probe key)} (probe key)", fmt.Sprintf("%+v %x", ours, ours.Send))
}

func TestProbeKeysOfBadKeys(t *testing.T) {
	t.Parallel()
	private, _ := privateKey(t, 1)
	for name, public := range map[string]string{
		"empty": "", "no base64": "?", "short": "AAAA",
		"of low order": base64.StdEncoding.EncodeToString(make([]byte, 32)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewProbeKeys(private, public)
			require.ErrorContains(t, err, fmt.Sprintf("WireGuard public key %q", public))
		})
	}
}

func TestProbesSurviveTheWire(t *testing.T) {
	t.Parallel()
	key := ProbeKey{1}
	for name, change := range map[string]func(*Probe){
		"answer":          func(*Probe) {},
		"request":         func(p *Probe) { p.Kind = ProbeRequest },
		"hears nothing":   func(p *Probe) { p.Hears = false },
		"API server up":   func(p *Probe) { p.APIServer = health.Up },
		"not known":       func(p *Probe) { p.APIServer = health.Unknown },
		"padded":          func(p *Probe) { p.Size = 1420 },
		"padded fully":    func(p *Probe) { p.Size = MaxProbeSize },
		"time before any": func(p *Probe) { p.Time = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := someProbe
			change(&want)
			packet := EncodeProbe(key, want)
			require.Len(t, packet, want.Size)
			got, garbage := DecodeProbe(key, packet)
			require.Empty(t, garbage)
			require.Equal(t, want, got)
		})
	}
}

// Two versions of liqod meet in a tunnel: a change of these bytes is another version.
func TestProbeOnTheWire(t *testing.T) {
	t.Parallel()
	require.Equal(t, "6c716401"+"02"+"02"+"01"+"00"+"005a"+
		"a8a4c692b93bfde4d4a743e8191afce2"+
		"0000000000000001"+"ffffffffffffffff"+"000000000000004d"+"000009d29229e000"+
		"4c484989f565f2ea3bab5f037f2defb2de287c240847a6f855771998700cfbda",
		hex.EncodeToString(EncodeProbe(ProbeKey{1}, someProbe)))
}

func TestSizesOutOfRange(t *testing.T) {
	t.Parallel()
	p := someProbe
	p.Size = 0
	require.Len(t, EncodeProbe(ProbeKey{}, p), ProbeSize)
	p.Size = 1 << 20
	require.Len(t, EncodeProbe(ProbeKey{}, p), MaxProbeSize)
}

func TestDecodeGarbage(t *testing.T) {
	t.Parallel()
	key := ProbeKey{1}
	sign := func(b []byte) []byte {
		copy(b, probeMAC(key, b[:probeHeader:probeHeader]))
		return b
	}
	for name, tc := range map[string]struct {
		change func(b []byte) []byte
		want   ProbeGarbage
	}{
		"empty":             {func([]byte) []byte { return nil }, GarbageSize},
		"cut":               {func(b []byte) []byte { return b[:len(b)-1] }, GarbageSize},
		"with a tail":       {func(b []byte) []byte { return append(b, 0) }, GarbageSize},
		"too large":         {func([]byte) []byte { return make([]byte, MaxProbeSize+1) }, GarbageSize},
		"says another size": {func(b []byte) []byte { b[9]++; return sign(b) }, GarbageSize},
		"not a probe":       {func(b []byte) []byte { b[0]++; return sign(b) }, GarbageMagic},
		"of the future":     {func(b []byte) []byte { b[3]++; return sign(b) }, GarbageVersion},
		"a kind of its own": {func(b []byte) []byte { b[4] = 3; return sign(b) }, GarbageKind},
		"no kind":           {func(b []byte) []byte { b[4] = 0; return sign(b) }, GarbageKind},
		"verdict forged":    {func(b []byte) []byte { b[5] = 1; return b }, GarbageMAC},
		"MAC forged":        {func(b []byte) []byte { b[ProbeSize-1]++; return b }, GarbageMAC},
		"reserved, used":    {func(b []byte) []byte { b[7] = 9; return sign(b) }, ""},
		"unnamed verdict":   {func(b []byte) []byte { b[5] = 9; return sign(b) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, garbage := DecodeProbe(key, tc.change(EncodeProbe(key, someProbe)))
			require.Equal(t, tc.want, garbage)
			if garbage != "" {
				require.Zero(t, got)
			}
		})
	}
	_, garbage := DecodeProbe(ProbeKey{2}, EncodeProbe(key, someProbe))
	require.Equal(t, GarbageMAC, garbage)
}

// Whoever reaches the port must not make the gateway work much.
func TestGarbageCostsLittle(t *testing.T) {
	key, junk := ProbeKey{1}, make([]byte, MaxProbeSize)
	require.Zero(t, testing.AllocsPerRun(100, func() { DecodeProbe(key, junk) }))
	forged := EncodeProbe(ProbeKey{2}, someProbe)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { DecodeProbe(key, forged) }), 16.0)
}

// FuzzDecodeProbe reads whatever a packet holds, as it came and with a MAC that is right.
func FuzzDecodeProbe(f *testing.F) {
	key := ProbeKey{1}
	f.Add(EncodeProbe(key, someProbe))
	padded := someProbe
	padded.Size, padded.Kind = 1420, ProbeRequest
	f.Add(EncodeProbe(key, padded))
	f.Add([]byte("lqd\x01"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, packet []byte) {
		checkDecoded(t, key, packet)
		if len(packet) >= ProbeSize {
			copy(packet, probeMAC(key, bytes.Clone(packet[:probeHeader])))
			checkDecoded(t, key, packet)
		}
	})
}

func checkDecoded(t *testing.T, key ProbeKey, packet []byte) {
	before := bytes.Clone(packet)
	got, garbage := DecodeProbe(key, packet)
	require.Equal(t, before, packet, "a packet is only read")
	if garbage != "" {
		require.Zero(t, got)
		return
	}
	require.Equal(t, len(packet), got.Size)
	again, garbage := DecodeProbe(key, EncodeProbe(key, got))
	require.Empty(t, garbage)
	require.Equal(t, got, again)

	forged := bytes.Clone(packet)
	forged[got.Sequence%ProbeSize] ^= 1
	_, garbage = DecodeProbe(key, forged)
	require.NotEmpty(t, garbage, "every byte of it is authenticated")
}
