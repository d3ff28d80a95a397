package kinds

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

// ephemeral returns the names of the pod's ephemeral volumes whose claims are provisioned
// by liqod. The provider already has these claims and must not create claims of its own.
func (c *Claims) ephemeral(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	if c.cfg.Workers == 0 {
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

// claimFor returns the claim that Kubernetes created for an ephemeral volume of the pod,
// or nil. A bound claim is taken from the cache. Otherwise it is read live, because the
// cache of claims can lag behind that of pods.
func (c *Claims) claimFor(ctx context.Context, pod *corev1.Pod, name string) (*corev1.PersistentVolumeClaim, error) {
	if tw := c.twins.Get(pod.Namespace); tw != nil {
		if claim := tw.home.Cached(loop.Key{Namespace: tw.local, Name: name}); claim != nil && claim.Spec.VolumeName != "" && metav1.IsControlledBy(claim, pod) {
			return claim, nil
		}
	}
	claim, err := store.Live(ctx, "PersistentVolumeClaim", c.cfg.Home.CoreV1().PersistentVolumeClaims(pod.Namespace), name)
	if err != nil || claim == nil || !metav1.IsControlledBy(claim, pod) {
		return nil, err
	}
	return claim, nil
}

// withheld returns the reason why the pod must not use one of its claims: the claim of
// that name in the provider has the data of another claim. It returns "" if the pod may
// use all its claims.
func (c *Claims) withheld(ctx context.Context, pod *corev1.Pod, remote string) (string, error) {
	if c.cfg.Workers == 0 {
		return "", nil
	}
	for _, name := range claimsOf(pod) {
		if c.known(pod.Namespace, remote, name) {
			continue
		}
		there, err := store.Live(ctx, "the provider's PersistentVolumeClaim", c.cfg.Remote.CoreV1().PersistentVolumeClaims(remote), name)
		if err != nil {
			return "", err
		}
		if there == nil || !c.reflected(there) || localClaimUID(there) == "" {
			continue
		}
		here, err := store.Live(ctx, "PersistentVolumeClaim", c.cfg.Home.CoreV1().PersistentVolumeClaims(pod.Namespace), name)
		if err != nil {
			return "", err
		}
		if here != nil {
			adopts, err := c.adopts(ctx, here, there)
			if err != nil {
				return "", err
			}
			if adopts || hasDataOf(here, there) {
				continue
			}
		}
		return fmt.Sprintf("PersistentVolumeClaim %s/%s of cluster %s has the data of another claim (UID %s) than PersistentVolumeClaim %s/%s here: use a claim of another name; or annotate this one with %s=true to use that data; or, if nobody needs the data, delete that one there",
			remote, name, c.cfg.Destination, localClaimUID(there), pod.Namespace, name, offloadingv1beta1.AdoptRemoteVolumeAnnotation), nil
	}
	return "", nil
}

// known reports whether the caches of both clusters show that the provider has no data
// under this name, or the claim's own data. If it returns false, live reads must decide,
// because the caches can lag behind.
func (c *Claims) known(namespace, remote, name string) bool {
	tw := c.twins.Get(namespace)
	if tw == nil || tw.remote != remote || !tw.synced() {
		return false
	}
	there := tw.there.Cached(loop.Key{Namespace: remote, Name: name})
	if there == nil {
		return true
	}
	here := tw.home.Cached(loop.Key{Namespace: namespace, Name: name})
	return here != nil && hasDataOf(here, there)
}

// hasDataOf reports whether the local claim may use the data of the provider's claim.
// This is so if the data was created for it, or if it is bound to the volume of that data, for
// example to a released volume. Claims.adopts has the third case.
func hasDataOf(here, there *corev1.PersistentVolumeClaim) bool {
	of := types.UID(localClaimUID(there))
	return here.UID == of ||
		here.Status.Phase == corev1.ClaimBound && here.Spec.VolumeName == forge.VolumeNameFor(of)
}

// claimsOf returns the names of the claims that the pod uses.
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
