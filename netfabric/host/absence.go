package host

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	networkingclient "github.com/liqod/liqod/api/generated/clientset/versioned/typed/networking/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// presence holds the Connections that a host follows. A Connection that is absent from the cache
// is followed until a live list confirms that it is gone: a watch may lose objects, and a peer
// that is dropped loses all its flows. It is not safe for concurrent use.
type presence struct {
	client networkingclient.ConnectionsGetter
	known  map[loop.Key]*networkingv1beta1.Connection // nil: there was no live list yet
}

// confirm returns the Connections to follow. again says that the cache has less than the API
// server, or that the API server does not answer: the caller comes back soon. The error is of
// the first time alone, when it is not known what there may be beside the cache.
func (p *presence) confirm(ctx context.Context, cached []*networkingv1beta1.Connection) (out []*networkingv1beta1.Connection, again bool, err error) {
	next := byKey(cached)
	if p.known == nil || !sets.KeySet(next).IsSuperset(sets.KeySet(p.known)) { // a live list is needed
		found, err := store.Find[*networkingv1beta1.Connection](ctx, "Connection", p.client.Connections(metav1.NamespaceAll), metav1.ListOptions{})
		live := byKey(found)
		if err != nil && p.known == nil {
			return nil, false, fmt.Errorf("confirming which Connections there are: %w", err)
		}
		again = err != nil
		if err == nil && p.known == nil {
			p.known = live
		}
		for key, c := range p.known {
			if next[key] != nil {
				continue
			}
			if now := live[key]; now != nil {
				c, again = now, true
			} else if err == nil {
				continue // it is gone
			}
			next[key], cached = c, append(slices.Clip(cached), c)
		}
	}
	p.known = next
	return cached, again, nil
}

func byKey(list []*networkingv1beta1.Connection) map[loop.Key]*networkingv1beta1.Connection {
	out := map[loop.Key]*networkingv1beta1.Connection{}
	for _, c := range list {
		out[loop.Key{Namespace: c.Namespace, Name: c.Name}] = c
	}
	return out
}
