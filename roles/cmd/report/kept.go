package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// keptData adds a finding about data that is kept without a claim, if there is some. It is no fault.
func (c *checker) keptData() {
	if text := c.kept(); text != "" {
		c.add(idKept, OK, "kept data", text, "")
	}
}

// kept says how much data is kept without a claim, and is empty without such data.
func (s *Snapshot) kept() string {
	var of []string
	if n := s.keptVolumes(); n > 0 {
		of = append(of, Count(n, "volume")+" whose claim is gone")
	}
	if n := s.keptTwins(); n > 0 {
		of = append(of, Count(n, "namespace")+" that no peer offloads any more")
	}
	if len(of) == 0 {
		return ""
	}
	return fmt.Sprintf("of %s; %s storage list shows it, and how to get it back or delete it", strings.Join(of, " and "), s.Program)
}

// keptVolumes counts the PersistentVolumes of liqod whose claim is gone, but for those that will be deleted.
func (s *Snapshot) keptVolumes() (n int) {
	for i := range s.Volumes {
		v := &s.Volumes[i]
		stays := v.Annotations[offloadingv1beta1.DataKeptAnnotation] != "" || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete
		if v.Annotations[provisionedBy] == offloadingv1beta1.StorageProvisioner && v.Status.Phase == corev1.VolumeReleased && stays {
			n++
		}
	}
	return n
}

// keptTwins counts the namespaces that this cluster keeps for peers because of their volumes.
func (s *Snapshot) keptTwins() (n int) {
	for i := range s.Maps {
		if s.Maps[i].Labels[offloadingv1beta1.ReplicatedLabel] == "true" {
			n += len(keptIn(&s.Maps[i]))
		}
	}
	return n
}
