package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// others gives every setting a value that is accepted and not the default.
var others = map[string]string{
	"clusterID": "rome", "namespace": "elsewhere", "kubeconfig": "/tmp/k", "log.level": "debug", "log.format": "console",
	"server.address": ":9999",
	"lease.duration": "1m", "lease.renewDeadline": "45s", "lease.retryPeriod": "3s",
	"probe.interval": "2s", "probe.timeout": "3s", "probe.window": "9", "probe.failures": "4", "probe.successes": "5",
	"health.unknownGrace": "2m", "health.heartbeat": "3s",
	"reflection.skipLabels": "example.com/a,b", "reflection.skipAnnotations": "",
	"reflection.pod.workers": "7", "reflection.service.type": "AllowList", "reflection.service.workers": "2", "reflection.endpointslice.workers": "2",
	"reflection.ingress.type": "AllowList", "reflection.ingress.workers": "0", "reflection.configmap.type": "AllowList", "reflection.configmap.workers": "2",
	"reflection.sharedZones": "oslo", "reflection.secret.type": "AllowList", "reflection.secret.workers": "0", "reflection.serviceaccount.workers": "2",
	"reflection.persistentvolumeclaim.workers": "2", "reflection.event.type": "AllowList", "reflection.event.workers": "2",
	"discovery.dns.domain": "clusters.example", "discovery.dns.servers": "192.0.2.1:53", "discovery.multicast.interfaces": "eth0",
	"discovery.multicast.url": "https://auth.example", "discovery.maxClusters": "7",
	"peering.outgoing": "Labelled", "peering.outgoingSelector": "a=b", "peering.incoming": "Labelled", "peering.incomingSelector": "c=d", "peering.addressRanges": "10.42.0.0/16", "peering.renewAt": "0.5",
	"peering.acceptOffers": "Manual",
	"sharing.trust":        "Organisation", "sharing.annotations": "example.com/*", "sharing.labelsLeftOut": "example.com/*",
	"sharing.mode": "Manual", "sharing.percentage": "50", "sharing.limits": "cpu=4,memory=8Gi", "sharing.peerLimits": "rome cpu=1 memory=2Gi,oslo pods=3",
	"sharing.nodeSelector": "a=b", "sharing.selectorLabels": "pool,example.com/disk", "sharing.updateThreshold": "5", "sharing.expiration": "1h", "sharing.labels": "region=north", "sharing.storageClasses": "fast",
	"sharing.ingressClasses": "nginx", "sharing.loadBalancerClasses": "example.com/lb", "sharing.serviceTypes": "ClusterIP", "sharing.serviceFields": "nodePort", "sharing.ingressHosts": "*.{peer}.example.com", "sharing.limitsEnforcement": "Hard",
	"sharing.twinLimits": "pods=10,count/leases.coordination.k8s.io=3", "sharing.namespacesPerPeer": "7", "sharing.storagePerPeer": "20Ti", "sharing.networkPolicy": "true", "sharing.reachableRanges": "10.9.0.0/16",
	"storage.realStorageClassName": "fast", "storage.storageNamespace": "volumes",
	"controller.workers": "3", "controller.podSecurityLevel": "restricted",
	"controller.runtimeClasses": "gvisor", "controller.twinNames": "shop-*", "controller.volumeTypes": "emptyDir,nfs", "controller.tolerations": "dedicated=peers:NoSchedule,slow", "controller.alwaysPullImages": "true", "controller.drainTimeout": "1m", "controller.drainForceAfter": "1m", "controller.quotaPatience": "2m", "controller.enableNodeFailureController": "true",
	"controller.vkubelet.image": "liqod:v1", "controller.vkubelet.imagePullPolicy": "Never", "controller.vkubelet.imagePullSecrets": "registry",
	"controller.vkubelet.replicas": "2", "controller.vkubelet.priorityClassName": "high", "controller.vkubelet.extraArgs": "--log.level=warn", "controller.vkubelet.nodeAddress": "10.0.0.1",
	"controller.vkubelet.nodeSelector": "pool=infra", "controller.vkubelet.tolerations": "dedicated=infra", "controller.vkubelet.spread": "topology.kubernetes.io/zone",
	"controller.vkubelet.resources.cpuRequest": "1", "controller.vkubelet.resources.memoryRequest": "1Gi",
	"controller.vkubelet.resources.cpuLimit": "1", "controller.vkubelet.resources.memoryLimit": "2Gi",
	"vkubelet.virtualNode": "liqo-tenant-milan/milan", "vkubelet.nodeAddress": "10.0.0.2", "vkubelet.listenAddress": ":10260", "vkubelet.certificateDirectory": "/tmp/pki",
	"vkubelet.nodeLeaseDuration": "20s", "vkubelet.nodeTaint": "false", "vkubelet.ownZone": "true", "vkubelet.clusterDNS": "10.2.0.10", "vkubelet.clusterDomain": "cluster.example",
	"vkubelet.enableAPIServerSupport": "false", "vkubelet.homeAPIServer": "192.0.2.1:6443", "vkubelet.tokenBinding": "pod",
	"authentication.address": ":9445", "authentication.url": "https://rome:9445", "authentication.hosts": "10.0.0.4", "authentication.apiServerURL": "https://rome:6443",
	"authentication.identity": "token", "authentication.lifetime": "1h",
	"authentication.requestsPerMinute": "10", "authentication.requestsPerAddress": "5", "authentication.connections": "20", "authentication.connectionsPerAddress": "10", "authentication.maxPeers": "9", "authentication.acceptRanges": "10.0.0.0/8",
	"networking.enabled": "true", "networking.podCIDRs": "10.1.0.0/16", "networking.serviceCIDRs": "10.2.0.0/16", "networking.nodeCIDRs": "10.3.0.0/16",
	"networking.reservedSubnets": "10.4.0.0/16", "networking.reach": "All", "networking.externalEndpoints": "true", "networking.externalCIDRs": "10.5.0.0/16",
	"ipam.keep": "10.6.0.0/16", "ipam.pools": "10.7.0.0/16",
	"gateway.keySecret": "gw-key", "gateway.keyAge": "720h", "gateway.number": "2", "gateway.replicas": "2",
	"gateway.stateDir": "/tmp/gw", "gateway.tunnelPort": "51841", "gateway.overlayPort": "6095", "gateway.anyOverlaySender": "true", "gateway.addresses": "10.0.0.5", "gateway.endpoints": "gw.example:51841",
	"gateway.service": "gw", "gateway.nodeName": "n", "gateway.podAddresses": "true", "gateway.mtu": "1450",
	"gateway.probe.interval": "100ms", "gateway.probe.silence": "2s", "gateway.probe.answers": "4",
	"route.nodeName": "n", "route.overlayPort": "6095", "route.anyOverlaySender": "true", "route.mtu": "1450",
	"webhook.address": ":9444", "webhook.hosts": "10.0.0.3", "webhook.drain": "3s",
	"webhook.clientCA": authority, "webhook.clientNames": "kube-apiserver",
}

// authority is the certificate of an authority.
const authority = `-----BEGIN CERTIFICATE-----
MIIBMDCB46ADAgECAhQHg8Em5LOXGR7JMVzcVR9+eYo29jAFBgMrZXAwDTELMAkG
A1UEAwwCY2EwIBcNMjYxMTI2MDE1ODI4WhgPMjEyNjExMDIwMTU4MjhaMA0xCzAJ
BgNVBAMMAmNhMCowBQYDK2VwAyEAV9iuq2BZxFU9AStNHiK9XuWg2jpNdPIEYkbM
AvdEarqjUzBRMB0GA1UdDgQWBBTusWFmL8ZstbpjZbf/Z7k7Rfvf3jAfBgNVHSME
GDAWgBTusWFmL8ZstbpjZbf/Z7k7Rfvf3jAPBgNVHRMBAf8EBTADAQH/MAUGAytl
cANBAGnaIzb+gq/9rz66d4aC9PR8rc9H5gVRYRzwrUzqb2jv5xEKHhx0dAJ3cCkY
kLXn/eWI50hk959UFwTc3Ui0VAM=
-----END CERTIFICATE-----
`

func TestVKubeletArgsLeaveOutDefaults(t *testing.T) {
	e := loaded(t, nil)
	require.Empty(t, e.VKubeletArgs())
	e = loaded(t, nil, "--probe.interval=1000ms", "--clusterID=rome")
	require.Equal(t, []string{"--clusterID=rome"}, e.VKubeletArgs())
}

func TestVKubeletArgsForgetNoSetting(t *testing.T) {
	settings := schema(t)
	var flags []string
	for _, s := range settings {
		require.Contains(t, others, s.Key, "a new setting: say here what else it may be, and in notVKubelets if vkubelets must not have it")
		flags = append(flags, "--"+s.Key+"="+others[s.Key])
	}
	e := loaded(t, nil, flags...)
	args := e.VKubeletArgs()
	require.Subset(t, args, []string{"--reflection.secret.type=AllowList", "--reflection.secret.workers=0", "--networking.enabled=true", "--lease.duration=1m"})
	require.Equal(t, []string{"a", "b"}, flagTexts([]string{"a", "b"}))
	require.Equal(t, []string{""}, flagTexts([]string{}), "an empty list stays empty")

	vk := loaded(t, nil, args...)
	usual := loaded(t, nil)
	want := e.Config
	want.Namespace, want.Kubeconfig, want.Server.Address, want.Health.Heartbeat = usual.Namespace, usual.Kubeconfig, usual.Server.Address, usual.Health.Heartbeat
	want.Controller, want.Webhook, want.Peering, want.Authentication = usual.Controller, usual.Webhook, usual.Peering, usual.Authentication
	want.Sharing, want.IPAM, want.Gateway, want.Route = usual.Sharing, usual.IPAM, usual.Gateway, usual.Route
	want.Networking = usual.Networking
	want.Networking.Enabled = true
	want.Discovery = usual.Discovery
	want.Reflection.SharedZones = usual.Reflection.SharedZones
	want.Reflection.SkipLabels, want.Reflection.SkipAnnotations = usual.Reflection.SkipLabels, usual.Reflection.SkipAnnotations
	want.VKubelet.VirtualNode, want.VKubelet.NodeAddress, want.VKubelet.CertificateDirectory = "", "", ""
	require.Equal(t, want, vk.Config)
	for _, arg := range args {
		require.False(t, strings.HasPrefix(arg, "--controller.") || strings.HasPrefix(arg, "--webhook."), arg)
	}
}
