package roles

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/liqod/liqod/kube/loop"
)

// asDaemon makes the test binary be liqod, with its own roles or with those of this test.
const asDaemon = "TEST_BE_LIQOD"

func TestMain(m *testing.M) {
	kind := os.Getenv(asDaemon)
	if kind == "" {
		os.Exit(m.Run())
	}
	configYAML, err := os.ReadFile("../config.yaml")
	if err != nil {
		panic(err)
	}
	all := allRoles()
	if kind == "test" {
		all = append(testRoles(), all...)
	}
	os.Exit(run(all, os.Args, configYAML, os.Stdout, os.Stderr))
}

// always leads at once, until the end.
type always struct{}

func (always) Run(ctx context.Context, work func(context.Context) error) error { return work(ctx) }

func actor(name string, run func(ctx context.Context) error) func(context.Context, Env) (Parts, error) {
	return func(context.Context, Env) (Parts, error) {
		return Parts{Actors: []Actor{{Name: name, Run: run}}}, nil
	}
}

func testRoles() []Role {
	return append(servers(), []Role{
		{Name: "idle", Build: buildIdle},
		{Name: "failing", Build: actor("bad", func(context.Context) error { return errors.New("disk on fire") })},
		{Name: "stubborn", Build: actor("rock", func(context.Context) error { select {} })},
		{Name: "unbuildable", Build: func(context.Context, Env) (Parts, error) { return Parts{}, errors.New("no kubeconfig") }},
	}...)
}

// buildIdle makes a role that does a little of everything.
func buildIdle(_ context.Context, env Env) (Parts, error) {
	env.Ready.Add("idle", func() error { return nil })
	pods := loop.New(loop.Config{
		Name: "pods", Log: env.Log, Observer: env.Observer,
		Sync: func(context.Context, loop.Key) error { return nil },
	})
	pods.Add(loop.Key{Namespace: "ns", Name: "a"})
	env.Requests("home").Request("get", "200", time.Millisecond)
	klog.InfoS("a line of client-go", "pod", "ns/a")
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "named"})
	queue.Add("x")
	return Parts{Leader: always{}, Actors: []Actor{
		{Name: "pods", Leased: true, Run: func(ctx context.Context) error { return pods.Run(ctx, 1) }},
		{Name: "cleanup", Run: func(ctx context.Context) error { <-ctx.Done(); env.Log.Info("cleaned up"); return nil }},
	}}, nil
}

type daemon struct {
	*exec.Cmd
	stderr *bufio.Reader
	lines  []map[string]any
}

func command(t *testing.T, kind string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{asDaemon + "=" + kind, "PATH=" + os.Getenv("PATH")}, env...)
	if kind == "kubectl" { // as its plugin
		cmd.Args[0] = "/usr/local/bin/kubectl-liqo"
	}
	return cmd
}

func start(t *testing.T, args ...string) *daemon {
	t.Helper()
	d := &daemon{Cmd: command(t, "test", nil, append([]string{"--server.address=127.0.0.1:0"}, args...)...)}
	pipe := must(d.StderrPipe())
	d.stderr = bufio.NewReader(pipe)
	require.NoError(t, d.Start())
	return d
}

// until reads the log up to the line with this message, and returns that line.
func (d *daemon) until(t *testing.T, message string) map[string]any {
	t.Helper()
	for {
		text, err := d.stderr.ReadString('\n')
		require.NoError(t, err, "the log ended before %q", message)
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &line), text)
		d.lines = append(d.lines, line)
		if line["msg"] == message {
			return line
		}
	}
}

// end reads the rest of the log and returns it with the exit code.
func (d *daemon) end(t *testing.T) (rest string, code int) {
	t.Helper()
	text := must(io.ReadAll(d.stderr))
	_ = d.Wait()
	return string(text), d.ProcessState.ExitCode()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response := must(http.Get(url))
	body := must(io.ReadAll(response.Body))
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(body)
}

func TestCommandLine(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("log:\n  levle: debug\n"), 0o600))
	for name, tc := range map[string]struct {
		kind   string
		env    []string
		args   []string
		code   int
		stdout string // pattern
		stderr string // pattern
	}{
		"version":             {"main", nil, []string{"version"}, 0, `^liqod \S+ \(go1\.\S+, linux/\w+\)\n$`, `^$`},
		"version as data":     {"main", nil, []string{"version", "-o", "json"}, 0, `^\{\n  "version": "\S+",\n  "goVersion": "go1\.\S+",\n  "platform": "linux/\w+"\n\}\n$`, `^$`},
		"version as a flag":   {"main", nil, []string{"--version"}, 0, `^liqod \S+ \(go1\.\S+, linux/\w+\)\n$`, `^$`},
		"version as yaml":     {"main", nil, []string{"version", "-oyaml"}, 0, `^goVersion: go1.*\nplatform: .*\nversion: .*\n$`, `^$`},
		"help":                {"main", nil, []string{"--help"}, 0, `(?s)\nPeerings:\n  token .*\n  peer .*\nNamespaces:\n  offload .*\nRoles and hosts:.*\nOthers:.*\n  version .*\nRoles \(liqod --role=NAME --help lists the settings\):\n  controller .*  ipam `, `^$`},
		"help as a command":   {"main", nil, []string{"help"}, 0, `\nPeerings:\n`, `^$`},
		"help of a role":      {"main", nil, []string{"--role=vkubelet", "--help"}, 0, `(?s)^Role vkubelet: one virtual node.*\n  liqod --role=vkubelet \[flags\]\n.*--role=controller,webhook.*--vkubelet\.nodeAddress`, `^$`},
		"help of no role":     {"main", nil, []string{"--role=kitchen", "--help"}, 0, `\nPeerings:\n`, `role "kitchen" is not accepted`},
		"help of config":      {"main", nil, []string{"config", "--help"}, 0, `where each value came from|as YAML that --config accepts`, `^$`},
		"nothing":             {"main", nil, nil, 0, `\nPeerings:\n`, `^$`},
		"no role":             {"main", nil, []string{"--log.level=debug"}, 2, `^$`, `no role given: --role=NAME, one or more of controller, vkubelet, webhook, gateway, route, ipam\nliqod --help says more\.\n$`},
		"gateway":             {"main", nil, []string{"--role=gateway"}, 2, `^$`, `clusterID: needed by role gateway`},
		"route":               {"main", nil, []string{"--role=route"}, 2, `^$`, `route.nodeName: needed by role route`},
		"two on one network":  {"main", nil, []string{"--role=gateway,route", "--clusterID=rome", "--route.nodeName=n"}, 2, `^$`, `roles gateway and route are not accepted in one process`},
		"ipam":                {"main", nil, []string{"--role=ipam", "--networking.externalCIDRs="}, 2, `^$`, `networking.externalCIDRs: needed by role ipam`},
		"unknown role":        {"main", nil, []string{"--role=kitchen"}, 2, `^$`, `role "kitchen" is not accepted: one or more of controller, `},
		"a role twice":        {"test", nil, []string{"--role=idle,idle"}, 2, `^$`, `role idle is given twice`},
		"unknown command":     {"main", nil, []string{"frobnicate"}, 2, `^$`, `unknown command "frobnicate": the commands are .*completion, config, .*offload, .*version; roles are run by --role=NAME`},
		"command of liqoctl":  {"main", nil, []string{"install", "kind", "--cluster-name=rome"}, 2, `^$`, `^liqod: install is a command of liqoctl: here it is helm upgrade --install`},
		"unknown shell":       {"main", nil, []string{"completion", "tcsh"}, 2, `^$`, `liqod completion does not know "tcsh": accepted is bash, fish, powershell, zsh`},
		"misspelled command":  {"main", nil, []string{"statsu"}, 2, `^$`, `unknown command "statsu"; did you mean status\?`},
		"half a command":      {"main", nil, []string{"offload"}, 2, `^$`, `say what: liqod offload namespace\nliqod offload --help says more\.\n$`},
		"a flag of a command": {"main", nil, []string{"token", "create", "--fro=rome"}, 2, `^$`, `unknown flag --fro; did you mean --for\?\nliqod token create --help says more\.\n$`},
		"no name":             {"main", nil, []string{"unpeer"}, 2, `^$`, `needs the name of a peer\nliqod unpeer --help says more\.\n$`},

		"completion":          {"main", nil, []string{"completion", "bash"}, 0, `^# bash completion V2 for liqod `, `^$`},
		"unknown flag":        {"test", nil, []string{"--role=idle", "--log.levle=debug"}, 2, `^$`, `unknown flag --log.levle; did you mean --log.level\?`},
		"bad value":           {"test", nil, []string{"--role=idle", "--log.level=loud"}, 2, `^$`, `log.level: "loud" is not accepted \(from flag --log.level\): one of debug, info, warn, error`},
		"bad file":            {"test", nil, []string{"--role=idle", "--config=" + bad}, 2, `^$`, `bad.yaml:2: unknown key log.levle; did you mean log.level\?`},
		"absent file":         {"test", nil, []string{"--role=idle", "--config=/nowhere"}, 2, `^$`, `open /nowhere: no such file or directory`},
		"a name that steers":  {"test", nil, []string{"--role=idle", "--config=/no\x1b[2Jwhere"}, 2, `^$`, `open /no \[2Jwhere: no such file or directory`},
		"unknown variable":    {"test", []string{"LIQOD_LOG_LEVLE=debug"}, []string{"--role=idle"}, 2, `^$`, `unknown environment variable LIQOD_LOG_LEVLE; did you mean LIQOD_LOG_LEVEL\?`},
		"config":              {"main", []string{"LIQOD_LOG_LEVEL=debug"}, []string{"config", "--clusterID=rome"}, 0, `(?s)^clusterID: "rome" # flag --clusterID\n.*level: "debug" # env LIQOD_LOG_LEVEL\n`, `^$`},
		"config of no role":   {"main", nil, []string{"config", "--role=kitchen"}, 2, `^$`, `role "kitchen" is not accepted`},
		"a role that fails":   {"test", nil, []string{"--role=failing", "--server.address="}, 1, `^$`, `liqod: failing/bad: disk on fire\n$`},
		"a role not to build": {"test", nil, []string{"--role=unbuildable", "--server.address="}, 1, `^$`, `liqod: role unbuildable: no kubeconfig\n$`},
		"an address in use":   {"test", nil, []string{"--role=idle", "--server.address=192.0.2.1:1"}, 1, `^$`, `liqod: server: serving health and metrics: listen tcp 192.0.2.1:1: `},
		"a log for people":    {"test", nil, []string{"--role=failing", "--log.format=console", "--server.address="}, 1, `^$`, `^\d\d:\d\d:\d\d\.\d{3}\tINFO\tstarted\t\{"roles": \["failing"\]`},

		"plugin":                  {"kubectl", nil, nil, 0, `(?s)^Seamless .*kubectl liqo \[command\].*  offload .*  status `, `^$`},
		"plugin, a command":       {"kubectl", nil, []string{"unoffload", "namespace", "--help"}, 0, `kubectl liqo unoffload namespace shop --timeout=5m`, `^$`},
		"plugin, unknown command": {"kubectl", nil, []string{"frobnicate"}, 2, `^$`, `^kubectl liqo: unknown command "frobnicate": the commands are check, completion, .*, version\nkubectl liqo --help says more\.\n$`},
		"plugin, no namespace":    {"kubectl", nil, []string{"offload", "namespace"}, 2, `^$`, `needs the name of a namespace\nkubectl liqo offload namespace --help says more\.\n$`},
		"plugin, no roles":        {"kubectl", nil, []string{"--role=controller"}, 2, `^$`, `unknown flag --role`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := command(t, tc.kind, tc.env, tc.args...)
			var stdout, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run()
			require.Equal(t, tc.code, cmd.ProcessState.ExitCode(), stderr.String())
			require.Regexp(t, regexp.MustCompile(tc.stdout), stdout.String())
			require.Regexp(t, regexp.MustCompile(tc.stderr), stderr.String())
		})
	}
}

// The help fits a screen, in lines that fit a terminal, and has every command, each of liqod's own in a group.
func TestHelpFitsAScreen(t *testing.T) {
	t.Parallel()
	cmd := command(t, "main", nil, "--help")
	out := must(cmd.Output())
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.LessOrEqual(t, len(lines), 50)
	for _, line := range lines {
		require.LessOrEqual(t, len(line), 100, line)
	}
	for _, c := range rootCommand(t).Commands() {
		require.True(t, c.GroupID != "" || slices.Contains([]string{"completion", "help", "version"}, c.Name()), "%s has no group in roles/help.go", c.Name())
		require.Contains(t, string(out), "\n  "+c.Name()+" ", "a command that the help does not have")
	}
	require.NotContains(t, string(out), "--log.level")
}

func TestDaemonServesAndStopsInTime(t *testing.T) {
	for name, sig := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, "--role=idle")
			base := "http://" + d.until(t, "serving health and metrics")["address"].(string)
			code, body := get(t, base+"/livez")
			require.Equal(t, 200, code, body)
			code, body = get(t, base+"/readyz")
			require.Equal(t, 200, code)
			require.Equal(t, "[+] process\n[+] idle\nok\n", body)
			require.Eventually(t, func() bool {
				_, body = get(t, base+"/metrics")
				return strings.Contains(body, `liqod_loop_sync_seconds_count{loop="pods",result="ok"} 1`)
			}, time.Minute, 10*time.Millisecond)
			for _, want := range []string{
				`liqod_loop_depth{loop="pods"} 0`, `liqod_loop_adds_total{loop="pods"} 1`, `liqod_loop_lag_seconds_count{loop="pods"} 1`, `liqod_loop_behind_seconds{loop="pods"} 0`,
				`liqod_client_requests_total{code="200",server="home",verb="get"} 1`,
				`liqod_lease_leading{role="idle"} 1`, `liqod_build_info{goversion="go1.`, "go_goroutines", "process_cpu_seconds_total",
			} {
				require.Contains(t, body, want)
			}
			require.NotContains(t, body, `"named"`, "the queue of a library")

			began := time.Now()
			require.NoError(t, d.Process.Signal(sig))
			rest, exit := d.end(t)
			require.Equal(t, 0, exit, rest)
			require.Less(t, time.Since(began), 5*time.Second)
			require.Contains(t, rest, `"logger":"idle","msg":"cleaned up"`)
			require.Contains(t, rest, `"msg":"stopped"`)
			bridged := d.lines[0]
			require.Equal(t, "client-go", bridged["logger"])
			require.Equal(t, "a line of client-go", bridged["msg"])
			require.Equal(t, "ns/a", bridged["pod"])
		})
	}
}

// TestDaemonThatDoesNotStop: TestSignals has the deadline, in a bubble.
func TestDaemonThatDoesNotStop(t *testing.T) {
	t.Parallel()
	d := start(t, "--role=stubborn,idle")
	base := "http://" + d.until(t, "serving health and metrics")["address"].(string)
	require.NoError(t, d.Process.Signal(syscall.SIGTERM))
	d.until(t, "stopping")
	require.Eventually(t, func() bool {
		code, body := get(t, base+"/readyz")
		return code == 503 && strings.Contains(body, "[-] process: shutting down")
	}, 25*time.Second, 5*time.Millisecond)
	require.NoError(t, d.Process.Signal(syscall.SIGINT))
	rest, code := d.end(t)
	require.Equal(t, 130, code)
	require.Contains(t, rest, `"msg":"second signal; ending at once"`)
}
