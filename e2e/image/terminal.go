package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// burn uses a share of a core: for as long of every 10 ms.
func burn(ctx context.Context, share string) error {
	part, err := strconv.ParseFloat(share, 64)
	if err != nil || part < 0 || part > 1 {
		return fmt.Errorf("burn: %q is not a share from 0 to 1", share)
	}
	const turn = 10 * time.Millisecond
	busy := time.Duration(part * float64(turn))
	for ctx.Err() == nil {
		for begin := time.Now(); time.Since(begin) < busy; {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(turn - busy):
		}
	}
	return nil
}

// size waits until the terminal has a size: it is told after the program has started.
func size(ctx context.Context) error {
	for range 500 {
		var it struct{ rows, columns, x, y uint16 }
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, os.Stdin.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&it)))
		if errno != 0 {
			return fmt.Errorf("asking for the terminal's size: %w", errno)
		}
		if it.columns > 0 {
			_, err := fmt.Printf("%dx%d\n", it.columns, it.rows)
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errors.New("the terminal has no size")
}
