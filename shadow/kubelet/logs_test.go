package kubelet

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
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
	request, err := http.NewRequestWithContext(t.Context(), "GET", rig.url+"/containerLogs/shop/web/app?follow=true&tailLines=5&sinceSeconds=10&timestamps=true&limitBytes=100&previous=false&stream=All&new=1", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer good")
	response, err := rig.client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	lines := bufio.NewReader(response.Body)
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
	request, err := http.NewRequestWithContext(t.Context(), "GET", rig.url+"/containerLogs/shop/web/app", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer good")
	response, err := rig.client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReader(response.Body)
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
