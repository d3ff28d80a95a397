package roles

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/liqod/liqod/kube/store"
)

// activeLabel is on the pod of each gateway of several: the Service of its number leads to this
// pod. Number 1 has "true": with another value, no Service of a release would lead to it.
const activeLabel = "networking.liqo.io/active"

// activate has the Service of a number lead to this pod, and to no other. The pod of the gateway
// before may be on a node that is dead, where nobody else takes the label off for a minute.
func activate(pods corev1client.PodInterface, self string, number int) func(context.Context) error {
	value := "true"
	if number > 1 {
		value = strconv.Itoa(number)
	}
	return func(ctx context.Context) error {
		if err := setActive(ctx, pods, self, value); err != nil {
			return err
		}
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: activeLabel + "=" + value})
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

// podLost returns whether Kubernetes has given the pod of a gateway up that has not given its number
// back. On a node that does not answer it may still run, and have its key: the next one gets another,
// so that no peer sends to both. keys has those of a number.
func podLost(pods corev1client.PodInterface, keys func(number int) secretKeys) func(ctx context.Context, name string, number int) (bool, error) {
	return func(ctx context.Context, name string, number int) (bool, error) {
		pod, err := store.OrNil(pods.Get(ctx, name, metav1.GetOptions{}))
		if err != nil {
			return false, fmt.Errorf("reading pod %s, which holds the number of a gateway: %w", name, err)
		}
		if pod != nil && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			return false, nil
		}
		return true, keys(number).discard(ctx)
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
