package move

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/roles/cmd/helper"
	"github.com/liqod/liqod/roles/cmd/report"
)

// until polls until see is done. It prints what see is waiting for, when that changes. An API server
// that is overloaded or cannot be reached does not end it.
func (m *mover) until(ctx context.Context, see func(context.Context) (line string, done bool, err error)) error {
	return wait.PollUntilContextCancel(ctx, m.Every, true, func(ctx context.Context) (bool, error) {
		line, done, err := see(ctx)
		if err != nil {
			if ctx.Err() == nil && passes(err) {
				return false, m.tell("waiting for the API server: " + err.Error())
			}
			return false, err
		}
		if done {
			return true, nil
		}
		return false, m.tell(line)
	})
}

// passes reports whether an error is of the connection to the API server, or of its load.
func passes(err error) bool {
	return errors.As(err, new(*url.Error)) ||
		apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err)
}

// tell prints a line, unless it was the last one.
func (m *mover) tell(line string) error {
	if line == "" || line == m.said {
		return nil
	}
	m.said = line
	return m.Say(line)
}

// copy lets pods copy the data, and waits until the one in this cluster succeeds: then it has read the same from its
// disk as the other end says, or both others say the same. What providers say of their pods ends nothing. Those
// listen, and the one in this cluster connects to them: this cluster reaches the pods that run for it, whatever
// else a provider shares.
func (m *mover) copy(ctx context.Context) error {
	begun := m.Now()
	return m.until(ctx, func(ctx context.Context) (string, bool, error) {
		if err := m.keys(ctx); err != nil {
			return "", false, err
		}
		here, err := m.pod(ctx, m.here())
		if err != nil {
			return "", false, err
		}
		if here != nil && here.Status.Phase == corev1.PodSucceeded {
			return "", true, m.summary(ctx, here, begun)
		}
		shows, addresses := here, []string{}
		for _, want := range m.there() {
			pod, err := m.pod(ctx, want)
			switch {
			case err != nil:
				return "", false, err
			case pod == nil:
				return "starting a pod in cluster " + want.cluster, false, m.create(ctx, want.Pod)
			case stale(pod, want.Pod):
				return "", false, m.remove(ctx, pod)
			case pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning:
				return waits(pod), false, failure(pod)
			case failure(pod) != nil:
				return "", false, failure(pod)
			case m.relays():
				shows = pod
			}
			addresses = append(addresses, pod.Status.PodIP)
		}
		switch want := m.here(addresses...); {
		case here == nil:
			return "starting a pod in this cluster", false, m.create(ctx, want.Pod)
		case stale(here, want.Pod):
			return "", false, m.remove(ctx, here)
		case here.Status.Phase != corev1.PodRunning:
			return waits(here), false, failure(here)
		}
		return progress(ctx, m.Kube, shows), false, failure(here)
	})
}

// stale reports whether a pod has ended, or does not do what another one is to do.
func stale(have, want *corev1.Pod) bool {
	return offloadingv1beta1.Ended(have.Status.Phase) || !slices.Equal(have.Spec.Containers[0].Args, want.Spec.Containers[0].Args)
}

// summary prints the end of a copy.
func (m *mover) summary(ctx context.Context, pod *corev1.Pod, begun time.Time) error {
	s := state(ctx, m.Kube, pod)
	if s.Checksum == "" {
		return m.Say("copied and verified")
	}
	return m.Say(fmt.Sprintf("copied and verified: %s in %d files, in %s; SHA-256 of all in both clusters: %s", mebibytes(s.Of.Bytes), s.Of.Files, m.Now().Sub(begun).Round(time.Second), s.Checksum))
}

// clear removes the pods of the move and their keys.
func (m *mover) clear(ctx context.Context) error {
	if err := m.clearPods(ctx); err != nil {
		return err
	}
	return m.clearKeys(ctx)
}

func (m *mover) clearKeys(ctx context.Context) error {
	for _, namespace := range m.namespaces() {
		if _, err := store.Sweep[*corev1.Secret](ctx, "Secret", m.Kube.CoreV1().Secrets(namespace), m.ofMove(), nil); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) ofMove() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: moveLabel + "=" + string(m.claim.UID)}
}

// clearPods removes the pods, and waits until they are gone.
func (m *mover) clearPods(ctx context.Context) error {
	return m.until(ctx, func(ctx context.Context) (string, bool, error) {
		left := 0
		for _, namespace := range m.namespaces() {
			pods, err := store.Sweep[*corev1.Pod](ctx, "pod", m.Kube.CoreV1().Pods(namespace), m.ofMove(), nil)
			if err != nil {
				return "", false, err
			}
			left += len(pods)
		}
		return "waiting until the pods of the move are gone", left == 0, nil
	})
}

// namespaces has those of the pods of a move.
func (m *mover) namespaces() []string {
	return slices.Sorted(maps.Keys(map[string]bool{m.Namespace: true, m.StorageNamespace: true}))
}

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
	return fmt.Sprintf("pod %s is not running yet: %s", pod.Name, cmp.Or(report.Trouble(pod), string(pod.Status.Phase)))
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
func state(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod) (out State) {
	text, err := helper.Logs(ctx, kube, pod, corev1.PodLogOptions{TailLines: ptr.To[int64](1)})
	if err != nil || json.Unmarshal(text, &out) != nil {
		return State{}
	}
	return out
}

// progress returns the progress of a copy.
func progress(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod) string {
	s := state(ctx, kube, pod)
	if s.Problem != "" {
		return s.Phase + ": " + s.Problem
	}
	if s.Of == (Amount{}) || s.Phase == Connecting {
		return cmp.Or(s.Phase, "waiting for the first line of pod "+pod.Name)
	}
	percent := int64(100)
	if s.Of.Bytes > 0 {
		percent = min(100, s.Bytes*100/s.Of.Bytes)
	}
	return fmt.Sprintf("%s: %d%% of %s in %d files", s.Phase, percent, mebibytes(s.Of.Bytes), s.Of.Files)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1fMi", float64(n)/(1<<20)) }
