package report

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWordsOfKubernetes: the words of Kubernetes that this package reads are in the sources of the version that the
// tests start, and with LAB_LONG of the others that they start. The go command downloads what the machine lacks.
func TestWordsOfKubernetes(t *testing.T) {
	t.Parallel()
	const forbidden, missing = "User %q cannot %s resource %q in API group %q at the cluster scope", "%s %q not found"
	require.Equal(t, "jane", user.FindStringSubmatch(fmt.Sprintf(forbidden, "jane", "list", "pods", ""))[1])
	require.Equal(t, "settings", missingObject.FindStringSubmatch(fmt.Sprintf(missing, "configmap", "shop/settings"))[2])
	tools := []string{"../../../e2e/tools/kube"}
	if os.Getenv("LAB_LONG") != "" {
		others, err := filepath.Glob(tools[0] + "-1.*")
		require.NoError(t, err)
		tools = append(tools, others...)
	}
	for _, tool := range tools {
		for _, tc := range []struct{ module, file, has string }{
			{"kubernetes", "pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go", `"` + unschedulable + `"`},
			{"kubernetes", "pkg/kubelet/configmap/configmap_manager.go", `corev1.Resource("configmap")`},
			{"kubernetes", "pkg/kubelet/secret/secret_manager.go", `corev1.Resource("secret")`},
			{"apimachinery", "pkg/api/errors/errors.go", `"` + missing + `"`},
			{"apiserver", "pkg/endpoints/handlers/responsewriters/errors.go", `"` + forbidden + `"`},
			{"pod-security-admission", "admission/admission.go", `"violates ` + podSecurity + ` %q`},
		} {
			download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "k8s.io/"+tc.module)
			download.Dir = tool
			out, err := download.Output()
			require.NoErrorf(t, err, "%s: k8s.io/%s", tool, tc.module)
			var module struct{ Dir string }
			require.NoError(t, json.Unmarshal(out, &module))
			text, err := os.ReadFile(filepath.Join(module.Dir, tc.file))
			require.NoError(t, err)
			require.Contains(t, string(text), tc.has)
		}
	}
}
