package namespace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// TestTheLaterIngressIsMarked: of two Ingresses with one host that both got past the webhook, the
// later one has an event, if it is a peer's.
func TestTheLaterIngressIsMarked(t *testing.T) {
	type made struct {
		name, peer string
		ago        time.Duration
	}
	for name, tc := range map[string]struct {
		both   [2]made
		marked string // by its host
	}{
		"two peers":                      {[2]made{{"b", "rome", 2 * time.Second}, {"a", "paris", time.Second}}, "*.example.com"},
		"two peers in one second":        {[2]made{{"b", "rome", 0}, {"a", "paris", 0}}, "b.example.com"},
		"a peer after one's own":         {[2]made{{"b", "", 2 * time.Second}, {"a", "paris", time.Second}}, "*.example.com"},
		"a peer with one's own":          {[2]made{{"a", "paris", 0}, {"b", "", 0}}, "*.example.com"},
		"one's own after that of a peer": {[2]made{{"a", "paris", 2 * time.Second}, {"b", "", time.Second}}, ""},
		"one peer":                       {[2]made{{"a", "rome", 2 * time.Second}, {"b", "rome", time.Second}}, ""},
		"long ago":                       {[2]made{{"b", "rome", 3 * time.Hour}, {"a", "paris", 2 * time.Hour}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				var objects []runtime.Object
				for _, m := range tc.both {
					ing := &networkingv1.Ingress{
						ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: m.name, UID: types.UID(m.name), CreationTimestamp: metav1.NewTime(time.Now().Add(-m.ago))},
						Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: map[string]string{"a": "*.example.com", "b": "b.example.com"}[m.name]}}},
					}
					if m.peer != "" {
						ing.Labels = map[string]string{offloadingv1beta1.OriginLabel: m.peer}
					}
					objects = append(objects, ing)
				}
				core, recorder := fake.NewClientset(objects...), record.NewFakeRecorder(10)
				kubetest.WatchFromList(core)
				factory := informers.NewSharedInformerFactory(core, 0)
				hosts := NewHosts(HostsConfig{Ingresses: factory.Networking().V1().Ingresses(), Recorder: recorder, Env: loop.Env{Clock: clock.RealClock{}, Log: zaptest.NewLogger(t)}})
				factory.Start(t.Context().Done())
				go func() { _ = hosts.Run(t.Context(), 1) }()
				kubetest.Settled(time.Second)
				if tc.marked == "" {
					require.Empty(t, recorder.Events)
					return
				}
				require.Len(t, recorder.Events, 1)
				require.Contains(t, <-recorder.Events, "Warning HostTaken host "+tc.marked+" is used by another Ingress of this cluster")
			})
		})
	}
}
