package rules

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// commands are labels and annotations with which controllers place pods, copy objects into
// other namespaces, inject containers or credentials, or read paths.
var commands = Marks{
	Annotations: map[string]string{
		"volume.kubernetes.io/selected-node":                      "worker-1",
		"replicator.v1.mittwald.de/replicate-to":                  ".*",
		"kubed.appscode.com/sync":                                 "",
		"reflector.v1.k8s.emberstack.com/reflection-auto-enabled": "true",
		"nfs.io/storage-path":                                     "../bank",
		"cdi.kubevirt.io/storage.import.endpoint":                 "http://10.0.0.1",
		"kubernetes.io/config.mirror":                             "x",
		"iam.amazonaws.com/role":                                  "admin",
		"nginx.ingress.kubernetes.io/rewrite-target":              "/; return 200 x",
		"service.beta.kubernetes.io/aws-load-balancer-internal":   "false",
		"injector.tumblr.com/request":                             "x",
		"scheduler.alpha.kubernetes.io/critical-pod":              "",
		"pod-security.kubernetes.io/enforce-policy":               "privileged:latest",
		"k8s-sidecar-target-directory":                            "../../etc",
		"argocd.argoproj.io/tracking-id":                          "shop:/Service:shop/web",
	},
	Labels: map[string]string{
		"grafana_dashboard": "1", "grafana_datasource": "1", "azure.workload.identity/use": "true", "sidecar.istio.io/inject": "true",
		"istio.io/rev": "x", "linkerd.io/inject": "enabled", "k8s.ovn.org/service-name": "x", "config.openshift.io/inject-trusted-cabundle": "true",
		"aadpodidbinding": "payments", "spire-workload": "true", "admission.datadoghq.com/enabled": "true", "kustomize.toolkit.fluxcd.io/name": "shop",
	},
}

var usual = Metadata{
	Annotations: Annotations{"helm.sh/*", "nginx.ingress.kubernetes.io/rewrite-target"},
	Labels:      LeftOutLabels{"k8s-sidecar-target-directory", "aadpodidbinding", "spire-workload", "admission.datadoghq.com/*", "grafana_dashboard", "grafana_datasource", "azure.workload.identity/*", "istio.io/*", "linkerd.io/*", "ovn.org/*", "config.openshift.io/*"},
}

// written returns the kinds that the roles of peers in twin namespaces may write.
func written(t *testing.T) (kinds []string) {
	t.Helper()
	text, err := os.ReadFile("../../charts/liqod/templates/rbac-peer.yaml")
	require.NoError(t, err)
	names := map[string]string{}
	for _, kind := range []string{"ConfigMap", "Secret", "Service", "Ingress", "PersistentVolumeClaim", "Pod", "EndpointSlice", "ShadowPod", "ShadowEndpointSlice"} {
		names[strings.Replace(strings.ToLower(kind), "ingress", "ingresse", 1)+"s"] = kind
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		plain := slices.DeleteFunc(strings.Split(document, "\n"), func(line string) bool { return strings.Contains(line, "{{") })
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal([]byte(strings.Join(plain, "\n")), &role))
		if role.Name != "liqod-peer-twin" && !strings.HasPrefix(role.Name, "liqod-peer-accepted") {
			continue
		}
		for _, rule := range role.Rules {
			if !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return verb == "create" || verb == "update" || verb == "patch" || verb == "*" }) {
				continue
			}
			for _, resource := range rule.Resources {
				if strings.HasPrefix(resource, "pods/") {
					continue // sessions
				}
				require.Contains(t, names, resource, "a kind that peers write: it needs a rule for its metadata")
				kinds = append(kinds, names[resource])
			}
		}
	}
	require.Contains(t, kinds, "Ingress")
	return append(kinds, "Pod", "EndpointSlice")
}

// TestMetadataOfEveryKind: no kind that a peer writes, or has this cluster write, has metadata
// that commands controllers; ordinary applications keep theirs.
func TestMetadataOfEveryKind(t *testing.T) {
	t.Parallel()
	ordinary := Marks{
		Labels:      map[string]string{"app": "web", "app.kubernetes.io/name": "web", "example.com/tier": "front", "pod-template-hash": "x", "strimzi.io/cluster": "c", "offloading.liqo.io/origin": "rome"},
		Annotations: map[string]string{"checksum/config": "x", "helm.sh/hook": "test", "offloading.liqo.io/reflected": "{}"},
	}
	for _, kind := range written(t) {
		kept, leftOut := usual.Keep(kind, ordinary, Marks{})
		require.Equal(t, ordinary, kept, kind)
		require.Empty(t, leftOut, kind)
		kept, leftOut = usual.Keep(kind, commands, Marks{})
		require.Equal(t, Marks{Labels: map[string]string{}, Annotations: map[string]string{}}, kept, kind)
		require.Len(t, leftOut, len(commands.Labels)+len(commands.Annotations), kind)
		kept, _ = usual.Keep(kind, commands, commands)
		require.Equal(t, commands, kept, "%s: what others have set stays", kind)
	}
	kept, leftOut := Metadata{Annotations: Annotations{AllKeys}}.Keep("Gateway", ordinary, Marks{})
	require.Empty(t, kept.Annotations, "a kind without a rule")
	require.Empty(t, kept.Labels, "a kind without a rule")
	require.Len(t, leftOut, 9)
}

// TestMetadataOfClaims: no setting lets a peer choose the node of a volume.
func TestMetadataOfClaims(t *testing.T) {
	t.Parallel()
	given := Marks{Annotations: map[string]string{selectedNodeAnnotation: "worker-1", "example.com/a": "1", corev1.BetaStorageClassAnnotation: "inner"}}
	kept, leftOut := Metadata{Annotations: Annotations{AllKeys}}.Keep("PersistentVolumeClaim", given, Marks{})
	require.Equal(t, map[string]string{"example.com/a": "1", corev1.BetaStorageClassAnnotation: "inner"}, kept.Annotations, "the policy liqod-peer refuses the class")
	require.Equal(t, []string{selectedNodeAnnotation}, leftOut)
	kept, _ = Metadata{}.Keep("Secret", Marks{Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Marks{})
	require.Contains(t, kept.Annotations, corev1.ServiceAccountNameKey, "the policy liqod-peer refuses the Secret")
}

// TestMetadataOfClaimTemplates: Kubernetes creates the claims of ephemeral volumes in its own
// name, and no rule for peers sees them.
func TestMetadataOfClaimTemplates(t *testing.T) {
	t.Parallel()
	volume := func(name string, labels, annotations map[string]string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}},
		}}}
	}
	spec := corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "empty"},
		volume("data", map[string]string{"app": "db", "istio.io/rev": "x"}, map[string]string{selectedNodeAnnotation: "worker-1", "note": "a"}),
		volume("plain", nil, nil),
	}}
	require.Equal(t, []string{selectedNodeAnnotation + " of volume data", "label istio.io/rev of volume data"}, usual.ClaimTemplates(&spec))
	require.Equal(t, volume("data", map[string]string{"app": "db"}, map[string]string{"note": "a"}), spec.Volumes[1])
	require.Equal(t, volume("plain", nil, nil), spec.Volumes[2])
	require.Empty(t, usual.ClaimTemplates(&spec), "applied twice")
}

func TestMetadataThatIsKept(t *testing.T) {
	t.Parallel()
	given := map[string]string{"note": "a", "example.com/own": "1", "example.com/theirs": "2", "example.com/changed": "3"}
	old := map[string]string{"example.com/theirs": "2", "example.com/changed": "0", "example.com/gone": "5"}
	kept, leftOut := Metadata{Labels: LeftOutLabels{"example.com/*"}}.Keep("Pod", Marks{Labels: given, Annotations: given}, Marks{Labels: old, Annotations: old})
	want := map[string]string{"note": "a", "example.com/theirs": "2", "example.com/changed": "0"}
	require.Equal(t, Marks{Labels: want, Annotations: want}, kept)
	require.Equal(t, []string{"example.com/changed", "example.com/own", "label example.com/changed", "label example.com/own"}, leftOut)
	kept, leftOut = Metadata{}.Keep("Pod", Marks{}, Marks{})
	require.NotNil(t, kept.Annotations)
	require.NotNil(t, kept.Labels)
	require.Empty(t, leftOut)
	require.Equal(t, "a, b", NamedKeys([]string{"a", "b"}))
	require.Equal(t, "a, b, c, d, e, f, g, h, i, j, … (12)", NamedKeys(strings.Split("abcdefghijkl", "")))
	kept, _ = Metadata{Annotations: Annotations{AllKeys}}.Keep("Pod", Marks{Annotations: given}, Marks{})
	require.Equal(t, given, kept.Annotations)
}

func TestLabelsThatSteer(t *testing.T) {
	t.Parallel()
	labels := LeftOutLabels{"ovn.org/*", "ovn.kubernetes.io/*", "karpenter.sh/*", "grafana_dashboard", "example.com/tier", "liqo.io/*"}
	for key, want := range map[string]bool{
		"app": false, "notovn.org/x": false, "ovn.org": false, "example.com/tiers": false, "offloading.liqo.io/origin": false, "liqo.io/x": false,
		"k8s.ovn.org/service-name": true, "net1.default.ovn.kubernetes.io/ip_address": true, "karpenter.sh/do-not-disrupt": true,
		"grafana_dashboard": true, "example.com/tier": true,
	} {
		require.Equal(t, want, labels.Has(key), key)
	}
}

func TestAnnotations(t *testing.T) {
	t.Parallel()
	some := Annotations{"example.com/note", "helm.sh/*", "nginx.ingress.kubernetes.io/rewrite-target", "io.kubernetes.cri-o.userns-mode"}
	for key, want := range map[string]struct{ none, some, all bool }{
		"note":                                       {true, true, true},
		"checksum/config":                            {true, true, true},
		"liqo.io/skip-reflection":                    {true, true, true},
		"offloading.liqo.io/reflected":               {true, true, true},
		"notliqo.io/x":                               {false, false, true},
		"example.com/note":                           {false, true, true},
		"example.com/notes":                          {false, false, true},
		"a.example.com/note":                         {false, false, true},
		"helm.sh/hook":                               {false, true, true},
		"meta.helm.sh/release-name":                  {false, false, true},
		"helm.sh":                                    {false, false, true},
		"io.kubernetes.cri-o.cgroup":                 {false, false, true},
		"kubernetes.io/config.mirror":                {false, false, false},
		"kubernetes.io/config.source":                {false, false, false},
		"nginx.ingress.kubernetes.io/rewrite-target": {false, true, true},
		"nginx.ingress.kubernetes.io/server-snippet": {false, false, true},
		"iam.amazonaws.com/role":                     {false, false, true},
		"io.kubernetes.cri-o.userns-mode":            {false, true, true},
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
		"an hour":   {new(int64(3600)), new(int64(3600))},
		"a century": {new(int64(3153600000)), new(int64(3600))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, hardened(t, corev1.PodSpec{TerminationGracePeriodSeconds: tc.in}, Allowed{}).TerminationGracePeriodSeconds)
		})
	}
}
