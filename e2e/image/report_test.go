package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAskAll(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "web-1\n") }))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	require.Equal(t, map[string]string{address: "web-1", "127.0.0.1:1": ""}, askAll(t.Context(), []string{address, "127.0.0.1:1"}))
}

func TestPost(t *testing.T) {
	var got report
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
		respond(w, reply{Ask: []string{"10.0.0.1:8080"}})
	}))
	defer server.Close()
	sent := report{Pod: "web-1", Node: "rome-1", Revision: "1", Run: "x", Asked: map[string]string{"10.0.0.2:8080": "web-2"}}
	next, err := post(t.Context(), server.Client(), server.URL, sent)
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.1:8080"}, next.Ask)
	require.Equal(t, sent, got)
	require.ErrorContains(t, sendReports(context.Background(), server.URL, "0s"), "the time between two reports")
}
