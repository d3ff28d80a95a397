package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVulns: the result is that of govulncheck. Without the database there is none, and a
// warning.
func TestVulns(t *testing.T) {
	t.Parallel()
	database := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index/db.json" {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(database.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	broken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(broken.Close)

	for name, tc := range map[string]struct {
		db, script string
		want       int
		says       string
	}{
		"nothing found":      {database.URL, "echo nothing $*", 0, "nothing -db " + database.URL + " . ./hack"},
		"found":              {database.URL, "echo GO-1; exit 3", 3, "GO-1"},
		"killed":             {database.URL, "kill -9 $$", 1, ""},
		"no tool":            {database.URL, "", 1, "running govulncheck"},
		"database not there": {gone.URL, "echo ran; exit 3", 0, "VULNERABILITIES WERE NOT CHECKED"},
		"database broken":    {broken.URL, "echo ran; exit 3", 0, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tool := filepath.Join(t.TempDir(), "govulncheck")
			if tc.script != "" {
				require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o700))
			}
			var out bytes.Buffer
			require.Equal(t, tc.want, checkVulns(t.Context(), vulnOptions{tool: tool, db: tc.db, packages: ". ./hack"}, &out, &out))
			require.Contains(t, out.String(), tc.says)
			require.NotContains(t, out.String(), "ran\n")
			required := vulnOptions{tool: tool, db: tc.db, packages: ".", required: true}
			if tc.want == 0 && tc.db != database.URL {
				require.Equal(t, 1, checkVulns(t.Context(), required, &out, &out), "a release needs the answer")
			} else {
				require.Equal(t, tc.want, checkVulns(t.Context(), required, &out, &out))
			}
		})
	}
}
