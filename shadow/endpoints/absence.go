package endpoints

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/kube/store"
)

// behind reports whether the API server has the namespace, or the ForeignCluster of its peer,
// that the caches lack: without them the EndpointSlice of a shadow would lose its endpoints.
func (e *Enforcer) behind(ctx context.Context, f facts) (bool, error) {
	if f.shadow == nil || f.slice == nil {
		return false, nil // there is nothing to lose
	}
	if f.namespace == nil {
		_, err := e.cfg.Kube.CoreV1().Namespaces().Get(ctx, f.shadow.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("confirming that namespace %s is gone: %w", f.shadow.Namespace, err)
		}
		return true, nil
	}
	peer := peerOf(f.namespace)
	if peer == "" {
		return false, nil
	}
	cached, err := store.OrNil(e.clusters.Get(peer))
	if err != nil || cached != nil {
		return false, err
	}
	live, err := store.OrNil(e.cfg.Liqo.CoreV1beta1().ForeignClusters().Get(ctx, peer, metav1.GetOptions{}))
	if err != nil {
		return false, fmt.Errorf("confirming that ForeignCluster %s is gone: %w", peer, err)
	}
	return live != nil && live.DeletionTimestamp == nil, nil
}
