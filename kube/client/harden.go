package client

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// requestDeadline bounds the silence of a server within one request.
const requestDeadline = 10 * time.Second

// Settings say how requests of a configuration behave. The zero value is useful.
type Settings struct {
	// UserAgent names this process in the server's audit log.
	UserAgent string
	// Observer is told of each attempt; it may be nil.
	Observer Observer
	// Gate is asked before each write; nil lets all pass.
	Gate Gate
	// MaxWrites is the number of writes in flight; 0 does not limit it. All clients made
	// from the same hardened configuration share it.
	MaxWrites int
	// Log receives at debug level what informers wait for; it may be nil.
	Log *zap.Logger
}

// UserAgent returns the user agent of one role of a program.
func UserAgent(program, version, role string) string {
	return fmt.Sprintf("%s/%s %s", program, version, role)
}

// Harden returns a copy of cfg whose requests are not limited by the client, end when
// the server is silent for 10 seconds (watches, followed logs and upgraded connections
// excepted), and, where they are informers' reads, are repeated about each second while
// the server is away. It suits own kinds (JSON); Core makes of it the configuration for
// the kinds of Kubernetes.
func Harden(cfg *rest.Config, s Settings) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.QPS = -1
	out.RateLimiter = nil
	out.Timeout = 0 // would end watches
	if s.UserAgent != "" {
		out.UserAgent = s.UserAgent
	}
	if out.Dial == nil && out.Transport == nil {
		out.Dial = (&dialer{firstByte: firstByteTimeout}).dial
	}
	// One for all clients of this configuration.
	slots := newSlots(s.MaxWrites)
	out.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		rt = &deadline{wrapped: wrapped{rt}, limit: requestDeadline}
		if s.Observer != nil {
			rt = &observed{wrapped: wrapped{rt}, observer: s.Observer}
		}
		if s.Gate != nil {
			rt = &gated{wrapped: wrapped{rt}, gate: s.Gate}
		}
		if slots != nil {
			rt = &capped{wrapped: wrapped{rt}, slots: slots}
		}
		return newPatience(rt, s.Log)
	})
	return out
}

// Core returns a copy of cfg that speaks protobuf, which only the kinds of Kubernetes
// itself can.
func Core(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.ContentType = runtime.ContentTypeProtobuf
	out.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return out
}

// SetHTTP2Pings makes client-go find a dead connection within 8 seconds rather than 45,
// unless the user has set other times. client-go reads them from the environment of
// the process and offers no other way: call it before the first client is made.
func SetHTTP2Pings() error {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, "4"); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

// wrapped is what every round tripper here has in common. client-go finds the
// underlying transport through it.
type wrapped struct{ next http.RoundTripper }

// WrappedRoundTripper returns the round tripper inside.
func (w wrapped) WrappedRoundTripper() http.RoundTripper { return w.next }
