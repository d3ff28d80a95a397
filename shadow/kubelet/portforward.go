package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	clientportforward "k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// lastWord is how long after the end of a connection the provider may still say why. It
	// says so, or that it will not, in the same moment.
	lastWord = time.Second
	// longestRefusal bounds that in bytes. A peer may send anything.
	longestRefusal = 32 << 10
)

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	opts, err := portforward.NewV4Options(r)
	if err != nil {
		s.fail(w, r, badRequest("%v: port must be numbers from 1 to 65535", err))
		return
	}
	target, err := s.target(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w, r, end := tied(w, r)
	defer end()
	f := &forwarder{
		config: target.config,
		url:    target.client.Post().Namespace(target.namespace).Resource("pods").Name(target.pod).SubResource("portforward").URL(),
		done:   r.Context().Done(),
	}
	portforward.ServePortForward(w, r, f, target.pod, "", opts, sessionIdle, sessionCreation, portforward.SupportedProtocols)
}

// forwarder carries the connections of one port-forward to the provider, each over a
// connection of its own, so that one that stalls does not hold up the others.
type forwarder struct {
	config *rest.Config
	url    *url.URL
	done   <-chan struct{}
}

// PortForward copies between stream and a port of the pod until either ends.
func (f *forwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := f.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // what matters was said in the streams
	headers := http.Header{}
	headers.Set(portforward.PortHeader, strconv.Itoa(int(port)))
	headers.Set(portforward.PortForwardRequestIDHeader, "0")
	headers.Set(portforward.StreamType, portforward.StreamTypeError)
	errorStream, err := conn.CreateStream(headers)
	if err != nil {
		return fmt.Errorf("opening the error stream: %w", err)
	}
	_ = errorStream.Close() // our half: nothing is written to it
	refused := make(chan string, 1)
	go func() {
		message, _ := io.ReadAll(io.LimitReader(errorStream, longestRefusal))
		refused <- string(message)
	}()
	headers.Set(portforward.StreamType, portforward.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		// A provider that refuses at once may reset the stream before it has replied to it.
		select {
		case message := <-refused:
			if message != "" {
				return refusal(message)
			}
		case <-time.After(lastWord):
		}
		return fmt.Errorf("opening the data stream: %w", err)
	}
	return f.carry(ctx, conn, data, refused, stream)
}

func refusal(message string) error { return fmt.Errorf("the provider says: %s", message) }

// carry copies until either end ends or the provider refuses. refused receives one message, which
// is empty if there is none.
func (f *forwarder) carry(ctx context.Context, conn httpstream.Connection, data httpstream.Stream, refused <-chan string, local io.ReadWriteCloser) error {
	received := make(chan struct{})
	go func() {
		_, _ = io.Copy(local, data) // an end is an end, whoever made it
		close(received)
	}()
	go func() {
		_, _ = io.Copy(data, local)
		_ = data.Close() // the provider learns that no more comes
	}()
	var (
		over <-chan struct{} = received
		late <-chan time.Time
	)
	for {
		select {
		case message := <-refused:
			if message != "" {
				return refusal(message)
			}
			if over == nil {
				return nil
			}
			refused = nil // it will say nothing; data may still come
		case <-over:
			if refused == nil {
				return nil
			}
			over, late = nil, time.After(lastWord) // why it ended may be on its way
		case <-late:
			return nil
		case <-conn.CloseChan():
			return nil
		case <-f.done:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *forwarder) dial() (httpstream.Connection, error) {
	transport, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection: %w", err)
	}
	plain := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, f.url)
	tunnel, err := clientportforward.NewSPDYOverWebsocketDialerForStreaming(f.url, f.config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection: %w", err)
	}
	conn, _, err := clientportforward.NewFallbackDialerForStreaming(tunnel, plain, notCarried).Dial(portforward.ProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("connecting to the provider: %w", err)
	}
	return conn, nil
}
