package namespace

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// ControllerRule is the webhook's rule for what role controller writes and what other objects decide
// about: the rights of vkubelets in a namespace, and volumes. It reads these objects from the API server.
//
// An admission policy with parameters (paramKind) could do the same. But an API server that is built
// with k8s.io/apiserver evaluates all policies with its own rights, and is not Ready until it has listed
// the parameters of each. Aggregated API servers may not list them.
type ControllerRule struct {
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// StorageNamespace has the claims whose volumes liqod gives to the claims of its classes.
	StorageNamespace string
}

// DecideBinding refuses a RoleBinding in a namespace without a NamespaceOffloading. An error says that
// the API server could not be asked.
func (r ControllerRule) DecideBinding(ctx context.Context, req *admissionv1.AdmissionRequest) (serve.Decision, error) {
	offloading, err := store.Live(ctx, "NamespaceOffloading", r.Liqo.OffloadingV1beta1().NamespaceOffloadings(req.Namespace), offloadingv1beta1.NamespaceOffloadingName)
	if err != nil || offloading == nil {
		return serve.Deny("a vkubelet gets rights only in a namespace with a NamespaceOffloading"), err
	}
	return serve.Allow(), nil
}

// DecideVolume refuses a PersistentVolume that is not of a class of liqod, or whose source is not that
// of the volume that a provisioner has made for the claim in StorageNamespace. An error says that the
// API server could not be asked.
func (r ControllerRule) DecideVolume(ctx context.Context, req *admissionv1.AdmissionRequest) (serve.Decision, error) {
	volume, _, answer := serve.Objects[corev1.PersistentVolume](req)
	if answer != nil {
		return *answer, nil
	}
	name := volume.Labels[offloadingv1beta1.LocalClaimUIDLabel]
	if name == "" || volume.Spec.StorageClassName == "" {
		return serve.Deny("liqod may make only volumes with a class, and with the label " + offloadingv1beta1.LocalClaimUIDLabel), nil
	}
	class, err := store.Live(ctx, "StorageClass", r.Kube.StorageV1().StorageClasses(), volume.Spec.StorageClassName)
	if err != nil || class == nil || class.Provisioner != offloadingv1beta1.StorageProvisioner {
		return serve.Deny("liqod may make only volumes of classes whose provisioner is " + offloadingv1beta1.StorageProvisioner), err
	}
	made, err := r.made(ctx, name)
	if err != nil || made == nil || !equality.Semantic.DeepEqual(made.Spec.PersistentVolumeSource, volume.Spec.PersistentVolumeSource) {
		return serve.Deny(fmt.Sprintf("liqod may give a claim only the data of the volume that a provisioner has made for PersistentVolumeClaim %s/%s", r.StorageNamespace, name)), err
	}
	return serve.Allow(), nil
}

// made returns the volume that a provisioner has made for the claim of StorageNamespace, or nil. A
// volume of liqod's own is none: its source would vouch for itself.
func (r ControllerRule) made(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	claim, err := store.Live(ctx, "PersistentVolumeClaim", r.Kube.CoreV1().PersistentVolumeClaims(r.StorageNamespace), name)
	if err != nil || claim == nil || claim.Spec.VolumeName == "" {
		return nil, err
	}
	volume, err := store.Live(ctx, "PersistentVolume", r.Kube.CoreV1().PersistentVolumes(), claim.Spec.VolumeName)
	if err != nil || volume == nil || rules.OwnVolume(volume) || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return nil, err
	}
	return volume, nil
}
