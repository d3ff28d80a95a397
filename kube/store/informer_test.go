package store

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/loop"
)

func configMap(name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version, UID: types.UID(name)}}
}

// heard are what a handler was told.
type heard struct{ all []string }

func (h *heard) take() []string {
	all := h.all
	h.all = nil
	return all
}

func (h *heard) handler() cache.ResourceEventHandler {
	text := func(obj any) string {
		cm := obj.(*corev1.ConfigMap)
		return cm.Name + "@" + cm.ResourceVersion
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { h.all = append(h.all, fmt.Sprintf("add %s %t", text(obj), initial)) },
		UpdateFunc: func(before, after any) { h.all = append(h.all, "update "+text(before)+" "+text(after)) },
		DeleteFunc: func(obj any) {
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				h.all = append(h.all, "missed "+text(d.Obj))
				return
			}
			h.all = append(h.all, "delete "+text(obj))
		},
	}
}

func newInformer(c kubernetes.Interface) *Informer {
	return NewInformer(c, c.CoreV1().ConfigMaps("shop"), &corev1.ConfigMap{}, nil)
}

func TestFeed(t *testing.T) {
	i := newInformer(fake.NewClientset())
	var h heard
	reg, err := i.AddEventHandler(h.handler())
	require.NoError(t, err)
	f := feed{i}
	require.False(t, i.HasSynced() || reg.HasSynced())
	require.NoError(t, f.Replace([]any{configMap("a", "1"), configMap("b", "2")}, "2"))
	require.Equal(t, []string{"add a@1 true", "add b@2 true"}, h.take())
	require.True(t, i.HasSynced() && reg.HasSynced())

	require.NoError(t, f.Add(configMap("c", "3")))
	require.NoError(t, f.Update(configMap("a", "4")))
	require.NoError(t, f.Delete(configMap("b", "5")))
	require.Equal(t, []string{"add c@3 false", "update a@1 a@4", "delete b@5"}, h.take())
	require.ElementsMatch(t, []string{"shop/a", "shop/c"}, i.GetStore().ListKeys())
	inShop, err := i.GetIndexer().ByIndex(cache.NamespaceIndex, "shop")
	require.NoError(t, err)
	require.Len(t, inShop, 2)

	// A list after a watch that broke.
	require.NoError(t, f.Replace([]any{configMap("a", "4"), configMap("d", "6")}, "6"))
	require.Equal(t, []string{"add d@6 false", "missed c@3"}, h.take())
	require.NoError(t, f.Replace([]any{configMap("a", "7"), configMap("d", "6")}, "7"))
	require.Equal(t, []string{"update a@4 a@7"}, h.take())
}

func TestTransform(t *testing.T) {
	i := newInformer(fake.NewClientset())
	var h heard
	_, err := i.AddEventHandler(h.handler())
	require.NoError(t, err)
	errNo := errors.New("no")
	i.Transform = func(obj any) (any, error) {
		cm := obj.(*corev1.ConfigMap)
		if cm.Name == "bad" {
			return nil, errNo
		}
		cm.Data = nil
		return cm, nil
	}
	cm := configMap("a", "1")
	cm.Data = map[string]string{"large": "1"}
	require.NoError(t, feed{i}.Add(cm))
	require.Equal(t, []string{"add a@1 true"}, h.take())
	got, _, err := i.GetStore().GetByKey("shop/a")
	require.NoError(t, err)
	require.Empty(t, got.(*corev1.ConfigMap).Data)
	require.ErrorIs(t, feed{i}.Add(configMap("bad", "2")), errNo)
	require.Empty(t, h.take())
}

// TestRun lists and watches one namespace.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(configMap("a", "1"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "b"}})
		i := newInformer(client)
		var h heard
		reg, err := i.AddEventHandler(h.handler())
		require.NoError(t, err)
		stop := loop.Start(t.Context(), i.RunWithContext)
		require.True(t, cache.WaitForCacheSync(t.Context().Done(), reg.HasSynced))
		_, err = i.AddEventHandler(h.handler())
		require.ErrorContains(t, err, "the informer is running already")

		_, err = client.CoreV1().ConfigMaps("shop").Create(t.Context(), configMap("c", "2"), metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.ElementsMatch(t, []string{"shop/a", "shop/c"}, i.GetStore().ListKeys())
		require.NoError(t, client.CoreV1().ConfigMaps("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		synctest.Wait()
		require.Equal(t, []string{"add a@1 true", "add c@2 false", "delete a@1"}, h.take())
		stop()
	})
}
