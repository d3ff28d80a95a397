package lab

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CanShiftClocks says whether processes of this machine can be given a clock of their own.
func CanShiftClocks() bool { return runtime.GOARCH == "amd64" }

// clockFunction is what programs read the clock by: a function of the kernel's that is
// mapped into each process, as a small library.
const clockFunction = "__vdso_clock_gettime"

// startAhead starts a program whose clock is ahead of this machine's, or behind if ahead is
// negative. What it starts itself has the clock of the machine. The thread must be locked to
// its goroutine, and outlive the program: see starter.
//
// The program is stopped before its first instruction, so that no thread of it is in the
// function while that is replaced. The page is a copy of the process's own from then on.
func startAhead(cmd *exec.Cmd, ahead time.Duration) error {
	code, err := clockCode(ahead)
	if err != nil {
		return err
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := replaceClock(cmd.Process.Pid, code); err != nil {
		return errors.Join(fmt.Errorf("setting the clock: %w", err), cmd.Process.Kill(), ignoreExit(cmd.Wait()))
	}
	return nil
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// clockCode is the machine code that replaces clockFunction: it asks the kernel, and adds
// to the seconds of the time of day.
func clockCode(ahead time.Duration) ([]byte, error) {
	seconds := int64(ahead / time.Second)
	switch {
	case !CanShiftClocks():
		return nil, fmt.Errorf("shifting clocks on %s: amd64 is supported", runtime.GOARCH)
	case ahead%time.Second != 0 || seconds != int64(int32(seconds)) || seconds == math.MinInt32:
		return nil, fmt.Errorf("shifting a clock by %s: whole seconds are accepted, of 31 bits", ahead)
	}
	code := []byte{
		0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi (0 is the time of day)
		0x75, 0x07, // jnz past the addition
		0x48, 0x81, 0x06, // add qword [rsi], ahead
	}
	return append(binary.LittleEndian.AppendUint32(code, uint32(int32(seconds))), 0xc3), nil // ret
}

// replaceClock waits until a traced process has stopped at its beginning, replaces its
// clockFunction and lets it go.
func replaceClock(pid int, code []byte) error {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("waiting for its first stop: %w", err)
		}
	}
	if !status.Stopped() {
		return fmt.Errorf("it has not stopped before its first instruction: %#x", uint32(status))
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening its memory: %w", err)
	}
	defer memory.Close()
	address, err := clockAddress(pid, memory, len(code))
	if err != nil {
		return err
	}
	if _, err := memory.WriteAt(code, address); err != nil {
		return fmt.Errorf("writing its memory: %w", err)
	}
	return syscall.PtraceDetach(pid)
}

// clockAddress finds clockFunction, with room for so many bytes, in a process.
func clockAddress(pid int, memory io.ReaderAt, room int) (int64, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, fmt.Errorf("reading its map of memory: %w", err)
	}
	begin, end, err := vdsoRange(string(maps))
	if err != nil {
		return 0, err
	}
	image := make([]byte, end-begin)
	if _, err := memory.ReadAt(image, begin); err != nil {
		return 0, fmt.Errorf("reading its vDSO: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("reading its vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("reading the names in its vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == clockFunction && s.Size >= uint64(room) && s.Value < uint64(len(image)) {
			return begin + int64(s.Value), nil
		}
	}
	return 0, fmt.Errorf("its vDSO has no %s of at least %d bytes", clockFunction, room)
}

// vdsoRange finds the vDSO in what the kernel prints of a process's memory.
func vdsoRange(maps string) (begin, end int64, err error) {
	for line := range strings.Lines(maps) {
		if !strings.Contains(line, "[vdso]") {
			continue
		}
		from, rest, _ := strings.Cut(line, "-")
		to, _, _ := strings.Cut(rest, " ")
		begin, errBegin := strconv.ParseInt(from, 16, 64)
		end, errEnd := strconv.ParseInt(to, 16, 64)
		return begin, end, errors.Join(errBegin, errEnd)
	}
	return 0, 0, errors.New("it has no vDSO: the kernel must not be started with vdso=0")
}
