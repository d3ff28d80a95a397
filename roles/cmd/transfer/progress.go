package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Phases of a copy.
const (
	Connecting = "connecting"
	Copying    = "copying"
	Verifying  = "verifying"
	Done       = "done"
)

// Amount is a number of files and their size.
type Amount struct {
	Files int64 `json:"files"`
	// Bytes are those of the content, with holes.
	Bytes int64 `json:"bytes"`
}

// State is one line of the output of a copy.
type State struct {
	Phase string `json:"phase"`
	Amount
	// Of is the amount of the whole phase.
	Of Amount `json:"of"`
	// Problem is why there is no connection, or why the copy has failed.
	Problem string `json:"problem,omitempty"`
	// Checksum is that of all files, in both places, at the end.
	Checksum string `json:"checksum,omitempty"`
}

// Progress counts what was copied. It is safe for concurrent use.
type Progress struct {
	bytes, files atomic.Int64

	mu    sync.Mutex
	state State
}

func (p *Progress) add(files, bytes int64) {
	p.files.Add(files)
	p.bytes.Add(bytes)
}

// begin begins a phase.
func (p *Progress) begin(phase string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Phase, p.state.Problem = phase, ""
	p.bytes.Store(0)
	p.files.Store(0)
}

func (p *Progress) expect(total Amount) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Of = total
}

// away notes that there is no connection.
func (p *Progress) away(err error) {
	p.begin(Connecting)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Problem = err.Error()
}

// end notes the result.
func (p *Progress) end(checksum string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.state.Problem = err.Error()
		return
	}
	p.state.Phase, p.state.Checksum, p.state.Problem = Done, checksum, ""
}

func (p *Progress) now() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.state
	out.Bytes, out.Files = p.bytes.Load(), p.files.Load()
	return out
}

// print writes the state as a line, at each tick and once more when ctx ends.
func (p *Progress) print(ctx context.Context, out io.Writer, every time.Duration) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for last := ""; ; {
		ended := ctx.Err() != nil // before the state is read: the last line has the result
		// Encoding numbers and strings never fails.
		text, _ := json.Marshal(p.now())
		if line := string(text); line != last {
			last = line
			_, _ = fmt.Fprintln(out, line)
		}
		if ended {
			return
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
		}
	}
}
