package site

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

func defaultResources() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1000Gi"),
		corev1.ResourcePods: resource.MustParse("1000"),
	}
}

// Offload makes a namespace with the given offloading and waits until it is Ready.
func (s *Site) Offload(ctx context.Context, namespace string, spec offloadingv1beta1.NamespaceOffloadingSpec) error {
	_, err := s.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", namespace, err)
	}
	o := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloadingv1beta1.NamespaceOffloadingName}, Spec: spec,
	}
	if _, err := s.Liqod().OffloadingV1beta1().NamespaceOffloadings(namespace).Create(ctx, o, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("offloading namespace %s: %w", namespace, err)
	}
	return s.WaitOffloaded(ctx, namespace, offloadingv1beta1.PhaseReady)
}

// WaitOffloaded waits until the offloading of a namespace is in a phase.
func (s *Site) WaitOffloaded(ctx context.Context, namespace string, phase offloadingv1beta1.OffloadingPhase) error {
	return lab.Eventually(ctx, func(ctx context.Context) error {
		o, err := s.Liqod().OffloadingV1beta1().NamespaceOffloadings(namespace).Get(ctx, offloadingv1beta1.NamespaceOffloadingName, metav1.GetOptions{})
		return lab.Wrong(err, o.Status.OffloadingPhase != phase, "namespace %s is %q, not %q: %+v", namespace, o.Status.OffloadingPhase, phase, o.Status.Conditions)
	})
}

// WaitVirtualNode waits until the Ready condition of a virtual node has a status.
func (s *Site) WaitVirtualNode(ctx context.Context, name string, want corev1.ConditionStatus) error {
	return lab.Eventually(ctx, lab.That(s.Client().CoreV1().Nodes(), name, func(n *corev1.Node) error {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("node %s is not Ready=%s: %+v", name, want, n.Status.Conditions)
	}))
}
