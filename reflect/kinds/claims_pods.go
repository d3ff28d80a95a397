package kinds

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
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

// withheld says why a pod may not use one of its claims: in the provider the name leads to
// the data of another claim. It is empty for a pod that may use all of them. It may be asked
// of nil.
func (c *Claims) withheld(ctx context.Context, pod *corev1.Pod, remote string) (string, error) {
	if c == nil {
		return "", nil
	}
	for _, name := range claimsOf(pod) {
		if c.known(pod.Namespace, remote, name) {
			continue
		}
		there, err := c.cfg.Remote.CoreV1().PersistentVolumeClaims(remote).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && (!c.reflected(there) || localClaimUID(there) == "")) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("looking for the data of other claims in the provider: %w", err)
		}
		here, err := c.cfg.Home.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("reading a claim of the pod: %w", err)
		}
		if err == nil && hasDataOf(here, there) {
			continue
		}
		return fmt.Sprintf("PersistentVolumeClaim %s/%s of cluster %s has the data of another claim (UID %s) than PersistentVolumeClaim %s/%s here: use a claim of another name; or annotate this one with %s=true to use that data; or, if nobody needs the data, delete that one there",
			remote, name, c.cfg.Destination, localClaimUID(there), pod.Namespace, name, offloadingv1beta1.AdoptRemoteVolumeAnnotation), nil
	}
	return "", nil
}

// known tells whether the caches show, of both clusters, that the provider has under a name
// no data, or the claim's own. They may be behind when they show anything else.
func (c *Claims) known(namespace, remote, name string) bool {
	tw := c.twin(namespace)
	if tw == nil || tw.remote != remote || !tw.synced() {
		return false
	}
	there, err := tw.there.Get(name)
	if err != nil {
		return true // a lister's only error is that there is none
	}
	here, err := tw.home.Get(name)
	return err == nil && hasDataOf(here, there)
}

// hasDataOf tells whether a claim here may have what is in one of the provider: that was
// made for it, or is what its volume stands for, as where a volume that was released has
// been given on, or its owner wants it.
func hasDataOf(here, there *corev1.PersistentVolumeClaim) bool {
	of := types.UID(localClaimUID(there))
	return here.UID == of || adopts(here) ||
		here.Status.Phase == corev1.ClaimBound && here.Spec.VolumeName == forge.VolumeNameFor(of)
}

// claimsOf names the claims that a pod uses.
func claimsOf(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, forge.EphemeralClaim(pod, v.Name))
		}
	}
	return out
}
