package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	green = "\x1b[32m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

// console writes for people; with colours only to a terminal. It may be used
// concurrently.
type console struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
	last   time.Time // of the last output
}

func newConsole(out *os.File) *console {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &console{out: out, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (c *console) print(style, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.colour && style != "" {
		text = style + text + plain
	}
	fmt.Fprintln(c.out, text)
	c.last = time.Now()
}

// silence is how long nothing has been printed.
func (c *console) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.last)
}

func (c *console) say(format string, args ...any) { c.print("", fmt.Sprintf(format, args...)) }

// note is progress: what one may skip.
func (c *console) note(format string, args ...any) { c.print(dim, "  . "+fmt.Sprintf(format, args...)) }

func (c *console) heading(text string) { c.print(bold, "\n=== "+text+" ===") }

// good says what has just been proven.
func (c *console) good(format string, args ...any) {
	c.print(green, "  => "+fmt.Sprintf(format, args...))
}

func (c *console) bad(format string, args ...any) { c.print(red, fmt.Sprintf(format, args...)) }

// command is a line that the reader could type.
func (c *console) command(line string) { c.print(bold, "\n$ "+line) }

// table prints rows in columns, and as long as the terminal is wide.
func (c *console) table(rows [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return
	}
	c.print("", strings.TrimRight(text.String(), "\n"))
}

func rounded(d time.Duration) time.Duration {
	if d > 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(100 * time.Millisecond)
}
