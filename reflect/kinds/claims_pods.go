package kinds

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/reflect/forge"
)

// ephemeral names those ephemeral volumes of a pod whose claims are provisioned here: the
// provider has them already, and would make none of its own. It may be asked of nil.
func (c *Claims) ephemeral(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	if c == nil {
		return nil, nil
	}
	var out []string
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil {
			continue
		}
		claim, err := c.claimFor(ctx, pod, forge.EphemeralClaim(pod, v.Name))
		if err != nil {
			return nil, err
		}
		if claim != nil && isVirtual(claim) && (claim.Spec.VolumeName == "" || claim.Spec.VolumeName == forge.VolumeName(claim)) {
			out = append(out, v.Name)
		}
	}
	return out, nil
}

// claimFor returns the claim that was made for a pod, nil if there is none. What the cache
// has is enough when it is bound: a pod may be seen before what its claim has become.
func (c *Claims) claimFor(ctx context.Context, pod *corev1.Pod, name string) (*corev1.PersistentVolumeClaim, error) {
	if tw := c.twin(pod.Namespace); tw != nil {
		if claim, err := tw.home.Get(name); err == nil && claim.Spec.VolumeName != "" && metav1.IsControlledBy(claim, pod) {
			return claim, nil
		}
	}
	claim, err := c.cfg.Home.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && !metav1.IsControlledBy(claim, pod)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the claim of an ephemeral volume: %w", err)
	}
	return claim, nil
}
