package move

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
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
	mu    sync.Mutex
	state State
}

// change changes the state.
func (p *Progress) change(to func(*State)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to(&p.state)
}

func (p *Progress) add(files, bytes int64) {
	p.change(func(s *State) { s.Files, s.Bytes = s.Files+files, s.Bytes+bytes })
}

// begin begins a phase. problem is why there is no connection, if that is the phase.
func (p *Progress) begin(phase, problem string) {
	p.change(func(s *State) { s.Phase, s.Problem, s.Amount = phase, problem, Amount{} })
}

func (p *Progress) expect(total Amount) { p.change(func(s *State) { s.Of = total }) }

// end notes the result.
func (p *Progress) end(checksum string, err error) {
	p.change(func(s *State) {
		if s.Problem = ""; err != nil {
			s.Problem = err.Error()
			return
		}
		s.Phase, s.Checksum = Done, checksum
	})
}

func (p *Progress) now() (out State) {
	p.change(func(s *State) { out = *s })
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
