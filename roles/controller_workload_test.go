package roles

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	corelisters "github.com/liqod/liqod/api/generated/listers/core/v1beta1"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/rules"
)

// TestDefaultsHoldBetweenOrganisations: by the defaults of config.yaml an ordinary pod of a
// peer runs as it is, and one that mounts, tolerates or selects what nobody allowed does not.
func TestDefaultsHoldBetweenOrganisations(t *testing.T) {
	t.Parallel()
	quotas := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	require.NoError(t, quotas.Add(&offloadingv1beta1.Quota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "q"}, Spec: offloadingv1beta1.QuotaSpec{NodeSelector: map[string]string{"pool": "shared"}}}))
	cfg := effective(t, nil)
	cfg.ClusterID, cfg.Sharing.NodeSelector = "milan", []string{"shared=yes"}
	classes := storagelisters.NewStorageClassLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil))
	h := hardener{allowed: func(string) rules.Allowed { return allowedToPeers(cfg.Config, classes) }, quotas: offloadinglisters.NewQuotaLister(quotas)}

	source := func(s corev1.VolumeSource) []corev1.Volume { return []corev1.Volume{{Name: "v", VolumeSource: s}} }
	for name, tc := range map[string]struct {
		consumer string
		spec     corev1.PodSpec
		refused  string
	}{
		"ordinary": {"rome", corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/"}}}}},
			Volumes: []corev1.Volume{
				{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}, {Name: "b", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}},
				{Name: "c", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, {Name: "d", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
				{Name: "e", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}, {Name: "f", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}},
				{Name: "g", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}},
			},
			NodeSelector: map[string]string{corev1.LabelTopologyZone: "z", corev1.LabelArchStable: "arm64", "shared": "yes"},
		}, ""},
		"the label of its quota":       {"rome", corev1.PodSpec{NodeSelector: map[string]string{"pool": "shared"}}, ""},
		"the label of another's quota": {"oslo", corev1.PodSpec{NodeSelector: map[string]string{"pool": "shared"}}, "spec.nodeSelector selects nodes by the label pool: cluster milan accepts from peers: topology.kubernetes.io/zone"},
		"nfs":                          {"rome", corev1.PodSpec{Volumes: source(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}})}, "type nfs: cluster milan accepts"},
		"iscsi":                        {"rome", corev1.PodSpec{Volumes: source(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}})}, "type iscsi"},
		"cephfs":                       {"rome", corev1.PodSpec{Volumes: source(corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{}})}, "type cephfs"},
		"rbd":                          {"rome", corev1.PodSpec{Volumes: source(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{}})}, "type rbd"},
		"inline csi":                   {"rome", corev1.PodSpec{Volumes: source(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}})}, "type csi"},
		"host path":                    {"rome", corev1.PodSpec{Volumes: source(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}})}, "type hostPath"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
			err := h.harden(tc.consumer, &tc.spec)
			if tc.refused != "" {
				require.ErrorContains(t, err, tc.refused)
				return
			}
			require.NoError(t, err)
			require.Empty(t, tc.spec.Tolerations)
		})
	}
}

// TestTrustOpensTheBundle: from a peer that is trusted as Organisation, by the setting or by its
// ForeignCluster, what the defaults refuse between organisations runs, but nothing that reaches
// files of nodes or their own use. It is refused from a Strict peer of the same cluster.
func TestTrustOpensTheBundle(t *testing.T) {
	t.Parallel()
	for setting, other := range map[corev1beta1.Trust]corev1beta1.Trust{
		corev1beta1.TrustOrganisation: corev1beta1.TrustStrict, corev1beta1.TrustStrict: corev1beta1.TrustOrganisation,
	} {
		t.Run(string(setting), func(t *testing.T) {
			t.Parallel()
			peers := map[corev1beta1.Trust]string{setting: "rome", other: "oslo"}
			apart := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
			fc := foreignCluster("oslo", "oslo")
			fc.Spec.Trust = other
			require.NoError(t, apart.Add(foreignCluster("rome", "rome")))
			require.NoError(t, apart.Add(fc))
			testBundle(t, setting, corelisters.NewForeignClusterLister(apart), peers[corev1beta1.TrustOrganisation], peers[corev1beta1.TrustStrict])
		})
	}
}

func testBundle(t *testing.T, setting corev1beta1.Trust, peers corelisters.ForeignClusterLister, open, strict string) {
	cfg := effective(t, []string{"LIQOD_SHARING_TRUST=" + string(setting)})
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	allowed := func(cfg config.Config) rules.Allowed {
		return allowedToPeers(cfg, storagelisters.NewStorageClassLister(index))
	}
	h := hardener{allowed: perPeer(cfg, peers, allowed), quotas: offloadinglisters.NewQuotaLister(index)}
	spec := corev1.PodSpec{
		NodeSelector: map[string]string{"example.com/vault": "yes"},
		Volumes:      []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}}},
		Tolerations: []corev1.Toleration{
			{Key: "dedicated", Operator: corev1.TolerationOpExists}, {Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists},
		},
	}
	require.ErrorContains(t, h.harden(strict, spec.DeepCopy()), "sharing.selectorLabels")
	require.NoError(t, h.harden(open, &spec))
	require.Equal(t, []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}, spec.Tolerations)
	for name, refused := range map[string]corev1.PodSpec{
		"controller.volumeTypes": {Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}},
		"sharing.selectorLabels": {NodeSelector: map[string]string{"alpha.eksctl.io/instance-id": "i-1"}},
	} {
		require.ErrorContains(t, h.harden(open, &refused), name)
	}
	policy := sharingPolicy(cfg, peers)
	require.True(t, policy.Selectable(policy.SelectorLabels(open), "example.com/vault"))
	require.False(t, policy.Selectable(policy.SelectorLabels(open), corev1.LabelHostname))
	require.False(t, policy.Selectable(policy.SelectorLabels(strict), "example.com/vault"))
	metadata, bounds := perPeer(cfg, peers, metadataOf), perPeer(cfg, peers, serviceBounds)
	require.True(t, metadata(open).Annotations.Allows("cert-manager.io/cluster-issuer", "x"))
	require.False(t, metadata(strict).Annotations.Allows("cert-manager.io/cluster-issuer", "x"))
	require.False(t, metadata(open).Labels.Has("istio.io/rev"))
	require.True(t, metadata(strict).Labels.Has("istio.io/rev"))
	named := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}
	_, why := bounds(open).Refuse(named, nil)
	require.Empty(t, why)
	_, why = bounds(strict).Refuse(named, nil)
	require.NotEmpty(t, why)
}
