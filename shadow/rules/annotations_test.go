package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestAnnotation(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"note":                                           true,
		"example.com/note":                               true,
		"prometheus.io/scrape":                           true,
		"kubernetes.io/config.mirror":                    false,
		"kubernetes.io/config.source":                    false,
		"kubernetes.io/egress-bandwidth":                 true,
		"kubernetes.io/ingress-bandwidth":                true,
		"k8s.v1.cni.cncf.io/networks":                    false,
		"v1.multus-cni.io/default-network":               false,
		"cni.projectcalico.org/ipAddrs":                  false,
		"ovn.kubernetes.io/logical_switch":               false,
		"net1.default.ovn.kubernetes.io/ip_address":      false,
		"k8s.ovn.org/pod-networks":                       false,
		"cluster-autoscaler.kubernetes.io/safe-to-evict": false,
		"karpenter.sh/do-not-disrupt":                    false,
		"descheduler.alpha.kubernetes.io/evict":          false,
		"notovn.org/x":                                   true,
		"ovn.org":                                        true,
	} {
		require.Equal(t, want, AnnotationAllowed(key), key)
	}
}

func TestGraceIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want *int64 }{
		"none":      {nil, nil},
		"short":     {new(int64(0)), new(int64(0))},
		"an hour":   {new(int64(3600)), new(int64(3600))},
		"a century": {new(int64(3153600000)), new(int64(3600))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := corev1.PodSpec{TerminationGracePeriodSeconds: tc.in}
			require.NoError(t, Harden(&spec, Allowed{}))
			require.Equal(t, tc.want, spec.TerminationGracePeriodSeconds)
		})
	}
}
