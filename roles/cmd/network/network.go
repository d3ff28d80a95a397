// Package network checks the network between clusters: pods that it makes and removes send packets hop
// by hop, and their reports are judged together with what the gateways and nodes report in objects.
// What it finds out is in the files objects and helpers, the judging of it in judge.
package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/roles/cmd/report"
)

// Config says what is checked, and with what.
type Config struct {
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// Peers are the ids of the peers; empty: all. Pods are two pods, as NAMESPACE/NAME, or none. Nodes are
	// the nodes of this cluster from which packets are sent; empty: MostNodes of them.
	Peers, Pods, Nodes []string
	// Image is that of the pods of the check.
	Image string
	// Program is the name of the program in messages.
	Program string
	// Now is the time by the cluster's clock.
	Now func() time.Time
	// Every is the time between two looks at the pods, Wait how long they may take to start and to report.
	Every, Wait time.Duration
	// Say prints a line about the progress.
	Say func(line string) error
	// Logs reads the log of a pod.
	Logs func(ctx context.Context, pod *corev1.Pod) ([]byte, error)
}

// MostNodes is the number of nodes that are checked if none is named.
const MostNodes = 10

// checker checks once.
type checker struct {
	Config
	seen   Seen
	space  string   // the namespace of the pods of this cluster
	spaces []string // all namespaces of the check
	liqod  string   // where liqod is installed
	fabric host.Objects
	// external is the range of the own gateways' addresses.
	external netip.Prefix
	peers    []*peering
	all      []string // the ids of all peers
	nodes    []*corev1.Node
	running  map[string]*corev1.Pod
	pods     []given
}

// Run checks, and returns the verdict. It removes what it has made, also when ctx ends.
func Run(ctx context.Context, cfg Config) (Verdict, error) {
	c := &checker{Config: cfg}
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	if len(c.seen.Peers) == 0 {
		return nil, errors.New("no peer uses the network of this cluster: there is neither a Connection nor a condition NetworkStatus of a ForeignCluster")
	}
	if c.external.IsValid() { // else nothing has been agreed with any peer, and packets have no addresses
		sent, cleared := c.send(ctx), c.clear(ctx)
		if sent != nil {
			return nil, errors.Join(sent, cleared)
		}
		return Judge(&c.seen), cleared // packets were judged even if the removal is not over
	}
	return Judge(&c.seen), nil
}

// send makes the pods in order: those that answer first.
func (c *checker) send(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.Say(fmt.Sprintf("sending packets from pods in the namespaces %s", strings.Join(c.spaces, ", "))); err != nil {
		return err
	}
	for i, node := range c.nodes {
		if err := c.create(ctx, c.hostPod(i, node)); err != nil {
			return err
		}
	}
	if err := c.createEchoes(ctx); err != nil {
		return err
	}
	if err := c.createThere(ctx); err != nil {
		return err
	}
	for i, node := range c.nodes {
		if err := c.create(ctx, c.herePod(i, node)); err != nil {
			return err
		}
	}
	return c.collect(ctx)
}

// Text returns the verdict for people.
func (v Verdict) Text() string {
	end := "Packets pass on every hop that was checked."
	if first, broken := v.First(); broken {
		end = "Packets pass. Without a reserve: "
		if first.Level == report.Problem {
			end = "The first hop that breaks: "
		}
		end += first.Section + ", " + first.Subject
	}
	return report.FindingsText(v) + "\n" + end + "\n"
}
