package exchange

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
)

func TestPeerServers(t *testing.T) {
	t.Parallel()
	report := func(status metav1.ConditionStatus, reason string) *networkingv1beta1.Connection {
		return &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Status: networkingv1beta1.ConnectionStatus{
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}, {Type: "PeerAPIServer", Status: status, Reason: reason, Message: "told"}},
		}}
	}
	silent := report("True", "PeerReportsUp")
	silent.Status.Conditions = silent.Status.Conditions[:1]
	going := report("True", "PeerReportsUp")
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: time.Unix(1000, 0)}, []string{"test/hold"}
	for name, tc := range map[string]struct {
		off      bool
		enabled  *bool
		gateways *fixedGateways
		objects  []runtime.Object
		want     string // empty: there is no condition
	}{
		"no Connection":                 {},
		"nobody has passed one on":      {objects: []runtime.Object{silent}},
		"a Connection that goes":        {objects: []runtime.Object{going}},
		"up":                            {objects: []runtime.Object{report("True", "PeerReportsUp")}, want: "True PeerReportsUp told"},
		"down":                          {objects: []runtime.Object{report("False", "PeerReportsDown")}, want: "False PeerReportsDown told"},
		"the tunnel is down":            {objects: []runtime.Object{report("Unknown", "TunnelDown")}, want: "Unknown TunnelDown told"},
		"off in the cluster":            {off: true, objects: []runtime.Object{report("True", "PeerReportsUp")}},
		"off, and asked for":            {off: true, enabled: ptr.To(true), objects: []runtime.Object{report("True", "PeerReportsUp")}},
		"off for the peer":              {enabled: ptr.To(false), objects: []runtime.Object{report("True", "PeerReportsUp")}},
		"the reporter is dead":          {gateways: &fixedGateways{known: true}, objects: []runtime.Object{report("True", "PeerReportsUp")}, want: "Unknown NoGateway"},
		"the reporter of a bad is dead": {gateways: &fixedGateways{known: true}, objects: []runtime.Object{report("False", "PeerReportsDown")}, want: "Unknown NoGateway"},
		"gateways are not known so far": {gateways: &fixedGateways{}, objects: []runtime.Object{report("True", "PeerReportsUp")}, want: "True PeerReportsUp told"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := PeerServers{filledStanding(t, tc.gateways, tc.off, tc.objects)}.Condition(networkedBy(tc.enabled))
			if tc.want == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Contains(t, string(got.Status)+" "+got.Reason+" "+got.Message, tc.want)
		})
	}
}
