package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestAnnotations(t *testing.T) {
	t.Parallel()
	some := Annotations{"example.com/note", "helm.sh/*", "nginx.ingress.kubernetes.io/rewrite-target", "io.kubernetes.cri-o.userns-mode"}
	for key, want := range map[string]struct{ none, some, all bool }{
		"note":                                              {true, true, true},
		"checksum/config":                                   {true, true, true},
		"liqo.io/skip-reflection":                           {true, true, true},
		"offloading.liqo.io/reflected":                      {true, true, true},
		"notliqo.io/x":                                      {false, false, true},
		"example.com/note":                                  {false, true, true},
		"example.com/notes":                                 {false, false, true},
		"a.example.com/note":                                {false, false, true},
		"helm.sh/hook":                                      {false, true, true},
		"meta.helm.sh/release-name":                         {false, false, true},
		"helm.sh":                                           {false, false, true},
		"io.kubernetes.cri-o.cgroup":                        {false, false, true},
		"kubernetes.io/config.mirror":                       {false, false, false},
		"kubernetes.io/config.source":                       {false, false, false},
		"kubernetes.io/egress-bandwidth":                    {false, false, true},
		"nginx.ingress.kubernetes.io/rewrite-target":        {false, true, true},
		"nginx.ingress.kubernetes.io/server-snippet":        {false, false, true},
		"cert-manager.io/cluster-issuer":                    {false, false, true},
		"external-dns.alpha.kubernetes.io/hostname":         {false, false, true},
		"metallb.universe.tf/allow-shared-ip":               {false, false, true},
		"iam.amazonaws.com/role":                            {false, false, true},
		"ipam.cilium.io/ip-pool":                            {false, false, true},
		"ipam.antrea.io/ippools":                            {false, false, true},
		"networking.gke.io/interfaces":                      {false, false, true},
		"io.katacontainers.config.hypervisor.kernel_params": {false, false, true},
		"io.kubernetes.cri-o.userns-mode":                   {false, true, true},
		"k8s.v1.cni.cncf.io/networks":                       {false, false, true},
		"vault.hashicorp.com/agent-inject":                  {false, false, true},
	} {
		require.Equal(t, want.none, Annotations(nil).Allows(key, "x"), key)
		require.Equal(t, want.some, some.Allows(key, "x"), key)
		require.Equal(t, want.all, Annotations{AllKeys}.Allows(key, "x"), key)
	}
}

// TestAnnotationsEndNoDirective: values that a controller writes into the configuration of a
// proxy cannot add to it.
func TestAnnotationsEndNoDirective(t *testing.T) {
	t.Parallel()
	const rewrite = "nginx.ingress.kubernetes.io/rewrite-target"
	for value, want := range map[string]bool{
		"/$1": true, "/app/$2": true, "8m": true, "": true,
		"/; return 200 x": false, "/ }": false, "/{": false, "/\n": false, "/ # x": false, `/"`: false, "/'": false, `/\x`: false, "/\r": false, "/`": false,
	} {
		require.Equal(t, want, Annotations{rewrite}.Allows(rewrite, value), value)
		require.Equal(t, want, Annotations{"nginx.ingress.kubernetes.io/*"}.Allows(rewrite, value), value)
		require.True(t, Annotations{AllKeys}.Allows(rewrite, value), value)
	}
	require.True(t, Annotations{"example.com/json"}.Allows("example.com/json", `{"a": 1}`))
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
			require.Equal(t, tc.want, hardened(t, corev1.PodSpec{TerminationGracePeriodSeconds: tc.in}, Allowed{}).TerminationGracePeriodSeconds)
		})
	}
}
