package kubelet

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

const document = "../../docs/kubelet-api.md"

// TestDocumentation compares the table of routes for people with the server's, and the
// rights in it with the guard's.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile(document)
	require.NoError(t, err)
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(data), -1) {
		documented[m[1]] = m[2]
	}
	served := sets.New[string]()
	for _, r := range (&Server{}).table() {
		for _, method := range r.methods {
			name := method + " " + strings.TrimSuffix(r.path, "{$}")
			served.Insert(name)
			require.Contains(t, documented, name, "a row of %s is missing; e2e/scenarios tests each with every kind of credential", document)
			request := requestOf(t, name)
			var rights []string
			for _, subresource := range subresourcesOf(request.URL.Path) {
				rights = append(rights, "`"+verbOf(request)+" nodes/"+subresource+"`")
			}
			require.Equal(t, strings.Join(rights, ", "), documented[name], name)
		}
	}
	require.Equal(t, served, sets.KeySet(documented))
}

func requestOf(t *testing.T, route string) *http.Request {
	t.Helper()
	method, path, _ := strings.Cut(route, " ")
	request, err := http.NewRequestWithContext(t.Context(), method, path, nil)
	require.NoError(t, err)
	return request
}
