package client

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestKinds(t *testing.T) {
	for path, tc := range map[string]struct {
		method                          string
		verb                            string
		watch, stream, write, informers bool
	}{
		"/api/v1/pods?watch=true":                                            {method: "GET", verb: "watch", watch: true, informers: true},
		"/api/v1/namespaces/n/pods?resourceVersion=0":                        {method: "GET", verb: "list", informers: true},
		"/api/v1/namespaces/n/pods":                                          {method: "GET", verb: "list"},
		"/api/v1/namespaces/n/pods/p?resourceVersion=0":                      {method: "GET", verb: "get"},
		"/apis/core.liqo.io/v1beta1/foreignclusters/f":                       {method: "GET", verb: "get"},
		"/apis/core.liqo.io/v1beta1/foreignclusters":                         {method: "GET", verb: "list"},
		"/prefix/c-1/apis/apps/v1/namespaces/n/deployments/d/status":         {method: "PUT", verb: "update", write: true},
		"/api/v1/namespaces/n":                                               {method: "DELETE", verb: "delete", write: true},
		"/api/v1/namespaces/n/finalize":                                      {method: "PUT", verb: "update", write: true},
		"/api/v1/namespaces/n/pods/p/log":                                    {method: "GET", verb: "connect", stream: true},
		"/api/v1/namespaces/n/pods/p/exec":                                   {method: "POST", verb: "connect", stream: true},
		"/api/v1/namespaces/n/pods/p/portforward":                            {method: "GET", verb: "connect", stream: true},
		"/api/v1/nodes/n/proxy/stats/summary":                                {method: "GET", verb: "connect", stream: true},
		"/api/v1/namespaces/pods/configmaps/exec":                            {method: "PUT", verb: "update", write: true},
		"/api/v1/namespaces/n/configmaps/log":                                {method: "GET", verb: "get"},
		"/apis/x.io/v1/namespaces/n/pods/p/exec":                             {method: "POST", verb: "create", write: true},
		"/api/v1/namespaces/n/pods/p/status":                                 {method: "PATCH", verb: "patch", write: true},
		"/api/v1/pods?watch=1&sendInitialEvents=true&allowWatchBookmarks=on": {method: "GET", verb: "watch", watch: true, informers: true},
		"/version": {method: "GET", verb: "list"},
		"/api":     {method: "GET", verb: "list"},
		"/":        {method: "GET", verb: "list"},
	} {
		t.Run(tc.method+" "+path, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "https://host"+path, nil)
			require.NoError(t, err)
			require.Equal(t, tc.verb, verbOf(req))
			require.Equal(t, tc.watch, isWatch(req), "watch")
			require.Equal(t, tc.stream, isStream(req), "stream")
			require.Equal(t, tc.write, isWrite(req), "write")
			require.Equal(t, tc.informers, isInformers(req), "informers")
		})
	}
}
