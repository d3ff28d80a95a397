package kinds

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

func (s *site) editMap(t *testing.T, edit func(*offloadingv1beta1.NamespaceMap)) {
	t.Helper()
	maps := s.homeLiqod.OffloadingV1beta1().NamespaceMaps(tenant)
	m := kubetest.Get(t, maps, "milan")
	edit(m)
	kubetest.Update(t, maps, m)
}

// TestWithdrawnWhileTheTwinIsClosed unmaps a namespace whose twin is not open. Only the
// change of the NamespaceMap can enqueue its pods.
func TestWithdrawnWhileTheTwinIsClosed(t *testing.T) {
	s := shopSite(localPod(running))
	s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) {
		m.Status.CurrentMapping["shop"] = inPhase(offloadingv1beta1.MappingCreationLoopBackOff)
	})
	s.start(t)
	require.Never(t, func() bool { return ended(s.local(t)) }, 200*time.Millisecond, 10*time.Millisecond)
	s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) { delete(m.Spec.DesiredMapping, "shop") })
	eventually(t, func() bool { return s.local(t).Status.Reason == "OffloadingAborted" }, "the pod ends when the user withdraws the namespace")
}

// TestDeletedWhileTheTwinIsClosed deletes a pod in a namespace whose twin is not open. It
// must wait if its status came from the provider.
func TestDeletedWhileTheTwinIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		pod   func(*corev1.Pod)
		waits bool
	}{
		"never sent":             {pod: func(*corev1.Pod) {}},
		"its image is pulled":    {pod: func(p *corev1.Pod) { p.Status.HostIP = "10.0.0.7" }, waits: true},
		"it runs":                {pod: running, waits: true},
		"its last word was said": {pod: func(p *corev1.Pod) { running(p); p.Status.Phase = corev1.PodFailed }},
	} {
		t.Run(name, func(t *testing.T) {
			s := shopSite(localPod(c.pod, deleting))
			s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) {
				m.Status.CurrentMapping["shop"] = inPhase(offloadingv1beta1.MappingCreationLoopBackOff)
			})
			s.start(t)
			released := func() bool { return contains(writes(s.home.Actions()), "delete pods") }
			if c.waits {
				require.Never(t, released, 300*time.Millisecond, 10*time.Millisecond)
				return
			}
			eventually(t, released, "it is released")
		})
	}
}

func TestALaterReasonOfTheProviderIsShown(t *testing.T) {
	s := newSite()
	s.offload("other")
	s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) { m.Spec.DesiredMapping["shop"] = "shop-rome" })
	s.add(s.home.Tracker(), localPod())
	s.start(t)
	eventually(t, func() bool { return s.local(t).Status.Reason == offloadingv1beta1.ReasonOffloadingBackOff }, "the pod waits")
	s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) {
		m.Status.CurrentMapping["shop"] = offloadingv1beta1.RemoteNamespaceStatus{Phase: offloadingv1beta1.MappingCreationLoopBackOff, Message: "the name is taken"}
	})
	eventually(t, func() bool { return strings.Contains(s.local(t).Status.Message, "the name is taken") }, "the reason reaches the pod")
}
