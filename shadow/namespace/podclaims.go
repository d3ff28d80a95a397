package namespace

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/shadow/rules"
)

// placed returns a new pod as the strategy says. Under LocalAndRemote it is kept on own nodes if one
// of its claims has its volume there only: the scheduler takes a virtual node for one that any class
// serves. A pod that asks for virtual nodes itself keeps them.
func (r PodRule) placed(ctx context.Context, namespace string, pod *corev1.Pod, spec *offloadingv1beta1.NamespaceOffloadingSpec) (*corev1.Pod, error) {
	class := pod.Spec.RuntimeClassName
	if spec.PodOffloadingStrategy == offloadingv1beta1.PodsLocalAndRemote && (class == nil || *class != offloadingv1beta1.RuntimeClassName) && !rules.AsksForVirtualNodes(pod) {
		own, err := r.needsOwnNode(ctx, namespace, pod)
		if err != nil {
			return nil, err
		}
		if own {
			return rules.KeepHome(pod)
		}
	}
	return rules.Offload(pod, spec.PodOffloadingStrategy, spec.ClusterSelector)
}

// needsOwnNode reports whether a claim of a pod has its volume on own nodes only. A claim that does
// not exist yet says nothing; the StatefulSet controller creates those of a pod before the pod.
// Claims are read live: a cache may lack one that has just been created.
func (r PodRule) needsOwnNode(ctx context.Context, namespace string, pod *corev1.Pod) (bool, error) {
	for i := range pod.Spec.Volumes {
		claim, err := r.claimOf(ctx, namespace, &pod.Spec.Volumes[i])
		if err != nil {
			return false, err
		}
		if claim == nil {
			continue
		}
		if !r.ClassesSynced() {
			return false, unreadable{errors.New("the cache of StorageClasses is not filled yet")}
		}
		classes, err := r.Classes.List(labels.Everything())
		if err != nil {
			return false, unreadable{fmt.Errorf("listing StorageClasses: %w", err)}
		}
		only, decided := rules.OnOwnNodesOnly(claim, nil, classes)
		if !decided {
			volume, err := r.Kube.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return false, unreadable{fmt.Errorf("reading the volume of PersistentVolumeClaim %s: %w", claim.Name, err)}
			}
			only, _ = rules.OnOwnNodesOnly(claim, volume, classes)
		}
		if only {
			return true, nil
		}
	}
	return false, nil
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
	claim, err := r.Kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, volume.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable{fmt.Errorf("reading PersistentVolumeClaim %s: %w", volume.PersistentVolumeClaim.ClaimName, err)}
	}
	return claim, nil
}

// unreadable is the error of a read, after which a client may try again.
type unreadable struct{ error }
