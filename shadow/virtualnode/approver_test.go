package virtualnode

import (
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	liqofake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

func vkubeletPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.Namespace, Name: "vk-milan-x", Labels: ownLabels(virtualNode())},
		Spec:       corev1.PodSpec{ServiceAccountName: "vk-milan"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func newApproverRig(t *testing.T, vns []runtime.Object, kube ...runtime.Object) (*Approver, *fake.Clientset, *record.FakeRecorder, *clocktesting.FakePassiveClock) {
	t.Helper()
	client, events, clock := fake.NewClientset(kube...), record.NewFakeRecorder(10), clocktesting.NewFakePassiveClock(start)
	kubes := informers.NewSharedInformerFactory(client, 0)
	liqos := externalversions.NewSharedInformerFactory(liqofake.NewSimpleClientset(), 0)
	a := NewApprover(ApproverConfig{
		Base: Base{
			Kube: client, VirtualNodes: liqos.Offloading().V1beta1().VirtualNodes(), Nodes: kubes.Core().V1().Nodes(),
			Events: events, Env: loop.Env{Clock: clock, Log: zap.NewNop()},
		},
		Requests: kubes.Certificates().V1().CertificateSigningRequests(),
	})
	for _, vn := range vns {
		require.NoError(t, liqos.Offloading().V1beta1().VirtualNodes().Informer().GetIndexer().Add(vn))
	}
	for _, obj := range kube {
		switch obj.(type) {
		case *certificatesv1.CertificateSigningRequest:
			require.NoError(t, kubes.Certificates().V1().CertificateSigningRequests().Informer().GetIndexer().Add(obj))
		case *corev1.Node:
			require.NoError(t, kubes.Core().V1().Nodes().Informer().GetIndexer().Add(obj))
		}
	}
	return a, client, events, clock
}

func TestApprover(t *testing.T) {
	foreign := ourNode(corev1.ConditionTrue)
	foreign.Spec.ProviderID = ""
	at := func(address string) *x509.CertificateRequest {
		r := goodTemplate()
		r.IPAddresses = []net.IP{net.ParseIP(address)}
		return r
	}
	for name, tc := range map[string]struct {
		template *x509.CertificateRequest
		change   func(*certificatesv1.CertificateSigningRequest)
		vn       func(*offloadingv1beta1.VirtualNode)
		kube     []runtime.Object
		approved bool
		again    bool
		event    string
	}{
		"its own pod's address":    {kube: objects(vkubeletPod()), approved: true},
		"with its Node":            {kube: objects(vkubeletPod(), ourNode(corev1.ConditionTrue)), approved: true},
		"the address of the spec":  {template: at("192.0.2.1"), vn: func(vn *offloadingv1beta1.VirtualNode) { vn.Spec.VirtualKubelet.NodeAddress = "192.0.2.1" }, approved: true},
		"no pod yet":               {again: true, event: "10.0.0.7"},
		"a pod that has ended":     {kube: objects(vkubeletPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })), again: true, event: "10.0.0.7"},
		"a pod of another account": {kube: objects(vkubeletPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" })), again: true, event: "10.0.0.7"},
		"a pod of another node":    {kube: objects(vkubeletPod(func(p *corev1.Pod) { p.Labels[offloadingv1beta1.VirtualNodeLabel] = "turin" })), again: true, event: "10.0.0.7"},
		"a Node that is not ours":  {kube: objects(vkubeletPod(), foreign), again: true, event: "not belong to this virtual node"},
		"somebody else's request":  {change: func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Username = "system:node:worker-1" }},
		"another signer's": {change: func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
		}},
		"denied by somebody": {change: func(c *certificatesv1.CertificateSigningRequest) {
			c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
		}, kube: objects(vkubeletPod())},
	} {
		t.Run(name, func(t *testing.T) {
			template := tc.template
			if template == nil {
				template = goodTemplate()
			}
			csr := request(t, "csr-1", template)
			csr.CreationTimestamp = metav1.NewTime(start)
			if tc.change != nil {
				tc.change(csr)
			}
			vn := virtualNode()
			if tc.vn != nil {
				tc.vn(vn)
			}
			a, client, events, _ := newApproverRig(t, objects(vn), append(tc.kube, csr)...)
			for range 2 { // a second sync changes nothing
				err := a.sync(t.Context(), loop.Key{Name: "csr-1"})
				if tc.again {
					require.ErrorContains(t, err, "again in")
				} else {
					require.NoError(t, err)
				}
			}
			got := kubetest.Get(t, client.CertificatesV1().CertificateSigningRequests(), "csr-1")
			require.Equal(t, tc.approved, len(got.Status.Conditions) == 1 && got.Status.Conditions[0].Type == certificatesv1.CertificateApproved)
			if tc.event == "" {
				require.Empty(t, events.Events)
				return
			}
			require.Len(t, events.Events, 1, "told once")
			require.Contains(t, <-events.Events, tc.event)
		})
	}
}

func TestApproverWithoutVirtualNode(t *testing.T) {
	csr := request(t, "csr-1", goodTemplate())
	csr.CreationTimestamp = metav1.NewTime(start)
	a, client, _, clock := newApproverRig(t, nil, csr, vkubeletPod())
	require.ErrorContains(t, a.sync(t.Context(), loop.Key{Name: "csr-1"}), "again in")
	clock.SetTime(start.Add(2 * time.Hour))
	require.NoError(t, a.sync(t.Context(), loop.Key{Name: "csr-1"}), "it is not asked for for ever")
	for _, action := range client.Actions() {
		require.NotEqual(t, "update", action.GetVerb())
	}
	require.NoError(t, a.sync(t.Context(), loop.Key{Name: "gone"}))
}

func TestRequestKeys(t *testing.T) {
	csr := request(t, "csr-1", goodTemplate())
	require.Equal(t, []loop.Key{{Name: "csr-1"}}, requestKeys(csr))
	csr.Spec.Username = "system:node:worker-1"
	require.Empty(t, requestKeys(csr))
}
