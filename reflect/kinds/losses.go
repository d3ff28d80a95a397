package kinds

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// LossesLoop is the name of the loop of Losses.
const LossesLoop = "losses"

// lossWorkers is the number of pods that follow a changed annotation at the same time.
const lossWorkers = 4

// LossesConfig is the configuration of a Losses for one virtual node.
type LossesConfig struct {
	// Home is a client for the consumer.
	Home kubernetes.Interface
	// Pods is an informer for the pods of the virtual node only, indexed by namespace.
	Pods coreinformers.PodInformer
	// Namespaces has at least the namespaces of these pods.
	Namespaces coreinformers.NamespaceInformer
	loop.Env
}

// Losses keeps the tolerations of the pods on a virtual node as the annotation
// OnProviderLossAnnotation of their namespaces says. It needs nothing of the provider, so that
// the annotation acts also while the provider is lost.
type Losses struct {
	cfg  LossesConfig
	loop *loop.Loop
}

// NewLosses returns a Losses and registers its handlers with the informers. It starts nothing.
func NewLosses(cfg LossesConfig) *Losses {
	l := &Losses{cfg: cfg}
	l.loop = loop.New(loop.Config{Name: LossesLoop, Sync: l.sync, Log: cfg.Log, Observer: cfg.Observer}, loop.From(cfg.Pods.Informer(), loop.Self), loop.From(cfg.Namespaces.Informer(), l.podsIn))
	return l
}

// Run follows the annotation until ctx is done.
func (l *Losses) Run(ctx context.Context) error { return unlessOver(ctx, l.loop.Run(ctx, lossWorkers)) }

func (l *Losses) podsIn(ns *corev1.Namespace) []loop.Key {
	return loop.Keys(store.Listed(l.cfg.Pods.Lister().Pods(ns.Name).List(labels.Everything())))
}

func (l *Losses) sync(ctx context.Context, key loop.Key) error {
	pod, err := l.cfg.Pods.Lister().Pods(key.Namespace).Get(key.Name)
	if err != nil || pod.DeletionTimestamp != nil || ended(pod) {
		return nil // a lister returns no other error than NotFound
	}
	ns, err := l.cfg.Namespaces.Lister().Get(key.Namespace)
	if err != nil {
		return nil // its event follows
	}
	keep, err := offloadingv1beta1.KeptOnProviderLoss(ns.Annotations)
	if err != nil {
		return nil // the webhook says so, and existing pods stay as they are
	}
	tolerations, mark := forge.OnLoss(pod, keep)
	if mark == pod.Annotations[offloadingv1beta1.OnProviderLossAnnotation] && equality.Semantic.DeepEqual(tolerations, pod.Spec.Tolerations) {
		return nil
	}
	return l.write(ctx, pod, tolerations, mark)
}

// write sends the resource version, because the patch replaces the whole list.
func (l *Losses) write(ctx context.Context, pod *corev1.Pod, tolerations []corev1.Toleration, mark string) error {
	_, err := store.Merge(ctx, "pod", l.cfg.Home.CoreV1().Pods(pod.Namespace), engine.FieldManager, pod, store.Patch{
		"metadata": store.Patch{
			"resourceVersion": pod.ResourceVersion, "annotations": store.Patch{offloadingv1beta1.OnProviderLossAnnotation: mark},
		},
		"spec": store.Patch{"tolerations": tolerations},
	})
	return store.IgnoreNotFound(err)
}
