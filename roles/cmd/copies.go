package cmd

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/move"
	"github.com/liqod/liqod/roles/cmd/report"
)

// moves reports whether the data of a claim is being moved.
func moves(claim corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[offloadingv1beta1.MoveToAnnotation] != ""
}

// readCopies reads what the pods of moves show, in one namespace or in all.
func readCopies(ctx context.Context, kube kubernetes.Interface, namespace string) (map[types.UID]report.Copying, error) {
	copies, err := move.Copies(ctx, kube, namespace)
	if err != nil {
		return nil, err
	}
	out := map[types.UID]report.Copying{}
	for uid, c := range copies {
		out[uid] = report.Copying(c)
	}
	return out, nil
}
