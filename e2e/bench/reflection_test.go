package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestObjectKinds makes, changes and deletes an object of each kind.
func TestObjectKinds(t *testing.T) {
	for _, k := range objectKinds() {
		t.Run(k.name, func(t *testing.T) {
			c := fake.NewSimpleDynamicClient(scheme.Scheme)
			objects := c.Resource(k.resource).Namespace("bench")
			require.NoError(t, k.send(t.Context(), c, "bench", stepCreate, "a"))
			first, err := objects.Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			require.NoError(t, k.send(t.Context(), c, "bench", stepUpdate, "a"))
			second, err := objects.Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, stepUpdate, second.GetLabels()[stepLabel])
			second.SetLabels(first.GetLabels())
			require.NotEqual(t, first.Object, second.Object, "the content is another one, too")
			require.NoError(t, k.send(t.Context(), c, "bench", stepDelete, "a"))
			left, err := objects.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Empty(t, left.Items)
		})
	}
}

func TestReflectionReport(t *testing.T) {
	vkubelet := request{Cluster: "milan", Who: "rome vkubelet", Verb: "create", Resource: "shadowendpointslices"}
	controller := request{Cluster: "milan", Who: "milan controller", Verb: "create", Resource: "endpointslices"}
	reads := request{Cluster: "milan", Who: "rome vkubelet", Verb: "get", Resource: "shadowendpointslices"}
	own := request{Cluster: "milan", Who: whoKubernetes + "kube-controller-manager", Verb: "create", Resource: "endpointslices"}
	r := reflection{Each: 10}
	r.count(&contestant{name: "liqod", shadows: true}, map[string]map[request]int{stepCreate: {vkubelet: 10, controller: 20, reads: 5, own: 10}, stepDelete: {reads: 5}})
	require.Len(t, r.Requests, 4)
	require.Equal(t, requestCount{Contestant: "liqod", request: reads, Create: 5, Delete: 5, PerObject: 0.25}, r.Requests[3])
	require.Equal(t, objectWrites{Kind: "endpointslice", Create: 1, RealCreate: 2}, r.Writes[3])
	var out bytes.Buffer
	r.print(&out)
	require.Contains(t, out.String(), "creation to end, at both API servers: 1.00")
	require.Regexp(t, `endpointslice +1\.00 +0\.00 +0\.00 +2\.00`, out.String())
}
