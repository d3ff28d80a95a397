package kinds

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/kube/kubetest"
)

func TestPodsAreUnreadyWithTheirNodeWhileTheGateIsClosed(t *testing.T) {
	s := newSite()
	s.gate = errors.New("the provider is away")
	s.offload("shop")
	s.add(s.home.Tracker(), localPod(running))
	s.start(t)
	s.idle(t, "shop")
	node := kubetest.Get(t, s.home.CoreV1().Nodes(), "milan")
	node.Status.Conditions[0].Status = corev1.ConditionFalse
	kubetest.UpdateStatus(t, s.home.CoreV1().Nodes(), node)
	eventually(t, func() bool { return s.local(t).Status.Conditions[0].Status == corev1.ConditionFalse }, "it is not Ready")
	have := s.local(t).Status
	require.Equal(t, "NodeNotReady", have.Conditions[0].Reason)
	require.Equal(t, corev1.ConditionTrue, have.Conditions[1].Status, "its containers run on")
	require.Equal(t, corev1.PodRunning, have.Phase)
	require.Empty(t, writes(s.remoteLiqod.Actions()))
}
