package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunExitCodes(t *testing.T) {
	server := httptest.NewServer(handler())
	defer server.Close()
	file := filepath.Join(t.TempDir(), "file")
	t.Setenv("LAB_TEST", "1")
	for name, row := range map[string]struct {
		args []string
		want int
	}{
		"exit":            {[]string{"exit", "7"}, 7},
		"exit later":      {[]string{"exit", "3", "1ms"}, 3},
		"exit nonsense":   {[]string{"exit", "x"}, 1},
		"sleep seconds":   {[]string{"sleep", "0"}, 0},
		"env":             {[]string{"env", "LAB_TEST"}, 0},
		"env missing":     {[]string{"env", "LAB_TEST_MISSING"}, 1},
		"write":           {[]string{"write", file, "a", "b"}, 0},
		"cat missing":     {[]string{"cat", file + "x"}, 1},
		"get":             {[]string{"get", server.URL}, 0},
		"get refused":     {[]string{"get", "http://127.0.0.1:1/"}, 1},
		"lines":           {[]string{"lines", "2"}, 0},
		"burn nonsense":   {[]string{"burn", "2"}, 1},
		"tar nonsense":    {[]string{"tar", "tf"}, 1},
		"load nonsense":   {[]string{"load", server.URL, "0s"}, 1},
		"flood nonsense":  {[]string{"flood", "127.0.0.1:1", "none"}, 1},
		"unknown command": {[]string{"fly"}, 2},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, run(row.args[0], row.args[1:])) })
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "a b\n", string(data))
}

func TestReadinessIsASwitch(t *testing.T) {
	server := httptest.NewServer(handler())
	defer server.Close()
	status := func(path string) int {
		resp, err := http.Get(server.URL + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, status("/readyz"))
	require.Equal(t, http.StatusOK, status("/unready"))
	require.Equal(t, http.StatusServiceUnavailable, status("/readyz"))
	require.Equal(t, http.StatusOK, status("/healthz"))
	require.Equal(t, http.StatusOK, status("/ready"))
	require.Equal(t, http.StatusOK, status("/readyz"))
}
