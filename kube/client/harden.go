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

// requestDeadline is how long a server may send nothing within one request.
const requestDeadline = 10 * time.Second

// Settings configure the behaviour of a client's requests. The zero value is useful.
type Settings struct {
	// UserAgent identifies this process in the server's audit log.
	UserAgent string
	// Observer receives the result of each attempt; it may be nil.
	Observer Observer
	// Gate is called before each write and may reject it; nil allows all writes.
	Gate Gate
	// MaxWrites is the maximum number of concurrent writes; 0 means no limit. All clients
	// made from one hardened configuration share the limit.
	MaxWrites int
	// WentBack may be nil. It is called when a watch shows that the state of the server went back,
	// as after the restore of a backup, and before an informer lists again for that reason.
	WentBack func()
	// Log receives that the state of the server went back and, at debug level, the failures that
	// informers retry; it may be nil.
	Log *zap.Logger
}

// UserAgent returns the user agent of one role of a program, in the form "program/version
// role".
func UserAgent(program, version, role string) string {
	return fmt.Sprintf("%s/%s %s", program, version, role)
}

// Harden returns a copy of cfg with these changes: the client does not limit the rate of
// requests; a request fails after 10 seconds without data from the server, except for
// watches, followed logs and upgraded connections; the list and watch requests of
// informers are repeated about every second while the server is unreachable; and informers
// list again after the state of the server went back. The result encodes objects as JSON,
// which custom resources require. For built-in kinds pass the result to Core.
func Harden(cfg *rest.Config, s Settings) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.QPS = -1
	out.RateLimiter = nil
	out.Timeout = 0 // a timeout would end watches
	if s.UserAgent != "" {
		out.UserAgent = s.UserAgent
	}
	if out.Dial == nil && out.Transport == nil {
		out.Dial = (&dialer{firstByte: firstByteTimeout}).dial
	}
	// All clients of this configuration share these.
	slots, heads := newSlots(s.MaxWrites), newHeads(s.Log, s.WentBack)
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
		return newPatience(&headed{wrapped: wrapped{rt}, heads: heads}, s.Log)
	})
	return out
}

// Core returns a copy of cfg that encodes objects as protobuf. Only the built-in kinds of
// Kubernetes support it.
func Core(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.ContentType = runtime.ContentTypeProtobuf
	out.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return out
}

// SetHTTP2Pings sets client-go's HTTP/2 health check so that a dead connection is
// detected within 8 seconds instead of 45. Environment variables that are set already are
// kept. client-go reads these variables when it creates a client and has no other setting
// for them, so call SetHTTP2Pings before creating the first client. It changes the
// environment of the process.
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

// wrapped is embedded in every round tripper of this package. client-go unwraps it to
// find the underlying transport.
type wrapped struct{ next http.RoundTripper }

// WrappedRoundTripper returns the next round tripper.
func (w wrapped) WrappedRoundTripper() http.RoundTripper { return w.next }
