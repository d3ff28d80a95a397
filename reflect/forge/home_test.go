package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestPodsThatLiveAtHome: a pod whose namespace has services Home has the DNS of this cluster, as a kubelet of
// this cluster gives it, and the name of its namespace here. A pod with another DNS keeps it.
func TestPodsThatLiveAtHome(t *testing.T) {
	t.Parallel()
	o := options()
	o.Home, o.DNS = true, DNS{Servers: []string{"10.96.0.10"}, Domain: "cluster.local"}
	own := &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.1", "10.96.0.10", "192.0.2.2", "192.0.2.3"}, Searches: []string{"corp.example"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}},
	}
	namespace := localPod().Namespace
	searches := []string{namespace + ".svc.cluster.local", "svc.cluster.local", "cluster.local"}
	ndots := []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}}
	for name, tc := range map[string]struct {
		policy  corev1.DNSPolicy
		host    bool
		config  *corev1.PodDNSConfig
		is      corev1.DNSPolicy
		becomes *corev1.PodDNSConfig
	}{
		"the cluster's":                 {corev1.DNSClusterFirst, false, nil, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.10"}, Searches: searches, Options: ndots}},
		"and its own":                   {corev1.DNSClusterFirst, false, own, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.10", "192.0.2.1", "192.0.2.2"}, Searches: append(searches[:3:3], "corp.example"), Options: own.Options}},
		"the cluster's in host network": {corev1.DNSClusterFirstWithHostNet, true, nil, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.10"}, Searches: searches, Options: ndots}},
		"the node's in host network":    {corev1.DNSClusterFirst, true, nil, corev1.DNSClusterFirst, nil},
		"the node's":                    {corev1.DNSDefault, false, nil, corev1.DNSDefault, nil},
		"its own alone":                 {corev1.DNSNone, false, own, corev1.DNSNone, own},
	} {
		local := localPod()
		local.Spec.DNSPolicy, local.Spec.HostNetwork, local.Spec.DNSConfig = tc.policy, tc.host, tc.config
		local.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("metadata.namespace")}}}
		before := local.DeepCopy()
		shadow, err := ShadowPod(local, o)
		require.NoError(t, err, name)
		require.Equal(t, before, local, "the argument is not changed")
		require.Equal(t, tc.is, shadow.Spec.Pod.DNSPolicy, name)
		require.Equal(t, tc.becomes, shadow.Spec.Pod.DNSConfig, name)
		require.Equal(t, "metadata.annotations['"+homeNamespace+"']", shadow.Spec.Pod.Containers[0].Env[0].ValueFrom.FieldRef.FieldPath)
		require.Equal(t, namespace, shadow.Annotations[homeNamespace])
		_, changed := UpdateShadowPod(shadow, local, o)
		require.False(t, changed, name)
	}
}
