package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/site"
)

const (
	diskProvisioner = "demo.liqod.io/disk"
	// diskInterval is how often the demo looks for claims.
	diskInterval = time.Second

	provisionedBy = "pv.kubernetes.io/provisioned-by"
	selectedNode  = "volume.kubernetes.io/selected-node"

	diskClass = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: disk
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: ` + diskProvisioner + `
volumeBindingMode: WaitForFirstConsumer
`
)

// provide makes the volumes of class disk in a cluster until ctx ends: folders of the node
// that the first pod of a claim is scheduled to. They go with the lab.
func (d *demo) provide(ctx context.Context, s *site.Site) {
	ticks := time.NewTicker(diskInterval)
	defer ticks.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			err := errors.Join(d.makeVolumes(ctx, s), d.removeVolumes(ctx, s))
			if err != nil && ctx.Err() == nil && err.Error() != told {
				told = err.Error()
				d.console.bad("volumes in %s: %v", s.Name, err)
			}
		}
	}
}

func (d *demo) makeVolumes(ctx context.Context, s *site.Site) error {
	claims, err := s.Client().CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the claims: %w", err)
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		// A virtual node has no disks: its provider makes the volumes, of class liqo.
		if !waitsForDisk(claim) || d.full.Node(s.Cluster, claim.Annotations[selectedNode]) == nil {
			continue
		}
		folder := d.volumeFolder(s, claim.UID)
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return fmt.Errorf("making a volume: %w", err)
		}
		_, err := s.Client().CoreV1().PersistentVolumes().Create(ctx, volume(claim, folder), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the volume of claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	return nil
}

// waitsForDisk says whether a claim of class disk has no volume, and its first pod a node.
func waitsForDisk(claim *corev1.PersistentVolumeClaim) bool {
	return ptr.Deref(claim.Spec.StorageClassName, "") == "disk" && claim.Spec.VolumeName == "" && claim.Annotations[selectedNode] != ""
}

func (d *demo) volumeFolder(s *site.Site, claim types.UID) string {
	return filepath.Join(d.lab.Dir(), "volumes", s.Name, string(claim))
}

// volume is the one of a claim, in a folder of the node that is selected for it.
func volume(claim *corev1.PersistentVolumeClaim, folder string) *corev1.PersistentVolume {
	node := corev1.NodeSelectorRequirement{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{claim.Annotations[selectedNode]},
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "disk-" + string(claim.UID), Annotations: map[string]string{provisionedBy: diskProvisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: "disk",
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{node}}},
			}},
		},
	}
}

// removeVolumes removes the volumes whose claims are gone.
func (d *demo) removeVolumes(ctx context.Context, s *site.Site) error {
	volumes, err := s.Client().CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the volumes: %w", err)
	}
	for _, v := range volumes.Items {
		if v.Annotations[provisionedBy] != diskProvisioner || v.Status.Phase != corev1.VolumeReleased {
			continue
		}
		if err := os.RemoveAll(d.volumeFolder(s, v.Spec.ClaimRef.UID)); err != nil {
			return fmt.Errorf("removing volume %s: %w", v.Name, err)
		}
		own := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.UID))}
		if err := s.Client().CoreV1().PersistentVolumes().Delete(ctx, v.Name, own); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting volume %s: %w", v.Name, err)
		}
	}
	return nil
}
