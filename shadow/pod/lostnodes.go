package pod

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

const (
	// lostNodesWorkers is enough for the rate that forceSpacing allows.
	lostNodesWorkers = 1
	// forceSpacing is the time between two force deletions. A node with 110 pods takes
	// 11 s, and a mistaken NotReady of many nodes can be noticed before all is deleted.
	forceSpacing = 100 * time.Millisecond
	// conflictRetry is the delay after a pod changed between its live read and its deletion.
	conflictRetry = time.Second
)

// LostNodesConfig is the input of NewLostNodes. All fields are required except Observer.
type LostNodesConfig struct {
	loop.Env

	Kube kubernetes.Interface
	// Nodes contains all nodes of this cluster, virtual nodes included.
	Nodes coreinformers.NodeInformer
	// Pods contains at least the pods made for ShadowPods.
	Pods coreinformers.PodInformer
	// Recorder records events on pods.
	Recorder record.EventRecorder
}

// LostNodes force-deletes the pods of ShadowPods that are terminating on a NotReady node,
// so that the Enforcer can create them on another node. A container on such a node may
// still run, and then it runs beside its replacement: only the operator of the cluster can
// accept this, so LostNodes runs only if the configuration turns it on. It runs under a
// lease; all its writes are idempotent.
//
// Pods of deleted nodes are left to the pod garbage collector. Pods on virtual nodes are
// left to the vkubelet: they run in a cluster that may only be out of reach.
type LostNodes struct {
	cfg  LostNodesConfig
	loop *loop.Loop
	pace loop.Pace // of force deletions
}

// NewLostNodes returns a LostNodes and registers its event handlers on the informers. It
// starts nothing.
func NewLostNodes(cfg LostNodesConfig) *LostNodes {
	l := &LostNodes{cfg: cfg}
	l.loop = loop.New(loop.Config{Name: "lostnodes", Sync: l.sync, Log: cfg.Log, Observer: cfg.Observer}, loop.From(cfg.Pods.Informer(), stuckKey), loop.From(cfg.Nodes.Informer(), l.stuckPods))
	return l
}

// Run blocks until ctx is done and every worker has returned. It may be called again after
// that, but not concurrently. The rate of deletions allows no more than one worker.
func (l *LostNodes) Run(ctx context.Context, _ int) error {
	return l.loop.Run(ctx, lostNodesWorkers)
}

// stuckKey returns the key of a pod that may have to be force-deleted.
func stuckKey(pod *corev1.Pod) (keys []loop.Key) {
	if stuck(pod) {
		keys = loop.Self(pod)
	}
	return keys
}

// stuckPods returns the keys of all pods that may have to be force-deleted. A Ready node
// matters to the pods of the other nodes too, because anyReady waits for it.
func (l *LostNodes) stuckPods(any) (keys []loop.Key) {
	for _, pod := range store.Listed(l.cfg.Pods.Lister().List(labels.Everything())) {
		keys = append(keys, stuckKey(pod)...)
	}
	return keys
}

// stuck reports whether pod was made for a ShadowPod, is bound to a node and waits for the
// kubelet there to remove it. A grace period of 0 means that nothing waits for the kubelet.
func stuck(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return ofAnyShadow(pod) && pod.Spec.NodeName != "" && pod.DeletionTimestamp != nil && grace != nil && *grace > 0
}

// forceAt returns when pod may be force-deleted if nothing changes. ok is false if only a
// change of pod or node can allow it. node is nil if it is deleted.
//
// The deletion timestamp is the end of the grace period. The node must also have been
// NotReady for the length of a grace period: a kubelet that was well for a part of it may
// be about to report the end of the pod.
func forceAt(pod *corev1.Pod, node *corev1.Node) (at time.Time, ok bool) {
	if !stuck(pod) || node == nil || offloadingv1beta1.IsVirtual(node) || ready(node) {
		return time.Time{}, false
	}
	at = notReadySince(node).Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	if pod.DeletionTimestamp.After(at) {
		at = pod.DeletionTimestamp.Time
	}
	return at.Add(clockSkew), true
}

func ready(node *corev1.Node) bool {
	return store.NodeCondition(&node.Status, corev1.NodeReady).Status == corev1.ConditionTrue
}

// notReadySince returns when node became NotReady, or its creation if the kubelet has not reported yet.
func notReadySince(node *corev1.Node) time.Time {
	if c := store.NodeCondition(&node.Status, corev1.NodeReady); c.Type != "" {
		return c.LastTransitionTime.Time
	}
	return node.CreationTimestamp.Time
}

// sync decides on the caches, and again on live objects before it deletes.
func (l *LostNodes) sync(ctx context.Context, key loop.Key) error {
	pod := store.Known(l.cfg.Pods.Lister().Pods(key.Namespace).Get(key.Name))
	if pod == nil || !stuck(pod) {
		return nil
	}
	node := store.Known(l.cfg.Nodes.Lister().Get(pod.Spec.NodeName))
	at, ok := forceAt(pod, node)
	if !ok || !l.anyReady() {
		return nil
	}
	if wait := at.Sub(l.cfg.Clock.Now()); wait > 0 {
		return loop.After(wait)
	}
	if wait := l.pace.Take("", 1, forceSpacing, l.cfg.Clock.Now()); wait > 0 {
		return loop.After(wait)
	}
	return l.force(ctx, key, pod.UID)
}

// anyReady reports whether this cluster has a Ready node. Without one, pods cannot be
// created elsewhere, and the fault is probably that no kubelet reaches the API server.
func (l *LostNodes) anyReady() bool {
	nodes, err := l.cfg.Nodes.Lister().List(labels.Everything())
	return err == nil && slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return !offloadingv1beta1.IsVirtual(n) && ready(n) })
}

// force deletes the pod with the given UID if its live state and that of its node still
// allow it. The node is read last, so that a node that has just returned is seen.
func (l *LostNodes) force(ctx context.Context, key loop.Key, uid types.UID) error {
	pods := l.cfg.Kube.CoreV1().Pods(key.Namespace)
	pod, err := store.Live(ctx, "pod", pods, key.Name)
	if err != nil || pod == nil || pod.UID != uid {
		return err
	}
	node, err := store.Live(ctx, "node", l.cfg.Kube.CoreV1().Nodes(), pod.Spec.NodeName)
	if err != nil {
		return fmt.Errorf("force-deleting pod %s: %w", key, err)
	}
	at, ok := forceAt(pod, node)
	if !ok {
		return nil
	}
	if wait := at.Sub(l.cfg.Clock.Now()); wait > 0 {
		return loop.After(wait)
	}
	// The resource version fails the deletion if the kubelet wrote the pod in between.
	err = pods.Delete(ctx, key.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return loop.After(conflictRetry)
	case err != nil:
		return fmt.Errorf("force-deleting pod %s of the NotReady node %s: %w", key, node.Name, err)
	}
	l.cfg.Recorder.Eventf(pod, corev1.EventTypeWarning, reasons.NodeFailureForceDeleted,
		"the pod (UID %s) was force-deleted because node %s is NotReady since %s; its containers may still run there, also beside those of its replacement, until the node restarts",
		pod.UID, node.Name, notReadySince(node).UTC().Format(time.RFC3339))
	l.cfg.Log.Warn("remote pod of a NotReady node force-deleted", zap.Stringer("key", key),
		zap.String("uid", string(pod.UID)), zap.String("node", node.Name))
	return nil
}
