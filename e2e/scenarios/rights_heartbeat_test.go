package scenarios

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

// heartbeatAttempts are attempts to write Leases of others, or more of the own one than its
// times. What a peer may write is written first.
func heartbeatAttempts(t *testing.T, p attacker) map[string]attempt {
	t.Helper()
	const renewal = `{"spec":{"renewTime":"2026-01-02T03:04:05.000006Z"}}`
	patch := func(namespace, name, data string) attempt {
		return lab.Patches(p.core.CoordinationV1().Leases(namespace), name, types.MergePatchType, []byte(data))
	}
	require.NoError(t, patch(tenantOfRome, corev1beta1.HeartbeatLease, renewal)(t.Context()))
	require.NoError(t, patch(tenantOfRome, corev1beta1.HeartbeatLease, `{"spec":{"renewTime":null}}`)(t.Context()))
	return map[string]attempt{
		"who holds its Lease": patch(tenantOfRome, corev1beta1.HeartbeatLease, `{"spec":{"holderIdentity":"x"}}`),
		"labels of its Lease": patch(tenantOfRome, corev1beta1.HeartbeatLease, `{"metadata":{"labels":{"a":"b"}}}`),
		"annotations of it":   patch(tenantOfRome, corev1beta1.HeartbeatLease, `{"metadata":{"annotations":{"a":"b"}}}`),
	}
}
