package namespace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// peeredAs returns rome's ForeignCluster of one peering. uid is that of rome's kube-system
// namespace, or "" where it is not known.
func peeredAs(record, user, uid string, since time.Time) *corev1beta1.ForeignCluster {
	fc := romeCluster(user)
	fc.UID, fc.CreationTimestamp = types.UID(record), metav1.NewTime(since)
	fc.Status.ClusterUID = types.UID(uid)
	return fc
}

// keptTwin returns web-rome as the end of a peering left it. mark may be empty.
func keptTwin(mark string, made time.Time) *corev1.Namespace {
	ns := plainNamespace("web-rome")
	ns.CreationTimestamp = metav1.NewTime(made)
	ns.Labels = map[string]string{corev1beta1.RemoteClusterIDLabel: "rome"}
	ns.Annotations = map[string]string{
		offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/milan", offloadingv1beta1.OriginalNameAnnotation: "web",
		offloadingv1beta1.DataKeptAnnotation: "kept",
	}
	if mark != "" {
		ns.Annotations[offloadingv1beta1.ConsumerUIDAnnotation] = mark
	}
	return ns
}

func mark(ns *corev1.Namespace) string {
	return ns.Annotations[offloadingv1beta1.ConsumerUIDAnnotation]
}

// TestKeptTwinIsForItsClusterOnly: a cluster that is peered under the id of an earlier one
// gets neither its namespace nor its volumes.
func TestKeptTwinIsForItsClusterOnly(t *testing.T) {
	t.Parallel()
	long, now := time.Now().Add(-time.Hour), time.Now()
	for name, tc := range map[string]struct {
		mark, uid string
		since     time.Time // of the peering; the twin was made an hour ago
		empty     bool      // the twin holds no volumes
		gets      bool
	}{
		"the same cluster, peered anew":                    {"rome/uid-a", "uid-a", now, false, true},
		"another cluster":                                  {"rome/uid-a", "uid-b", now, false, false},
		"another cluster, nothing kept":                    {"rome/uid-a", "uid-b", now, true, false},
		"a cluster of unknown UID":                         {"rome/uid-a", "", now, false, false},
		"the same peering, UID unknown":                    {"rome/peering-fc-1", "", long, false, true},
		"the same peering, UID known since":                {"rome/peering-fc-1", "uid-a", long, false, true},
		"another peering, UID unknown":                     {"rome/peering-fc-0", "", now, false, false},
		"another peering, UID known":                       {"rome/peering-fc-0", "uid-a", now, false, false},
		"made without a mark, the peering stands":          {"", "uid-a", long.Add(-time.Minute), false, true},
		"made without a mark, another peering":             {"", "uid-a", now, false, false},
		"made without a mark, another, UID unknown":        {"", "", now, false, false},
		"made without a mark, another peering, no volumes": {"", "uid-b", now, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				claim := volumeClaim("web-rome", "pv-1")
				if tc.empty {
					claim.Spec.VolumeName = ""
				}
				w := newWorld(t, tenantNamespace("rome"), peeredAs("fc-1", romeUser, tc.uid, tc.since), keptTwin(tc.mark, long), claim,
					replica(map[string]string{"web": "web-rome"})).provider()
				if !tc.gets {
					w.backsOff("web", "kubectl annotate namespace web-rome --overwrite offloading.liqo.io/consumer-uid=rome/")
					if tc.mark != "" {
						require.NotContains(t, w.current("web").Message, tc.mark, "whose it is, is not told")
					}
					w.settled()
					require.Nil(t, w.bound("web-rome", PeerTwinRole))
					require.Equal(t, tc.mark, mark(w.namespace("web-rome")))
					require.Contains(t, w.namespace("web-rome").Annotations, offloadingv1beta1.DataKeptAnnotation)
					return
				}
				w.accepted("web")
				w.settled()
				want := "rome/" + tc.uid
				if tc.uid == "" {
					want = "rome/peering-fc-1"
				}
				require.Equal(t, want, mark(w.namespace("web-rome")))
				require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
			})
		})
	}
}

func TestKeptTwinIsHandedOver(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		long, now := time.Now().Add(-time.Hour), time.Now()
		w := newWorld(t, tenantNamespace("rome"), peeredAs("fc-2", romeUser, "uid-b", now), keptTwin("rome/uid-a", long), volumeClaim("web-rome", "pv-1"),
			replica(map[string]string{"web": "web-rome"})).provider()
		w.backsOff("web", "consumer-uid=rome/uid-b;")
		w.changeNamespace("web-rome", func(ns *corev1.Namespace) { ns.Annotations[offloadingv1beta1.ConsumerUIDAnnotation] = "rome/uid-b" })
		w.accepted("web")
		require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
	})
}

// TestMarkOutlastsAnUnknownUID: an administrator clears status.clusterUID to have it read
// again. Meanwhile the peer keeps its twin.
func TestMarkOutlastsAnUnknownUID(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), peeredAs("fc-1", romeUser, "uid-a", time.Now()), replica(map[string]string{"web": "web-rome"})).provider()
		w.accepted("web")
		require.Equal(t, "rome/uid-a", mark(w.namespace("web-rome")), "marked from the beginning")
		learn := func(uid types.UID) {
			fcs := w.liqo.CoreV1beta1().ForeignClusters()
			fc := kubetest.Get(t, fcs, "rome")
			fc.Status.ClusterUID = uid
			kubetest.UpdateStatus(t, fcs, fc)
		}
		learn("")
		w.settled()
		require.Equal(t, offloadingv1beta1.MappingAccepted, w.current("web").Phase)
		require.Equal(t, "rome/uid-a", mark(w.namespace("web-rome")))
		require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
		learn("uid-b")
		w.backsOff("web", "consumer-uid=rome/uid-b")
		w.eventually("another cluster has no rights", func() bool { return w.bound("web-rome", PeerTwinRole) == nil })
	})
}
