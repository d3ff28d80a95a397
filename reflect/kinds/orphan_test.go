package kinds

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatHasNoLocalPodIsWithdrawnWhenTheGateOpens(t *testing.T) {
	s := newSite()
	s.gate = errors.New("another cluster answers there")
	s.offload("shop")
	s.there(localPod(), true, running)
	s.start(t)
	s.idle(t, "shop")
	require.Never(t, func() bool { return s.shadow(t) == nil }, 200*time.Millisecond, 10*time.Millisecond)
	s.gate = nil
	s.pods.Resync()
	eventually(t, func() bool { return s.shadow(t) == nil }, "what belongs to no local pod is withdrawn")
}
