package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// parsed returns the tolerations of taints as kubectl writes them.
func parsed(t testing.TB, taints ...string) []corev1.Toleration {
	t.Helper()
	var out []corev1.Toleration
	for _, taint := range taints {
		toleration, err := ParseToleration(taint)
		require.NoError(t, err, taint)
		out = append(out, toleration)
	}
	return out
}

func TestParseToleration(t *testing.T) {
	t.Parallel()
	for taint, want := range map[string]corev1.Toleration{
		"dedicated":                  {Key: "dedicated", Operator: corev1.TolerationOpExists},
		"dedicated=peers":            {Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "peers"},
		"dedicated=peers:NoSchedule": {Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "peers", Effect: corev1.TaintEffectNoSchedule},
		"dedicated=:NoSchedule":      {Key: "dedicated", Operator: corev1.TolerationOpEqual, Effect: corev1.TaintEffectNoSchedule},
		"example.com/slow:NoExecute": {Key: "example.com/slow", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	} {
		require.Equal(t, []corev1.Toleration{want}, parsed(t, taint), taint)
	}
	for _, taint := range []string{"", "=x", ":NoSchedule", "a b", "a=b c", "a=b:", "a=b:Never", "a=b=c", "node-role.kubernetes.io/control-plane",
		corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, "virtual-node.liqo.io/not-allowed=true:NoExecute"} {
		_, err := ParseToleration(taint)
		require.Error(t, err, taint)
	}
}

// TestTolerationsWithinThoseAllowed: of a toleration that is wider than the administrator
// allows, the part that is allowed stays.
func TestTolerationsWithinThoseAllowed(t *testing.T) {
	t.Parallel()
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	equal := func(value string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: value, Effect: effect}
	}
	const keeps, evicts = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	for name, tc := range map[string]struct {
		allowed  []string
		in, want []corev1.Toleration
	}{
		"the same":              {[]string{"dedicated=peers:NoSchedule"}, []corev1.Toleration{equal("peers", keeps)}, []corev1.Toleration{equal("peers", keeps)}},
		"another value":         {[]string{"dedicated=peers:NoSchedule"}, []corev1.Toleration{equal("pci", keeps)}, nil},
		"another effect":        {[]string{"dedicated=peers:NoSchedule"}, []corev1.Toleration{equal("peers", evicts)}, nil},
		"another key":           {[]string{"dedicated=peers"}, []corev1.Toleration{exists("vault", "")}, nil},
		"every effect":          {[]string{"dedicated=peers:NoSchedule"}, []corev1.Toleration{equal("peers", "")}, []corev1.Toleration{equal("peers", keeps)}},
		"every value":           {[]string{"dedicated=peers:NoSchedule"}, []corev1.Toleration{exists("dedicated", keeps)}, []corev1.Toleration{equal("peers", keeps)}},
		"narrower":              {[]string{"dedicated"}, []corev1.Toleration{equal("peers", keeps)}, []corev1.Toleration{equal("peers", keeps)}},
		"every key":             {[]string{"dedicated=peers"}, []corev1.Toleration{exists("", keeps)}, []corev1.Toleration{equal("peers", keeps)}},
		"several parts":         {[]string{"dedicated:NoSchedule", "dedicated=peers"}, []corev1.Toleration{exists("dedicated", "")}, []corev1.Toleration{exists("dedicated", keeps), equal("peers", "")}},
		"twice":                 {[]string{"dedicated=peers"}, []corev1.Toleration{equal("peers", ""), exists("dedicated", "")}, []corev1.Toleration{equal("peers", "")}},
		"all taints":            {[]string{AllKeys}, []corev1.Toleration{exists("vault", ""), equal("pci", evicts)}, []corev1.Toleration{exists("vault", ""), equal("pci", evicts)}},
		"all, but its own use":  {[]string{AllKeys}, []corev1.Toleration{exists("", keeps), exists("node-role.kubernetes.io/control-plane", ""), exists("node.kubernetes.io/unschedulable", "")}, nil},
		"all, and a key":        {[]string{AllKeys, "dedicated=peers"}, []corev1.Toleration{exists("", keeps)}, []corev1.Toleration{equal("peers", keeps)}},
		"by another comparison": {[]string{"dedicated=7"}, []corev1.Toleration{{Key: "dedicated", Operator: "Gt", Value: "7"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allowed := Allowed{Tolerations: parsed(t, tc.allowed...)}
			require.Equal(t, tc.want, hardened(t, corev1.PodSpec{Tolerations: tc.in}, allowed).Tolerations)
		})
	}
}
