package scenarios

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const toolsNamespace = "tools"

// kubectl runs kubectl in the namespace of these tests.
func (w *fullWorld) kubectl(t *testing.T, opts lab.KubectlOptions, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	return w.rome.Kubectl(ctx, opts, append([]string{"-n", toolsNamespace}, args...)...)
}

// fullKubectl uses kubectl on pods that run in the provider.
func fullKubectl(t *testing.T, w *fullWorld) {
	w.offload(t, toolsNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	w.run(t, toolsNamespace, "lines", testSpec(1, "lines", "100000", "50ms"))
	w.run(t, toolsNamespace, "web", testSpec(1, "serve"))
	input := testSpec(1, "cat")
	input.Containers[0].Stdin, input.Containers[0].StdinOnce = true, true
	input.RestartPolicy = corev1.RestartPolicyNever
	w.run(t, toolsNamespace, "cat", input)
	for _, name := range []string{"lines", "web", "cat"} {
		within(t, time.Minute, "pod "+name+" is Ready", w.podReady(toolsNamespace, name))
	}
	inTurn(t, w, []part[*fullWorld]{
		{"cp", kubectlCopy}, {"logs", kubectlLogs}, {"exec", kubectlExec}, {"attach", kubectlAttach}, {"port-forward", kubectlForward},
		{"resize", terminalSize}, {"debug", kubectlDebug}, {"debug refused", kubectlDebugRefused},
	})
}

func kubectlCopy(t *testing.T, w *fullWorld) {
	dir := t.TempDir()
	data := make([]byte, 8<<20)
	_, err := rand.Read(data)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "there"), data, 0o600))
	_, err = w.kubectl(t, lab.KubectlOptions{}, "cp", filepath.Join(dir, "there"), "lines:/tmp/file")
	require.NoError(t, err)
	_, err = w.kubectl(t, lab.KubectlOptions{}, "cp", "lines:/tmp/file", filepath.Join(dir, "back"))
	require.NoError(t, err)
	back := must(os.ReadFile(filepath.Join(dir, "back")))(t)
	require.True(t, bytes.Equal(data, back), "%d bytes went, %d came", len(data), len(back))
}

func kubectlLogs(t *testing.T, w *fullWorld) {
	for args, want := range map[string]string{
		"--tail=2":                            `^line \d+\nline \d+\n$`,
		"--tail=1 --timestamps":               `^2\S+Z line \d+\n$`,
		"--limit-bytes=7":                     `^line 1\n$`,
		"--since=1s --tail=3":                 `^(line \d+\n){1,3}$`,
		"--since-time=2099-01-01T00:00:00Z":   `^$`,
		"--all-containers --prefix --tail=1":  `^\[pod/lines/c\] line \d+\n$`,
		"-c nothing-of-that-name":             ``,
		"--follow --limit-bytes=14 --tail=-1": `^line 1\nline 2\n$`,
	} {
		t.Run(args, func(t *testing.T) {
			out, err := w.kubectl(t, lab.KubectlOptions{}, append([]string{"logs", "lines"}, strings.Fields(args)...)...)
			if want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Regexp(t, want, out)
		})
	}
}

// protocols are the two that kubectl speaks, by what makes it speak them.
var protocols = map[string][]string{
	"WebSocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"},
	"SPDY":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

func kubectlExec(t *testing.T, w *fullWorld) {
	for name, env := range protocols {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat("across the border\n", 50000)
			out, err := w.kubectl(t, lab.KubectlOptions{Env: env, Stdin: strings.NewReader(text)}, "exec", "-i", "lines", "--", "cat")
			require.NoError(t, err)
			require.Equal(t, text, out)
			_, err = w.kubectl(t, lab.KubectlOptions{Env: env}, "exec", "lines", "--", "exit", "7")
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 7, exit.ExitCode())
			_, err = w.kubectl(t, lab.KubectlOptions{Env: env}, "exec", "lines", "--", "cat", "/missing")
			require.ErrorContains(t, err, "no such file")
		})
	}
}

func kubectlAttach(t *testing.T, w *fullWorld) {
	out := must(w.kubectl(t, lab.KubectlOptions{Stdin: strings.NewReader("said to a running program\n")}, "attach", "-i", "cat"))(t)
	require.Contains(t, out, "said to a running program")
}

func kubectlForward(t *testing.T, w *fullWorld) {
	for name, env := range protocols {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), longest)
			defer cancel()
			cmd := w.rome.KubectlCommand(ctx, "-n", toolsNamespace, "port-forward", "pod/web", ":8080")
			cmd.Env = append(cmd.Env, env...)
			said := must(cmd.StdoutPipe())(t)
			require.NoError(t, cmd.Start())
			defer func() { cancel(); _ = cmd.Wait() }()
			line := make([]byte, 200)
			n := must(said.Read(line))(t)
			port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindSubmatch(line[:n])
			require.NotNil(t, port, string(line[:n]))
			go func() { _, _ = io.Copy(io.Discard, said) }()
			for range 3 {
				response := must(http.Get("http://127.0.0.1:" + string(port[1]) + "/"))(t)
				body, err := io.ReadAll(response.Body)
				require.NoError(t, errors.Join(err, response.Body.Close()))
				require.Equal(t, "web\n", string(body))
			}
		})
	}
}

// sized is a terminal of one size.
type sized struct {
	size *remotecommand.TerminalSize
	done <-chan struct{}
}

// Next implements remotecommand.TerminalSizeQueue.
func (s *sized) Next() *remotecommand.TerminalSize {
	if out := s.size; out != nil {
		s.size = nil
		return out
	}
	<-s.done
	return nil
}

// terminalSize asks for what kubectl does when it has a terminal.
func terminalSize(t *testing.T, w *fullWorld) {
	request := w.rome.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace(toolsNamespace).Name("lines").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"size"}, Stdin: true, Stdout: true, TTY: true}, scheme.ParameterCodec)
	webSocket := must(remotecommand.NewWebSocketExecutor(w.rome.Config(), "GET", request.URL().String()))(t)
	spdy := must(remotecommand.NewSPDYExecutor(w.rome.Config(), "POST", request.URL()))(t)
	for name, executor := range map[string]remotecommand.Executor{"WebSocket": webSocket, "SPDY": spdy} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), longest)
			defer cancel()
			stdin, _ := io.Pipe()
			var out bytes.Buffer
			require.NoError(t, executor.StreamWithContext(ctx, remotecommand.StreamOptions{
				Stdin: stdin, Stdout: &out, Tty: true, TerminalSizeQueue: &sized{&remotecommand.TerminalSize{Width: 123, Height: 45}, ctx.Done()}}))
			require.Equal(t, "123x45", strings.TrimSpace(out.String()))
		})
	}
}

// kubectlDebug adds containers to a pod that runs in the provider.
func kubectlDebug(t *testing.T, w *fullWorld) {
	debug := []string{"debug", "lines", "--image", lab.TestImage, "--image-pull-policy", "Never", "--profile", "baseline"}
	out, err := w.kubectl(t, lab.KubectlOptions{Stdin: strings.NewReader("typed\n")}, append(debug, "-i", "-c", "typing", "--", "cat")...)
	require.NoError(t, err)
	t.Log(out)
	within(t, 30*time.Second, "its log says what was typed", func(context.Context) error {
		out, err := w.kubectl(t, lab.KubectlOptions{}, "logs", "lines", "-c", "typing")
		return lab.Wrong(err, out != "typed\n", "%q", out)
	})
	_, err = w.kubectl(t, lab.KubectlOptions{}, append(debug, "-c", "sleeper", "--target", "c", "--", "sleep", "1h")...)
	require.NoError(t, err)
	out = await(t, 30*time.Second, "a command runs in it", func(context.Context) (string, error) {
		return w.kubectl(t, lab.KubectlOptions{}, "exec", "lines", "-c", "sleeper", "--", "cat", "/proc/1/cmdline")
	})
	require.Contains(t, out, "lines", "it shares the processes of its target")
	within(t, 10*time.Second, "both are in the status at home", lab.That(w.rome.Client().CoreV1().Pods(toolsNamespace), "lines", func(pod *corev1.Pod) error {
		statuses := pod.Status.EphemeralContainerStatuses
		return lab.Wrong(nil, len(statuses) != 2 || statuses[0].State.Running == nil || statuses[1].State.Running == nil, "%+v", statuses)
	}))
	within(t, 10*time.Second, "they are asked for no more", lab.Is(w.milan.Liqod().OffloadingV1beta1().ShadowPods(toolsNamespace+"-rome"), "lines", func(shadow *offloadingv1beta1.ShadowPod) bool {
		return len(shadow.Spec.Pod.EphemeralContainers) == 0
	}))
}

// kubectlDebugRefused adds a container that the pod security of the twin namespace forbids.
func kubectlDebugRefused(t *testing.T, w *fullWorld) {
	_, err := w.kubectl(t, lab.KubectlOptions{}, "debug", "web", "--image", lab.TestImage, "--image-pull-policy", "Never", "--profile", "sysadmin", "-c", "root", "--", "sleep", "1h")
	require.NoError(t, err)
	within(t, 30*time.Second, "the refusal is told", w.eventSays(toolsNamespace, "privileged"))
	within(t, 30*time.Second, "kubectl debug would show it", lab.That(w.rome.Client().CoreV1().Pods(toolsNamespace), "web", func(pod *corev1.Pod) error {
		for _, s := range pod.Status.EphemeralContainerStatuses {
			if s.State.Waiting != nil && strings.Contains(s.State.Waiting.Message, "privileged") {
				return nil
			}
		}
		return fmt.Errorf("%+v", pod.Status.EphemeralContainerStatuses)
	}))
	pod := kubetest.Get(t, w.milan.Client().CoreV1().Pods(toolsNamespace+"-rome"), "web")
	require.Empty(t, pod.Spec.EphemeralContainers)
}
