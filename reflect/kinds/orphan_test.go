package kinds

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
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

func TestWhatHasNoLocalPodIsWithdrawnThoughItWasKnownFirst(t *testing.T) {
	s := newSite()
	s.offload("shop")
	s.there(localPod(), true, running)
	known := make(chan struct{})
	s.home.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-known
		return false, nil, nil
	})
	s.start(t)
	eventually(t, func() bool {
		tw := s.pods.twins.Get("shop")
		return tw != nil && tw.synced()
	}, "the provider is known before the consumer")
	require.Never(t, func() bool { return s.shadow(t) == nil }, 100*time.Millisecond, 10*time.Millisecond)
	close(known)
	eventually(t, func() bool { return s.shadow(t) == nil }, "what belongs to no local pod is withdrawn")
}
