package kinds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// TestOutageIsOneWritePerPod: when the provider or the network to it is lost, each pod at
// home gets one write, and one when it is back; nothing is written to the provider.
func TestOutageIsOneWritePerPod(t *testing.T) {
	const pods = 80 // a watch of the fakes holds 100 events
	s := shopSite()
	for i := range pods {
		pod := localPod(running, uid(types.UID(fmt.Sprintf("local-%d", i))))
		pod.Name = fmt.Sprintf("web-%d", i)
		s.there(pod, true, running)
		pod.Status.HostIP, pod.Status.HostIPs = "10.0.0.7", []corev1.HostIP{{IP: "10.0.0.7"}}
		s.add(s.home.Tracker(), pod)
	}
	s.start(t)
	count := func(ready corev1.ConditionStatus) (n int) {
		list := kubetest.List(t, s.home.CoreV1().Pods("shop"))
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == ready {
					n++
				}
			}
		}
		return n
	}
	s.idle(t, "shop")
	require.Equal(t, pods, count(corev1.ConditionTrue))
	for _, step := range []struct {
		node, network, ready corev1.ConditionStatus
		written              int
	}{
		{corev1.ConditionFalse, corev1.ConditionFalse, corev1.ConditionFalse, pods},
		{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionTrue, pods},
		{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, pods},
		{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionTrue, pods},
		{corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionTrue, 0},
	} {
		s.home.ClearActions()
		s.remoteLiqod.ClearActions()
		s.remote.ClearActions()
		node := kubetest.Get(t, s.home.CoreV1().Nodes(), "milan")
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: step.node}, {Type: corev1.NodeNetworkUnavailable, Status: step.network}}
		kubetest.UpdateStatus(t, s.home.CoreV1().Nodes(), node)
		eventually(t, func() bool { return count(step.ready) == pods }, "all are as their node")
		s.pods.Resync() // as when the gate opens
		s.idle(t, "shop")
		require.Equal(t, step.written, patches(s.home.Actions()), "%+v", step)
		require.Empty(t, writes(s.remoteLiqod.Actions()))
		require.Empty(t, writes(s.remote.Actions()))
	}
}

func patches(actions []clienttesting.Action) (n int) {
	for _, a := range actions {
		if a.Matches("patch", "pods/status") {
			n++
		}
	}
	return n
}

// TestStatusPatchIsSmall: what is the same is not in the patch, and what differs is.
func TestStatusPatchIsSmall(t *testing.T) {
	for name, change := range map[string]func(*corev1.PodStatus){
		"unready":             func(s *corev1.PodStatus) { s.Conditions[0].Status = corev1.ConditionFalse },
		"a container changes": func(s *corev1.PodStatus) { s.ContainerStatuses[0].RestartCount++ },
		"one more": func(s *corev1.PodStatus) {
			s.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", Ready: true}}
		},
		"all are gone": func(s *corev1.PodStatus) { s.ContainerStatuses = nil },
		"nothing":      func(*corev1.PodStatus) {},
	} {
		t.Run(name, func(t *testing.T) {
			pod := localPod(running)
			pod.ResourceVersion = "7"
			before, want := pod.DeepCopy(), pod.DeepCopy()
			change(&want.Status)
			patch, err := statusPatch(pod, want.Status)
			require.NoError(t, err)
			require.Equal(t, before, pod, "the pod is changed")
			sameContainers := equality.Semantic.DeepEqual(pod.Status.ContainerStatuses, want.Status.ContainerStatuses)
			require.Equal(t, sameContainers, !strings.Contains(string(patch), `"containerStatuses"`), "%s", patch)
			raw, err := json.Marshal(pod)
			require.NoError(t, err)
			raw, err = strategicpatch.StrategicMergePatch(raw, patch, corev1.Pod{})
			require.NoError(t, err)
			got := &corev1.Pod{}
			require.NoError(t, json.Unmarshal(raw, got))
			require.True(t, equality.Semantic.DeepEqual(want.Status, got.Status), "%s", patch)
		})
	}
}

// TestOldPodsFirst: pods that started together are written together.
func TestOldPodsFirst(t *testing.T) {
	at := func(namespace, name string, second int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(int64(second), 0)}}
	}
	pods := []*corev1.Pod{at("shop", "c", 2), at("shop", "b", 2), at("bank", "z", 9), at("shop", "d", 1), at("bank", "y", 9)}
	slices.SortFunc(pods, earlier)
	var names []string
	for _, p := range pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	require.Equal(t, []string{"bank/y", "bank/z", "shop/d", "shop/b", "shop/c"}, names)
}

// TestLossesFollowTheNamespace: the annotation of the namespace acts on pods that exist, both
// ways, and on those that come.
func TestLossesFollowTheNamespace(t *testing.T) {
	const keep, evict = offloadingv1beta1.OnProviderLossKeep, offloadingv1beta1.OnProviderLossEvict
	seconds := int64(300)
	usual := offloadingv1beta1.LossTolerations()
	for i := range usual {
		usual[i].TolerationSeconds = &seconds
	}
	pod := func(namespace, name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1"},
			Spec: corev1.PodSpec{NodeName: "milan", Tolerations: usual}}
	}
	done := pod("shop", "done")
	done.Status.Phase = corev1.PodSucceeded
	home := fake.NewClientset(pod("shop", "web"), done, pod("other", "web"),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	factory := informers.NewSharedInformerFactory(home, 0)
	losses := NewLosses(LossesConfig{Home: home, Pods: factory.Core().V1().Pods(), Namespaces: factory.Core().V1().Namespaces(), Env: loop.Env{Log: zap.NewNop()}})
	factory.Start(t.Context().Done())
	kubetest.Run(t, losses.Run)
	get := func(namespace, name string) *corev1.Pod {
		return kubetest.Get(t, home.CoreV1().Pods(namespace), name)
	}
	annotate := func(value string) {
		kubetest.Update(t, home.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "shop", Annotations: map[string]string{offloadingv1beta1.OnProviderLossAnnotation: value}}})
	}
	marked := func(name, value string) {
		t.Helper()
		require.Eventually(t, func() bool { return get("shop", name).Annotations[offloadingv1beta1.OnProviderLossAnnotation] == value },
			time.Minute, 5*time.Millisecond, "pod %s is marked %q", name, value)
	}

	annotate(keep)
	marked("web", keep)
	kept := append(offloadingv1beta1.LossTolerations(), usual...)
	require.Equal(t, kept, get("shop", "web").Spec.Tolerations)
	kubetest.Create(t, home.CoreV1().Pods("shop"), pod("shop", "late"))
	marked("late", keep)

	annotate("hold") // not accepted: nothing changes
	annotate(evict)
	marked("web", evict)
	marked("late", evict)
	require.Equal(t, append(usual, usual...), get("shop", "web").Spec.Tolerations)
	annotate(keep)
	marked("web", keep)
	require.Equal(t, kept, get("shop", "web").Spec.Tolerations)
	require.Equal(t, usual, get("shop", "done").Spec.Tolerations, "a pod that has ended")
	require.Equal(t, usual, get("other", "web").Spec.Tolerations, "a pod of another namespace")
}
