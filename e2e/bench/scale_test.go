package main

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata/fake"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

func TestParseScale(t *testing.T) {
	o, err := parse([]string{"--only=scale", "--scale-pods=2000", "--scale-service=false", "--profiles=p", "--no-policies", "--no-events"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, scaleOptions{pods: 2000, out: filepath.Join("bin", "bench-scale.json"), profiles: "p", noEvents: true, noPolicies: true}, o.scale)
	require.Equal(t, []string{"pods=4000", "count/pods=4000", "count/shadowpods.offloading.liqo.io=4000"}, o.scale.limits())
	_, err = parse([]string{"--scale-pods=0"}, io.Discard)
	require.ErrorContains(t, err, "--scale-pods is 0: at least 1 is accepted")
}

// TestNoPolicies: the flag reaches all that is measured in a world, and its chart.
func TestNoPolicies(t *testing.T) {
	o, err := parse([]string{"--no-policies"}, io.Discard)
	require.NoError(t, err)
	require.True(t, o.noPolicies && o.objects.noPolicies && o.outage.noPolicies && o.flood.noPolicies && o.scale.noPolicies)
	require.Equal(t, map[string]any{"admissionPolicies": map[string]any{"enabled": false}}, worldOptions{noPolicies: true}.values())
	require.Empty(t, worldOptions{}.values())
}

// TestOutageFile: the figures of an outage do not replace those of the pods.
func TestOutageFile(t *testing.T) {
	o, err := parse([]string{"--out=d/f.json"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, filepath.Join("d", outageFile), o.outage.out)
	o, err = parse([]string{"--out=d/f.json", "--only=outage"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "d/f.json", o.outage.out)
}

func TestPatience(t *testing.T) {
	require.Equal(t, 10*time.Minute+200*time.Millisecond, patience(1))
	require.Greater(t, patience(scaleGoalPods), 30*time.Minute)
}

func TestPhaseCPU(t *testing.T) {
	require.InDelta(t, 3, phase{CPU: map[string]float64{"a": 1, "b": 2, benchProcess: 4}}.cpu(), 1e-9)
}

func TestLeft(t *testing.T) {
	before := map[string]bool{"rome configmaps bench/kube-root-ca.crt": true}
	require.NoError(t, left(before, before))
	require.NoError(t, left(before, nil))
	now := map[string]bool{"rome configmaps bench/kube-root-ca.crt": true}
	for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
		now["milan shadowpods bench-rome/"+name] = true
	}
	require.EqualError(t, left(before, now), "6 objects are left: milan shadowpods bench-rome/a, milan shadowpods bench-rome/b, "+
		"milan shadowpods bench-rome/c, milan shadowpods bench-rome/d, milan shadowpods bench-rome/e")
}

func TestScaleReport(t *testing.T) {
	p := phase{Seconds: 100, PodsPerSecond: 100, P50: 5, P99: 9, CPU: map[string]float64{"rome vkubelet": 20, benchProcess: 7}}
	memory := map[string]float64{"rome vkubelet": 240.5, benchProcess: 30}
	r := scaled{
		Pods: scaleGoalPods, Service: true, Limits: []string{"pods=20000"}, Create: p, Delete: p, Running: memory, Peak: memory, Cleared: 1.25,
		Guards: []guards{{Cluster: "rome", Policies: 9, Webhooks: 4}, {Cluster: "milan", Webhooks: 4}},
	}
	var out bytes.Buffer
	r.print(&out)
	for _, want := range []string{
		"rome: the chart's RBAC, 9 admission policies, 4 webhooks", "milan: the chart's RBAC, no admission policies (--no-policies), 4 webhooks",
		"sharing.twinLimits is set to pods=20000", "A Service has all pods", "all but the bench", "it has needed 240.5 MB", "Nothing was left in either cluster 1.2 s",
	} {
		require.Contains(t, out.String(), want)
	}
	require.Contains(t, r.processRows(), []string{"rome vkubelet", "2.00", "2.00", "240.5", "240.5"})
	require.Contains(t, r.processRows(), []string{"all but the bench", "2.00", "2.00", "", ""})
	require.NoError(t, writeJSON(filepath.Join(t.TempDir(), "r.json"), r))
}

// TestInventory: both clusters are looked at, each in the namespace of the pods, and what
// comes late is no difference.
func TestInventory(t *testing.T) {
	scheme := fake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	object := func(version, kind, namespace, name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	home := fake.NewSimpleMetadataClient(scheme, object("v1", "Pod", "bench", "a"), object("v1", "Pod", "other", "a"))
	away := fake.NewSimpleMetadataClient(scheme, object("v1", "Pod", "bench-rome", "a"), object("discovery.k8s.io/v1", "EndpointSlice", "bench-rome", "s"),
		object("offloading.liqo.io/v1beta1", "ShadowPod", "bench-rome", "a"))
	w := &world{
		rome: &site.Site{Cluster: &lab.Cluster{Name: "rome"}}, milan: &site.Site{Cluster: &lab.Cluster{Name: "milan"}},
		atRome: clients{meta: home}, atMilan: clients{meta: away}, offloading: &contestant{home: "bench", away: "bench-rome"},
	}
	found, err := w.restingInventory(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{
		"rome pods bench/a": true, "milan pods bench-rome/a": true, "milan endpointslices bench-rome/s": true, "milan shadowpods bench-rome/a": true,
	}, found)
}
