package engine

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// IsKept reports whether an object in the provider has the mark of one whose local object was lost by a restored
// backup.
func IsKept(have metav1.Object) bool {
	return have.GetAnnotations()[offloadingv1beta1.KeptAnnotation] != ""
}

// keep leaves an object in the provider whose local object may have been lost by a
// restored backup. It marks the object, because the next process has no record of the
// restoration. When the local object exists again, Merge removes the mark, because it
// treats the mark as one of the reflected annotations.
func (r *kindLoop[L, R]) keep(ctx context.Context, v view[L, R]) error {
	if r.Derived || IsKept(v.have) {
		return nil
	}
	_, err := v.stores.remote.Note(store.Merge(ctx, r.Resource, r.writer(v.scope), FieldManager, v.have, store.Patch{"metadata": store.Patch{
		"annotations": store.Patch{offloadingv1beta1.KeptAnnotation: r.engine.cfg.Clock.Now().UTC().Format(time.RFC3339)},
	}}))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return loop.After(store.CatchUp) // the object is gone, or a newer one has the name
	case err != nil:
		return fmt.Errorf("marking an object that is not known here: %w", err)
	}
	r.log.Warn("object kept in the provider: it is unknown here, but the state of this cluster went back", zap.Stringer("key", v.key))
	return nil
}
