package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/store"
)

// mirror keeps in one namespace away the pods that one namespace at home has on a node.
type mirror struct {
	home, away                   kubernetes.Interface
	homeNamespace, awayNamespace string
	factories                    []informers.SharedInformerFactory
	locals, remotes              corelisters.PodNamespaceLister
	informers                    []cache.SharedIndexInformer
	queue                        workqueue.TypedRateLimitingInterface[string]
	// deleted has the UIDs of the pods that the caches still show.
	deleted sync.Map
}

func newMirror(home, away kubernetes.Interface, o mirrorOptions) *mirror {
	m := &mirror{home: home, away: away, homeNamespace: o.homeNamespace, awayNamespace: o.awayNamespace}
	m.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))
	ofNode := informers.WithTweakListOptions(func(o2 *metav1.ListOptions) {
		o2.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", o.node).String()
	})
	local := informers.NewSharedInformerFactoryWithOptions(home, 0, informers.WithNamespace(o.homeNamespace), informers.WithTransform(lean), ofNode)
	remote := informers.NewSharedInformerFactoryWithOptions(away, 0, informers.WithNamespace(o.awayNamespace), informers.WithTransform(lean))
	m.locals, m.remotes = local.Core().V1().Pods().Lister().Pods(o.homeNamespace), remote.Core().V1().Pods().Lister().Pods(o.awayNamespace)
	m.informers = []cache.SharedIndexInformer{local.Core().V1().Pods().Informer(), remote.Core().V1().Pods().Informer()}
	m.factories = []informers.SharedInformerFactory{local, remote}
	return m
}

// start returns when both caches are filled.
func (m *mirror) start(ctx context.Context) error {
	for _, informer := range m.informers {
		if _, err := informer.AddEventHandler(store.Each(func(pod *corev1.Pod) { m.queue.Add(pod.Name) })); err != nil {
			return fmt.Errorf("watching pods: %w", err)
		}
	}
	for _, f := range m.factories {
		f.Start(ctx.Done())
	}
	return lab.Wrong(nil, !cache.WaitForCacheSync(ctx.Done(), m.informers[0].HasSynced, m.informers[1].HasSynced), "the caches were not filled in time")
}

// work returns when ctx has ended.
func (m *mirror) work(ctx context.Context, workers int) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for m.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	m.queue.ShutDown()
	wg.Wait()
}

func (m *mirror) next(ctx context.Context) bool {
	name, over := m.queue.Get()
	if over {
		return false
	}
	defer m.queue.Done(name)
	if err := m.sync(ctx, name); err != nil {
		fmt.Fprintf(os.Stderr, "mirror: pod %s: %v\n", name, err)
		m.queue.AddRateLimited(name)
		return true
	}
	m.queue.Forget(name)
	return true
}

func (m *mirror) sync(ctx context.Context, name string) error {
	local, remote := mirrorCached(m.locals, name), mirrorCached(m.remotes, name)
	switch {
	case local == nil && (remote == nil || remote.DeletionTimestamp != nil):
		return nil
	case local == nil:
		return m.deleteRemote(ctx, remote, nil)
	case remote == nil && local.DeletionTimestamp != nil:
		return m.deleteLocal(ctx, local)
	case remote == nil:
		return m.create(ctx, local)
	case local.DeletionTimestamp != nil && remote.DeletionTimestamp == nil:
		return m.deleteRemote(ctx, remote, local.DeletionGracePeriodSeconds)
	case equality.Semantic.DeepEqual(local.Status, remote.Status):
		return nil
	default:
		return m.copyStatus(ctx, local, remote)
	}
}

// mirrorCached returns nil for a pod that is not there: a lister has no other error.
func mirrorCached(lister corelisters.PodNamespaceLister, name string) *corev1.Pod {
	pod, err := lister.Get(name)
	if err != nil {
		return nil
	}
	return pod
}

func (m *mirror) create(ctx context.Context, local *corev1.Pod) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: local.Name, Labels: local.Labels, Annotations: local.Annotations},
		Spec:       *local.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = ""
	_, err := m.away.CoreV1().Pods(m.awayNamespace).Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// copyStatus carries no resource version: the pod away is always right.
func (m *mirror) copyStatus(ctx context.Context, local, remote *corev1.Pod) error {
	pod := &corev1.Pod{
		ObjectMeta: *local.ObjectMeta.DeepCopy(),
		Spec:       local.Spec,
		Status:     remote.Status,
	}
	pod.ResourceVersion = ""
	_, err := m.home.CoreV1().Pods(m.homeNamespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return store.IgnoreGone(err)
}

func (m *mirror) deleteRemote(ctx context.Context, remote *corev1.Pod, grace *int64) error {
	return m.delete(ctx, m.away.CoreV1().Pods(m.awayNamespace), remote, grace)
}

func (m *mirror) deleteLocal(ctx context.Context, local *corev1.Pod) error {
	return m.delete(ctx, m.home.CoreV1().Pods(m.homeNamespace), local, ptr.To[int64](0))
}

// delete asks once.
func (m *mirror) delete(ctx context.Context, pods corev1client.PodInterface, pod *corev1.Pod, grace *int64) error {
	if _, done := m.deleted.Load(pod.UID); done {
		return nil
	}
	err := store.IgnoreGone(pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}))
	if err == nil {
		m.deleted.Store(pod.UID, nil)
	}
	return err
}
