// Package transfer copies the files of one volume to another over a connection, as a tar archive. The
// archive begins after the last file that has arrived, so that a copy that was interrupted anywhere is
// resumed. The copy ends when both ends have read all files again, and their archives have the same
// checksum. Owners, modes, times, symbolic and hard links, holes, special files and extended attributes
// are those of the sender.
package transfer

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/liqod/liqod/kube/serve"
)

// Parts of a copy, which are the names in the certificates of its ends.
const (
	Sender   = "sender"
	Receiver = "receiver"
)

// Options configure one end of a copy.
type Options struct {
	// Folder is the root of the files. Send sends them; else they are written. Without it, what one end
	// sends is passed on to the other one.
	Folder string
	Send   bool
	// Plain leaves out what gives rights to whoever runs a file: the bits setuid and setgid, and
	// capabilities. Both ends have the same.
	Plain bool
	// Connect are the addresses to connect to: one, or without a Folder those of sender and receiver.
	Connect []string
	// Listen is the address to listen at, if Connect is empty. Such an end serves until ctx is done.
	Listen string
	// Certificate and Key are PEM, of this end. Peers has the certificate of each other end, by its part.
	// Nobody else is accepted.
	Certificate, Key []byte
	Peers            map[string][]byte
	// Out gets the state as lines of JSON, each second.
	Out io.Writer
	// Every is the time between two attempts to connect, and between two lines.
	Every time.Duration
}

// NewKey returns a new certificate with its key as PEM, for an end that has these parts.
func NewKey(now time.Time, parts ...string) (certificate, key []byte, err error) {
	pair, err := serve.Sign(&x509.Certificate{
		DNSNames: parts, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, // it signs no other one
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	key, err = pair.KeyPEM()
	return pair.CertPEM(), key, err
}

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
