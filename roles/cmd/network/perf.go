package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/roles/cmd/report"
)

// Figures are what a measurement found out.
type Figures struct {
	// From and Near are nodes of this cluster: pods on From send to the peer, and to a pod on Near.
	From, Near string
	// Ways are those to the pod in the peer, to the peer's gateway, and to the pod on Near.
	Ways []Way
}

const (
	nearPod   = "near"
	serverPod = "there-0"
	clientPod = "from"
	// parts is the number of measurements: five of each pod, which are round trips, and two directions for
	// each number of streams; and one of the gateway.
	parts = 11
)

// Perf measures the way to a pod in one peer, and, to compare, to a pod of this cluster. Each of the
// measurements takes as long as each says. Perf removes what it has made, also when ctx ends.
func Perf(ctx context.Context, cfg Config, each time.Duration) (Figures, error) {
	c := &checker{Config: cfg}
	if err := c.read(ctx); err != nil {
		return Figures{}, err
	}
	switch {
	case len(c.peers) != 1:
		return Figures{}, fmt.Errorf("name one peer: %s", c.known())
	case !c.peers[0].connected():
		return Figures{}, fmt.Errorf("the tunnel to cluster %s does not carry packets: `%s network check` says why", c.peers[0].ID, c.Program)
	case c.peers[0].virtual == "":
		return Figures{}, fmt.Errorf("this cluster runs no pods in cluster %s, so nothing answers there: run the command in the other cluster", c.peers[0].ID)
	case len(c.nodes) == 0:
		return Figures{}, errors.New("no node of this cluster is Ready")
	}
	out := Figures{From: c.nodes[0].Name, Near: c.nodes[len(c.nodes)-1].Name}
	err := c.measure(ctx, &out, each)
	return out, errors.Join(err, c.clear(ctx))
}

// measure makes the pods, and waits for the report.
func (c *checker) measure(ctx context.Context, out *Figures, each time.Duration) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	p := c.peers[0]
	if why := c.offloaded(ctx, p); why != "" {
		return errors.New(why)
	}
	for _, pod := range []*corev1.Pod{c.forge(c.space, nearPod, out.Near, "--serve", "--streams"), c.forge(p.space, serverPod, p.virtual, "--serve", "--streams")} {
		if err := c.create(ctx, pod); err != nil {
			return err
		}
	}
	if err := c.started(ctx, nearPod, serverPod); err != nil {
		return err
	}
	for _, name := range []string{nearPod, serverPod} {
		if !addressOf(c.pod(name)).IsValid() {
			return errors.New(waits(c.pod(name)))
		}
	}
	targets := to(Target{kindPod, toPodIn(p.ID), addressOf(c.pod(serverPod))}, Target{kindPing, toGatewayOf(p.ID), p.address},
		Target{kindPod, "the pod on " + out.Near, addressOf(c.pod(nearPod))})
	if err := c.Say(fmt.Sprintf("measuring for some %s, from a pod in namespace %s", parts*each, c.space)); err != nil {
		return err
	}
	if err := c.create(ctx, c.forge(c.space, clientPod, out.From, append(targets, "--for", each.String())...)); err != nil {
		return err
	}
	c.Wait += parts*each + lasts
	var found *Report
	err := c.until(ctx, func(pods map[string]*corev1.Pod) bool {
		if client := pods[clientPod]; client != nil && client.Status.Phase != corev1.PodPending {
			found = c.report(ctx, client)
			return found != nil || client.Status.Phase == corev1.PodFailed
		}
		return false
	})
	if err != nil {
		return err
	}
	if found == nil {
		return errors.New(waits(c.pod(clientPod)))
	}
	out.Ways = found.Ways
	return nil
}

// Failed reports whether a part of the measurement failed.
func (f Figures) Failed() bool {
	return slices.ContainsFunc(f.Ways, func(r Way) bool { return r.Error != "" })
}

// Text returns the figures for people.
func (f Figures) Text() string {
	text := report.Table("POD ON "+f.From+" >\tTHERE, 1 STREAM\t8 STREAMS\tBACK, 1 STREAM\t8 STREAMS\tROUND TRIP\t99 %", f.Ways, func(r Way) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", r.To, bits(r.There[one]), bits(r.There[several]), bits(r.Back[one]), bits(r.Back[several]), short(r.RTT), short(r.Late))
	})
	for _, r := range f.Ways {
		if r.Error != "" {
			text += fmt.Sprintf("✘ %s: %s\n", r.To, r.Error)
		}
	}
	return text
}

func short(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return d.Round(10 * time.Microsecond).String()
}

// bits returns a rate of bytes per second as people write it.
func bits(bytes float64) string {
	rate := bytes * 8
	switch {
	case rate == 0:
		return "–"
	case rate >= 1e9:
		return fmt.Sprintf("%.2f Gbit/s", rate/1e9)
	case rate >= 1e6:
		return fmt.Sprintf("%.0f Mbit/s", rate/1e6)
	}
	return fmt.Sprintf("%.0f kbit/s", rate/1e3)
}
