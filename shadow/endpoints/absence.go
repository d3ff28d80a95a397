package endpoints

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/informer"
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
	cached, err := e.clusters.List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("listing ForeignClusters: %w", err)
	}
	if slices.ContainsFunc(cached, func(fc *corev1beta1.ForeignCluster) bool { return isOf(fc, peer) }) {
		return false, nil
	}
	return informer.Exists(ctx, "the ForeignCluster of "+peer, e.cfg.Liqo.CoreV1beta1().ForeignClusters().List,
		func(fc *corev1beta1.ForeignCluster) bool { return isOf(fc, peer) })
}

// isOf reports whether a ForeignCluster is that of a peer.
func isOf(fc *corev1beta1.ForeignCluster, peer string) bool {
	return fc.Spec.ClusterID == peer && fc.DeletionTimestamp == nil
}
