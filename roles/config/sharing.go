package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	podrules "github.com/liqod/liqod/shadow/rules"
)

// Sharing configures the capacity that this cluster offers its peers.
type Sharing struct {
	// Trust applies to the peers whose ForeignCluster has none of its own. Under has the
	// settings that follow it.
	Trust      corev1beta1.Trust `mapstructure:"trust"`
	Mode       string            `mapstructure:"mode"`
	Percentage int               `mapstructure:"percentage"`
	// Limits are amounts, PeerLimits such of one peer: Amounts and AmountsOfPeers read them.
	Limits     []string `mapstructure:"limits"`
	PeerLimits []string `mapstructure:"peerLimits"`
	// NodeSelector and Labels are pairs, which Pairs reads.
	NodeSelector []string `mapstructure:"nodeSelector"`
	// SelectorLabels are keys of labels.
	SelectorLabels  []string      `mapstructure:"selectorLabels"`
	UpdateThreshold int           `mapstructure:"updateThreshold"`
	Expiration      time.Duration `mapstructure:"expiration"`
	Labels          []string      `mapstructure:"labels"`
	// In the lists of classes "*" stands for all that the cluster has.
	StorageClasses      []string `mapstructure:"storageClasses"`
	IngressClasses      []string `mapstructure:"ingressClasses"`
	LoadBalancerClasses []string `mapstructure:"loadBalancerClasses"`
	// ServiceTypes and ServiceFields bound the Services of peers, IngressHosts their Ingresses.
	ServiceTypes  []string `mapstructure:"serviceTypes"`
	ServiceFields []string `mapstructure:"serviceFields"`
	IngressHosts  []string `mapstructure:"ingressHosts"`
	// Annotations and LabelsLeftOut are keys, as package rules reads them.
	Annotations       []string `mapstructure:"annotations"`
	LabelsLeftOut     []string `mapstructure:"labelsLeftOut"`
	LimitsEnforcement string   `mapstructure:"limitsEnforcement"`
	// TwinLimits are counts and sizes, which Amounts reads.
	TwinLimits        []string `mapstructure:"twinLimits"`
	NamespacesPerPeer int      `mapstructure:"namespacesPerPeer"`
	StoragePerPeer    string   `mapstructure:"storagePerPeer"`
	NetworkPolicy     bool     `mapstructure:"networkPolicy"`
	// ReachableRanges need NetworkPolicy.
	ReachableRanges []string `mapstructure:"reachableRanges"`
}

// together checks the settings of a section that depend on each other.
func (s Sharing) together() (errs []error) {
	if !s.NetworkPolicy && len(s.ReachableRanges) > 0 {
		errs = append(errs, errors.New("sharing.reachableRanges: ranges are not accepted without sharing.networkPolicy: pods of peers reach every range then"))
	}
	seen := map[string]bool{}
	for _, limit := range s.TwinLimits {
		name, _, _ := strings.Cut(limit, "=")
		if seen[name] {
			errs = append(errs, fmt.Errorf("sharing.twinLimits: %s is not accepted twice: write one value", name))
		}
		seen[name] = true
	}
	return errs
}

// counted are the resources that a ResourceQuota counts, beside those that begin with count/.
var counted = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceServices, corev1.ResourceServicesLoadBalancers, corev1.ResourceServicesNodePorts, corev1.ResourceConfigMaps, corev1.ResourceSecrets,
	corev1.ResourcePersistentVolumeClaims, corev1.ResourceReplicationControllers,
}

// storageClassInfix stands between the name of a class and the resource of its claims, in the
// names of what a ResourceQuota bounds.
const storageClassInfix = ".storageclass.storage.k8s.io/"

// twinLimit accepts the number of objects of a resource, and the size of claims. A
// ResourceQuota of CPU or memory would refuse pods that declare none; a claim always has a
// size.
func twinLimit() kind {
	return text("resource=count", "resource=count with pods, services, services.loadbalancers, services.nodeports, configmaps, secrets, persistentvolumeclaims or count/<resource>.<group>, as in secrets=500; "+
		"requests.storage=quantity for the size of all claims, as in requests.storage=1Ti; and both of claims after <class>"+storageClassInfix+"; amounts of CPU and memory belong into Quotas", func(s string) bool {
		name, value, found := strings.Cut(s, "=")
		resource, generic := strings.CutPrefix(name, "count/")
		class, ofClass, classed := strings.Cut(name, storageClassInfix)
		if classed && len(validation.IsDNS1123Subdomain(class)) == 0 && (ofClass == string(corev1.ResourceRequestsStorage) || ofClass == string(corev1.ResourcePersistentVolumeClaims)) {
			name = ofClass
		}
		if name == string(corev1.ResourceRequestsStorage) {
			_, _, ok := parseAmount(s)
			return ok
		}
		n, err := strconv.ParseUint(value, 10, 31)
		return found && err == nil && strconv.FormatUint(n, 10) == value && (slices.Contains(counted, corev1.ResourceName(name)) || generic && len(validation.IsDNS1123Subdomain(resource)) == 0)
	})
}

// amount accepts resource=quantity.
func amount() kind {
	return text("resource=quantity", "resource=quantity, as in cpu=4 or example.com/gpu=1", func(s string) bool {
		_, _, ok := parseAmount(s)
		return ok
	})
}

func parseAmount(s string) (corev1.ResourceName, resource.Quantity, bool) {
	name, value, found := strings.Cut(s, "=")
	q, err := resource.ParseQuantity(value)
	return corev1.ResourceName(name), q, found && err == nil && q.Sign() >= 0 && len(validation.IsQualifiedName(name)) == 0
}

// peerLimit accepts the id of a cluster and amounts.
func peerLimit() kind {
	return text("limit", `a cluster id and amounts, as in "rome cpu=4 memory=8Gi"`, func(s string) bool {
		fields := strings.Fields(s)
		if len(fields) < 2 || len(fields[0]) > 51 || !dnsLabel.MatchString(fields[0]) {
			return false
		}
		for _, f := range fields[1:] {
			if _, _, ok := parseAmount(f); !ok {
				return false
			}
		}
		return true
	})
}

// SharesZones reports whether zones of a peer are those of this cluster with the same names.
func (r *Reflection) SharesZones(peer string) bool {
	return slices.Contains(r.SharedZones, podrules.AllKeys) || slices.Contains(r.SharedZones, peer)
}

// together checks that each id in SharedZones says something.
func (r *Reflection) together(own string) (errs []error) {
	if slices.Contains(r.SharedZones, own) {
		errs = append(errs, fmt.Errorf("reflection.sharedZones: %s is not accepted: it is this cluster; write ids of peers", own))
	}
	if slices.Contains(r.SharedZones, podrules.AllKeys) && len(r.SharedZones) > 1 {
		errs = append(errs, errors.New(`reflection.sharedZones: ids beside "*" are not accepted: "*" is all peers`))
	}
	return errs
}

// peer accepts the id of a cluster, or the star.
func peer() kind {
	return text("peer", `the id of a peer, or "*" for all`, func(s string) bool {
		return s == podrules.AllKeys || len(s) <= 51 && dnsLabel.MatchString(s)
	})
}

// pair accepts the key and the value of a label.
func pair() kind {
	return text("label=value", "label=value, as in region=north", func(s string) bool {
		key, value, found := strings.Cut(s, "=")
		return found && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
	})
}

// labelKey accepts the key of a label.
func labelKey() kind {
	return text("key", "the key of a label of nodes, as in kubernetes.io/hostname", func(s string) bool { return len(validation.IsQualifiedName(s)) == 0 })
}

// selectorLabel accepts the key of a label that several nodes have in common, or the star.
func selectorLabel() kind {
	return text("key", `the key of a node label that names no single node, as in topology.kubernetes.io/zone, or "*"`, func(s string) bool {
		return s == podrules.AllKeys || len(validation.IsQualifiedName(s)) == 0 && !podrules.SingleNode(s)
	})
}

// taint accepts the taints that pods of peers may tolerate.
func taint() kind {
	return text("taint", `key[=value][:effect], as in dedicated=peers:NoSchedule; none of control planes, of node.kubernetes.io and of virtual nodes; or "*"`, func(s string) bool {
		_, err := podrules.ParseToleration(s)
		return err == nil
	})
}

// annotation accepts the key of an annotation, all keys of a domain, or the star.
func annotation() kind {
	return text("key", `the key of an annotation, as in example.com/note, a domain and /* for all keys of it, or "*"`, func(s string) bool {
		return s == podrules.AllKeys || keyOrDomain(s)
	})
}

func leftOutLabel() kind {
	return text("key", "the key of a label, as in example.com/note, or a domain and /* for all keys of it and of the domains below it", keyOrDomain)
}

func keyOrDomain(s string) bool {
	domain, found := strings.CutSuffix(s, "/*")
	return len(validation.IsQualifiedName(s)) == 0 || found && len(validation.IsDNS1123Subdomain(domain)) == 0
}

// Tolerations reads a checked list of taints.
func Tolerations(list []string) (out []corev1.Toleration) {
	for _, s := range list {
		if t, err := podrules.ParseToleration(s); err == nil {
			out = append(out, t)
		}
	}
	return out
}

// className accepts the name of a class, or the star.
func className() kind {
	return text("name", `the name of a class, or "*"`, func(s string) bool {
		return s == "*" || len(validation.IsDNS1123Subdomain(s)) == 0
	})
}

// ingressHost accepts a host of Ingresses, with a wildcard for its first label, in which the
// id of the peer may be a label.
func ingressHost() kind {
	return text("host", "a host, *. before a domain for all hosts below it, and "+podrules.PeerInHosts+" for the id of the peer, as in *."+podrules.PeerInHosts+".example.com", func(s string) bool {
		host := strings.ReplaceAll(strings.TrimPrefix(s, "*."), podrules.PeerInHosts, "peer")
		return len(validation.IsDNS1123Subdomain(host)) == 0
	})
}

// Amounts reads a checked list of amounts.
func Amounts(list []string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, s := range list {
		if name, q, ok := parseAmount(s); ok {
			out[name] = q
		}
	}
	return out
}

// AmountsOfPeers reads a checked list of the limits of peers, by cluster id. It merges the
// entries of one peer.
func AmountsOfPeers(list []string) map[string]corev1.ResourceList {
	out := map[string]corev1.ResourceList{}
	for _, s := range list {
		fields := strings.Fields(s)
		if len(fields) == 0 {
			continue
		}
		if out[fields[0]] == nil {
			out[fields[0]] = corev1.ResourceList{}
		}
		for name, q := range Amounts(fields[1:]) {
			out[fields[0]][name] = q
		}
	}
	return out
}

// Pairs reads a checked list of labels.
func Pairs(list []string) map[string]string {
	out := map[string]string{}
	for _, s := range list {
		key, value, _ := strings.Cut(s, "=")
		out[key] = value
	}
	return out
}
