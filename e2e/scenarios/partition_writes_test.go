package scenarios

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/site"
)

// writesPerFlap is how often an object may be written in one flap by one writer: liqod, or
// Kubernetes itself, which puts taints on nodes and marks their pods. It is more than twice of
// what a quiet machine needs for nodes, which need most.
const writesPerFlap = 25

// countWrites counts, by watches, how often each pod, virtual node, ForeignCluster and
// EndpointSlice is written in each cluster, and by whom, until the returned function is called.
func (w partitionWorld) countWrites(t *testing.T) func() map[string]int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var mu sync.Mutex
	var counting sync.WaitGroup
	counts := map[string]int{}
	count := func(s *site.Site, kind string, stream watch.Interface, err error) {
		require.NoError(t, err)
		counting.Go(func() {
			for event := range stream.ResultChan() {
				object, err := meta.Accessor(event.Object)
				if err != nil || event.Type == watch.Added {
					continue
				}
				mu.Lock()
				counts[fmt.Sprintf("%s %s in %s, by %s", kind, object.GetName(), s.Name, lastWriter(object))]++
				mu.Unlock()
			}
		})
	}
	all := metav1.ListOptions{TimeoutSeconds: ptr.To[int64](600)}
	for s, namespace := range map[*site.Site]string{w.rome: netNamespace, w.milan: netTwin} {
		named := all
		named.FieldSelector = "metadata.name=" + w.other(s).Name
		stream, err := s.Client().CoreV1().Pods(namespace).Watch(ctx, all)
		count(s, "pod", stream, err)
		stream, err = s.Client().DiscoveryV1().EndpointSlices(namespace).Watch(ctx, all)
		count(s, "EndpointSlice", stream, err)
		stream, err = s.Client().CoreV1().Nodes().Watch(ctx, named)
		count(s, "node", stream, err)
		stream, err = s.Liqod().CoreV1beta1().ForeignClusters().Watch(ctx, named)
		count(s, "ForeignCluster", stream, err)
		stream, err = s.Liqod().OffloadingV1beta1().ShadowPods(namespace).Watch(ctx, all)
		count(s, "ShadowPod", stream, err)
	}
	return func() map[string]int {
		cancel()
		counting.Wait()
		return counts
	}
}

// lastWriter is the field manager that has written an object last.
func lastWriter(object metav1.Object) (name string) {
	var at metav1.Time
	for _, m := range object.GetManagedFields() {
		if m.Time != nil && !m.Time.Before(&at) {
			name, at = m.Manager, *m.Time
		}
	}
	return name
}
