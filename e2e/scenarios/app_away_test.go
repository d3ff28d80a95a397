package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/e2e/site"
)

// storeHomeAway kills home's control plane in a one-way peering. Milan has no credentials for
// rome: the gateways report by the tunnel, which lives, that rome's API server is down. Endpoints of
// rome's pods leave the Services of milan, and return with the API server; milan's own stay. No pod
// is created or started again.
func storeHomeAway(t *testing.T, w storeWorld) {
	before := map[*site.Site]map[string]string{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		pods := must(containers(t.Context(), s, storeNamespace))(t)
		before[s] = pods
	}
	own := map[string]string{"cart": w.pod(t, "cart", "milan").Name, "web": w.pod(t, "web", "milan").Name, "catalog": ""}
	stopPlane(w.rome.Cluster)
	away := w.endpointsInMilan(own)
	within(t, time.Minute, "endpoints of rome's pods are gone in milan", func(ctx context.Context) error {
		return errors.Join(peerSays(w.milan, "rome", corev1beta1.ConditionAPIServer, metav1.ConditionFalse, networkingv1beta1.ReasonPeerReportsDown)(ctx),
			peerSays(w.milan, "rome", corev1beta1.ConditionNetwork, metav1.ConditionTrue, "")(ctx), away(ctx))
	})
	hold(t, 3*time.Second, "and milan's own stay", away)
	require.NoError(t, startPlane(t.Context(), w.rome.Cluster))
	storeEndpoints(t, w)
	w.requestsSucceed(t)
	within(t, longest, "the store is open", w.open)
	for s, pods := range before {
		w.same(t, s, storeNamespace, pods)
	}
}

// endpointsInMilan looks for the only ready endpoint of each Service in milan; "": it has none.
func (w storeWorld) endpointsInMilan(want map[string]string) func(context.Context) error {
	return func(ctx context.Context) error {
		for service, pod := range want {
			have, err := endpointPods(ctx, w.milan.Cluster, service)
			if err != nil {
				return err
			}
			if pod == "" && len(have) > 0 || pod != "" && !slices.Equal(have, []string{pod}) {
				return fmt.Errorf("pods %v are ready endpoints of %s, and not %q alone", have, service, pod)
			}
		}
		return nil
	}
}
