package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBackendOfARequest(t *testing.T) {
	var list ingressList
	require.NoError(t, json.Unmarshal([]byte(`{"items":[
		{"metadata":{"namespace":"store"},"spec":{"ingressClassName":"public","rules":[{"host":"store.example","http":{"paths":[
			{"path":"/","backend":{"service":{"name":"web","port":{"name":"http"}}}},
			{"path":"/cart","backend":{"service":{"name":"cart","port":{"number":8080}}}}]}}]}},
		{"metadata":{"namespace":"bank"},"spec":{"ingressClassName":"internal","rules":[{"host":"store.example","http":{"paths":[
			{"path":"/","backend":{"service":{"name":"evil","port":{"number":80}}}}]}}]}}]}`), &list))
	for name, tc := range map[string]struct {
		class, host, path string
		want              backend
	}{
		"the only rule":  {"public", "store.example", "/lamp", backend{"store", "web", "http", 0}},
		"longest prefix": {"public", "store.example", "/cart/7", backend{"store", "cart", "", 8080}},
		"another class":  {"internal", "store.example", "/cart", backend{"bank", "evil", "", 80}},
		"another host":   {"public", "bank.example", "/", backend{}},
		"nobody's class": {"private", "store.example", "/", backend{}},
	} {
		t.Run(name, func(t *testing.T) {
			have, ok := list.backend(tc.class, tc.host, tc.path)
			require.Equal(t, tc.want, have)
			require.Equal(t, tc.want != backend{}, ok)
		})
	}
}
