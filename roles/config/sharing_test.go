package config

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestSharing(t *testing.T) {
	settings := schema(t)
	e := loaded(t, nil, "--sharing.limits=cpu=4,example.com/gpu=1", "--sharing.peerLimits=rome cpu=2 memory=1Gi,oslo pods=3,rome pods=5",
		"--sharing.labels=region=north,empty=", "--sharing.nodeSelector=example.com/shared=yes", "--controller.tolerations=dedicated=peers:NoSchedule,slow")
	require.Equal(t, corev1.ResourceList{"cpu": resource.MustParse("4"), "example.com/gpu": resource.MustParse("1")}, Amounts(e.Sharing.Limits))
	require.Equal(t, map[string]corev1.ResourceList{
		"rome": {"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("5")}, "oslo": {"pods": resource.MustParse("3")},
	}, AmountsOfPeers(e.Sharing.PeerLimits))
	require.Equal(t, map[string]string{"region": "north", "empty": ""}, Pairs(e.Sharing.Labels))
	require.Equal(t, map[string]string{"example.com/shared": "yes"}, Pairs(e.Sharing.NodeSelector))

	require.Equal(t, []corev1.Toleration{
		{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "peers", Effect: corev1.TaintEffectNoSchedule}, {Key: "slow", Operator: corev1.TolerationOpExists},
	}, Tolerations(e.Controller.Tolerations))

	for _, bad := range []string{
		"--sharing.selectorLabels=kubernetes.io/hostname", "--sharing.selectorLabels=alpha.eksctl.io/instance-id", "--sharing.selectorLabels=topology.hostpath.csi/node", "--sharing.selectorLabels=a b",
		"--controller.tolerations=node-role.kubernetes.io/control-plane", "--controller.tolerations=node.kubernetes.io/unschedulable:NoSchedule", "--controller.tolerations=a:Never",
		"--controller.volumeTypes=NFS", "--controller.volumeTypes=*", "--controller.alwaysPullImages=yes",
		"--sharing.limits=cpu", "--sharing.limits=cpu=much", "--sharing.limits=cpu=-1", "--sharing.limits=a b=1", "--sharing.peerLimits=rome", "--sharing.peerLimits=cpu=1",
		"--sharing.peerLimits=Rome cpu=1", "--sharing.peerLimits=rome cpu=1 x", "--sharing.labels=region", "--sharing.labels=a/b/c=d", "--sharing.labels=region=a b",
		"--sharing.twinLimits=requests.storage", "--sharing.twinLimits=requests.storage=much", "--sharing.twinLimits=requests.storage=-1Gi", "--sharing.twinLimits=Fast.storageclass.storage.k8s.io/requests.storage=1Gi",
		"--sharing.twinLimits=fast.storageclass.storage.k8s.io/requests.cpu=1", "--sharing.twinLimits=.storageclass.storage.k8s.io/requests.storage=1Gi", "--sharing.twinLimits=fast.storageclass.storage.k8s.io/persistentvolumeclaims=1Gi",
		"--sharing.twinLimits=requests.storage=1Gi,requests.storage=2Gi", "--sharing.twinLimits=pods", "--sharing.twinLimits=pods=many", "--sharing.twinLimits=pods=-1", "--sharing.twinLimits=pods=1k", "--sharing.twinLimits=cpu=4", "--sharing.twinLimits=requests.memory=4",
		"--sharing.twinLimits=ingresses=4", "--sharing.twinLimits=count/=4", "--sharing.twinLimits=pods=1,pods=2", "--sharing.namespacesPerPeer=-1", "--sharing.networkPolicy=yes",
		"--sharing.reachableRanges=10.0.0.1/8", "--sharing.reachableRanges=here",
		"--sharing.percentage=101", "--sharing.mode=Sometimes", "--sharing.storageClasses=Fast", "--sharing.expiration=-1s", "--peering.acceptOffers=Never",
	} {
		_, err := Load(Sources{Settings: settings, Flags: parse(t, settings, bad)})
		require.Error(t, err, bad)
	}

	_, err := Load(Sources{Settings: settings, Flags: parse(t, settings, "--sharing.networkPolicy=false", "--sharing.reachableRanges=10.9.0.0/16")})
	require.ErrorContains(t, err, "sharing.networkPolicy", "a setting that does nothing")
}

// TestVolumesOfPeersHaveASize: a count of claims alone lets a peer claim any size.
func TestVolumesOfPeersHaveASize(t *testing.T) {
	e := loaded(t, nil)
	usual := Amounts(e.Sharing.TwinLimits)
	require.Contains(t, usual, corev1.ResourcePersistentVolumeClaims)
	require.Equal(t, resource.MustParse("10Ti"), usual[corev1.ResourceRequestsStorage])
	e = loaded(t, nil, "--sharing.twinLimits=requests.storage=500Gi,fast.storageclass.storage.k8s.io/requests.storage=0,fast.storageclass.storage.k8s.io/persistentvolumeclaims=3")
	require.Equal(t, corev1.ResourceList{
		"requests.storage": resource.MustParse("500Gi"), "fast.storageclass.storage.k8s.io/requests.storage": resource.MustParse("0"),
		"fast.storageclass.storage.k8s.io/persistentvolumeclaims": resource.MustParse("3"),
	}, Amounts(e.Sharing.TwinLimits))
}
