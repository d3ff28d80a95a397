package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/loop"
)

// handlers is an informer that only has a handler.
type handlers struct {
	cache.SharedIndexInformer
	cache.ResourceEventHandler
}

func (h *handlers) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	h.ResourceEventHandler = handler
	return nil, nil
}

func TestChanges(t *testing.T) {
	t.Parallel()
	node := func(cidr string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{PodCIDR: cidr}}
	}
	var got []string
	take := func(n *corev1.Node) { got = append(got, n.Spec.PodCIDR) }
	h := &handlers{}
	_, err := Changes(h, func(a, b *corev1.Node) bool { return a.Spec.PodCIDR == b.Spec.PodCIDR }, take).Add()
	require.NoError(t, err)
	h.OnAdd(node("a"), true)
	h.OnUpdate(node("a"), node("a"))
	h.OnUpdate(node("a"), node("b"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: node("c")})
	h.OnDelete("no node")
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "without its object"})
	require.Equal(t, []string{"a", "b", "c"}, got)

	_, err = Changes(h, nil, take).Add()
	require.NoError(t, err)
	h.OnUpdate(node("d"), node("d"))
	require.Equal(t, []string{"a", "b", "c", "d"}, got)
}

func TestRegisterWithAStoppedInformer(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	close(stop)
	nodes := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Nodes().Informer()
	nodes.Run(stop)
	synced, err := loop.Register(AnyChange[*corev1.Node](nodes, nil, func() {}))
	require.ErrorContains(t, err, "adding an event handler: ")
	require.False(t, synced())
}
