package lab

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clockVariable has TestLabClockHelper print the clock.
const clockVariable = "LAB_TEST_CLOCK"

// TestLabClockHelper is the program of TestLabClockAhead, and no test.
func TestLabClockHelper(t *testing.T) {
	if os.Getenv(clockVariable) == "" {
		return
	}
	fmt.Println("clock", time.Now().UnixMilli(), time.Since(time.Now()) < time.Minute)
}

// TestLabClockAhead: a program of Go has another time of day than this machine, and time
// that passes passes as elsewhere.
func TestLabClockAhead(t *testing.T) {
	if !CanShiftClocks() {
		t.Skip("clocks cannot be shifted on this architecture")
	}
	s := newStarter()
	t.Cleanup(s.close)
	for _, ahead := range []time.Duration{5 * time.Minute, -5 * time.Minute, 0} {
		var out bytes.Buffer
		cmd := exec.Command(os.Args[0], "-test.run=^TestLabClockHelper$")
		cmd.Env, cmd.Stdout, cmd.SysProcAttr = append(os.Environ(), clockVariable+"=1"), &out, &syscall.SysProcAttr{Setpgid: true}
		begin := time.Now()
		require.NoError(t, s.start(cmd, ahead))
		require.NoError(t, cmd.Wait(), out.String())
		end := time.Now()
		fields := strings.Fields(out.String())
		require.GreaterOrEqual(t, len(fields), 3, out.String())
		milliseconds, err := strconv.ParseInt(fields[1], 10, 64)
		require.NoError(t, err)
		require.Equal(t, "true", fields[2], "monotonic time")
		have := time.UnixMilli(milliseconds).Add(-ahead)
		require.WithinRange(t, have, begin.Add(-time.Millisecond), end, "%s ahead", ahead)
	}
}

func TestLabClockRefuses(t *testing.T) {
	if !CanShiftClocks() {
		t.Skip("clocks cannot be shifted on this architecture")
	}
	for _, ahead := range []time.Duration{time.Millisecond, math.MaxInt64 / time.Duration(time.Second) * time.Second} {
		_, err := clockCode(ahead)
		require.ErrorContains(t, err, "whole seconds are accepted", ahead)
	}
	_, _, err := vdsoRange("7ffe-7fff r-xp 00000000 00:00 0 [stack]\n")
	require.ErrorContains(t, err, "no vDSO")
}
