package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
