package namespace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// PodRule is the webhook's rule for pods in offloaded namespaces.
type PodRule struct {
	Offloadings offloadinglisters.NamespaceOffloadingLister
	// Namespaces has at least the offloaded ones.
	Namespaces corelisters.NamespaceLister
	// Classes has all classes of this cluster once ClassesSynced reports true.
	Classes       storagelisters.StorageClassLister
	ClassesSynced func() bool
	// NoOwnVolumes says that no volumes of the class liqo are made on nodes of this cluster.
	NoOwnVolumes bool
	// Liqo and Kube confirm what the listers do not have. Kube reads the claims of pods.
	Liqo versioned.Interface
	Kube kubernetes.Interface
	// OwnNamespace is the namespace that liqod runs in: its pods are left alone.
	OwnNamespace string
}

// Decide changes the creation of a pod as its namespace's offloading says. In an update of a
// pod it keeps the toleration that the creation has added, also where the namespace is offloaded
// in another way by now.
func (r PodRule) Decide(ctx context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
	pod, old, answer := serve.Objects[corev1.Pod](req)
	switch {
	case req.Namespace == r.OwnNamespace:
		return serve.Allow()
	case answer != nil:
		return *answer
	case old != nil:
		return changed(pod, rules.KeepToleration(old, pod))
	default:
		return r.create(ctx, req.Namespace, pod)
	}
}

func (r PodRule) create(ctx context.Context, namespace string, pod *corev1.Pod) serve.Decision {
	offloading, err := r.offloading(ctx, namespace)
	annotations, unread := r.annotations(ctx, namespace)
	if err := errors.Join(err, unread); err != nil {
		return serve.Decision{Message: err.Error(), Code: http.StatusServiceUnavailable}
	}
	spec := offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocal}
	if offloading != nil {
		spec = offloading.Spec
	}
	want, err := r.placed(ctx, namespace, pod, &spec)
	switch {
	case errors.As(err, &unreadable{}):
		return serve.Decision{Message: err.Error(), Code: http.StatusServiceUnavailable}
	case errors.As(err, &moving{}):
		return serve.Decision{Message: fmt.Sprintf("namespace %s: %v", namespace, err), Cause: offloadingv1beta1.CauseMoving}
	case err != nil:
		return serve.Deny(fmt.Sprintf("namespace %s: %v", namespace, err))
	}
	keep, err := offloadingv1beta1.KeptOnProviderLoss(annotations)
	if err != nil {
		return serve.Deny(fmt.Sprintf("namespace %s: %v", namespace, err))
	}
	// A pod that may land on a node of this cluster gets it from the vkubelet, once it is on a
	// virtual node.
	if keep && spec.PodOffloadingStrategy == offloadingv1beta1.PodsRemote {
		want = rules.KeepOnLoss(want)
	}
	return changed(pod, want)
}

// changed accepts a pod as it is wanted.
func changed(have, want *corev1.Pod) serve.Decision {
	var patch []serve.Operation
	for _, o := range rules.OffloadPatch(have, want) {
		patch = append(patch, serve.Operation(o))
	}
	return serve.Allow(patch...)
}

// annotations returns those of a namespace, none if it is gone.
func (r PodRule) annotations(ctx context.Context, name string) (map[string]string, error) {
	ns, err := store.Known(r.Namespaces.Get(name)), error(nil)
	if ns == nil {
		ns, err = store.Live(ctx, "namespace", r.Kube.CoreV1().Namespaces(), name)
	}
	if err != nil || ns == nil {
		return nil, err
	}
	return ns.Annotations, nil
}

// offloading returns the NamespaceOffloading of a namespace, nil if there is none. The
// namespace's label says that there is one: its absence is confirmed by a live read.
func (r PodRule) offloading(ctx context.Context, namespace string) (*offloadingv1beta1.NamespaceOffloading, error) {
	o := store.Known(r.Offloadings.NamespaceOffloadings(namespace).Get(offloadingv1beta1.NamespaceOffloadingName))
	if o != nil {
		return o, nil
	}
	return store.Live(ctx, "namespace "+namespace+"'s NamespaceOffloading", r.Liqo.OffloadingV1beta1().NamespaceOffloadings(namespace), offloadingv1beta1.NamespaceOffloadingName)
}

// placed returns a new pod as the strategy says, on nodes that its claims allow. Under LocalAndRemote
// it is kept on own nodes if one of them has its volume there only: the scheduler takes a virtual node
// for one that any class serves. A pod that asks for virtual nodes itself keeps them. A pod is refused
// while the data of a claim moves: it would write to the volume that is given up. The pods of the move are
// not, and name their node.
func (r PodRule) placed(ctx context.Context, namespace string, pod *corev1.Pod, spec *offloadingv1beta1.NamespaceOffloadingSpec) (*corev1.Pod, error) {
	class, strategy := pod.Spec.RuntimeClassName, spec.PodOffloadingStrategy
	if class != nil && *class == offloadingv1beta1.RuntimeClassName {
		strategy = offloadingv1beta1.PodsRemote
	}
	claims, later, err := r.claims(ctx, namespace, pod)
	if err != nil {
		return nil, err
	}
	for _, claim := range claims {
		if to := claim.Annotations[offloadingv1beta1.MoveToAnnotation]; to != "" && !ofMove(pod, claim) {
			return nil, moving{fmt.Errorf("PersistentVolumeClaim %s is being moved to node %s (annotation %s): pods may use it when liqod storage move has ended",
				claim.Name, to, offloadingv1beta1.MoveToAnnotation)}
		}
	}
	if pod.Spec.NodeName != "" {
		return r.onNode(ctx, pod, strategy, &spec.ClusterSelector)
	}
	var need needs
	if strategy != offloadingv1beta1.PodsLocal {
		if need, err = r.needs(ctx, claims); err != nil {
			return nil, err
		}
	}
	if need.ownNode && strategy == offloadingv1beta1.PodsLocalAndRemote && !rules.AsksForVirtualNodes(pod) {
		return rules.KeepHome(pod)
	}
	out, err := rules.Offload(pod, strategy, spec.ClusterSelector)
	switch {
	case err != nil:
		return nil, err
	case need.storage:
		return rules.WithStorage(out, !r.NoOwnVolumes)
	case later && strategy != offloadingv1beta1.PodsLocal:
		return rules.WithStorage(out, true) // its class is not known; no class has a volume on those nodes
	}
	return out, nil
}

// ofMove reports whether a pod is one of the move of a claim's data: it is owned by the Secret with its
// key. Whoever may make such a pod in the namespace may also write the annotation of the claim.
func ofMove(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return pod.Labels[offloadingv1beta1.MoveLabel] == string(claim.UID) &&
		slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Secret" && o.Name == pod.Name })
}

// onNode judges a pod that names its node.
func (r PodRule) onNode(ctx context.Context, pod *corev1.Pod, strategy offloadingv1beta1.PodOffloadingStrategy, selector *corev1.NodeSelector) (*corev1.Pod, error) {
	node, err := store.OrNil(r.Kube.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{}))
	if err != nil {
		return nil, unreadable{fmt.Errorf("reading node %s: %w", pod.Spec.NodeName, err)}
	}
	if node == nil {
		return pod, nil
	}
	return rules.OnNode(pod, node, strategy, selector)
}

// needs are what the claims of a pod require of its node.
type needs struct {
	// ownNode says that a claim has its volume on own nodes only, storage that a volume is made for
	// a claim where the pod is.
	ownNode, storage bool
}

// claims returns the claims of a pod that exist, and those that Kubernetes makes for it. later says that
// others do not exist yet; the StatefulSet controller creates those of a pod before the pod. Claims are
// read live: a cache may lack one that has just been created.
func (r PodRule) claims(ctx context.Context, namespace string, pod *corev1.Pod) (out []*corev1.PersistentVolumeClaim, later bool, err error) {
	for i := range pod.Spec.Volumes {
		claim, err := r.claimOf(ctx, namespace, &pod.Spec.Volumes[i])
		if err != nil {
			return nil, false, err
		}
		if claim != nil {
			out = append(out, claim)
		}
		later = later || claim == nil && pod.Spec.Volumes[i].PersistentVolumeClaim != nil
	}
	return out, later, nil
}

// needs returns what the claims of a pod require.
func (r PodRule) needs(ctx context.Context, claims []*corev1.PersistentVolumeClaim) (out needs, _ error) {
	for _, claim := range claims {
		if !r.ClassesSynced() {
			return out, unreadable{errors.New("the cache of StorageClasses is not filled yet")}
		}
		classes := store.Listed(r.Classes.List(labels.Everything()))
		only, decided := rules.OnOwnNodesOnly(claim, nil, classes)
		if !decided {
			volume, err := r.Kube.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return out, unreadable{fmt.Errorf("reading the volume of PersistentVolumeClaim %s: %w", claim.Name, err)}
			}
			only, _ = rules.OnOwnNodesOnly(claim, volume, classes)
		}
		out.ownNode = out.ownNode || only
		out.storage = out.storage || rules.FollowsPod(claim, classes)
	}
	return out, nil
}

// claimOf returns the claim of a volume, or nil. The one of an ephemeral volume is created after the
// pod, from its template.
func (r PodRule) claimOf(ctx context.Context, namespace string, volume *corev1.Volume) (*corev1.PersistentVolumeClaim, error) {
	if e := volume.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
		return &corev1.PersistentVolumeClaim{ObjectMeta: e.VolumeClaimTemplate.ObjectMeta, Spec: e.VolumeClaimTemplate.Spec}, nil
	}
	if volume.PersistentVolumeClaim == nil {
		return nil, nil
	}
	claim, err := store.OrNil(r.Kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, volume.PersistentVolumeClaim.ClaimName, metav1.GetOptions{}))
	if err != nil {
		return nil, unreadable{fmt.Errorf("reading PersistentVolumeClaim %s: %w", volume.PersistentVolumeClaim.ClaimName, err)}
	}
	return claim, nil
}

// unreadable is the error of a read, after which a client may try again.
type unreadable struct{ error }

// moving is the error of a claim whose data moves.
type moving struct{ error }
