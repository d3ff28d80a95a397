package pod

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// TestTrustInAConsumer: with one spec, the pod of a trusted consumer runs and that of another
// one is refused. When the trust changes, the refused pod runs at once, and the ShadowPod of the
// running pod says that it would be refused; the pod runs on.
func TestTrustInAConsumer(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		in := func(peer string, uid types.UID) (*corev1.Namespace, *offloadingv1beta1.ShadowPod) {
			ns := twin(func(ns *corev1.Namespace) { ns.Name, ns.Labels[corev1beta1.RemoteClusterIDLabel] = peer, peer })
			return ns, newShadow(always, func(s *offloadingv1beta1.ShadowPod) {
				s.Namespace, s.UID, s.CreationTimestamp, s.Labels[offloadingv1beta1.OriginLabel] = peer, uid, metav1.Now(), peer
				s.Spec.Pod.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}}}
				s.Annotations["example.com/a"] = "1"
			})
		}
		peerOf := func(peer string, trust corev1beta1.Trust) *corev1beta1.ForeignCluster {
			return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: peer}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: peer, Trust: trust}}
		}
		rome, inRome := in("rome", "shadow-rome")
		oslo, inOslo := in("oslo", "shadow-oslo")
		core, liqod := fake.NewClientset(rome, oslo), liqodfake.NewSimpleClientset(inRome, inOslo,
			peerOf("rome", corev1beta1.TrustOrganisation), peerOf("oslo", ""))
		e := started(t, core, liqod, func(c *Config) {
			trusted := func(peer string) bool {
				fc, cached, err := c.ForeignClusters.GetIndexer().GetByKey(peer)
				require.NoError(t, err)
				require.True(t, cached, "the cache is filled before the loop runs")
				return corev1beta1.TrustOf(fc.(*corev1beta1.ForeignCluster), corev1beta1.TrustStrict) == corev1beta1.TrustOrganisation
			}
			c.Harden = func(peer string, spec *corev1.PodSpec) error {
				if len(spec.Volumes) > 0 && !trusted(peer) {
					return errors.New("no nfs from " + peer)
				}
				return nil
			}
			c.Metadata = func(peer string) rules.Metadata {
				if trusted(peer) {
					return rules.Metadata{Annotations: rules.Annotations{rules.AllKeys}}
				}
				return rules.Metadata{}
			}
		})
		go func() { _ = e.Run(t.Context(), 2) }()

		requireOf := func(peer, reason, annotation string) {
			t.Helper()
			kubetest.Settled(time.Minute, core, liqod)
			shadow := kubetest.Get(t, liqod.OffloadingV1beta1().ShadowPods(peer), testName)
			got := ""
			if c := meta.FindStatusCondition(shadow.Status.Conditions, offloadingv1beta1.ShadowPodEnforced); c != nil {
				got = c.Reason
			}
			require.Equal(t, reason, got, peer)
			pods := kubetest.List(t, core.CoreV1().Pods(peer))
			have := "no pod"
			for _, pod := range pods.Items {
				have = pod.Annotations["example.com/a"]
			}
			require.Equal(t, annotation, have, peer)
		}
		requireOf("rome", "", "1")
		requireOf("oslo", offloadingv1beta1.ReasonPodRefused, "no pod")
		for _, fc := range []*corev1beta1.ForeignCluster{peerOf("rome", corev1beta1.TrustStrict), peerOf("oslo", corev1beta1.TrustOrganisation)} {
			kubetest.Update(t, liqod.CoreV1beta1().ForeignClusters(), fc)
		}
		requireOf("rome", reasons.UpdateRefused, "1")
		requireOf("oslo", "", "1")
		writes := kubetest.Settled(time.Minute, core, liqod)
		well := peerOf("oslo", corev1beta1.TrustOrganisation)
		well.Status.Version = "1"
		kubetest.Update(t, liqod.CoreV1beta1().ForeignClusters(), well)
		require.Equal(t, writes+1, kubetest.Settled(time.Minute, core, liqod), "a change of something else writes nothing but itself")
	})
}
