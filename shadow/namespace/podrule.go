package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// pod it keeps the toleration that the creation has added.
func (r PodRule) Decide(ctx context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
	switch {
	case req.Namespace == r.OwnNamespace:
		return serve.Allow()
	case req.Operation == admissionv1.Create:
		return r.create(ctx, req)
	case req.Operation == admissionv1.Update && req.SubResource == "":
		return update(req)
	default:
		return serve.Allow()
	}
}

// update depends on the pod alone: the pod keeps its toleration also where the namespace is
// offloaded in another way by now.
func update(req *admissionv1.AdmissionRequest) serve.Decision {
	var old, pod corev1.Pod
	if err := json.Unmarshal(req.OldObject.Raw, &old); err != nil {
		return serve.Decision{Message: "reading the pod as it was: " + err.Error(), Code: http.StatusBadRequest}
	}
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return serve.Decision{Message: "reading the pod: " + err.Error(), Code: http.StatusBadRequest}
	}
	patch, err := operations(&pod, rules.KeepToleration(&old, &pod))
	if err != nil {
		return serve.Decision{Message: "comparing pods: " + err.Error(), Code: http.StatusInternalServerError}
	}
	return serve.Allow(patch...)
}

func (r PodRule) create(ctx context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return serve.Decision{Message: "reading the pod: " + err.Error(), Code: http.StatusBadRequest}
	}
	offloading, err := r.offloading(ctx, req.Namespace)
	if err != nil {
		return serve.Decision{Message: err.Error(), Code: http.StatusServiceUnavailable}
	}
	spec := offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocal}
	if offloading != nil {
		spec = offloading.Spec
	}
	want, err := r.placed(ctx, req.Namespace, &pod, &spec)
	if errors.As(err, &unreadable{}) {
		return serve.Decision{Message: err.Error(), Code: http.StatusServiceUnavailable}
	}
	if err != nil {
		return serve.Deny(fmt.Sprintf("namespace %s: %v", req.Namespace, err))
	}
	annotations, err := r.annotations(ctx, req.Namespace)
	if err != nil {
		return serve.Decision{Message: err.Error(), Code: http.StatusServiceUnavailable}
	}
	keep, err := offloadingv1beta1.KeptOnProviderLoss(annotations)
	if err != nil {
		return serve.Deny(fmt.Sprintf("namespace %s: %v", req.Namespace, err))
	}
	// A pod that may land on a node of this cluster gets it from the vkubelet, once it is on a
	// virtual node.
	if keep && spec.PodOffloadingStrategy == offloadingv1beta1.PodsRemote {
		want = rules.KeepOnLoss(want)
	}
	patch, err := operations(&pod, want)
	if err != nil {
		return serve.Decision{Message: "comparing pods: " + err.Error(), Code: http.StatusInternalServerError}
	}
	return serve.Allow(patch...)
}

func operations(have, want *corev1.Pod) ([]serve.Operation, error) {
	patch, err := rules.OffloadPatch(have, want)
	if err != nil || len(patch) == 0 {
		return nil, err
	}
	var steps []serve.Operation
	return steps, json.Unmarshal(patch, &steps)
}

// annotations returns those of a namespace, none if it is gone.
func (r PodRule) annotations(ctx context.Context, name string) (map[string]string, error) {
	ns, err := r.Namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		ns, err = r.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", name, err)
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
