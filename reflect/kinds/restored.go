package kinds

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// After a restore of its etcd from a backup, a consumer lacks the pods that were created
// since the backup. They were not deleted. There are two signs of a restore. While a
// vkubelet runs, resource versions that it sees decrease (HomeLost). And each
// ShadowPod contains the resource version of its pod when it was offloaded: if the API
// server answers with a lower one than any of them, it was restored. ShadowPods without a
// local pod are then kept and marked, because the resource version will soon exceed that
// value again. Two kinds of restore are not detected: one that increases resource
// versions, and one after which no vkubelet ran before the resource version exceeded that
// of the newest ShadowPod.

// forgotten reports whether the local pod of the ShadowPod may be missing because of a
// restore. now is the current resource version of this cluster.
func (p *Pods) forgotten(v view, now string) bool {
	if !v.twin.left.Begun(localUID(v.shadow)).IsZero() {
		return false
	}
	return store.MadeBefore(v.shadow, p.cfg.HomeLost) || store.OlderVersion(now, p.newest())
}

// sawLeave records that the watch in the consumer has reported the deletion of a pod that
// the provider still has.
func (p *Pods) sawLeave(pod *corev1.Pod) {
	tw := p.twins.Get(pod.Namespace)
	if tw == nil {
		return
	}
	tw.mu.Lock() // forget follows the deletion of a ShadowPod that the cache still has now
	defer tw.mu.Unlock()
	if shadow := tw.shadows.Cached(tw.key(pod.Name)); shadow != nil && localUID(shadow) == pod.UID {
		tw.left.Begin(pod.UID, p.cfg.Clock.Now())
	}
}

// inDoubt reports whether a pod has seemed lost only for a moment. Its deletion may not
// be recorded yet, because the delete handler and the worker run concurrently.
func (t *twin) inDoubt(local types.UID, now time.Time) bool {
	return now.Sub(t.doubted.Begin(local, now)) < store.CatchUp
}

// liveLocal reads a local pod (nil if it does not exist) and the current resource version
// of the API server.
func (p *Pods) liveLocal(ctx context.Context, key loop.Key) (*corev1.Pod, string, error) {
	list, err := p.cfg.Home.CoreV1().Pods(key.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String(),
	})
	if err != nil {
		return nil, "", err
	}
	i := slices.IndexFunc(list.Items, func(pod corev1.Pod) bool { return pod.Name == key.Name })
	if i < 0 {
		return nil, list.ResourceVersion, nil
	}
	return &list.Items[i], list.ResourceVersion, nil
}

// keep marks a ShadowPod whose local pod was lost by a restore.
func (p *Pods) keep(ctx context.Context, v view) error {
	want := v.shadow.DeepCopy()
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, offloadingv1beta1.KeptAnnotation, p.now().UTC().Format(time.RFC3339))
	written, err := v.twin.shadows.Note(p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Update(ctx, want, metav1.UpdateOptions{FieldManager: engine.FieldManager}))
	if err != nil {
		return fmt.Errorf("marking the ShadowPod of a pod that is not known here: %w", err)
	}
	p.cfg.Log.Warn("remote pod kept: its local pod is unknown, but the state of this cluster went back", zap.Stringer("key", v.key))
	if n := p.ownNode(); n != nil {
		p.cfg.Recorder.Event(n, corev1.EventTypeWarning, offloadingv1beta1.ReasonRemotePodKept, fmt.Sprintf(
			"pod %s runs in cluster %s but is unknown here: the state of this cluster went back, for example by a restored backup; the pod is kept until ShadowPod %s/%s is deleted there",
			v.key, p.cfg.Destination, v.twin.remote, v.shadow.Name))
	}
	v.shadow = written
	return p.waitForKept(ctx, v)
}

// waitForKept shows a pod in its status that its name in the provider is occupied by a
// kept ShadowPod. A pod that is being deleted is released at once.
func (p *Pods) waitForKept(ctx context.Context, v view) error {
	switch {
	case v.local == nil:
		return nil
	case v.local.DeletionTimestamp != nil:
		return p.release(ctx, v.local, p.memo(v.local.UID).last)
	case ended(v.local):
		return nil
	}
	message := fmt.Sprintf("a pod of the same name runs in cluster %s that is unknown here, because the state of this cluster went back; waiting until ShadowPod %s/%s is deleted there",
		p.cfg.Destination, v.twin.remote, v.shadow.Name)
	if started(v.local) {
		want := forge.UnreadyStatus(v.local, p.now())
		want.Reason, want.Message = offloadingv1beta1.ReasonRemotePodKept, message
		return p.writeStatus(ctx, v.local, want)
	}
	return p.writeStatus(ctx, v.local, p.pending(v.local, offloadingv1beta1.ReasonRemotePodKept, message))
}
