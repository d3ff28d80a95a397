package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/liqod/liqod/kube/loop"
)

// TestARefusalIsToldInFewWords covers a provider that answers with a very long error
// message.
func TestARefusalIsToldInFewWords(t *testing.T) {
	r := newRig()
	r.remote.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "app", errors.New(strings.Repeat("no ", 1<<20)))
	})
	r.offload(t, "shop")
	r.createHome(t, local("app"))
	r.start(t)
	require.Less(t, len(<-r.events.Events), 2000)
	k := r.engine.reflectors[0].(*kindLoop[*corev1.ConfigMap, *corev1.ConfigMap])
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Less(t, len(k.told[loop.Key{Namespace: "shop", Name: "app"}].text), 2000, "nor is more remembered")
}
