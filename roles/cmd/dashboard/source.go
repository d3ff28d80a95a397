// Package dashboard serves a page that shows how a cluster and its peerings are. The page is
// for one user on the same machine: the server listens on the loopback address, and shows the
// state only to a client that knows its token. It changes nothing in the cluster.
package dashboard

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

// Source reads the cluster. Its methods but Observe are called concurrently.
type Source interface {
	// Observe returns the objects that status judges, and all pods of the offloaded namespaces. It
	// returns an error if the cluster does not answer.
	Observe(context.Context) (*report.Snapshot, error)
	// Events returns events of a namespace, and whether it has more of them.
	Events(ctx context.Context, namespace string) (events []corev1.Event, more bool, err error)
	// Metrics returns the page of metrics of a pod of liqod.
	Metrics(ctx context.Context, pod *corev1.Pod) ([]byte, error)
}

// readers is how many namespaces or pods are read at a time.
const readers = 4

// picture has the objects of a cluster at one moment.
type picture struct {
	*report.Snapshot
	// events of namespaces that concern liqod.
	events []corev1.Event
	// unread names the reads of single namespaces that failed.
	unread []Unread
	// counted is what the processes of liqod have counted, and before the same of the picture before.
	// They are nil if nothing was read.
	counted, before *reading
}

// take reads everything that the page shows.
func take(ctx context.Context, source Source) (*picture, error) {
	snapshot, err := source.Observe(ctx)
	if err != nil {
		return nil, err
	}
	p := &picture{Snapshot: snapshot}
	var mu sync.Mutex
	report.Each(p.told(), readers, func(namespace string) {
		events, more, err := source.Events(ctx, namespace)
		mu.Lock()
		defer mu.Unlock()
		p.keepEvents(namespace, events, more, err)
	})
	p.measure(ctx, source)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the API server does not answer everything in time: %w", context.Cause(ctx))
	}
	return p, nil
}

func (p *picture) keepEvents(namespace string, events []corev1.Event, more bool, err error) {
	what := "Events of namespace " + namespace
	if err != nil {
		p.unread = append(p.unread, Unread{Section: sectionEvents, What: what, Why: err.Error()})
		return
	}
	if more {
		p.unread = append(p.unread, Unread{Section: sectionEvents, What: what, Why: "the namespace has more events than are read; some are missing here"})
	}
	for i := range events {
		if namespace != metav1.NamespaceDefault || p.concerns(&events[i]) {
			p.events = append(p.events, events[i])
		}
	}
}

// told are the namespaces with events that concern liqod. Events of objects without a namespace
// are in the namespace default.
func (p *picture) told() []string {
	peers := report.Names(p.ForeignClusters, func(fc *corev1beta1.ForeignCluster) string { return corev1beta1.TenantNamespace(fc.Spec.ClusterID) })
	tenants := report.Names(p.Tenants, func(ns *corev1.Namespace) string { return ns.Name })
	names := slices.Concat(p.OffloadedNamespaces(), peers, tenants, []string{p.Namespace, metav1.NamespaceDefault})
	slices.Sort(names)
	return slices.Compact(names)
}

// concerns reports whether an event of the namespace default is about a virtual node, a peer,
// or a pod of that namespace while it is offloaded.
func (p *picture) concerns(e *corev1.Event) bool {
	about := e.InvolvedObject
	switch about.Kind {
	case "ForeignCluster":
		return true
	case "Node":
		return slices.ContainsFunc(p.VirtualNodes, func(vn virtualNode) bool { return vn.Name == about.Name })
	}
	return slices.Contains(p.OffloadedNamespaces(), metav1.NamespaceDefault) && about.Namespace == metav1.NamespaceDefault
}
