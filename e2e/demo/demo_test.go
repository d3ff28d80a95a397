package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
)

// TestDemo runs the first command of the README.
func TestDemo(t *testing.T) {
	missing := lab.FullTierMissing()
	if testing.Short() || len(missing) > 0 && os.Getenv("CI") != "true" {
		t.Skipf("THE DEMO IS NOT TESTED: it needs real nodes, and no -short; missing: %s", missing)
	}
	d := &demo{console: newConsole(os.Stdout), pace: newPace(filepath.Join(t.TempDir(), "steps.json"))}
	require.Zero(t, d.exitCode(t.Context(), d.run(t.Context()), os.Stdout))
}

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		env  string
		want bool
		err  string
	}{
		"nothing":         {},
		"KEEP=1":          {env: "1", want: true},
		"KEEP=0":          {env: "0"},
		"flag":            {args: []string{"--keep"}, want: true},
		"flag before env": {args: []string{"--keep=false"}, env: "1"},
		"KEEP=maybe":      {env: "maybe", err: `KEEP is "maybe": 1 and 0 are accepted`},
		"argument":        {args: []string{"now"}, err: `argument "now"`},
	} {
		t.Run(name, func(t *testing.T) {
			have, err := parse(test.args, test.env, io.Discard)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, have)
		})
	}
}

func TestGet(t *testing.T) {
	g := get{namespace: "shop", resource: "pods", wide: true}
	require.Equal(t, "kubectl --context rome -n shop get pods -o wide", g.line("rome"))
	require.Equal(t, "/api/v1/namespaces/shop/pods", g.path())
	require.Equal(t, "/api/v1/nodes", get{resource: "nodes"}.path())
}

func TestCells(t *testing.T) {
	table := metav1.Table{
		ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name"}, {Name: "Roles"}, {Name: "Count"}, {Name: "Node", Priority: 1}},
		Rows:              []metav1.TableRow{{Cells: []any{"a", "<none>", 1, "n"}}, {Cells: []any{"b", "", 2}}},
	}
	require.Equal(t, [][]string{{"NAME", "COUNT"}, {"a", "1"}, {"b", "2"}}, cells(table, false))
	require.Equal(t, [][]string{{"NAME", "COUNT", "NODE"}, {"a", "1", "n"}, {"b", "2", "<none>"}}, cells(table, true))
}

func TestConsole(t *testing.T) {
	var out bytes.Buffer
	c := &console{out: &out}
	c.heading("Title")
	c.table([][]string{{"A", "B"}, {"long", "x"}})
	c.good("done in %ds", 3)
	require.Equal(t, "\n=== Title ===\nA      B\nlong   x\n  => done in 3s\n", out.String())
	out.Reset()
	c.colour = true
	c.command("kubectl")
	require.Equal(t, bold+"\n$ kubectl"+plain+"\n", out.String())
}

// TestIdentity: a pod that was made or started again is another one.
func TestIdentity(t *testing.T) {
	pod := func(change func(*corev1.Pod)) running {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{ContainerID: "c"}}}}
		change(&p)
		return identity(p)
	}
	same := pod(func(*corev1.Pod) {})
	require.Equal(t, same, pod(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }))
	for name, change := range map[string]func(*corev1.Pod){
		"uid":       func(p *corev1.Pod) { p.UID = "2" },
		"container": func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "d" },
		"restarts":  func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 },
		"start": func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
		},
	} {
		require.NotEqual(t, same, pod(change), name)
	}
}

// TestExitCode: Ctrl-C is the way to end the demo, and no failure; other signals are.
func TestExitCode(t *testing.T) {
	failure := errors.New("it failed")
	for name, test := range map[string]struct {
		cause     error
		err, left error
		code      int
		says      string
	}{
		"well":                    {},
		"failed":                  {err: failure, code: 1, says: "demo: it failed\n"},
		"Ctrl-C":                  {cause: stopped{syscall.SIGINT}},
		"Ctrl-C in a step":        {cause: stopped{syscall.SIGINT}, err: context.Canceled},
		"Ctrl-C, something left":  {cause: stopped{syscall.SIGINT}, left: failure, code: 1, says: "demo: it failed\n"},
		"SIGTERM":                 {cause: stopped{syscall.SIGTERM}, err: context.Canceled, code: 143},
		"failed, something left":  {err: failure, left: errors.New("and more"), code: 1, says: "demo: it failed\nand more\n"},
		"SIGHUP without an error": {cause: stopped{syscall.SIGHUP}, code: 129},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if test.cause != nil {
				cancel(test.cause)
			}
			defer cancel(nil)
			var said bytes.Buffer
			require.Equal(t, test.code, (&demo{left: test.left}).exitCode(ctx, test.err, &said))
			require.Equal(t, test.says, said.String())
		})
	}
}

// TestPace: a second run knows how long the steps of the first one took.
func TestPace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "liqod-lab", "steps.json")
	first := newPace(path)
	require.Empty(t, first.expected("Build"))
	require.NoError(t, first.keep([]step{{"Build", 4200 * time.Millisecond}}))
	require.Equal(t, "4.2s the last time", newPace(path).expected("Build"))
	for _, text := range []string{"nothing that it wrote", "null"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		broken := newPace(path)
		require.Empty(t, broken.expected("Build"))
		require.NoError(t, broken.keep([]step{{"Build", time.Second}}))
	}
}

// TestCompany: a step that prints nothing for long is said to go on.
func TestCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &demo{console: &console{out: &out}}
		d.console.say("begun")
		err := d.accompanied(t.Context(), "20s the last time", func(context.Context) error {
			<-time.After(16 * time.Second)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "begun\n  . 15s so far; it took 20s the last time\n", out.String())
	})
	require.Equal(t, "30s so far", soFar(30*time.Second, ""))
}
