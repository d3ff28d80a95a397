package v1beta1

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestValidPeerUser(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		id, user string
		want     bool
	}{
		"certificate":               {"rome", "liqo.io:peer:rome:1", true},
		"service account":           {"rome", "system:serviceaccount:liqo-tenant-rome:peer-1", true},
		"a vkubelet":                {"rome", "system:serviceaccount:liqo-tenant-rome:vk-rome", false},
		"a certificate called so":   {"rome", "liqo.io:peer:rome:vk-1", true},
		"another peer's":            {"rome", "liqo.io:peer:oslo:1", false},
		"another, longer id":        {"rome", "liqo.io:peer:rome2:1", false},
		"another tenant namespace":  {"rome", "system:serviceaccount:liqo-tenant-rome2:peer", false},
		"no serial":                 {"rome", "liqo.io:peer:rome", false},
		"an empty serial":           {"rome", "liqo.io:peer:rome:", false},
		"no service account's name": {"rome", "system:serviceaccount:liqo-tenant-rome:", false},
		"an administrator":          {"rome", "system:admin", false},
		"no user":                   {"rome", "", false},
		"no id":                     {"", "liqo.io:peer::1", false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, ValidPeerUser(tc.id, tc.user))
		})
	}
}

func TestEnrolled(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		serial, user string
		want         bool
	}{
		"by a certificate":     {"4f3a", "liqo.io:peer:rome:4f3a", true},
		"by a service account": {"4f3a", "system:serviceaccount:liqo-tenant-rome:peer-4f3a", true},
		"by hand":              {"", "system:serviceaccount:liqo-tenant-rome:peer-1", false},
		"by hand, a serial":    {"", "liqo.io:peer:rome:", false},
		"by hand, afterwards":  {"4f3a", "system:serviceaccount:liqo-tenant-rome:peer-1", false},
		"revoked":              {"4f3a", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			fc := &ForeignCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{EnrolmentAnnotation: tc.serial}}, Spec: ForeignClusterSpec{ClusterID: "rome", UserName: tc.user}}
			require.Equal(t, tc.want, Enrolled(fc))
		})
	}
}

func TestReached(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		remote string
		status metav1.ConditionStatus // empty: there is no condition
		want   bool
	}{
		"it answers":         {"liqo-tenant-rome", metav1.ConditionTrue, true},
		"it does not answer": {"liqo-tenant-rome", metav1.ConditionFalse, false},
		"not known":          {"liqo-tenant-rome", metav1.ConditionUnknown, false},
		"no check":           {"liqo-tenant-rome", "", false},
		"by report alone":    {"", metav1.ConditionTrue, false},
	} {
		t.Run(name, func(t *testing.T) {
			fc := &ForeignCluster{Status: ForeignClusterStatus{TenantNamespace: TenantNamespaces{Remote: tc.remote}}}
			if tc.status != "" {
				fc.Status.Conditions = []metav1.Condition{{Type: ConditionAPIServer, Status: tc.status}}
			}
			require.Equal(t, tc.want, Reached(fc))
		})
	}
}
