package move

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/roles/cmd/helper"
	"github.com/liqod/liqod/roles/cmd/report"
	"github.com/liqod/liqod/roles/cmd/transfer"
)

// mostRestarts is the number of failures after which the command ends with the last one.
const mostRestarts = 3

// Copies reads the pods of moves in a namespace, in all if it is empty, and their logs. The result is
// by the UID of the claim.
func Copies(ctx context.Context, kube kubernetes.Interface, namespace string) (map[types.UID]report.Copying, error) {
	pods, err := store.Find[*corev1.Pod](ctx, "pod", kube.CoreV1().Pods(namespace), metav1.ListOptions{LabelSelector: moveLabel})
	if err != nil {
		return nil, err
	}
	out := map[types.UID]report.Copying{}
	for _, pod := range pods {
		uid := types.UID(pod.Labels[moveLabel])
		have, found := out[uid]
		connects := len(pod.Spec.Containers) > 0 && slices.Contains(pod.Spec.Containers[0].Args, "--connect") // in this cluster
		relays := connects && len(pod.Spec.Volumes) == 1
		switch {
		case !have.Whole.IsZero():
		case pod.Status.Phase == corev1.PodSucceeded && connects:
			out[uid] = report.Copying{Progress: "copied and verified", Whole: endOf(pod)}
		case failure(pod) != nil:
			out[uid] = report.Copying{Progress: failure(pod).Error(), Failed: true}
		case found, relays && pod.Status.Phase == corev1.PodRunning: // one of the others says how far it is
		case pod.Status.Phase != corev1.PodRunning:
			out[uid] = report.Copying{Progress: waits(pod)}
		default:
			out[uid] = report.Copying{Progress: progress(ctx, kube, pod)}
		}
	}
	return out, nil
}

// endOf returns the time at which a pod has ended, or was created.
func endOf(pod *corev1.Pod) time.Time {
	for _, s := range pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && !t.FinishedAt.IsZero() {
			return t.FinishedAt.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// waits returns why a pod does not run.
func waits(pod *corev1.Pod) string {
	return fmt.Sprintf("pod %s is not running yet: %s", pod.Name, cmp.Or(helper.Waits(pod), string(pod.Status.Phase)))
}

// failure returns the error of a pod that fails again and again.
func failure(pod *corev1.Pod) error {
	for _, s := range pod.Status.ContainerStatuses {
		last := s.LastTerminationState.Terminated
		if s.RestartCount >= mostRestarts && last != nil && last.ExitCode == 1 && last.Message != "" {
			return fmt.Errorf("pod %s cannot copy the data: %s; correct that and run the command again, or end the move with --undo", pod.Name, strings.TrimSpace(last.Message))
		}
	}
	return nil
}

// state returns the last line of the log of a pod that copies.
func state(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod) (out transfer.State) {
	text, err := helper.Logs(ctx, kube, pod, corev1.PodLogOptions{TailLines: ptr.To[int64](1)})
	if err != nil || json.Unmarshal(text, &out) != nil {
		return transfer.State{}
	}
	return out
}

// progress returns the progress of a copy.
func progress(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod) string {
	s := state(ctx, kube, pod)
	if s.Problem != "" {
		return s.Phase + ": " + s.Problem
	}
	if s.Of == (transfer.Amount{}) || s.Phase == transfer.Connecting {
		return cmp.Or(s.Phase, "waiting for the first line of pod "+pod.Name)
	}
	percent := int64(100)
	if s.Of.Bytes > 0 {
		percent = min(100, s.Bytes*100/s.Of.Bytes)
	}
	return fmt.Sprintf("%s: %d%% of %s in %d files", s.Phase, percent, mebibytes(s.Of.Bytes), s.Of.Files)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1fMi", float64(n)/(1<<20)) }
