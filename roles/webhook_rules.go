package roles

import (
	"context"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/informers"

	"github.com/liqod/liqod/api/generated/informers/externalversions"
	coreinformers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/namespace"
	"github.com/liqod/liqod/shadow/rules"
	"github.com/liqod/liqod/shadow/virtualnode"
)

// rulesForPeople returns the rules for objects that people write, by path.
func rulesForPeople(c clients, own externalversions.SharedInformerFactory, clusterID, ownNamespace string) map[string]serve.Rule {
	virtualNodes, peers := own.Offloading().V1beta1().VirtualNodes(), own.Core().V1beta1().ForeignClusters()
	offloadings := namespace.OffloadingRule{
		VirtualNodes: virtualNodes.Lister(), Synced: virtualNodes.Informer().HasSynced, Kube: c.kube, ClusterID: clusterID, OwnNamespace: ownNamespace,
	}
	nodes := virtualnode.Rule{VirtualNodes: virtualNodes.Lister(), Synced: virtualNodes.Informer().HasSynced, Kube: c.kube}
	clusters := link.Rule{ForeignClusters: peers.Lister(), Synced: peers.Informer().HasSynced, ClusterID: clusterID}
	return map[string]serve.Rule{
		validateNamespaceOffloadingPath: lenient(offloadings.Decide),
		validateVirtualNodePath:         lenient(nodes.Decide),
		validateForeignClusterPath:      lenient(clusters.Decide),
	}
}

// rulesForPeers adds the rules for objects that peers reflect, by path. denied counts what
// they refuse.
func rulesForPeers(cfg *config.Effective, peers coreinformers.ForeignClusterInformer, own informers.SharedInformerFactory, denied func(consumer, reason string), add map[string]serve.Rule) {
	ingresses, classes, sharing := own.Networking().V1().Ingresses(), own.Storage().V1().StorageClasses(), cfg.Sharing
	services := namespace.PeerServiceRule{Bounds: perPeer(cfg, peers.Lister(), serviceBounds), Synced: peers.Informer().HasSynced}
	metadata := namespace.PeerMetadataRule{Metadata: perPeer(cfg, peers.Lister(), metadataOf), Synced: peers.Informer().HasSynced}
	hosts := namespace.PeerIngressRule{
		Bounds: rules.IngressBounds{Hosts: sharing.IngressHosts}, Ingresses: ingresses.Lister(), Synced: ingresses.Informer().HasSynced,
	}
	claims := namespace.PeerClaimRule{
		Allowed: rules.Allowed{StorageClasses: sharing.StorageClasses, ProvisionedClass: provisioned(classes.Lister())}, Synced: classes.Informer().HasSynced,
	}
	add[mutateServicePath] = countRequests(denied, deniedService, services.Decide)
	add[mutateMetadataPath] = countRequests(denied, deniedAnnotations, metadata.Decide)
	add[validateIngressPath] = countRequests(denied, deniedIngress, hosts.Decide)
	add[validateClaimPath] = countRequests(denied, deniedClaim, claims.Decide)
}

func serviceBounds(cfg config.Config) rules.ServiceBounds {
	return rules.ServiceBounds{Types: cfg.Sharing.ServiceTypes, Fields: cfg.Sharing.ServiceFields}
}

// lenient accepts a request if decide returns an error. Without the webhook, the request
// would be accepted as well, and role controller checks the objects again.
func lenient(decide decision) serve.Rule {
	return orElse(decide, func(err error) serve.Decision {
		return serve.Decision{Allowed: true, Warnings: []string{fmt.Sprintf("the webhook of liqod could not check this: %v; the object's conditions show the result of liqod's own check", err)}}
	})
}

// strict refuses a request if decide returns an error: nothing else checks it.
func strict(decide decision) serve.Rule {
	return orElse(decide, func(err error) serve.Decision {
		return serve.Decision{Message: fmt.Sprintf("the webhook of liqod could not check this, try again: %v", err), Code: http.StatusServiceUnavailable}
	})
}

type decision = func(context.Context, *admissionv1.AdmissionRequest) (serve.Decision, error)

func orElse(decide decision, failed func(error) serve.Decision) serve.Rule {
	return func(ctx context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
		answer, err := decide(ctx, req)
		if err != nil {
			return failed(err)
		}
		return answer
	}
}

// measure has the duration and the result of each decision counted.
func measure(to *registry, rules map[string]serve.Rule) {
	durations := histogram("liqod_webhook_seconds", "Time until the webhook decided; webhook is the path of the rule, result is allowed, changed or denied.", "webhook", "result")
	to.add(durations)
	for path, decide := range rules {
		rules[path] = func(ctx context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
			start := time.Now()
			answer := decide(ctx, req)
			durations.WithLabelValues(path, decisionOf(answer)).Observe(time.Since(start).Seconds())
			return answer
		}
	}
}

func decisionOf(answer serve.Decision) string {
	switch {
	case !answer.Allowed:
		return "denied"
	case len(answer.Patch) > 0:
		return "changed"
	}
	return "allowed"
}
