package roles

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/liqod/liqod/kube/store"
)

// activeLabel is on the pod of the gateway that is active: its Service leads to this one.
const activeLabel = "networking.liqo.io/active"

// activate has the Service lead to this pod, and to no other. The pod of the gateway before
// may be on a node that is dead, where nobody else takes the label off for a minute.
func activate(pods corev1client.PodInterface, self string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := setActive(ctx, pods, self, "true"); err != nil {
			return err
		}
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: activeLabel})
		if err != nil {
			return fmt.Errorf("listing pods with label %s: %w", activeLabel, err)
		}
		for _, pod := range list.Items {
			if pod.Name == self {
				continue
			}
			if err := setActive(ctx, pods, pod.Name, nil); store.IgnoreGone(err) != nil {
				return err
			}
		}
		return nil
	}
}

// setActive writes the label of a pod; nil takes it off.
func setActive(ctx context.Context, pods corev1client.PodInterface, name string, value any) error {
	body, err := json.Marshal(store.Patch{"metadata": store.Patch{"labels": store.Patch{activeLabel: value}}})
	if err != nil {
		return fmt.Errorf("encoding a label: %w", err)
	}
	if _, err := pods.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("writing label %s of pod %s: %w", activeLabel, name, err)
	}
	return nil
}
