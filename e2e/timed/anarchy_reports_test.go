package timed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/e2e/site"
)

// fresh is how old the last report of a pod may be that counts as running.
const fresh = 10 * time.Second

// requestedWithin is the longest time between two requests to an endpoint that pods still request: they
// do so twice a second, and an answer may take one.
const requestedWithin = 5 * time.Second

// podReport is the report of a pod, and podReply the answer to it; see e2e/image.
type podReport struct {
	Pod, Node, Revision, Run string
	Asked                    map[string]string
}

type podReply struct{ Ask []string }

// reportServer gets a report of each pod with the run of its program, and answers with every address
// that the pod's cluster lists as ready, which the pod requests. Of API servers it reads only the
// EndpointSlices, which are under test. Its methods may be called concurrently.
type reportServer struct {
	url string
	// nodes are the names of all nodes, by their addresses: pods report status.hostIP.
	nodes map[string]string

	mu   sync.Mutex
	runs map[string]map[string]*run // by pod and run
	// slices are the EndpointSlices, by cluster and name.
	slices map[string]map[string]*discoveryv1.EndpointSlice
	ends   map[endpoint]*endpointState
	asked  map[string]int // answered requests, from cluster to cluster
}

// endpointState is the state of an endpoint, with all earlier ones.
type endpointState struct {
	endpointTimes
	// ready and silent are the times since which it has been so, or zero.
	ready, silent time.Time
	// asked and answered are the times of the last request and of the last answer.
	asked, answered time.Time
}

// newReportServer listens at an address that all pods reach, until the test ends.
func newReportServer(t *testing.T, host string) *reportServer {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	b := &reportServer{
		url: "http://" + listener.Addr().String(), nodes: map[string]string{}, runs: map[string]map[string]*run{}, asked: map[string]int{},
		slices: map[string]map[string]*discoveryv1.EndpointSlice{}, ends: map[endpoint]*endpointState{},
	}
	server := &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		served.Wait()
	})
	return b
}

// ServeHTTP records a report, and answers with the addresses to request.
func (b *reportServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var report podReport
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(podReply{Ask: b.record(time.Now(), report)})
}

// record records the report of a pod, and returns the addresses that the pod has to request.
func (b *reportServer) record(now time.Time, report podReport) (ask []string) {
	report.Node = cmp.Or(b.nodes[report.Node], report.Node)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs[report.Pod] == nil {
		b.runs[report.Pod] = map[string]*run{}
	}
	r := b.runs[report.Pod][report.Run]
	if r == nil {
		revision, _ := strconv.Atoi(report.Revision)
		r = &run{id: report.Run, node: report.Node, revision: revision, first: now}
		b.runs[report.Pod][report.Run] = r
	}
	r.last = now
	cluster := clusterOf(report.Node)
	for e, w := range b.ends {
		if e.cluster != cluster {
			continue
		}
		if by, requested := report.Asked[e.address]; requested {
			w.record(now, by == e.pod)
			if by == e.pod {
				b.asked[cluster+" → "+b.where(e.pod)]++
			}
		}
		if !w.ready.IsZero() {
			ask = append(ask, e.address)
		}
	}
	return ask
}

// where is the cluster of the last report of a pod.
func (b *reportServer) where(pod string) string {
	var last run
	for _, r := range b.runs[pod] {
		if r.last.After(last.last) {
			last = *r
		}
	}
	return clusterOf(last.node)
}

// record records whether the pod has answered.
func (w *endpointState) record(now time.Time, answered bool) {
	if answered || now.Sub(w.asked) > requestedWithin {
		w.endpointTimes.silent = append(w.endpointTimes.silent, w.silence(now)...)
		w.silent = time.Time{}
	}
	if !answered && w.silent.IsZero() {
		w.silent = now
	}
	w.asked = now
	if answered {
		w.answered = now
	}
}

// silence is the time since the last answer, until the last request: a time without requests, as when
// all pods of a cluster are dead, does not count.
func (w *endpointState) silence(now time.Time) []span {
	if now.Sub(w.asked) > requestedWithin {
		now = w.asked
	}
	if w.silent.IsZero() || !w.silent.Before(now) {
		return nil
	}
	return []span{{w.silent, now}}
}

// follow watches the EndpointSlices of namespaces of a cluster until the test ends.
func (b *reportServer) follow(t *testing.T, s *site.Site, namespaces ...string) {
	t.Helper()
	b.slices[s.Name] = map[string]*discoveryv1.EndpointSlice{}
	for _, namespace := range namespaces {
		factory := informers.NewSharedInformerFactoryWithOptions(s.Client(), 0, informers.WithNamespace(namespace))
		_, err := factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { b.see(s.Name, obj, false) },
			UpdateFunc: func(_, obj any) { b.see(s.Name, obj, false) },
			DeleteFunc: func(obj any) { b.see(s.Name, obj, true) },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		factory.Start(ctx.Done())
		t.Cleanup(func() {
			cancel()
			factory.Shutdown()
		})
	}
}

// see records a change of an EndpointSlice.
func (b *reportServer) see(cluster string, obj any, gone bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := slice.Namespace + "/" + slice.Name
	b.slices[cluster][key] = slice
	if gone {
		delete(b.slices[cluster], key)
	}
	b.list(time.Now(), cluster)
}

// list records which endpoints of a cluster are ready now.
func (b *reportServer) list(now time.Time, cluster string) {
	ready := map[endpoint]bool{}
	for _, slice := range b.slices[cluster] {
		for _, e := range readyEndpoints(cluster, slice) {
			ready[e] = true
			if b.ends[e] == nil {
				b.ends[e] = &endpointState{}
			}
		}
	}
	for e, w := range b.ends {
		switch {
		case e.cluster != cluster || ready[e] == !w.ready.IsZero():
		case ready[e]:
			w.ready = now
		default:
			w.endpointTimes.ready = append(w.endpointTimes.ready, span{w.ready, now})
			w.endpointTimes.silent = append(w.endpointTimes.silent, w.silence(now)...)
			w.ready, w.silent = time.Time{}, time.Time{}
		}
	}
}

func readyEndpoints(cluster string, slice *discoveryv1.EndpointSlice) (out []endpoint) {
	for _, e := range slice.Endpoints {
		if e.TargetRef == nil || e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, port := range slice.Ports {
			for _, address := range e.Addresses {
				out = append(out, endpoint{cluster, net.JoinHostPort(address, fmt.Sprint(*port.Port)), e.TargetRef.Name})
			}
		}
	}
	return out
}

// collected are all runs, and the times of all endpoints, until now.
func (b *reportServer) collected(now time.Time) (pods map[string][]run, ends map[endpoint]endpointTimes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pods, ends = map[string][]run{}, map[endpoint]endpointTimes{}
	for pod, runs := range b.runs {
		for _, r := range runs {
			pods[pod] = append(pods[pod], *r)
		}
	}
	for e, w := range b.ends {
		l := endpointTimes{slices.Clone(w.endpointTimes.ready), append(slices.Clone(w.endpointTimes.silent), w.silence(now)...)}
		if !w.ready.IsZero() {
			l.ready = append(l.ready, span{w.ready, now})
		}
		ends[e] = l
	}
	return pods, ends
}

// running counts, for each Deployment, the pods of its last revision that have reported lately.
func (b *reportServer) running(revisions map[string]int) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int{}
	for pod, runs := range b.runs {
		for _, r := range runs {
			if d := deploymentOf(pod); time.Since(r.last) < fresh && r.revision == revisions[d] {
				out[d]++
			}
		}
	}
	return out
}

// readyPods are the names of the pods that a cluster lists as ready, and an error if one of
// them does not answer.
func (b *reportServer) readyPods(cluster string) (pods []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for e, w := range b.ends {
		if e.cluster != cluster || w.ready.IsZero() {
			continue
		}
		pods = append(pods, e.pod)
		if time.Since(w.answered) > fresh {
			err = fmt.Errorf("%s lists %s of %s as ready, which does not answer", cluster, e.address, e.pod)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods), err
}

// traffic counts the answered requests, from cluster to cluster.
func (b *reportServer) traffic() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.asked)
}
