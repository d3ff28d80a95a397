package engine

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
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
	st := k.storesOf("shop")
	st.mu.Lock()
	defer st.mu.Unlock()
	require.Less(t, len(st.told["app"].text), 2000, "nor is more remembered")
}

// TestRefused: what the provider refuses is known as long as it refuses it, whether it refuses the object or a
// change of it. A part that it leaves out is no refusal.
func TestRefused(t *testing.T) {
	r := newRig()
	var refuses atomic.Bool
	refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuses.Load(), nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "app", errors.New("no"))
	}
	r.remote.PrependReactor("create", "configmaps", refuse)
	r.remote.PrependReactor("patch", "configmaps", refuse)
	r.admit = func(cm *corev1.ConfigMap) { delete(cm.Annotations, "example.com/odd") }
	refused := func() string { return offloadingv1beta1.RefusedText(r.engine.Refused()) }
	const app = `configmap shop/app: cluster milan refuses it: configmaps "app" is forbidden: no`

	refuses.Store(true)
	r.offload(t, "shop")
	r.createHome(t, local("app", annotated("example.com/odd")))
	r.start(t)
	eventually(t, func() bool { return refused() == app }, "the object is refused")
	refuses.Store(false)
	eventually(t, func() bool { return r.there(t, "app") != nil && refused() == "" }, "the object is there")
	refuses.Store(true)
	r.updateHome(t, local("app", func(cm *corev1.ConfigMap) { cm.Data["a"] = "2" }))
	eventually(t, func() bool { return refused() == app }, "a change is refused")
	r.deleteHome(t, "app")
	eventually(t, func() bool { return refused() == "" }, "the object is gone")
}
