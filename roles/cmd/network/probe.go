package network

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Way is how packets fared that a pod of the check sent to one target.
type Way struct {
	To       string `json:"to"`
	Sent     int    `json:"sent"`
	Answered int    `json:"answered"`
	// RTT is the median of the round trips of packets of probeSize bytes. One of a hundred is longer than Late.
	RTT  time.Duration `json:"rtt,omitempty"`
	Late time.Duration `json:"late,omitempty"`
	// Fits is the size in bytes of the largest packet that was answered. Says is the size that the hosts
	// of the way announce. Both are 0 if no packet was answered.
	Fits int `json:"fits,omitempty"`
	Says int `json:"says,omitempty"`
	// Source is the address that the target has seen, if the target is a pod of the check.
	Source string `json:"source,omitempty"`
	// There and Back are in bytes per second, by the number of TCP streams, if throughput was measured.
	There map[int]float64 `json:"there,omitempty"`
	Back  map[int]float64 `json:"back,omitempty"`
	Error string          `json:"error,omitempty"`
}

// Host is the state of a node's network, as every process there may read it.
type Host struct {
	// Rule is whether the rule exists that leads to the routes of peers.
	Rule bool `json:"rule"`
	// Lost has the addresses that no route of peers leads to.
	Lost []string `json:"lost,omitempty"`
	// Tracked is the number of connections that the kernel tracks, Most its limit; 0: not read.
	Tracked int `json:"tracked,omitempty"`
	Most    int `json:"most,omitempty"`
}

// Report is what a pod of the check prints, in one line.
type Report struct {
	Ways []Way `json:"ways,omitempty"`
	Host *Host `json:"host,omitempty"`
	// Name is the name that the pod has resolved. NameError is why that failed.
	Name      string `json:"name,omitempty"`
	NameError string `json:"nameError,omitempty"`
}

// way returns the way to a target.
func (r *Report) way(to string) (Way, bool) {
	if r == nil {
		return Way{}, false
	}
	i := slices.IndexFunc(r.Ways, func(w Way) bool { return w.To == to })
	if i < 0 {
		return Way{}, false
	}
	return r.Ways[i], true
}

// Kinds of targets.
const (
	kindPing    = "ping"    // ICMP echo
	kindPod     = "pod"     // UDP, to a pod of the check
	kindGateway = "gateway" // the probe of a node, over the overlay
	kindRoute   = "route"   // no packets: is there a route?
)

// Target is one that a pod of the check sends packets to, as an argument KIND,NAME,ADDRESS.
type Target struct {
	Kind, Name string
	Address    netip.Addr
}

// String returns the argument.
func (t Target) String() string { return t.Kind + "," + t.Name + "," + t.Address.String() }

// ParseTargets reads the arguments of targets.
func ParseTargets(texts []string) (out []Target, err error) {
	for _, text := range texts {
		parts := strings.Split(text, ",")
		if len(parts) != 3 || !slices.Contains([]string{kindPing, kindPod, kindGateway, kindRoute}, parts[0]) {
			return nil, fmt.Errorf("target %q is not KIND,NAME,ADDRESS", text)
		}
		address, err := netip.ParseAddr(parts[2])
		if err != nil {
			return nil, fmt.Errorf("target %q: %w", text, err)
		}
		out = append(out, Target{parts[0], parts[1], address.Unmap()})
	}
	return out, nil
}

// ProbeOptions configure the program of a pod of a check, or of a measurement.
type ProbeOptions struct {
	// Serve keeps it answering the packets of other pods, until ctx is done; Streams also their streams.
	Serve, Streams bool
	Targets        []Target
	// Resolve is a name, of which DNS has a record of the type SRV; empty: none.
	Resolve string
	// Node reads the network of the host, for the addresses of the targets.
	Node bool
	// For is how long each measurement of a target takes; 0: packets are sent, and nothing is measured.
	For time.Duration
	Out io.Writer
}

const (
	echoPort  = 5474
	tries     = 5
	mostTrips = 20000
	// perHundred is the number of round trips of which one is longer than Late.
	perHundred = 100
	patience   = 700 * time.Millisecond // for one answer
	naming     = 12 * time.Second       // to resolve a name: a resolver repeats its question after 5 s
	smallest   = 548                    // bytes of a packet that every link carries
	probeSize  = 100
)

// Probe sends packets to all targets or measures the ways to them, prints a Report, and answers others if Serve is set.
func Probe(ctx context.Context, o ProbeOptions) error {
	var served errgroup.Group
	if o.Serve {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: echoPort})
		if err != nil {
			return fmt.Errorf("listening for packets: %w", err)
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		served.Go(func() error { return answer(conn) })
	}
	if o.Streams {
		server, err := listenStreams(ctx, fmt.Sprintf(":%d", streamPort))
		if err != nil {
			return fmt.Errorf("listening for streams: %w", err)
		}
		served.Go(func() error { return server.Run(ctx) })
	}
	text, err := json.Marshal(o.report(ctx))
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if _, err := fmt.Fprintf(o.Out, "%s\n", text); err != nil || !o.Serve {
		return err
	}
	if err := served.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// report sends the packets, or measures.
func (o ProbeOptions) report(ctx context.Context) (report Report) {
	if o.For > 0 { // one after the other
		for _, t := range o.Targets {
			report.Ways = append(report.Ways, measure(ctx, t, o.For))
		}
		return report
	}
	sends := slices.DeleteFunc(slices.Clone(o.Targets), func(t Target) bool { return t.Kind == kindRoute })
	report.Ways = make([]Way, len(sends))
	var all sync.WaitGroup
	for i, t := range sends {
		all.Go(func() { report.Ways[i] = measure(ctx, t, 0) })
	}
	if o.Resolve != "" {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, naming)
			defer cancel()
			report.Name = o.Resolve
			if _, _, err := net.DefaultResolver.LookupSRV(ctx, "", "", o.Resolve); err != nil {
				report.NameError = err.Error()
			}
		})
	}
	if o.Node {
		report.Host = readHost(o.Targets)
	}
	all.Wait()
	return report
}

// Kinds of packets between pods, in the byte behind the number of the packet. An answer is never answered: two pods that
// a third one makes send to each other fall silent.
const question, reply = 1, 2

// answer answers each question with a packet of the same size that has the sender's address.
func answer(conn *net.UDPConn) error {
	packet := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			return fmt.Errorf("reading packets: %w", err)
		}
		if n < probeSize/2 || packet[8] != question {
			continue
		}
		clear(packet[8:n]) // the first 8 bytes are the number of the packet
		packet[8] = reply
		copy(packet[9:n], from.Addr().Unmap().String())
		_, _ = conn.WriteToUDPAddrPort(packet[:n], from)
	}
}

// asker sends packets to one target.
type asker interface {
	// ask sends a packet of size bytes, IP header included, and waits for its answer. tooLarge: a host of
	// the way has announced a smaller size.
	ask(size int) (rtt time.Duration, tooLarge bool, err error)
	// limit returns the size that the kernel knows of the way.
	limit() int
	// source returns the own address in the last answer, if the target sends it.
	source() string
	close()
}

// measure finds out how packets to a target fare: some of them and the largest, or for a time, and of a pod the
// throughput then. Packets follow each other, and one that is lost is not repeated.
func measure(ctx context.Context, t Target, each time.Duration) (w Way) {
	w.To = t.Name
	a, err := newAsker(t)
	if err != nil {
		w.Error = err.Error()
		return w
	}
	defer a.close()
	var times []time.Duration
	for begin := time.Now(); ctx.Err() == nil && (w.Sent < tries || w.Sent < mostTrips && time.Since(begin) < each); {
		w.Sent++
		rtt, _, err := a.ask(probeSize)
		if err != nil {
			w.Error = err.Error()
			continue
		}
		times = append(times, rtt)
	}
	if w.Answered = len(times); w.Answered == 0 {
		return w
	}
	slices.Sort(times)
	w.RTT, w.Late, w.Source, w.Error = times[len(times)/2], times[len(times)-1-len(times)/perHundred], a.source(), ""
	switch {
	case each == 0:
		w.Fits, w.Says = largest(a)
	case t.Kind == kindPod:
		if err := w.throughput(ctx, t.Address, each); err != nil {
			w.Error = err.Error()
		}
	}
	return w
}

// largest returns the size of the largest packet that passes, and the size that the way announces. In
// a way that works they are equal. The first large packets only bring the announcements of the hosts.
func largest(a asker) (fits, says int) {
	for range 2 * tries {
		says = a.limit()
		if _, tooLarge, err := a.ask(says); err == nil {
			return says, says
		} else if !tooLarge && a.limit() == says && !passes(a, says) {
			break
		}
	}
	says = a.limit()
	if !passes(a, smallest) {
		return 0, says
	}
	return smallest + sort.Search(says-smallest-1, func(i int) bool { return !passes(a, smallest+i+1) }), says
}

// passes reports whether one of two packets of a size is answered.
func passes(a asker, size int) bool {
	for range 2 {
		if _, _, err := a.ask(size); err == nil {
			return true
		}
	}
	return false
}
