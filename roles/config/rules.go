package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	podrules "github.com/liqod/liqod/shadow/rules"
)

// rules has the accepted values of each setting.
var rules = map[string]kind{
	"clusterID":      label(51).orEmpty(),
	"namespace":      label(63),
	"kubeconfig":     anyText("a path"),
	"log.level":      oneOf("debug", "info", "warn", "error"),
	"log.format":     oneOf("json", "console"),
	"server.address": address().orEmpty(),

	"lease.duration":      duration(time.Second, time.Hour),
	"lease.renewDeadline": duration(time.Second, time.Hour),
	"lease.retryPeriod":   duration(100*time.Millisecond, time.Hour),

	"probe.interval":  duration(100*time.Millisecond, time.Hour),
	"probe.timeout":   duration(100*time.Millisecond, time.Hour),
	"probe.window":    integer(1, 1000),
	"probe.failures":  integer(1, 1000),
	"probe.successes": integer(1, 1000),

	"health.unknownGrace": duration(time.Second, time.Hour),
	"health.heartbeat":    duration(0, time.Minute),

	"reflection.skipLabels":      list(matching("key", "a label key", metadataKey, 317)),
	"reflection.skipAnnotations": list(matching("key", "an annotation key", metadataKey, 317)),
	"reflection.sharedZones":     list(peer()),

	"reflection.pod.workers":                   integer(0, 1000),
	"reflection.service.type":                  oneOf("DenyList", "AllowList"),
	"reflection.service.workers":               integer(0, 1000),
	"reflection.endpointslice.workers":         integer(0, 1000),
	"reflection.ingress.type":                  oneOf("DenyList", "AllowList"),
	"reflection.ingress.workers":               integer(0, 1000),
	"reflection.configmap.type":                oneOf("DenyList", "AllowList"),
	"reflection.configmap.workers":             integer(0, 1000),
	"reflection.secret.type":                   oneOf("DenyList", "AllowList"),
	"reflection.secret.workers":                integer(0, 1000),
	"reflection.serviceaccount.workers":        integer(0, 1000),
	"reflection.persistentvolumeclaim.workers": integer(0, 1000),
	"reflection.event.type":                    oneOf("DenyList", "AllowList"),
	"reflection.event.workers":                 integer(0, 1000),

	"discovery.dns.domain":           matching("domain", "a DNS domain, as clusters.example.com", dnsSubdomain, 200).orEmpty(),
	"discovery.dns.servers":          list(remoteAddress()),
	"discovery.multicast.interfaces": list(matching("name", "the name of a network interface", interfaceName, 15)),
	"discovery.multicast.url":        httpsURL().orEmpty(),
	"discovery.maxClusters":          integer(0, 10000),

	"peering.outgoing":         oneOf("Never", "Discovered", "Labelled", "Always"),
	"peering.outgoingSelector": labelSelector(),
	"peering.incoming":         oneOf("Never", "Discovered", "Labelled", "Always"),
	"peering.incomingSelector": labelSelector(),
	"peering.addressRanges":    list(addressRange()),
	"peering.renewAt":          fraction(0.01, 0.95),
	"peering.acceptOffers":     oneOf("Automatic", "Manual"),

	"sharing.trust":               oneOf(string(corev1beta1.TrustStrict), string(corev1beta1.TrustOrganisation)),
	"sharing.mode":                oneOf("Automatic", "Manual", "Never"),
	"sharing.percentage":          integer(0, 100),
	"sharing.limits":              list(amount()),
	"sharing.peerLimits":          list(peerLimit()),
	"sharing.nodeSelector":        list(pair()),
	"sharing.selectorLabels":      list(selectorLabel()),
	"sharing.updateThreshold":     integer(0, 100),
	"sharing.expiration":          duration(0, 365*24*time.Hour),
	"sharing.labels":              list(pair()),
	"sharing.storageClasses":      list(className()),
	"sharing.ingressClasses":      list(className()),
	"sharing.loadBalancerClasses": list(matching("name", "the name of a class", metadataKey, 317)),
	"sharing.serviceTypes":        list(oneOf("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")),
	"sharing.serviceFields":       list(oneOf(podrules.FieldClusterIP, podrules.FieldNodePort, podrules.FieldLoadBalancerIP)),
	"sharing.ingressHosts":        list(ingressHost()),
	"sharing.annotations":         list(annotation()),
	"sharing.labelsLeftOut":       list(leftOutLabel()),
	"sharing.limitsEnforcement":   oneOf("None", "Soft", "Hard"),
	"sharing.twinLimits":          list(twinLimit()),
	"sharing.namespacesPerPeer":   integer(0, 2000),
	"sharing.storagePerPeer":      quantity().orEmpty(),
	"sharing.networkPolicy":       boolean(),
	"sharing.reachableRanges":     list(addressRange()),

	"storage.realStorageClassName": objectName().orEmpty(),
	"storage.storageNamespace":     label(63).orEmpty(),

	"controller.workers":          integer(1, 1000),
	"controller.podSecurityLevel": oneOf("privileged", "baseline", "restricted"),
	"controller.runtimeClasses":   list(objectName()),
	"controller.twinNames":        list(labelPattern()),
	"controller.volumeTypes":      list(oneOf(podrules.VolumeTypes()...)),
	"controller.tolerations":      list(taint()),
	"controller.alwaysPullImages": boolean(),
	"controller.drainTimeout":     duration(time.Second, 24*time.Hour),
	"controller.drainForceAfter":  duration(time.Second, 24*time.Hour),
	"controller.quotaPatience":    duration(0, 24*time.Hour),

	"controller.enableNodeFailureController": boolean(),

	"controller.vkubelet.image":                   anyText("an image reference"),
	"controller.vkubelet.imagePullPolicy":         oneOf("Always", "IfNotPresent", "Never"),
	"controller.vkubelet.imagePullSecrets":        list(objectName()),
	"controller.vkubelet.replicas":                integer(0, math.MaxInt32),
	"controller.vkubelet.priorityClassName":       objectName().orEmpty(),
	"controller.vkubelet.nodeSelector":            list(pair()),
	"controller.vkubelet.tolerations":             list(taint()),
	"controller.vkubelet.spread":                  list(labelKey()),
	"controller.vkubelet.extraArgs":               list(anyText("a command line argument")),
	"controller.vkubelet.nodeAddress":             ipAddress().orEmpty(),
	"controller.vkubelet.resources.cpuRequest":    quantity().orEmpty(),
	"controller.vkubelet.resources.memoryRequest": quantity().orEmpty(),
	"controller.vkubelet.resources.cpuLimit":      quantity().orEmpty(),
	"controller.vkubelet.resources.memoryLimit":   quantity().orEmpty(),

	"vkubelet.virtualNode":          namespacedName().orEmpty(),
	"vkubelet.nodeAddress":          ipAddress().orEmpty(),
	"vkubelet.listenAddress":        address(),
	"vkubelet.certificateDirectory": directory().orEmpty(),
	"vkubelet.nodeLeaseDuration":    duration(time.Second, time.Hour),
	"vkubelet.nodeTaint":            boolean(),
	"vkubelet.ownZone":              boolean(),

	"vkubelet.enableAPIServerSupport": boolean(),
	"vkubelet.homeAPIServer":          remoteAddress().orEmpty(),
	"vkubelet.tokenBinding":           oneOf(TokenBindingSecret, TokenBindingPod),
	"vkubelet.clusterDNS":             list(ipAddress()),
	"vkubelet.clusterDomain":          matching("domain", "a DNS domain, as cluster.local", dnsSubdomain, 200).orEmpty(),

	"webhook.address":     address(),
	"webhook.hosts":       list(host()),
	"webhook.drain":       duration(0, 20*time.Second),
	"webhook.clientCA":    certificates().orEmpty(),
	"webhook.clientNames": list(matching("name", "a common name of a certificate", commonName, 253)),

	"authentication.address":            address().orEmpty(),
	"authentication.url":                httpsURL().orEmpty(),
	"authentication.hosts":              list(host()),
	"authentication.apiServerURL":       httpsURL().orEmpty(),
	"authentication.identity":           oneOf("auto", "certificate", "token"),
	"authentication.lifetime":           duration(10*time.Minute, 365*24*time.Hour),
	"authentication.requestsPerMinute":  integer(1, 1000000),
	"authentication.requestsPerAddress": integer(1, 1000000),
	"authentication.connections":        integer(16, 100000),
	"authentication.maxPeers":           integer(1, 100000),
	"authentication.acceptRanges":       list(addressRange()),

	"authentication.connectionsPerAddress": integer(4, 100000),

	"networking.enabled":           boolean(),
	"networking.podCIDRs":          list(addressRange()),
	"networking.serviceCIDRs":      list(addressRange()),
	"networking.externalCIDRs":     list(addressRange()),
	"networking.nodeCIDRs":         list(addressRange()),
	"networking.reservedSubnets":   list(addressRange()),
	"networking.reach":             oneOf(ReachShared, ReachAll),
	"networking.externalEndpoints": boolean(),

	"ipam.keep":  list(allocatable()),
	"ipam.pools": list(allocatable()),

	"gateway.keySecret":        objectName().orEmpty(),
	"gateway.stateDir":         directory(),
	"gateway.keyAge":           duration(0, 10*365*24*time.Hour),
	"gateway.number":           integer(1, 14),
	"gateway.replicas":         integer(0, 14),
	"gateway.tunnelPort":       integer(1, math.MaxUint16),
	"gateway.overlayPort":      integer(1, math.MaxUint16),
	"gateway.anyOverlaySender": boolean(),
	"gateway.addresses":        list(ipAddress()),
	"gateway.endpoints":        list(gatewayEndpoint()),
	"gateway.service":          label(63).orEmpty(),
	"gateway.nodeName":         objectName().orEmpty(),
	"gateway.podAddresses":     boolean(),
	"gateway.mtu":              underlayMTU(),
	"gateway.probe.interval":   duration(10*time.Millisecond, time.Minute),
	"gateway.probe.silence":    duration(100*time.Millisecond, 10*time.Minute),
	"gateway.probe.answers":    integer(1, 1000),

	"route.nodeName":         objectName().orEmpty(),
	"route.overlayPort":      integer(1, math.MaxUint16),
	"route.anyOverlaySender": boolean(),
	"route.mtu":              underlayMTU(),
}

// pointless explains why some plausible settings do not exist.
var pointless = map[string]string{
	"reflection.pod.type":                   "pods follow the namespace's offloading strategy and their node, not a policy; leave it out",
	"reflection.endpointslice.type":         "EndpointSlices follow the policy of their Service: set reflection.service.type",
	"reflection.serviceaccount.type":        "tokens follow the pods that use them, not a policy; leave it out",
	"reflection.persistentvolumeclaim.type": "claims follow the pods that use them, not a policy; leave it out",
}

// needed lists the settings without a usable default that a role cannot start without.
var needed = map[string][]string{
	"controller": {"clusterID", "controller.vkubelet.image"},
	"vkubelet":   {"clusterID", "vkubelet.virtualNode", "vkubelet.nodeAddress"},
	"ipam":       {"networking.externalCIDRs"},
	"gateway":    {"clusterID"},
	"route":      {"clusterID", "route.nodeName"},
}

// neededWithNetworking lists the settings that a role cannot start without if
// networking.enabled is true.
var neededWithNetworking = map[string][]string{
	"controller": {"networking.externalCIDRs"},
}

// shortestHeartbeat is the least time between two renewals of a Lease: each is a write.
const shortestHeartbeat = 500 * time.Millisecond

// youngestKey is the least age at which a gateway replaces its key: each peer has to accept the
// next one.
const youngestKey = time.Hour

// together checks settings that depend on each other.
func (c *Config) together() error {
	var errs []error
	less := func(small string, a time.Duration, large string, b time.Duration) {
		if a >= b {
			errs = append(errs, fmt.Errorf("%s: %s is not accepted: less than %s, which is %s", small, short(a), large, short(b)))
		}
	}
	less("lease.renewDeadline", c.Lease.RenewDeadline, "lease.duration", c.Lease.Duration)
	// Candidates spread their attempts by this factor (kube/lease).
	less("lease.retryPeriod × 1.2", c.Lease.RetryPeriod*6/5, "lease.renewDeadline", c.Lease.RenewDeadline)
	// A take-over lasts as long as the lease, and must not make a health count as bad.
	less("lease.duration", c.Lease.Duration, "health.unknownGrace", c.Health.UnknownGrace)
	if h := c.Health.Heartbeat; h > 0 && h < shortestHeartbeat {
		errs = append(errs, fmt.Errorf("health.heartbeat: %s is not accepted: 0s, or at least %s", short(h), short(shortestHeartbeat)))
	}
	if c.Gateway.TunnelPort == c.Gateway.OverlayPort {
		errs = append(errs, fmt.Errorf("gateway.overlayPort: %d is not accepted: gateway.tunnelPort is the same", c.Gateway.OverlayPort))
	}
	if c.Gateway.OverlayPort != c.Route.OverlayPort {
		errs = append(errs, fmt.Errorf("route.overlayPort: %d is not accepted: write the port of gateway.overlayPort, which is %d", c.Route.OverlayPort, c.Gateway.OverlayPort))
	}
	if n := c.Gateway.Replicas; n > 0 && c.Gateway.KeySecret == "" {
		errs = append(errs, fmt.Errorf("gateway.replicas: %d is not accepted: gateway.keySecret is empty, and the next gateway with a number needs its key", n))
	}
	if a := c.Gateway.KeyAge; a > 0 && a < youngestKey {
		errs = append(errs, fmt.Errorf("gateway.keyAge: %s is not accepted: 0s, or at least %s", short(a), short(youngestKey)))
	}
	if p := c.Gateway.Probe; p.Silence < 4*p.Interval {
		errs = append(errs, fmt.Errorf("gateway.probe.silence: %s is not accepted: at least four times gateway.probe.interval, which is %s", short(p.Silence), short(p.Interval)))
	}
	for key, n := range map[string]int{"probe.failures": c.Probe.Failures, "probe.successes": c.Probe.Successes} {
		if n > c.Probe.Size {
			errs = append(errs, fmt.Errorf("%s: %d is not accepted: at most probe.window, which is %d", key, n, c.Probe.Size))
		}
	}
	for direction, p := range map[string][2]string{"outgoing": {c.Peering.Outgoing, c.Peering.OutgoingSelector}, "incoming": {c.Peering.Incoming, c.Peering.IncomingSelector}} {
		if p[0] == "Labelled" && strings.TrimSpace(p[1]) == "" {
			errs = append(errs, fmt.Errorf("peering.%s: Labelled is not accepted: peering.%sSelector is empty", direction, direction))
		}
	}
	if a := c.Authentication; a.ConnectionsPerAddress > a.Connections {
		errs = append(errs, fmt.Errorf("authentication.connectionsPerAddress: %d is not accepted: at most authentication.connections, which is %d", a.ConnectionsPerAddress, a.Connections))
	}
	if len(c.Webhook.ClientNames) > 0 && c.Webhook.ClientCA == "" {
		errs = append(errs, errors.New("webhook.clientNames: names are not accepted: webhook.clientCA is empty, so no certificate is asked for"))
	}
	errs = append(errs, c.Reflection.together(c.ClusterID)...)
	errs = append(errs, c.Networking.together()...)
	errs = append(errs, c.Sharing.together()...)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// ValidateFor returns an error that names each setting that one of the roles needs and
// that is empty, and what is accepted there.
func (e *Effective) ValidateFor(roles []string) error {
	var errs []error
	if slices.Contains(roles, "gateway") && slices.Contains(roles, "route") {
		errs = append(errs, errors.New("roles gateway and route are not accepted in one process: each changes the network of its host"))
	}
	for _, role := range roles {
		keys := needed[role]
		if e.Networking.Enabled {
			keys = slices.Concat(keys, neededWithNetworking[role])
		}
		for _, key := range keys {
			if slices.Equal(flagTexts(e.value(key)), []string{""}) {
				accepts := strings.TrimSuffix(rules[key].accepts, ", or \"\"")
				errs = append(errs, fmt.Errorf("%s: needed by role %s: %s (%s, --%s or a line in the --config file)",
					key, role, accepts, envName(key), key))
			}
		}
	}
	return errors.Join(errs...)
}
