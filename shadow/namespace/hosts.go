package namespace

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/tools/record"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// newIngress is how long an Ingress counts as new. After it the caches of all webhooks have it.
const newIngress = 5 * time.Minute

// HostsConfig is the input of NewHosts. All fields are required except Observer.
type HostsConfig struct {
	loop.Env

	// Ingresses has those of all namespaces.
	Ingresses networkinginformers.IngressInformer
	Recorder  record.EventRecorder // of events in this cluster; those of twins come to the peer too
}

// Hosts records an event for each new Ingress of a peer with a host that an earlier Ingress of
// others has. The webhook refuses it, but not if the earlier one was created a moment before and is
// not in its cache yet. The Ingress stays: deleting it could cut off users that it serves already.
// It runs under a lease.
type Hosts struct {
	*loop.Loop
	cfg HostsConfig
}

// NewHosts returns a Hosts and registers its event handler on the informer. It starts nothing.
func NewHosts(cfg HostsConfig) *Hosts {
	h := &Hosts{cfg: cfg}
	h.Loop = loop.New(loop.Config{Name: "ingress-hosts", Sync: h.sync, Log: cfg.Log, Observer: cfg.Observer}, loop.From(cfg.Ingresses.Informer(), func(ing *networkingv1.Ingress) (keys []loop.Key) {
		if h.isNew(ing) {
			keys = loop.Self(ing)
		}
		return keys
	}))
	return h
}

// isNew reports whether an Ingress of a peer was created a moment ago.
func (h *Hosts) isNew(ing *networkingv1.Ingress) bool {
	return ing.Labels[offloadingv1beta1.OriginLabel] != "" && h.cfg.Clock.Since(ing.CreationTimestamp.Time) < newIngress
}

func (h *Hosts) sync(_ context.Context, key loop.Key) error {
	ing, err := h.cfg.Ingresses.Lister().Ingresses(key.Namespace).Get(key.Name)
	if err != nil {
		return store.IgnoreNotFound(err)
	}
	all := store.Listed(h.cfg.Ingresses.Lister().List(labels.Everything()))
	before := slices.DeleteFunc(all, func(other *networkingv1.Ingress) bool { return !earlier(other, ing) })
	if _, why := (rules.IngressBounds{}).Refuse(ing, ing.Labels[offloadingv1beta1.OriginLabel], before); why != "" {
		h.cfg.Recorder.Eventf(ing, corev1.EventTypeWarning, reasons.HostTaken, "%s; this Ingress is the later one: change its host, or delete it", why)
	}
	return nil
}

// earlier reports whether a was created before b. Times are whole seconds: within one, Ingresses of
// this cluster's own are the earlier ones.
func earlier(a, b *networkingv1.Ingress) bool {
	own := func(ing *networkingv1.Ingress) int { return len(ing.Labels[offloadingv1beta1.OriginLabel]) }
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(min(own(a), 1), min(own(b), 1)), cmp.Compare(a.UID, b.UID)) < 0
}
