package scenarios

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// testCommands runs the commands as an administrator does: as a process of its own, in a
// world where nothing is wrong.
func testCommands(t *testing.T, w *world) {
	inTurn(t, w, []part[*world]{
		{"Offload", testCommandOffload}, {"Status", testCommandStatus}, {"Dashboard", testCommandDashboard}, {"Faults", testCommandFaults},
		{"Nodes", testCommandNodes}, {"Roles", testCommandRoles}, {"Gather", testCommandGather}, {"Beforehand", testCommandBeforehand},
		{"PeerAway", testCommandPeerAway}, {"NoController", testCommandNoController}, {"Unoffload", testCommandUnoffload},
	})
}

// command runs a command with the kubeconfig of a cluster's administrator, and returns what
// it printed and its exit code.
func (w *world) command(ctx context.Context, s *site.Site, args ...string) (string, int, error) {
	return finish(w.sites.Command(ctx, append(args, "--kubeconfig", s.Kubeconfig)...))
}

func finish(cmd *exec.Cmd) (string, int, error) {
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", -1, err
	}
	return string(out), cmd.ProcessState.ExitCode(), nil
}

// done runs a command that succeeds, and returns what it prints.
func (w *world) done(t *testing.T, s *site.Site, args ...string) string {
	t.Helper()
	out, code, err := w.command(t.Context(), s, args...)
	require.NoError(t, err)
	require.Zero(t, code, out)
	return out
}

// says returns a condition: a command ends with a code and prints all of the texts.
func (w *world) says(s *site.Site, args []string, code int, texts ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, have, err := w.command(ctx, s, args...)
		if err != nil {
			return err
		}
		if have != code {
			return fmt.Errorf("%v ended with code %d, not %d:\n%s", args, have, code, out)
		}
		for _, text := range texts {
			if !strings.Contains(out, text) {
				return fmt.Errorf("%v does not say %q:\n%s", args, text, out)
			}
		}
		return nil
	}
}

// testCommandGather checks that an API server answers all that an archive is made of, and that
// no word of a Secret is in it.
func testCommandGather(t *testing.T, w *world) {
	file := filepath.Join(t.TempDir(), "rome.tar.gz")
	require.NoError(t, w.says(w.rome, []string{"gather", "--file", file}, 0, "files about cluster rome")(t.Context()))
	content := must(os.Open(file))(t)
	t.Cleanup(func() { _ = content.Close() })
	zipped := must(gzip.NewReader(content))(t)
	archive, files := tar.NewReader(zipped), map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		text := must(io.ReadAll(archive))(t)
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
	// The pods of the roles are simulated, so they have no logs and no metrics.
	for line := range strings.Lines(files["unread.txt"]) {
		require.Regexp(t, `^pods/.*\.(log|txt): `, line)
	}
	require.Contains(t, files["cluster/virtualnodes.yaml"], "name: milan")
	require.Contains(t, files["cluster/flowschemas.yaml"], "name: liqod-peers")
	require.Contains(t, files["namespaces/shop/events.yaml"], "items:")
	secrets := kubetest.List(t, w.rome.Client().CoreV1().Secrets("liqo-tenant-milan"))
	words := 0
	for _, s := range secrets.Items {
		for _, value := range s.Data {
			for _, word := range strings.Fields(string(value)) {
				if len(word) < 64 || strings.Contains(word, "://") {
					continue
				}
				words++
				for name, text := range files {
					require.NotContains(t, text, word, name)
				}
			}
		}
	}
	require.NotZero(t, words, "the Secrets have keys and certificates")
}

// testCommandBeforehand examines a cluster that has liqod already, and the token of another.
func testCommandBeforehand(t *testing.T, w *world) {
	require.NoError(t, w.says(w.rome, []string{"check", "--pre"}, 0, "✔ Kubernetes: v", "✔ APIs: ", "✔ Rights: ", "✔ Webhooks: ",
		"‼ Installation: liqod is installed already, in namespace liqod")(t.Context()))
	require.NoError(t, w.says(w.rome, []string{"check", "--pre", "--as", "nobody"}, 1, "✘ Rights: you may not: create configmaps", "cannot be read")(t.Context()))
}

func testCommandOffload(t *testing.T, w *world) {
	within(t, soon, "check finds nothing wrong", w.says(w.rome, []string{"check"}, 0,
		"✔ role controller", "✔ admission webhook", "✔ API server: the API server answers", "✔ virtual node milan: Ready", "Everything is well."))
	require.NoError(t, w.says(w.rome, []string{"offload", "namespace", "shop"}, 1, "there is no namespace shop")(t.Context()))
	kubetest.Create(t, w.rome.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	offload := []string{"offload", "namespace", "shop", "--selector=region in (north)"}
	require.NoError(t, w.says(w.rome, offload, 0, "milan: namespace shop-rome stands in cluster milan", "namespace shop: offloaded")(t.Context()))
	kubetest.Get(t, w.milan.Client().CoreV1().Namespaces(), "shop-rome")
	require.NoError(t, w.says(w.rome, offload, 0, "asked for already")(t.Context()))
	offload = append(offload, "--pod-offloading-strategy=Remote")
	require.NoError(t, w.says(w.rome, offload, 0, "offloading is changed (Remote)", "namespace shop: offloaded")(t.Context()))
	require.NoError(t, w.says(w.rome, append(offload, "--namespace-mapping-strategy=EnforceSameName"), 1, "unoffload it first")(t.Context()))
}

// summary is the part of the status in JSON that this test reads.
type summary struct {
	Cluster string
	Health  string
	Peers   []struct {
		ClusterID, Role, Health string
		VirtualNodes            []struct {
			Name, Health string
			Pods         int
			Used         corev1.ResourceList
		}
		Hosted struct{ Namespaces, Pods int }
	}
	Namespaces []struct {
		Name, Phase string
		Peers       []struct {
			ClusterID string
			Ready     bool
			Pods      int
		}
	}
}

func (w *world) summary(ctx context.Context, s *site.Site) (summary, int, error) {
	var have summary
	out, code, err := w.command(ctx, s, "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &have)
	}
	return have, code, lab.Wrong(err, len(have.Peers) != 1, "not one peer: %s", out)
}

func testCommandStatus(t *testing.T, w *world) {
	w.bare(t, "shop", "web", nil)
	within(t, soon, "the pod runs in milan", w.placed("shop", "web", "milan"))
	have, code, err := w.summary(t.Context(), w.rome)
	require.NoError(t, err)
	require.Equal(t, 0, code)
	require.Equal(t, "rome", have.Cluster)
	require.Equal(t, "ok", have.Health)
	require.Equal(t, "milan", have.Peers[0].ClusterID)
	require.Equal(t, "Provider", have.Peers[0].Role)
	require.Equal(t, 1, have.Peers[0].VirtualNodes[0].Pods)
	require.Equal(t, "Ready", have.Namespaces[0].Phase)
	require.Equal(t, 1, have.Namespaces[0].Peers[0].Pods)

	have, _, err = w.summary(t.Context(), w.milan)
	require.NoError(t, err)
	require.Equal(t, "Consumer", have.Peers[0].Role)
	require.Equal(t, 1, have.Peers[0].Hosted.Pods)
	require.Equal(t, 1, have.Peers[0].Hosted.Namespaces)

	require.NoError(t, w.says(w.rome, []string{"status"}, 0, "Cluster rome: healthy", "Healthy", "milan: 1 pod")(t.Context()))
	require.NoError(t, w.says(w.rome, []string{"status", "milan"}, 0, "Peer milan", "shop as shop-rome: 1 pod")(t.Context()))
	require.NoError(t, w.says(w.rome, []string{"status", "genoa"}, 2, `there is no peer "genoa": the only peer is milan`)(t.Context()))

	require.NoError(t, w.says(w.rome, []string{"status", "-n", "shop"}, 0, "Namespace shop of cluster rome: healthy", "milan: 1 pod")(t.Context()))
	require.NoError(t, w.says(w.rome, []string{"version"}, 0, "Cluster rome\nliqod ", "in namespace liqod")(t.Context()))
	require.NoError(t, w.says(w.rome, []string{"uninstall"}, 1, "a namespace is offloaded: shop; there is a peer: milan")(t.Context()))

	// As kubectl finds it.
	plugin := filepath.Join(t.TempDir(), "kubectl-liqo")
	cmd := w.sites.Command(t.Context(), "status", "--kubeconfig", w.rome.Kubeconfig)
	require.NoError(t, os.Symlink(cmd.Path, plugin))
	cmd.Path, cmd.Args[0] = plugin, plugin
	out, code, err := finish(cmd)
	require.NoError(t, err)
	require.Equal(t, 0, code, out)
}

func testCommandPeerAway(t *testing.T, w *world) {
	w.milan.Proxied().Drop()
	within(t, soon, "status tells that milan is away", w.says(w.rome, []string{"status"}, 1, "✘ milan, API server: ", "Fix: curl ", "Unhealthy"))
	within(t, soon, "the ForeignCluster has an event", hasSome(w.rome.Client().CoreV1().Events(metav1.NamespaceDefault), "involvedObject.kind=ForeignCluster,involvedObject.name=milan,type=Warning", 1))
	out, _, err := w.command(t.Context(), w.rome, "status")
	require.NoError(t, err)
	fix, _ := findingOf(out, []string{"milan, API server: "})
	require.NotEmpty(t, fix)
	w.inRunbook(t, faultCase{runbook: "LiqodPeerDown", command: "curl --insecure --globoff --max-time 10 URL/readyz"}, fix)
	said, err := w.shell(t, w.rome, fix[0], "")
	require.Error(t, err, said)
	have, _, err := w.summary(t.Context(), w.rome)
	require.NoError(t, err)
	require.Equal(t, "problem", have.Peers[0].Health)
	require.Equal(t, 1, have.Peers[0].VirtualNodes[0].Pods, "what runs there is still known here")
	w.milan.Proxied().Pass()
	said, err = w.shell(t, w.rome, fix[0], "")
	require.NoError(t, err, said)
	within(t, soon, "status tells that milan is back", w.says(w.rome, []string{"status"}, 0, "Cluster rome: healthy"))
}

// What nobody can tell is unknown, not down.
func testCommandNoController(t *testing.T, w *world) {
	w.rome.Controller.Kill()
	within(t, soon, "check tells that no controller runs", w.says(w.rome, []string{"check"}, 1, "✘ role controller: ", "no replica leads", "kubectl -n liqod logs deployment/liqod-controller",
		"? API server: liqod's controller does not run; its last result was True"))
	have, code, err := w.summary(t.Context(), w.rome)
	require.NoError(t, err)
	require.Equal(t, 1, code)
	require.Equal(t, "unknown", have.Peers[0].Health)
	require.NoError(t, w.says(w.rome, []string{"unoffload", "namespace", "shop", "--timeout=2s"}, 1,
		"its offloading is deleted", "waiting for liqod's controller to withdraw it", "timed out after 2s")(t.Context()))
	w.mends(t, faultCase{name: "ControllerHangs", cause: []string{"role controller: ", "no replica leads"}, only: "rollout restart",
		runbook: "LiqodNoActiveController", command: "kubectl -n liqod rollout restart deployment/liqod-controller", then: func(t *testing.T) {
			within(t, longest, "the Deployment asks for another pod", w.deploymentIs("liqod-controller", func(d *appsv1.Deployment) bool {
				return d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != ""
			}))
			require.NoError(t, w.sites.Restart(&w.rome.Controller))
		}})
}

func testCommandUnoffload(t *testing.T, w *world) {
	within(t, longest, "the namespace is taken back", w.says(w.rome, []string{"unoffload", "namespace", "shop", "--timeout=30s"}, 0, "namespace shop: "))
	require.NoError(t, w.noTwin("shop-rome")(t.Context()), "the command has waited")
	require.NoError(t, w.says(w.rome, []string{"unoffload", "namespace", "shop"}, 0, "namespace shop: it is not offloaded")(t.Context()))
	within(t, soon, "all is well again", w.says(w.rome, []string{"check"}, 0, "Everything is well."))
}

// shownState is the part of the dashboard's state that this test reads.
type shownState struct {
	Cluster, Health, Trouble string
	Unread                   []struct{ Section, What string }
	Peers                    []struct {
		ID, Health, API string
		Pods            int
		Nodes           []struct {
			Bars []struct {
				Resource, Used string
				Percent        int
			}
		}
	}
	Namespaces []struct {
		Name   string
		Places []struct {
			Name string
			Pods int
		}
	}
	Hosted []struct {
		Peer, Namespace string
		Pods            int
	}
	Events []struct{ Object, Reason string }
}

// dashboard is a running command: where it serves the state, and the token for that.
type dashboard struct{ base, token string }

// dashboard starts liqod dashboard with the kubeconfig of an administrator. At the end of the
// test it is interrupted, and must end with code 0.
func (w *world) dashboard(t *testing.T, s *site.Site, args ...string) *dashboard {
	t.Helper()
	cmd := w.sites.Command(context.WithoutCancel(t.Context()), append([]string{"dashboard", "--every=1s", "--kubeconfig", s.Kubeconfig}, args...)...)
	out := must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait())
	})
	printed := bufio.NewReader(out)
	address := ""
	for address == "" {
		line := must(printed.ReadString('\n'))(t)
		if strings.Contains(line, "http://127.0.0.1:") {
			address = strings.TrimSpace(line)
		}
	}
	base, token, found := strings.Cut(address, "#token=")
	require.True(t, found, address)
	return &dashboard{base, token}
}

// shows returns a condition: the state passes a check.
func (d *dashboard) shows(check func(*shownState) error) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.base+"state", http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+d.token)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("%s: %s", answer.Status, data), err)
		}
		var s shownState
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		if err := check(&s); err != nil {
			return fmt.Errorf("%w: %s", err, data)
		}
		return nil
	}
}

// testCommandDashboard reads the state that the page gets, from real API servers.
func testCommandDashboard(t *testing.T, w *world) {
	within(t, soon, "the dashboard of rome shows the pod in milan", w.dashboard(t, w.rome).shows(func(s *shownState) error {
		switch {
		case s.Cluster != "rome" || s.Health != "ok" || s.Trouble != "" || len(s.Unread) != 1 || s.Unread[0].Section != "traffic": // simulated pods serve no metrics
			return fmt.Errorf("rome is not healthy")
		case len(s.Peers) != 1 || s.Peers[0].ID != "milan" || s.Peers[0].API != "ok" || s.Peers[0].Pods != 1 || len(s.Peers[0].Nodes) != 1 || len(s.Peers[0].Nodes[0].Bars) < 3:
			return fmt.Errorf("milan is not shown with its pod and its capacity")
		case len(s.Namespaces) != 1 || !slices.Contains(s.Namespaces[0].Places, struct {
			Name string
			Pods int
		}{"milan", 1}):
			return fmt.Errorf("the pod of shop is not in milan")
		case len(s.Events) == 0:
			return fmt.Errorf("there are no events")
		}
		return nil
	}))
	within(t, soon, "the dashboard of milan shows the pod of rome", w.dashboard(t, w.milan).shows(func(s *shownState) error {
		return lab.Wrong(nil, len(s.Hosted) != 1 || s.Hosted[0].Peer != "rome" || s.Hosted[0].Namespace != "shop-rome" || s.Hosted[0].Pods != 1, "shop-rome is not shown with its pod")
	}))
	within(t, soon, "somebody without rights sees what is missing", w.dashboard(t, w.rome, "--as=nobody").shows(func(s *shownState) error {
		if s.Health == "ok" || len(s.Peers)+len(s.Namespaces)+len(s.Events) > 0 {
			return fmt.Errorf("too much is known")
		}
		for _, section := range []string{"clusters", "namespaces", "capacity", "hosted", "parts", "events"} {
			if !slices.ContainsFunc(s.Unread, func(u struct{ Section, What string }) bool { return u.Section == section }) {
				return fmt.Errorf("section %s says nothing", section)
			}
		}
		return nil
	}))
}
