package roles

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/liqod/liqod/kube/admit"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/shadow/namespace"
	"github.com/liqod/liqod/shadow/virtualnode"
)

// rulesForPeople are the rules for what people write, by their paths.
func rulesForPeople(c clients, clusterID, ownNamespace string) map[string]admit.Func {
	offloadings := namespace.OffloadingRule{Kube: c.kube, Liqo: c.liqo, ClusterID: clusterID, OwnNamespace: ownNamespace}
	return map[string]admit.Func{
		validateNamespaceOffloadingPath: lenient(offloadings.Decide),
		validateVirtualNodePath:         lenient(virtualnode.Rule{Kube: c.kube, Liqo: c.liqo}.Decide),
		validateForeignClusterPath:      lenient(link.Rule{Liqo: c.liqo, ClusterID: clusterID}.Decide),
	}
}

// lenient lets a request through whose rule could not be asked, as it would be without the
// webhook: role controller looks at everything again.
func lenient(decide func(context.Context, *admissionv1.AdmissionRequest) (admit.Response, error)) admit.Func {
	return func(ctx context.Context, req *admissionv1.AdmissionRequest) admit.Response {
		answer, err := decide(ctx, req)
		if err != nil {
			return admit.Response{Allowed: true, Warnings: []string{fmt.Sprintf("the webhook of liqod could not judge this: %v; see its conditions for what liqod makes of it", err)}}
		}
		return answer
	}
}
