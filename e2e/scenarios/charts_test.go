package scenarios

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/liqod/liqod/e2e/lab"
	page "github.com/liqod/liqod/hack/rights"
)

// values are a tree of the chart's values.
type values = map[string]any

// rendered is what the chart makes: objects by the file of the template.
type rendered map[string][]*unstructured.Unstructured

func (r rendered) ofKind(kinds ...string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, file := range slices.Sorted(maps.Keys(r)) {
		for _, obj := range r[file] {
			if slices.Contains(kinds, obj.GetKind()) {
				out = append(out, obj)
			}
		}
	}
	return out
}

// chart renders the chart, and reads what it made with liqod itself.
type chart struct {
	lab    *lab.Lab
	binary string
}

func newChart(t *testing.T) chart {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the lab's tools: not with -short")
	}
	t.Parallel()
	l := must(lab.New(t.Context(), lab.Options{Log: t.Logf}))(t)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	c := chart{lab: l, binary: filepath.Join(t.TempDir(), "liqod")}
	require.NoError(t, lab.BuildLiqod(t.Context(), "../..", c.binary))
	return c
}

// render renders the chart for cluster rome with more values. apis are those that the cluster
// has beside those of Kubernetes; without any, there is no cluster.
func (c chart) render(t *testing.T, more values, apis ...string) (rendered, error) {
	t.Helper()
	return c.renderWith(t, lab.ChartOptions{Values: more, APIVersions: apis})
}

// renderWith renders the chart for cluster rome with options.
func (c chart) renderWith(t *testing.T, options lab.ChartOptions) (rendered, error) {
	t.Helper()
	all := values{"discovery": values{"config": values{"clusterID": "rome"}}}
	maps.Copy(all, options.Values)
	options.Values = all
	out, err := c.lab.Render(t.Context(), options)
	if err != nil {
		return nil, err
	}
	objects := rendered{}
	for _, document := range strings.Split("\n"+string(out), "\n---\n") {
		_, document, found := strings.Cut(document, "# Source: ")
		if !found {
			continue
		}
		source, content, _ := strings.Cut(document, "\n")
		obj := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(content), &obj.Object), source)
		if len(obj.Object) > 0 {
			file := strings.TrimPrefix(source, "liqod/templates/")
			objects[file] = append(objects[file], obj)
		}
	}
	return objects, nil
}

func (c chart) mustRender(t *testing.T, more values) rendered {
	t.Helper()
	return must(c.render(t, more))(t)
}

// config returns the effective configuration of the roles that read a file, flattened:
// values by their path.
func (c chart) config(t *testing.T, args ...string) (map[string]string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.binary, append([]string{"config"}, args...)...)
	cmd.Env = []string{}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, stderr.String())
	}
	tree := values{}
	require.NoError(t, yaml.Unmarshal(out, &tree))
	flat := map[string]string{}
	flatten(flat, "", tree)
	return flat, nil
}

func flatten(into map[string]string, prefix string, tree values) {
	for key, value := range tree {
		if sub, ok := value.(values); ok {
			flatten(into, prefix+key+".", sub)
		} else {
			into[prefix+key] = fmt.Sprint(value)
		}
	}
}

// configMap writes the configuration that the chart made to a file.
func configMap(t *testing.T, objects rendered) string {
	t.Helper()
	found := objects.ofKind("ConfigMap")
	require.Len(t, found, 1)
	cm := typed[corev1.ConfigMap](t, found[0])
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte(cm.Data["config.yaml"]), 0o600))
	return file
}

func TestChart(t *testing.T) {
	c := newChart(t)
	plain := c.mustRender(t, nil)
	off := c.mustRender(t, values{"networking": values{"enabled": false}})
	t.Run("definitions are kept", func(t *testing.T) {
		crds := plain.ofKind("CustomResourceDefinition")
		require.Len(t, crds, 14)
		for _, crd := range crds {
			require.Equal(t, "keep", crd.GetAnnotations()["helm.sh/resource-policy"], crd.GetName())
		}
	})
	t.Run("rights", func(t *testing.T) {
		chartRights(t, plain, "controller", "gateway", "ipam", "peer", "route", "user", "vkubelet", "webhook")
		chartRights(t, off, "controller", "peer", "user", "vkubelet", "webhook")
	})
	t.Run("roles of people", func(t *testing.T) { chartUserRoles(t, c, plain) })
	t.Run("defaults", func(t *testing.T) { chartDefaults(t, c, plain) })
	t.Run("values", func(t *testing.T) { chartValues(t, c) })
	t.Run("refused", func(t *testing.T) { chartRefused(t, c) })
	t.Run("restarts", func(t *testing.T) { chartRestarts(t, c, plain) })
	t.Run("several gateways", func(t *testing.T) { chartGateways(t, c, plain) })
	t.Run("gateways outside", func(t *testing.T) { chartOutside(t, c) })
	t.Run("replicas", func(t *testing.T) { chartReplicas(t, c, plain) })
	t.Run("overlay policy", func(t *testing.T) { chartOverlayPolicy(t, c) })
	t.Run("discovery", func(t *testing.T) { chartDiscovery(t, c) })
	t.Run("classes", func(t *testing.T) { chartClasses(t, c) })
	t.Run("monitoring", func(t *testing.T) { chartMonitoring(t, c, plain) })
	t.Run("webhook-rights", func(t *testing.T) { chartWebhookRights(t, plain) })
	t.Run("rights-page", func(t *testing.T) {
		out := must(c.lab.Render(t.Context(), lab.ChartOptions{Values: values{"discovery": values{"config": values{"clusterID": "rome"}}}}))(t)
		want := must(page.Page(out))(t)
		have := must(os.ReadFile("../../docs/rights.md"))(t)
		require.Equal(t, string(want), string(have), "make generate writes it")
	})
	t.Run("policies", func(t *testing.T) { chartPolicies(t, plain) })
	t.Run("uninstall", func(t *testing.T) { chartUninstall(t, c) })
	t.Run("metadata of peers", func(t *testing.T) { chartPeerMetadata(t, plain) })
	t.Run("trust in peers", func(t *testing.T) { chartTrust(t, c, plain) })
}

// chartDiscovery checks that the chart can run the controller in the networks of nodes, where it looks for clusters, with ports of
// its own and without further rights.
func chartDiscovery(t *testing.T, c chart) {
	on := func(more values) values {
		manager := values{"hostNetwork": true}
		maps.Copy(manager, more)
		return values{
			"controllerManager": manager,
			"config":            values{"discovery": values{"multicast": values{"interfaces": []string{"eth0"}, "url": "https://192.0.2.10:8443"}}},
		}
	}
	objects := c.mustRender(t, on(nil))
	config := must(c.config(t, "--config="+configMap(t, objects)))(t)
	require.Equal(t, "[eth0]", config["discovery.multicast.interfaces"])
	require.Equal(t, "https://192.0.2.10:8443", config["discovery.multicast.url"])
	for _, obj := range objects.ofKind("Deployment") {
		d := typed[appsv1.Deployment](t, obj)
		spec, container := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
		require.Equal(t, d.Name == "liqod-controller", spec.HostNetwork, d.Name)
		if !spec.HostNetwork {
			continue
		}
		require.Equal(t, corev1.DNSClusterFirstWithHostNet, spec.DNSPolicy)
		require.Contains(t, container.Args, "--server.address=:6094")
		require.Equal(t, map[string]int32{"health": 6094, "auth": 8443}, map[string]int32{
			container.Ports[0].Name: container.Ports[0].ContainerPort, container.Ports[1].Name: container.Ports[1].ContainerPort,
		})
		require.Equal(t, "0", d.Spec.Strategy.RollingUpdate.MaxSurge.String(), "a second pod would find the ports taken")
		require.True(t, *spec.SecurityContext.RunAsNonRoot)
		require.Empty(t, container.SecurityContext.Capabilities.Add)
	}
	for port, says := range map[int]string{8443: "8443 is authentication.port", 6093: "6093 is networking.route.healthPort"} {
		_, err := c.render(t, on(values{"healthPort": port}))
		require.ErrorContains(t, err, "controllerManager.healthPort is not accepted: "+says)
	}
}

// chartMonitoring checks what is installed for Prometheus and Grafana; and that it is refused
// in a cluster without the operator, and only there.
func chartMonitoring(t *testing.T, c chart, plain rendered) {
	require.NotContains(t, plain, "monitoring.yaml", "it is off by default")
	on := values{"enabled": true}
	all := values{"metrics": values{"monitors": on, "rules": on, "dashboards": on}}
	const cluster, group = "apps/v1/Deployment", "monitoring.coreos.com/v1/"
	for name, tc := range map[string]struct {
		metrics values
		apis    []string
		says    string
	}{
		"monitors without a kind": {values{"monitors": on}, []string{cluster, group + "ServiceMonitor"}, "metrics.monitors.enabled is not accepted: this cluster has no kind PodMonitor"},
		"rules without the kind":  {values{"rules": on}, []string{cluster}, "metrics.rules.enabled is not accepted: this cluster has no kind PrometheusRule"},
		"an interval of a word":   {values{"monitors": values{"interval": "often"}}, nil, "interval"},
		"a label of no name":      {values{"monitors": values{"labels": "x"}}, nil, "labels"},
	} {
		_, err := c.render(t, values{"metrics": tc.metrics}, tc.apis...)
		require.ErrorContains(t, err, tc.says, name)
	}
	_, err := c.render(t, values{"networkPolicy": values{"metricsFrom": []any{map[string]any{"podSelector": map[string]any{}}}}})
	require.ErrorContains(t, err, "networkPolicy.metricsFrom is not accepted: it needs networkPolicy.enabled")
	for _, apis := range [][]string{nil, {cluster, group + "ServiceMonitor", group + "PodMonitor", group + "PrometheusRule"}} {
		objects := must(c.render(t, all, apis...))(t)
		have := map[string][]string{}
		for _, obj := range objects["monitoring.yaml"] {
			have[obj.GetKind()] = append(have[obj.GetKind()], obj.GetName())
		}
		for _, names := range have {
			slices.Sort(names)
		}
		require.Equal(t, map[string][]string{
			"Service": {"liqod-metrics"}, "ServiceMonitor": {"liqod"}, "PodMonitor": {"liqod-vkubelets"}, "PrometheusRule": {"liqod"},
			"ConfigMap": {"liqod-dashboard-fabric", "liqod-dashboard-namespace", "liqod-dashboard-overview", "liqod-dashboard-peer"},
		}, have)
		for _, obj := range objects.ofKind("PodMonitor") {
			text := must(yaml.Marshal(obj.Object))(t)
			require.Contains(t, string(text), "regex: liqo-tenant-.+", "pods of peers are not scraped")
		}
	}
	objects := c.mustRender(t, values{
		"metrics": values{"service": on, "rules": values{"enabled": true, "runbooks": "https://wiki.example/liqod"}},
		"networkPolicy": values{"enabled": true, "metricsFrom": []any{
			map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"name": "monitoring"}}},
		}},
	})
	for _, obj := range objects.ofKind("PrometheusRule") {
		text := must(yaml.Marshal(obj.Object))(t)
		require.Contains(t, string(text), "runbook_url: https://wiki.example/liqod#liqodpeerdown")
		require.NotContains(t, string(text), "github.com")
		require.Contains(t, string(text), "{{ $labels.peer }}", "the text is for Prometheus, not for Helm")
	}
	for _, obj := range objects.ofKind("NetworkPolicy") {
		ingress, _, err := unstructured.NestedSlice(roundTrip(t, obj.Object), "spec", "ingress")
		require.NoError(t, err)
		_, limited := ingress[0].(map[string]any)["from"]
		require.Equal(t, obj.GetName() == "liqod", limited, obj.GetName())
	}
}

// chartClasses checks that peers are held to the classes that are shared, and that what is
// not bounded costs nothing.
func chartClasses(t *testing.T, c chart) {
	for name, tc := range map[string]struct {
		sharing values
		want    []string
	}{
		"as it is": {nil, nil},
		"bounded": {
			values{"storageClasses": []string{"disk", "fast"}, "ingressClasses": []string{"nginx"}, "loadBalancerClasses": []string{"inner", "outer"}},
			[]string{
				"ingress classes that this cluster shares (sharing.ingressClasses): nginx",
				"load balancer classes that this cluster shares (sharing.loadBalancerClasses): inner, outer",
				"storage classes that this cluster shares (sharing.storageClasses): disk, fast",
			},
		},
		"none": {
			values{"storageClasses": []string{}, "percentage": 50},
			[]string{"storage classes that this cluster shares (sharing.storageClasses): none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var more values
			if tc.sharing != nil {
				more = values{"config": values{"sharing": tc.sharing}}
			}
			policies := c.mustRender(t, more).ofKind("ValidatingAdmissionPolicy")
			i := slices.IndexFunc(policies, func(o *unstructured.Unstructured) bool { return o.GetName() == "liqod-peer" })
			require.GreaterOrEqual(t, i, 0)
			validations, _, err := unstructured.NestedSlice(policies[i].Object, "spec", "validations")
			require.NoError(t, err)
			said := map[string]bool{}
			for _, v := range validations {
				message, _, err := unstructured.NestedString(v.(map[string]any), "message")
				require.NoError(t, err)
				if _, classes, ok := strings.Cut(message, "a peer may use only the "); ok {
					said[classes] = true
				}
			}
			require.Equal(t, tc.want, slices.Sorted(maps.Keys(said)))
		})
	}
}

// checksums are those of the configuration that the pods of each role carry.
func checksums(t *testing.T, objects rendered) map[string]string {
	out := map[string]string{}
	for _, obj := range objects.ofKind("Deployment", "DaemonSet") {
		sum, _, err := unstructured.NestedString(obj.Object, "spec", "template", "metadata", "annotations", "checksum/config")
		require.NoError(t, err)
		require.Len(t, sum, 64, obj.GetName())
		out[strings.TrimPrefix(obj.GetName(), "liqod-")] = sum
	}
	return out
}

// chartRestarts checks that a setting starts only the pods of those roles again that read it.
func chartRestarts(t *testing.T, c chart, plain rendered) {
	before := checksums(t, plain)
	all := slices.Sorted(maps.Keys(before))
	require.Equal(t, []string{"controller", "gateway", "ipam", "route", "webhook"}, all)
	for name, tc := range map[string]struct {
		values values
		want   []string
	}{
		"log":        {values{"config": values{"log": values{"level": "debug"}}}, all},
		"cluster id": {values{"discovery": values{"config": values{"clusterID": "milan"}}}, all},
		"health":     {values{"config": values{"health": values{"unknownGrace": "1m"}}}, all},
		"lease":      {values{"config": values{"lease": values{"retryPeriod": "1s"}}}, []string{"controller", "gateway", "ipam", "route", "webhook"}},
		"probe":      {values{"config": values{"probe": values{"interval": "2s"}}}, []string{"controller", "gateway"}},
		"storage":    {values{"storage": values{"storageNamespace": ""}}, []string{"controller", "webhook"}},
		"sharing":    {values{"config": values{"sharing": values{"percentage": 50}}}, []string{"controller", "webhook"}},
		"trust":      {values{"config": values{"sharing": values{"trust": "Organisation"}}}, []string{"controller", "ipam", "route", "webhook"}},
		"peering":    {values{"config": values{"peering": values{"renewAt": 0.5}}}, []string{"controller"}},
		"reflection": {values{"offloading": values{"reflection": values{"secret": values{"workers": 3}}}}, []string{"controller"}},
		"vkubelets":  {values{"virtualKubelet": values{"replicas": 2}}, []string{"controller"}},
		"webhook":    {values{"webhook": values{"port": 9555}}, []string{"webhook"}},
		"its names":  {values{"config": values{"webhook": values{"hosts": []string{"192.0.2.1"}}}}, []string{"controller", "webhook"}},
		"own ranges": {withRanges(nil), []string{"controller", "gateway", "ipam"}},
		"pools":      {values{"ipam": values{"pools": []string{"10.90.0.0/16"}}}, []string{"ipam"}},
		"gateway":    {values{"config": values{"gateway": values{"probe": values{"silence": "2s"}}}}, []string{"gateway"}},
		"route":      {values{"config": values{"route": values{"overlayPort": 7000}}}, []string{"route"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var changed []string
			for role, sum := range checksums(t, c.mustRender(t, tc.values)) {
				if sum != before[role] {
					changed = append(changed, role)
				}
			}
			slices.Sort(changed)
			require.Equal(t, tc.want, changed)
		})
	}
}

// chartGateways checks that an only gateway is one of several with number 1, and what more several have.
func chartGateways(t *testing.T, c chart, plain rendered) {
	several := c.mustRender(t, values{"networking": values{"gatewayTemplates": values{"replicas": 2, "service": values{"type": "NodePort", "nodePort": 30000}}}})
	chartRights(t, several, "controller", "gateway", "ipam", "peer", "route", "user", "vkubelet", "webhook")
	named := func(objects rendered, kind string) *unstructured.Unstructured {
		all := objects.ofKind(kind)
		i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetName() == "liqod-gateway" })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	require.Nil(t, named(plain, "PodDisruptionBudget"))
	require.NotNil(t, named(several, "PodDisruptionBudget"))
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		require.NotNil(t, named(plain, kind), kind)
		require.NotNil(t, named(several, kind), kind)
	}
	for _, tc := range []struct {
		objects rendered
		several bool
	}{{plain, false}, {several, true}} {
		d := typed[appsv1.Deployment](t, named(tc.objects, "Deployment"))
		require.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, d.Spec.Strategy.Type)
		require.Equal(t, "0", d.Spec.Strategy.RollingUpdate.MaxSurge.String(), "the next one takes the number of the one before")
		require.Len(t, d.Spec.Template.Spec.TopologySpreadConstraints, 1)
		require.NotNil(t, d.Spec.Template.Spec.Affinity.NodeAffinity)
		require.NotContains(t, d.Spec.Template.Labels, "networking.liqo.io/active", "the gateway that has a number takes its label")
		args := d.Spec.Template.Spec.Containers[0].Args
		require.Contains(t, args, "--gateway.keySecret=liqod-gateway-key")
		require.Contains(t, args, map[bool]string{false: "--gateway.replicas=1", true: "--gateway.replicas=2"}[tc.several])
		_, err := c.config(t, append(args[:1:1], slices.Concat([]string{"--config=" + configMap(t, tc.objects)}, args[2:])...)...)
		require.NoError(t, err, "the role accepts its arguments")
		s := typed[corev1.Service](t, named(tc.objects, "Service"))
		require.Equal(t, "true", s.Spec.Selector["networking.liqo.io/active"], "as the gateway of number 1 writes it")
		services := tc.objects.ofKind("Service")
		i := slices.IndexFunc(services, func(o *unstructured.Unstructured) bool { return o.GetName() == "liqod-gateway-2" })
		require.Equal(t, tc.several, i >= 0)
		if tc.several {
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(roundTrip(t, services[i].Object), &s))
			require.Equal(t, "2", s.Spec.Selector["networking.liqo.io/active"])
			require.EqualValues(t, 30001, s.Spec.Ports[0].NodePort)
		}
		role := typed[rbacv1.Role](t, named(tc.objects, "Role"))
		require.True(t, slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") }))
	}
}

// chartReplicas checks that roles with several replicas, and only those, have a budget; that
// replicas are spread; and that all pods have the priority of the release, and those of the
// webhook that of the cluster's own.
func chartReplicas(t *testing.T, c chart, plain rendered) {
	names := func(objects rendered, kind string) (out []string) {
		for _, obj := range objects.ofKind(kind) {
			out = append(out, obj.GetName())
		}
		slices.Sort(out)
		return out
	}
	two := values{"replicas": 2}
	several := c.mustRender(t, values{
		"controllerManager": two, "webhook": two, "ipam": values{"internal": two}, "networking": values{"gatewayTemplates": two},
		"common": values{"priorityClassName": "high"},
	})
	zones := []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
	spread := c.mustRender(t, values{
		"common": values{"spread": zones}, "virtualKubelet": values{"nodeSelector": []string{"pool=infra"}, "tolerations": []string{"dedicated=infra"}},
	})
	for _, obj := range spread.ofKind("Deployment") {
		constraints, _, err := unstructured.NestedSlice(roundTrip(t, obj.Object), "spec", "template", "spec", "topologySpreadConstraints")
		require.NoError(t, err)
		require.Len(t, constraints, 2, obj.GetName())
		require.Equal(t, zones[1], constraints[1].(map[string]any)["topologyKey"], obj.GetName())
	}
	vkubelets := must(c.config(t, "--role=controller", "--config="+configMap(t, spread)))(t)
	require.Equal(t, fmt.Sprint(zones), vkubelets["controller.vkubelet.spread"])
	require.Equal(t, "[pool=infra]", vkubelets["controller.vkubelet.nodeSelector"])
	require.Equal(t, "[dedicated=infra]", vkubelets["controller.vkubelet.tolerations"])
	require.Equal(t, []string{"liqod-webhook"}, names(plain, "PodDisruptionBudget"), "the only one with two replicas by default")
	require.Equal(t, names(several, "Deployment"), names(several, "PodDisruptionBudget"))
	require.Equal(t, []string{"liqod"}, names(plain, "PriorityClass"))
	require.Empty(t, names(several, "PriorityClass"), "the class is somebody else's")
	require.Equal(t, []string{"liqod-critical", "liqod-twin"}, names(plain, "ResourceQuota"))
	require.Equal(t, []string{"liqod-twin"}, names(c.mustRender(t, values{"webhook": values{"priorityClassName": ""}}), "ResourceQuota"))
	for priority, objects := range map[string]rendered{"liqod": plain, "high": several} {
		for _, obj := range objects.ofKind("Deployment", "DaemonSet") {
			requireStrategyType(t, obj)
			spec, _, err := unstructured.NestedMap(roundTrip(t, obj.Object), "spec", "template", "spec")
			require.NoError(t, err)
			want := priority
			if obj.GetName() == "liqod-webhook" {
				want = "system-cluster-critical"
			}
			require.Equal(t, want, spec["priorityClassName"], obj.GetName())
			if obj.GetKind() == "Deployment" {
				require.Len(t, spec["topologySpreadConstraints"], 1, obj.GetName())
			}
		}
	}
}

// requireStrategyType: parameters of a rolling update go with its type. Else a server-side apply
// that changes Recreate to them leaves the type, and the API server refuses both together.
func requireStrategyType(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	for _, field := range []string{"strategy", "updateStrategy"} {
		strategy, _, err := unstructured.NestedMap(roundTrip(t, obj.Object), "spec", field)
		require.NoError(t, err)
		if _, rolling := strategy["rollingUpdate"]; rolling {
			require.Equal(t, "RollingUpdate", strategy["type"], "%s: %s", obj.GetName(), field)
		}
	}
}

// chartOverlayPolicy checks who reaches the overlay port of the gateway.
func chartOverlayPolicy(t *testing.T, c chart) {
	for name, tc := range map[string]struct {
		fromNodes bool
		want      []any
	}{
		"anybody": {false, nil},
		"nodes":   {true, []any{map[string]any{"ipBlock": map[string]any{"cidr": "192.0.2.0/24"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := c.mustRender(t, withRanges(values{"networkPolicy": values{"enabled": true, "overlayFromNodeCIDRs": tc.fromNodes}}))
			policies := objects.ofKind("NetworkPolicy")
			i := slices.IndexFunc(policies, func(o *unstructured.Unstructured) bool { return o.GetName() == "liqod-gateway" })
			require.GreaterOrEqual(t, i, 0)
			ingress, _, err := unstructured.NestedSlice(roundTrip(t, policies[i].Object), "spec", "ingress")
			require.NoError(t, err)
			require.Len(t, ingress, 2)
			require.NotContains(t, ingress[0], "from", "peers are anywhere")
			from, _, err := unstructured.NestedSlice(ingress[1].(map[string]any), "from")
			require.NoError(t, err)
			require.Equal(t, tc.want, from)
		})
	}
}

// withRanges are values with ranges that are given, with more of other sections.
func withRanges(more values) values {
	all := values{"networking": values{
		"podCIDRs": []string{"10.244.0.0/16"}, "serviceCIDRs": []string{"10.96.0.0/12"}, "nodeCIDRs": []string{"192.0.2.0/24"},
	}}
	maps.Copy(all, more)
	return all
}

// chartRights checks that the rights of each of these roles, and of peers, stand in a file
// of their own, and say what they mean.
func chartRights(t *testing.T, objects rendered, holders ...string) {
	var files, want []string
	for _, name := range holders {
		want = append(want, "rbac-"+name+".yaml")
	}
	for file, of := range objects {
		for _, obj := range of {
			switch obj.GetKind() {
			case "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ServiceAccount":
				require.Regexp(t, `^rbac-[a-z]+\.yaml$`, path.Base(file), obj.GetName())
				require.Contains(t, obj.GetName(), "liqod-"+strings.TrimSuffix(strings.TrimPrefix(file, "rbac-"), ".yaml"), "in %s", file)
				files = append(files, file)
			}
		}
	}
	slices.Sort(files)
	require.Equal(t, want, slices.Compact(files))
	for _, obj := range objects.ofKind("ClusterRole", "Role") {
		role := typed[rbacv1.ClusterRole](t, obj)
		for _, rule := range role.Rules {
			for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs) {
				require.NotContains(t, word, "*", "%s: %+v", role.Name, rule)
			}
			for _, verb := range []string{"escalate", "impersonate"} {
				require.NotContains(t, rule.Verbs, verb, "%s: %+v", role.Name, rule)
			}
			for _, verb := range []string{"bind", "approve"} {
				require.False(t, slices.Contains(rule.Verbs, verb) && len(rule.ResourceNames) == 0, "%s: %+v", role.Name, rule)
			}
		}
	}
	for _, obj := range objects.ofKind("ClusterRoleBinding", "RoleBinding") {
		role, _, err := unstructured.NestedString(obj.Object, "roleRef", "name")
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(role, "liqod-"), "%s binds %s", obj.GetName(), role)
	}
}

// chartUserRoles checks that people get rights by the roles of Kubernetes, unless that is
// switched off, and that no role for people reads Secrets or writes anything but
// NamespaceOffloadings.
func chartUserRoles(t *testing.T, c chart, plain rendered) {
	const label = "rbac.authorization.k8s.io/aggregate-to-"
	labels := func(objects rendered) map[string][]string {
		out := map[string][]string{}
		for _, o := range objects.ofKind("ClusterRole") {
			for key := range o.GetLabels() {
				if to, ok := strings.CutPrefix(key, label); ok {
					out[o.GetName()] = append(out[o.GetName()], to)
				}
			}
		}
		return out
	}
	require.Equal(t, map[string][]string{"liqod-user-view": {"view"}, "liqod-user-admin": {"admin"}}, labels(plain))
	require.Empty(t, labels(c.mustRender(t, values{"userRoles": values{"aggregate": false}})))
	for _, o := range plain.ofKind("ClusterRole") {
		if !strings.HasPrefix(o.GetName(), "liqod-user-") {
			continue
		}
		role := typed[rbacv1.ClusterRole](t, o)
		for _, rule := range role.Rules {
			require.NotContains(t, rule.Resources, "secrets")
			reads := !slices.ContainsFunc(rule.Verbs, func(v string) bool { return v != "get" && v != "list" && v != "watch" })
			require.True(t, reads || slices.Equal(rule.Resources, []string{"namespaceoffloadings"}), "%s: %+v", role.Name, rule)
		}
	}
}

// chartDefaults checks that a default is written in config.yaml, and nothing else in
// the chart.
func chartDefaults(t *testing.T, c chart, objects rendered) {
	want := must(c.config(t))(t)
	have := must(c.config(t, "--role=controller,webhook", "--config="+configMap(t, objects)))(t)
	want["clusterID"] = "rome"
	want["networking.enabled"] = "true" // the chart has the roles that it needs
	want["webhook.drain"] = "5s"        // a Service leads to it
	want["controller.vkubelet.priorityClassName"] = "liqod"
	version := objects.ofKind("Deployment")[0].GetLabels()["app.kubernetes.io/version"]
	want["controller.vkubelet.image"] = "ghcr.io/liqod/liqod:" + version
	require.Equal(t, want, have)
}

// chartValues checks what becomes of the values that documents name.
func chartValues(t *testing.T, c chart) {
	skip := values{"skip": values{"labels": []string{"a.example/x"}, "annotations": []string{"a.example/y"}}}
	cases := map[string]struct {
		values values
		config map[string]string
		counts map[string]int64 // replicas of deployments
	}{
		"virtualKubelet": {
			values: values{"virtualKubelet": values{"replicas": 2, "nodeAddress": "192.0.2.1", "nodeTaint": false, "extra": values{"args": []string{"--enable-apiserver-support=false"}},
				"resources": values{"cpuLimit": "2"}}},
			config: map[string]string{"controller.vkubelet.replicas": "2", "controller.vkubelet.extraArgs": "[--enable-apiserver-support=false]",
				"controller.vkubelet.nodeAddress": "192.0.2.1", "vkubelet.nodeTaint": "false", "controller.vkubelet.resources.cpuLimit": "2", "controller.vkubelet.resources.cpuRequest": "50m"},
		},
		"image.digest": { // wins over the tag
			values: values{"image": values{"repository": "r.example/liqod", "tag": "v1", "digest": "sha256:" + strings.Repeat("0a", 32)}},
			config: map[string]string{"controller.vkubelet.image": "r.example/liqod@sha256:" + strings.Repeat("0a", 32)},
		},
		"image.pullSecrets": {
			values: values{"image": values{"pullSecrets": []string{"one", "two"}}},
			config: map[string]string{"controller.vkubelet.imagePullSecrets": "[one two]"},
		},
		"pods of peers": {
			values: values{"controllerManager": values{"config": values{"volumeTypes": []string{"emptyDir", "nfs"}, "tolerations": []string{"dedicated=peers:NoSchedule"}, "alwaysPullImages": true}},
				"config": values{"sharing": values{"selectorLabels": []string{"pool"}}}},
			config: map[string]string{"controller.volumeTypes": "[emptyDir nfs]", "controller.tolerations": "[dedicated=peers:NoSchedule]",
				"controller.alwaysPullImages": "true", "sharing.selectorLabels": "[pool]"},
		},
		"trust": {
			values: values{"config": values{"sharing": values{"trust": "Organisation", "annotations": []string{"example.com/*"}}},
				"controllerManager": values{"config": values{"twinNames": []string{}}}},
			config: map[string]string{"controller.twinNames": "[]", "controller.tolerations": "[*]", "sharing.selectorLabels": "[*]", "sharing.serviceFields": "[nodePort]",
				"sharing.serviceTypes": "[ClusterIP NodePort LoadBalancer ExternalName]", "sharing.annotations": "[example.com/*]"},
		},
		"everything optional": {
			values: values{
				"image":             values{"pullSecrets": []string{"one"}, "tag": "v1"},
				"controllerManager": values{"replicas": 2, "extraArgs": []string{"--log.level=debug"}, "resources": values{}},
				"webhook":           values{"replicas": 2, "url": "https://192.0.2.1:9443/", "port": 9555},
				"networkPolicy":     values{"enabled": true},
				"common": values{"podLabels": values{"a": "b"}, "podAnnotations": values{"c": "d"}, "nodeSelector": values{"e": "f"},
					"tolerations": []values{{"key": "g", "operator": "Exists"}}, "priorityClassName": "high"},
			},
			config: map[string]string{"webhook.address": ":9555"},
			counts: map[string]int64{"liqod-controller": 2, "liqod-webhook": 2},
		},
		"replicas": {
			values: values{"controllerManager": values{"replicas": 2}, "webhook": values{"replicas": 3}},
			counts: map[string]int64{"liqod-controller": 2, "liqod-webhook": 3},
		},
		"reflection.skip": {
			values: values{"offloading": values{"reflection": skip}},
			config: map[string]string{"reflection.skipLabels": "[a.example/x]", "reflection.skipAnnotations": "[a.example/y]"},
		},
		"reflection.skip, earlier name": {
			values: values{"reflection": skip, "offloading": values{"reflection": values{"skip": values{"labels": []string{"b.example/z"}, "annotations": []string{}}}}},
			config: map[string]string{"reflection.skipLabels": "[b.example/z a.example/x]", "reflection.skipAnnotations": "[a.example/y]"},
		},
		"reflection of a resource": {
			values: values{"offloading": values{"reflection": values{"secret": values{"type": "AllowList"}, "ingress": values{"workers": 0}, "pod": values{"workers": 7}}}},
			config: map[string]string{"reflection.secret.type": "AllowList", "reflection.secret.workers": "10", "reflection.ingress.workers": "0", "reflection.pod.workers": "7"},
		},
		"reflection of a resource, earlier name": {
			values: values{"reflection": values{"secret": values{"type": "AllowList", "workers": 0}}},
			config: map[string]string{"reflection.secret.type": "AllowList", "reflection.secret.workers": "0", "reflection.service.type": "DenyList"},
		},
		"the network's, by earlier names": {
			values: values{"gateway": values{"replicas": 1}, "ipam": values{"internal": values{"replicas": 2}}},
			counts: map[string]int64{"liqod-controller": 1, "liqod-webhook": 2},
		},
		"networking": {
			values: withRanges(values{"ipam": values{"internal": values{"replicas": 2, "extraArgs": []string{"--log.level=debug"}}, "pools": []string{"10.90.0.0/16"}, "keep": []string{}}}),
			config: map[string]string{"networking.enabled": "true", "networking.podCIDRs": "[10.244.0.0/16]", "ipam.pools": "[10.90.0.0/16]", "ipam.keep": "[]", "networking.externalCIDRs": "[10.70.0.0/16]"},
			counts: map[string]int64{"liqod-ipam": 2, "liqod-gateway": 1},
		},
		"several gateways": {
			values: values{"networking": values{"gatewayTemplates": values{"replicas": 3}}},
			counts: map[string]int64{"liqod-gateway": 3},
		},
		"several gateways, earlier name": {
			values: values{"gateway": values{"replicas": 2}},
			counts: map[string]int64{"liqod-gateway": 2},
		},
		"no networking": {
			values: values{"networking": values{"enabled": false}},
			config: map[string]string{"networking.enabled": "false"},
		},
		"config": {
			values: values{"config": values{"log": values{"level": "debug"}, "controller": values{"workers": 3}, "reflection": values{"sharedZones": []string{"milan"}}, "vkubelet": values{"ownZone": true}}},
			config: map[string]string{"log.level": "debug", "controller.workers": "3", "controller.drainTimeout": "5m",
				"reflection.sharedZones": "[milan]", "reflection.pod.workers": "20", "vkubelet.ownZone": "true", "vkubelet.nodeTaint": "true"},
		},
		"node failure controller": {
			values: values{"controllerManager": values{"config": values{"enableNodeFailureController": true}}},
			config: map[string]string{"controller.enableNodeFailureController": "true"},
		},
		"nothing optional": {
			values: values{"admissionPolicies": values{"enabled": false}, "networkPolicy": values{"enabled": true}, "offloading": values{"runtimeClass": values{"enabled": false}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := c.mustRender(t, tc.values)
			have := must(c.config(t, "--role=controller,webhook", "--config="+configMap(t, objects)))(t)
			for key, want := range tc.config {
				require.Equal(t, want, have[key], key)
			}
			for _, d := range objects.ofKind("Deployment") {
				if want, ok := tc.counts[d.GetName()]; ok {
					replicas, _, err := unstructured.NestedInt64(roundTrip(t, d.Object), "spec", "replicas")
					require.NoError(t, err)
					require.Equal(t, want, replicas, d.GetName())
				}
			}
		})
	}
}

// typed is a rendered object as a Go type.
func typed[T any](t *testing.T, obj *unstructured.Unstructured) (out T) {
	t.Helper()
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(roundTrip(t, obj.Object), &out))
	return out
}

// roundTrip makes numbers those that unstructured helpers expect.
func roundTrip(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	data := must((&unstructured.Unstructured{Object: object}).MarshalJSON())(t)
	out := &unstructured.Unstructured{}
	require.NoError(t, out.UnmarshalJSON(data))
	return out.Object
}

// chartRefused checks that the chart refuses values that are not known, or not built, and
// names them.
func chartRefused(t *testing.T, c chart) {
	cases := map[string]struct {
		values values
		says   []string
	}{
		"digest, too short":                {values{"image": values{"digest": "sha256:0a"}}, []string{"digest", "pattern"}},
		"digest, of another kind":          {values{"image": values{"digest": "md5:" + strings.Repeat("0a", 16)}}, []string{"digest", "pattern"}},
		"unknown":                          {values{"virtualKubelets": values{}}, []string{"virtualKubelets"}},
		"unknown, deeper":                  {values{"virtualKubelet": values{"extra": values{"arguments": []string{"x"}}}}, []string{"arguments", "virtualKubelet"}},
		"node failure, no boolean":         {values{"controllerManager": values{"config": values{"enableNodeFailureController": "yes"}}}, []string{"enableNodeFailureController", "boolean"}},
		"reflection of no resource":        {values{"offloading": values{"reflection": values{"job": values{"type": "AllowList"}}}}, []string{"job", "offloading"}},
		"policy of pods":                   {values{"offloading": values{"reflection": values{"pod": values{"type": "AllowList"}}}}, []string{"offloading.reflection.pod.type", "follows the pods"}},
		"policy of EndpointSlices":         {values{"offloading": values{"reflection": values{"endpointslice": values{"type": "DenyList"}}}}, []string{"offloading.reflection.service.type"}},
		"policy of no name":                {values{"offloading": values{"reflection": values{"secret": values{"type": "Allow"}}}}, []string{"type", "DenyList"}},
		"reflection of Secrets, misplaced": {values{"config": values{"reflection": values{"secret": values{"workers": 0}}}}, []string{"offloading.reflection.secret"}},
		"no cluster id":                    {values{"discovery": values{"config": values{"clusterID": ""}}}, []string{"discovery.config.clusterID"}},
		"wrong cluster id":                 {values{"discovery": values{"config": values{"clusterID": "Rome!"}}}, []string{"Rome!", "DNS label"}},
		"cluster id, misplaced":            {values{"config": values{"clusterID": "milan"}}, []string{"config.clusterID", "discovery.config.clusterID"}},
		"namespace, misplaced":             {values{"config": values{"namespace": "x"}}, []string{"config.namespace", "--namespace"}},
		"node address, misplaced":          {values{"config": values{"vkubelet": values{"nodeAddress": "192.0.2.1"}}}, []string{"virtualKubelet.nodeAddress"}},
		"skipped labels, misplaced":        {values{"config": values{"reflection": values{"skipLabels": []string{}}}}, []string{"offloading.reflection.skip.labels"}},
		"address of health, misplaced":     {values{"config": values{"server": values{"address": ""}}}, []string{"config.server.address", "8080"}},
		"external range, missing":          {values{"networking": values{"externalCIDRs": []string{}}}, []string{"networking.externalCIDRs", "networking.enabled"}},
		"own ranges, misplaced":            {values{"config": values{"networking": values{"podCIDRs": []string{}}}}, []string{"config.networking", "use networking"}},
		"ranges, misplaced":                {values{"config": values{"ipam": values{"pools": []string{}}}}, []string{"config.ipam", "use ipam"}},
		"no gateway":                       {values{"networking": values{"gatewayTemplates": values{"replicas": 0}}}, []string{"replicas: 0 is not accepted", "gatewayTemplates.outside"}},
		"no gateway, earlier name":         {values{"gateway": values{"replicas": 0}}, []string{"replicas", "minimum"}},
		"replicas, misplaced":              {values{"config": values{"gateway": values{"replicas": 2}}}, []string{"config.gateway.replicas", "networking.gatewayTemplates.replicas"}},
		"too many gateways":                {values{"networking": values{"gatewayTemplates": values{"replicas": 15}}}, []string{"networking.gatewayTemplates.replicas: 15 is not accepted"}},
		"folder of the key, misplaced":     {values{"config": values{"gateway": values{"stateDir": "/tmp"}}}, []string{"config.gateway.stateDir", "Secret liqod-gateway-key"}},
		"Secret of the key, misplaced":     {values{"config": values{"gateway": values{"keySecret": "x"}}}, []string{"config.gateway.keySecret", "Secret liqod-gateway-key"}},
		"overlay of no nodes":              {values{"networkPolicy": values{"enabled": true, "overlayFromNodeCIDRs": true}}, []string{"networkPolicy.overlayFromNodeCIDRs", "networking.nodeCIDRs is empty"}},
		"overlay without a policy":         {withRanges(values{"networkPolicy": values{"overlayFromNodeCIDRs": true}}), []string{"networkPolicy.overlayFromNodeCIDRs", "networkPolicy.enabled"}},
		"trust of no name":                 {values{"config": values{"sharing": values{"trust": "Everybody"}}}, []string{"trust", "Organisation"}},
		"setting, unknown":                 {values{"config": values{"controller": values{"wrokers": 3}}}, []string{"config", "wrokers"}},
		"setting, too large":               {values{"config": values{"sharing": values{"percentage": 200}}}, []string{"percentage", "maximum"}},
		"setting, no number":               {values{"config": values{"sharing": values{"percentage": "half"}}}, []string{"percentage", "integer"}},
		"setting, no duration":             {values{"config": values{"probe": values{"interval": "2 seconds"}}}, []string{"interval", "pattern"}},
		"setting, no list":                 {values{"config": values{"sharing": values{"labels": "a=b"}}}, []string{"labels", "array"}},
		"section, no settings":             {values{"config": values{"sharing": 50}}, []string{"sharing", "object"}},
		"wrong type":                       {values{"webhook": values{"replicas": "two"}}, []string{"replicas", "webhook"}},
		"pulling images":                   {values{"controllerManager": values{"config": values{"alwaysPullImages": "yes"}}}, []string{"alwaysPullImages", "boolean"}},
		"wrong level":                      {values{"controllerManager": values{"config": values{"podSecurityLevel": "none"}}}, []string{"podSecurityLevel", "baseline"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.render(t, tc.values)
			require.Error(t, err)
			for _, word := range tc.says {
				require.ErrorContains(t, err, word)
			}
		})
	}
}
