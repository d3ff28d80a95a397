package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func TestLogsStream(t *testing.T) {
	second := make(chan struct{})
	asked := make(chan *url.URL, 1)
	rig := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL
		fmt.Fprintln(w, "one")
		w.(http.Flusher).Flush()
		<-second
		fmt.Fprintln(w, "two")
	}))
	log, err := rig.follow(t.Context(), "follow=true&tailLines=5&sinceSeconds=10&timestamps=true&limitBytes=100&previous=false&stream=All&new=1")
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	lines := bufio.NewReader(log)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "one\n", line, "the first line comes while the second is not written yet")
	close(second)
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "two\n", line)

	got := <-asked
	require.Equal(t, "/api/v1/namespaces/shop-twin/pods/web/log", got.Path)
	require.Equal(t, url.Values{
		"container": {"app"}, "follow": {"true"}, "tailLines": {"5"}, "sinceSeconds": {"10"}, "timestamps": {"true"}, "limitBytes": {"100"},
	}, got.Query())
}

func TestCutLogIsNoWholeLog(t *testing.T) {
	rig := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "one")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	log, err := rig.follow(t.Context(), "")
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	lines := bufio.NewReader(log)
	_, err = lines.ReadString('\n')
	require.NoError(t, err)
	_, err = lines.ReadString('\n')
	require.ErrorContains(t, err, "EOF")
	require.NotEqual(t, "EOF", err.Error())
}

func TestLogRequestsThatFail(t *testing.T) {
	for name, tc := range map[string]struct {
		path   string
		remote int
		want   int
		says   string
	}{
		"unknown pod":          {"/containerLogs/shop/other/app", 0, 404, "pod shop/other is not on node milan"},
		"unknown container":    {"/containerLogs/shop/web/other", 0, 404, `no container "other"`},
		"init container":       {"/containerLogs/shop/web/setup", 200, 200, ""},
		"ephemeral container":  {"/containerLogs/shop/web/debug", 200, 200, ""},
		"bad number":           {"/containerLogs/shop/web/app?tailLines=x", 0, 400, "whole number of at least 0"},
		"negative number":      {"/containerLogs/shop/web/app?tailLines=-1", 0, 400, "at least 0"},
		"no bytes":             {"/containerLogs/shop/web/app?limitBytes=0", 0, 400, "at least 1"},
		"bad flag":             {"/containerLogs/shop/web/app?follow=maybe", 0, 400, "true or false"},
		"bad time":             {"/containerLogs/shop/web/app?sinceTime=yesterday", 0, 400, "a time like"},
		"bad stream":           {"/containerLogs/shop/web/app?stream=out", 0, 400, "Stdout"},
		"two beginnings":       {"/containerLogs/shop/web/app?sinceSeconds=1&sinceTime=2026-01-02T15:04:05Z", 0, 400, "exclude each other"},
		"waiting in provider":  {"/containerLogs/shop/web/app", 400, 400, "waiting to start"},
		"gone in provider":     {"/containerLogs/shop/web/app", 404, 404, "waiting to start"},
		"credentials refused":  {"/containerLogs/shop/web/app", 401, 502, "the provider refuses"},
		"right refused":        {"/containerLogs/shop/web/app", 403, 502, "the provider refuses"},
		"provider in trouble":  {"/containerLogs/shop/web/app", 500, 500, ""},
		"one segment too many": {"/containerLogs/shop/web/app/more", 0, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.remote == 0 {
					t.Errorf("the provider was asked %s", r.URL)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.remote)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"container is waiting to start","reason":"X","code":%d}`, tc.remote)
			}))
			code, body := rig.do(t, "GET", tc.path, "good", nil)
			require.Equal(t, tc.want, code, body)
			require.Contains(t, body, tc.says)
		})
	}
}

func TestTheWayToTheProviderIsKept(t *testing.T) {
	one, two := &rest.Config{Host: "https://192.0.2.1"}, &rest.Config{Host: "https://192.0.2.2"}
	current, away := one, error(nil)
	s := &Server{cfg: Config{Remote: func() (*rest.Config, error) { return current, away }}}
	first, err := s.remote()
	require.NoError(t, err)
	again, err := s.remote()
	require.NoError(t, err)
	require.Same(t, first.client, again.client)
	current = two
	other, err := s.remote()
	require.NoError(t, err)
	require.NotSame(t, first.client, other.client)
	require.Equal(t, two.Host, other.config.Host)
	require.Empty(t, two.APIPath, "the caller's configuration is not changed")
	away = errors.New("no kubeconfig")
	_, err = s.remote()
	require.ErrorContains(t, err, "no kubeconfig")
}

// In an outage of the provider the answer is a 502 with the side that is away. kubectl replaces the
// text of a 503 by one about the consumer's API server.
func TestAnOutageNamesTheProvider(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"no connection": {errors.New("dial tcp 203.0.113.7:6443: i/o timeout"),
			"the API server of the provider does not answer; this cluster works, and pods that run in the provider go on running: dial tcp"},
		"unavailable": {apierrors.NewServiceUnavailable("etcd is away"), "the provider is not available; this cluster works: etcd is away"},
		"no answer":   {apierrors.NewTimeoutError("etcd is slow", 1), "the provider is not available; this cluster works: Timeout: etcd is slow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answer httpError
			require.ErrorAs(t, remoteError(tc.err), &answer)
			require.Equal(t, http.StatusBadGateway, answer.code)
			require.ErrorContains(t, answer, tc.says)
		})
	}
}

// The first request to the provider is the one for the pod: while the provider is silent, this
// request has the answer that names the side.
func TestAnOutageEndsTheLookup(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		says string
		code int
	}{
		"silent":      {context.DeadlineExceeded, "pod shop/web: the API server of the provider does not answer; this cluster works, and pods that run in the provider go on running: context deadline exceeded", http.StatusBadGateway},
		"unavailable": {apierrors.NewServiceUnavailable("etcd is away"), "pod shop/web: the provider is not available; this cluster works: etcd is away", http.StatusBadGateway},
		"not there":   {apierrors.NewNotFound(corev1.Resource("pods"), "web"), `pod shop/web cannot be reached in the provider: looking for the pod in the provider: pods "web" not found`, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := fake.NewClientset()
			provider.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			s := &Server{cfg: Config{NodeName: "milan", Pods: offloaded(t, provider)}}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/containerLogs/shop/web/app", nil)
			require.NoError(t, err)
			request.SetPathValue("namespace", "shop")
			request.SetPathValue("pod", "web")
			_, err = s.target(request)
			require.EqualError(t, err, tc.says)
			var answer httpError
			require.ErrorAs(t, err, &answer)
			require.Equal(t, tc.code, answer.code)
		})
	}
}

// offloaded finds the pod shop/web, which is on the virtual node milan.
func offloaded(t *testing.T, provider kubernetes.Interface) Lookup {
	t.Helper()
	nodes, maps := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	require.NoError(t, nodes.Add(&offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}))
	require.NoError(t, maps.Add(&offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
		Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"shop": {RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingAccepted}}},
	}))
	return Lookup{
		Namespace: "liqo-tenant-milan", Name: "milan",
		Kube:         fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "milan"}}),
		VirtualNodes: offloadinglisters.NewVirtualNodeLister(nodes), NamespaceMaps: offloadinglisters.NewNamespaceMapLister(maps),
		Provider: func() (kubernetes.Interface, error) { return provider, nil },
	}
}
