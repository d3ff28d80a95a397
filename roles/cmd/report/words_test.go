package report

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWordsOfKubernetes: the words of Kubernetes that this package reads are in the sources of the versions that the
// tests start. Those of the usual version are on each machine that has started a cluster.
func TestWordsOfKubernetes(t *testing.T) {
	t.Parallel()
	const forbidden, missing = "User %q cannot %s resource %q in API group %q at the cluster scope", "%s %q not found"
	require.Equal(t, "jane", user.FindStringSubmatch(fmt.Sprintf(forbidden, "jane", "list", "pods", ""))[1])
	require.Equal(t, "settings", missingObject.FindStringSubmatch(fmt.Sprintf(missing, "configmap", "shop/settings"))[2])
	const tools = "../../../e2e/tools/"
	others, err := filepath.Glob(tools + "kube-1.*")
	require.NoError(t, err)
	for _, tool := range append(others, tools+"kube") {
		t.Run(filepath.Base(tool), func(t *testing.T) {
			for _, tc := range []struct{ module, file, has string }{
				{"kubernetes", "pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go", `"` + unschedulable + `"`},
				{"kubernetes", "pkg/kubelet/configmap/configmap_manager.go", `corev1.Resource("configmap")`},
				{"kubernetes", "pkg/kubelet/secret/secret_manager.go", `corev1.Resource("secret")`},
				{"apimachinery", "pkg/api/errors/errors.go", `"` + missing + `"`},
				{"apiserver", "pkg/endpoints/handlers/responsewriters/errors.go", `"` + forbidden + `"`},
				{"pod-security-admission", "admission/admission.go", `"violates ` + podSecurity + ` %q`},
			} {
				list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/"+tc.module)
				list.Dir, list.Env = tool, append(os.Environ(), "GOPROXY=off", "GOWORK=off")
				dir, err := list.CombinedOutput()
				if err != nil || len(dir) <= 1 {
					require.False(t, os.Getenv("CI") == "true" && tool == tools+"kube", "the module cache lacks k8s.io/%s: %s", tc.module, dir)
					t.Skipf("the module cache lacks k8s.io/%s: %s", tc.module, dir)
				}
				text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), tc.file))
				require.NoError(t, err)
				require.Contains(t, string(text), tc.has)
			}
		})
	}
}
