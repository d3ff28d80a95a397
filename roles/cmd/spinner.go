package cmd

import (
	"fmt"
	"io"
	"os"
	"time"
)

// A spinner appears after spinnerAfter, and changes every spinnerEvery.
const (
	spinnerAfter = 500 * time.Millisecond
	spinnerEvery = 100 * time.Millisecond
)

// spinnerFrames follow each other at the start of the line.
var spinnerFrames = []string{"⠋", "⠙", "⠸", "⠴", "⠦", "⠇"}

// clearLine empties the line of the cursor.
const clearLine = "\r\x1b[K"

// spins reports whether a command shows a spinner: its errors go to a terminal that draws, and its
// output is for people.
func spins(out io.Writer, format string) bool {
	return onTerminal(out) && format != asJSON && format != asYAML && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// spin calls do. If do takes long, spin shows what it does, and clears the line before it returns.
func spin(out io.Writer, what string, do func()) {
	done, cleared := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(cleared)
		select {
		case <-done:
			return
		case <-time.After(spinnerAfter):
		}
		tick := time.NewTicker(spinnerEvery)
		defer tick.Stop()
		for i := 0; ; i++ {
			_, _ = fmt.Fprintf(out, "%s%s %s", clearLine, spinnerFrames[i%len(spinnerFrames)], what) // only for the eye
			select {
			case <-done:
				_, _ = io.WriteString(out, clearLine)
				return
			case <-tick.C:
			}
		}
	}()
	do()
	close(done)
	<-cleared
}
