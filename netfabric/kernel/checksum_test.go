package kernel

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCorrect(t *testing.T) {
	t.Parallel()
	// The answer to port 49461 from the test of packets: its checksum is 0, as a sum.
	packet := func(text string) []byte {
		out := make([]byte, 48, 48+len(text))
		out[0], out[6], out[7] = 0x60, 17, 64
		a := addr("fd00:aa:0:2::10").As16()
		copy(out[8:], a[:])
		copy(out[24:], a[:])
		binary.BigEndian.PutUint16(out[40:], 7000)
		binary.BigEndian.PutUint16(out[42:], 49461)
		out = append(out, text...)
		binary.BigEndian.PutUint16(out[4:], uint16(len(out)-40))
		binary.BigEndian.PutUint16(out[44:], uint16(len(out)-40))
		return out
	}
	const text = "[fd00:aa:0:2::10]:49461"
	for name, tc := range map[string]struct {
		packet func() []byte
		want   uint16
	}{
		"none, and adds up to none": {func() []byte { return packet(text) }, 0xffff},
		"none, and it is not that":  {func() []byte { return packet("another text") }, 0},
		"some": {func() []byte {
			p := packet(text)
			p[46] = 1
			return p
		}, 0x100},
		"TCP": {func() []byte {
			p := packet(text)
			p[6] = 6
			return p
		}, 0},
		"IPv4": {func() []byte {
			p := packet(text)
			p[0] = 0x45
			return p
		}, 0},
	} {
		got := tc.packet()
		correct(got)
		require.Equal(t, tc.want, binary.BigEndian.Uint16(got[46:]), name)
		got[46], got[47] = 0, 0
		want := tc.packet()
		want[46], want[47] = 0, 0
		require.Equal(t, want, got, "%s: the rest", name)
	}
	for n := range 48 {
		correct(packet(text)[:n])
	}
}
