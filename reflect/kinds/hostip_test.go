package kinds

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestAMovedVkubeletChangesHostIPs requires that a background pass writes the new
// address, because no other change of the pods does.
func TestAMovedVkubeletChangesHostIPs(t *testing.T) {
	s := newSite()
	s.offload("shop")
	elsewhere := func(p *corev1.Pod) {
		running(p)
		p.Status.HostIP, p.Status.HostIPs = "10.9.9.9", []corev1.HostIP{{IP: "10.9.9.9"}}
	}
	s.add(s.home.Tracker(), localPod(elsewhere))
	s.there(localPod(), true, running)
	s.start(t)
	eventually(t, func() bool { return s.local(t).Status.HostIP == "10.0.0.7" }, "the new address is written")
	require.Equal(t, []corev1.HostIP{{IP: "10.0.0.7"}}, s.local(t).Status.HostIPs)
}
