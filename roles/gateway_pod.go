package roles

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/liqod/liqod/kube/store"
)

// activeLabel is on the pod of each gateway of several: the Service of its number leads to this
// pod. Number 1 has "true", as an only gateway, and the active one of versions with standbys: the
// Service leads to them until another pod has the number.
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

// podGone returns how to find out that no process of a gateway's pod runs any more. A pod whose
// node does not answer may still run.
func podGone(pods corev1client.PodInterface) func(ctx context.Context, name string) (bool, error) {
	return func(ctx context.Context, name string) (bool, error) {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading pod %s, which holds the number of a gateway: %w", name, err)
		}
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, nil
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
