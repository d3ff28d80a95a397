package cmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

const (
	canaryToken  = "eyJhbGciOiJSUzI1NiJ9.Canary0Token1OfRome"
	canaryKey    = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEICanary0Key0Line1xxxxxxxxxxxxxxxxxxxxxxxxxxx\n-----END PRIVATE KEY-----\n"
	canarySimple = "hunter2-canary"
	canaryLabel  = "canary-in-an-annotation"
)

// canaries are texts that must not be in an archive.
func canaries() []string {
	key := base64.StdEncoding.EncodeToString([]byte(canaryKey))
	return []string{canaryToken, strings.Split(canaryKey, "\n")[1], key, canarySimple, canaryLabel,
		base64.StdEncoding.EncodeToString([]byte(canaryToken)), base64.StdEncoding.EncodeToString([]byte(canarySimple))}
}

// gatherable is a cluster in which the values of Secrets are everywhere.
func gatherable(t *testing.T) *cluster {
	t.Helper()
	rome := installation(t, "rome")
	kubeconfig := "apiVersion: v1\nclusters:\n- cluster: {server: \"https://milan.example:6443\"}\nusers:\n- name: liqod\n  user:\n    client-key-data: " +
		base64.StdEncoding.EncodeToString([]byte(canaryKey)) + "\n    token: " + canaryToken + "\n"
	everywhere := strings.Join(canaries()[:4], " and ")
	liqod := map[string]string{"app.kubernetes.io/name": "liqod"}
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Labels: map[string]string{corev1beta1.TenantNamespaceLabel: "true"}}}
	role := func(name, component string, restarts int32) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: name, Labels: map[string]string{"app.kubernetes.io/name": "liqod", "app.kubernetes.io/component": component}},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: component, Image: "liqod", Args: []string{"--role=" + component}, Env: []corev1.EnvVar{{Name: "X", Value: canarySimple}}}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: component, RestartCount: restarts}}}}
	}
	rome.add(t, tenant,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}}, Data: map[string][]byte{"kubeconfig": []byte(kubeconfig)}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "peer-milan-token", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: canaryLabel}},
			Data: map[string][]byte{"token": []byte(canarySimple), "namespace": []byte("liqo-tenant-milan"), "addressRanges": []byte("10.42.0.0/16")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "leaky", Labels: liqod, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: canaryLabel}}, Data: map[string]string{"x": everywhere, "range": "10.42.0.0/16"}},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "e"}, Message: everywhere, Reason: "Leaked"},
		role("liqod-controller-1", "controller", 1), role("liqod-gateway-1", "gateway", 0), role("liqod-route-1", "route", 0), role("liqod-route-2", "route", 0), role("liqod-route-3", "route", 0),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "milan",
			Containers: []corev1.Container{{Name: "web", Image: "nginx", Args: []string{"--password=" + canaryLabel}, Env: []corev1.EnvVar{{Name: "PASSWORD", Value: canaryLabel}}}}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Data: map[string][]byte{"password": []byte(canaryLabel)}},
	)
	rome.add(t, existing(func(o *offloadingv1beta1.NamespaceOffloading) { o.Status = standing() }),
		&corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"},
			Status: corev1beta1.ForeignClusterStatus{Conditions: []metav1.Condition{is("Ready", "False", "Leaked", everywhere)}}})
	rome.core.AddProxyReactor("pods", func(a clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		get, ok := a.(clienttesting.ProxyGetAction)
		require.True(t, ok)
		return true, answerOf("liqod_up 1 # " + get.GetName() + ":" + get.GetPort() + "/" + get.GetPath() + " " + everywhere), nil
	})
	return rome
}

type answerOf string

func (a answerOf) DoRaw(context.Context) ([]byte, error) { return []byte(a), nil }

func (a answerOf) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(string(a))), nil
}

// gathered runs gather with a fake exec, and returns the files of the archive by name below
// its folder.
func gathered(t *testing.T, c *cluster, args ...string) (files map[string]string, top, said string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.tar.gz")
	said = must(runGather(t, c, append(args, "--file", path)...))
	info := must(os.Stat(path))
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	content := must(os.ReadFile(path))
	files, top = unpack(t, content)
	return files, top, said
}

func runGather(t *testing.T, c *cluster, args ...string) (string, error) {
	t.Helper()
	commands := &commands{program: "liqod", build: Build{Version: "v9"}, every: time.Millisecond, connect: func(*connection) (*clients, error) {
		return &clients{kube: c.core, liqo: c.liqod, now: time.Now, server: "https://user:" + canarySimple + "@rome.example:6443",
			exec: func(_ context.Context, ns, pod, container string, command []string, out io.Writer) error {
				_, err := fmt.Fprintf(out, "%s/%s/%s %v\n%s\n", ns, pod, container, command, canaryToken)
				if pod == "liqod-route-2" {
					err = errors.New("the container is not running")
				}
				return err
			}}, nil
	}}
	return execute(t, commands, append([]string{"gather"}, args...)...)
}

func unpack(t *testing.T, content []byte) (files map[string]string, top string) {
	t.Helper()
	zipped := must(gzip.NewReader(bytes.NewReader(content)))
	archive := tar.NewReader(zipped)
	files = map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, top
		}
		require.NoError(t, err)
		text := must(io.ReadAll(archive))
		var name string
		top, name, _ = strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
}

// No value of a Secret is in the archive, wherever else it stands in the cluster, and the command writes nothing there.
func TestGatherHasNoSecrets(t *testing.T) {
	t.Parallel()
	c := gatherable(t)
	c.core.ClearActions()
	files, top, _ := gathered(t, c)
	for _, a := range append(c.core.Actions(), c.liqod.Actions()...) {
		require.Contains(t, []string{"get", "list"}, a.GetVerb(), a)
	}
	require.Contains(t, top, "liqod-rome-")
	for name, text := range files {
		for _, canary := range canaries() {
			require.NotContains(t, text, canary, name)
		}
		require.NotContains(t, text, "managedFields", name)
	}
	for name, want := range map[string][]string{
		"about.txt":                                             {"cluster: rome\n", "https://rome.example:6443", "liqod of this command: v9"},
		"check.txt":                                             {"Installation\n"},
		"status.yaml":                                           {"milan"},
		"cluster/foreignclusters.yaml":                          {"clusterID: milan", removed},
		"cluster/nodes.yaml":                                    {"rome-1"},
		"namespaces/liqod/secrets.yaml":                         {"name: peer-milan-token", "token: 14"},
		"namespaces/liqo-tenant-milan/secrets.yaml":             {"kubeconfig: "},
		"namespaces/liqod/configmaps.yaml":                      {"clusterID: rome", "range: 10.42.0.0/16", removed + " and " + removed},
		"namespaces/liqod/events.yaml":                          {"reason: Leaked"},
		"namespaces/liqod/pods.yaml":                            {"--role=gateway", "name: X"},
		"namespaces/shop/pods.yaml":                             {"image: nginx", "env: (removed)", "args: (removed)", "nodeName: milan"},
		"pods/liqod/liqod-controller-1/metrics.txt":             {"liqod_up 1 # liqod-controller-1:8080/metrics"},
		"pods/liqod/liqod-controller-1/readyz.txt":              {":8080/readyz"},
		"pods/liqod/liqod-controller-1/livez.txt":               {":8080/livez"},
		"pods/liqod/liqod-controller-1/controller.log":          {"fake logs"},
		"pods/liqod/liqod-controller-1/controller.previous.log": {"fake logs"},
		"pods/liqod/liqod-gateway-1/host-state.txt":             {"liqod/liqod-gateway-1/gateway [/liqod host-state]"},
		"pods/liqod/liqod-route-1/host-state.txt":               {"liqod/liqod-route-1/route [/liqod host-state]"},
	} {
		require.Contains(t, files, name)
		for _, text := range want {
			require.Contains(t, files[name], text, name)
		}
	}
	require.NotContains(t, files, "pods/liqod/liqod-gateway-1/gateway.previous.log")
	require.NotContains(t, files, "pods/liqod/liqod-controller-1/host-state.txt")
	require.NotContains(t, files, "namespaces/shop/secrets.yaml")
	require.NotContains(t, files, "namespaces/kube-system/pods.yaml")
	require.Contains(t, files["unread.txt"], "pods/liqod/liqod-route-2/host-state.txt: the container is not running\n")
}

// TestRedactorRemovesParts: of a text with keys, the keys are removed from other texts, and names and
// URLs stay.
func TestRedactorRemovesParts(t *testing.T) {
	t.Parallel()
	for part, removes := range map[string]bool{
		"9f86d081884c7d659a2feaa0c55ad015": true, "9F86D081884C7D659A2FEAA0C55AD015": true, "correcthorsebatterystaple": true, "correcthorse42battery": true,
		"abcdef.0123456789abcdef": true, "Q2xpZW50LUtleQ1234": true,
		"https://rome.example:6443": false, "rome-control-plane-1": false, "liqod-controller-manager": false, "node-1.eu-west-1.example.com": false,
		"3f2b0c1d-5a4e-4f6b-9c7d-8e9f0a1b2c3d": false,
	} {
		r := newRedactor()
		r.learn(&corev1.Secret{Data: map[string][]byte{"notes": []byte("the key is: " + part + "\nand no more")}})
		files := map[string]string{"log": "it used " + part + " here"}
		r.clean(files)
		require.Equal(t, removes, !strings.Contains(files["log"], part), part)
	}
}

func TestGatherLeavesOut(t *testing.T) {
	t.Parallel()
	files, _, said := gathered(t, gatherable(t), "--max-pods=2")
	require.Contains(t, files, "pods/liqod/liqod-route-2/metrics.txt")
	require.NotContains(t, files, "pods/liqod/liqod-route-3/metrics.txt")
	require.Contains(t, files["unread.txt"], "pods of role route: 1 of 3 are left out: --max-pods\n")
	require.Contains(t, said, "could not be read: see unread.txt in it\n")
}

// The archive of somebody without rights says what is missing.
func TestGatherWithoutRights(t *testing.T) {
	t.Parallel()
	c := gatherable(t)
	c.forbid("list", "secrets", "nodes", "events")
	files, _, _ := gathered(t, c)
	require.NotContains(t, files, "namespaces/liqod/secrets.yaml")
	require.NotContains(t, files, "cluster/nodes.yaml")
	require.Contains(t, files["unread.txt"], "namespaces/liqod/secrets.yaml: secrets is forbidden")
	require.Contains(t, files["unread.txt"], "cluster/nodes.yaml: nodes is forbidden")
	require.Contains(t, files, "cluster/foreignclusters.yaml")
}

func TestGatherFiles(t *testing.T) {
	t.Parallel()
	c := gatherable(t)
	path := filepath.Join(t.TempDir(), "taken")
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	require.ErrorContains(t, errOf(runGather(t, c, "--file", path)), "taken exists already: name another one with --file")
	content := must(os.ReadFile(path))
	require.Equal(t, "mine", string(content))
	require.ErrorContains(t, errOf(runGather(t, c, "--file", filepath.Join(path, "x"))), "creating the archive: ")

	out := must(runGather(t, c, "--file=-"))
	files, _ := unpack(t, []byte(out))
	require.Contains(t, files, "check.txt")
	broken := errors.New("disk full")
	path = filepath.Join(t.TempDir(), "half")
	require.ErrorIs(t, create(path, func(io.Writer) error { return broken }), broken)
	require.NoFileExists(t, path)
}

// The command reports a refusal of the API server, and tries nothing else for it.
func TestExecThatIsRefused(t *testing.T) {
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
	var asked atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path + "?" + r.URL.RawQuery)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"you may not exec"}`))
	}))
	t.Cleanup(server.Close)
	to := clientsOf(t, server.URL, io.Discard)
	err := to.exec(t.Context(), "liqod", "gateway-1", "gateway", []string{"/liqod", "host-state"}, io.Discard)
	require.Error(t, err)
	require.Equal(t, "/api/v1/namespaces/liqod/pods/gateway-1/exec?command=%2Fliqod&command=host-state&container=gateway&stderr=true&stdout=true&timeout=30s", asked.Load())
	require.ErrorContains(t, err, "you may not exec")
}

// Long lists are read page by page, and not without end.
func TestGatherReadsPages(t *testing.T) {
	t.Parallel()
	asked := 0
	l := lister{"pods", func(_ context.Context, page metav1.ListOptions) (runtime.Object, error) {
		require.EqualValues(t, 500, page.Limit)
		require.Equal(t, map[bool]string{true: "", false: fmt.Sprint(asked)}[asked == 0], page.Continue)
		asked++
		list := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: fmt.Sprint(asked)}, Items: make([]corev1.Pod, page.Limit)}
		return list, nil
	}}
	h := &harvest{snap: &report.Snapshot{}, texts: map[string]string{}, unread: map[string]error{}}
	h.list(t.Context(), l, "", true)
	require.EqualError(t, h.unread["cluster/pods.yaml"], "only the first 20000 objects are in the archive")
	require.Equal(t, mostObjects, strings.Count(h.texts["cluster/pods.yaml"], "\n- "))
}

// podShell answers an exec in a pod, over the transports that it accepts.
type podShell struct{ webSockets bool }

func (podShell) ExecInContainer(_ context.Context, _, _, container string, command []string, _ io.Reader, out, errOut io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	_, err := fmt.Fprintf(out, "%s runs %s\n", container, strings.Join(command, " "))
	_, _ = fmt.Fprint(errOut, "a complaint")
	return err
}

func (p podShell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && !p.webSockets {
		http.Error(w, "no WebSocket here", http.StatusBadRequest)
		return
	}
	q := r.URL.Query()
	options := &remotecommand.Options{Stdout: q.Get("stdout") == "true", Stderr: q.Get("stderr") == "true"}
	remotecommand.ServeExec(w, r, p, "gateway-1", "", q.Get("container"), q["command"], options, time.Minute, time.Minute, remotecommand.SupportedStreamingProtocols)
}

func TestExec(t *testing.T) {
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
	for name, shell := range map[string]podShell{"an older WebSocket": {true}, "SPDY only": {false}} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(shell)
			t.Cleanup(server.Close)
			to := clientsOf(t, server.URL, io.Discard)
			var out limitedBuffer
			out.left = mostState
			require.NoError(t, to.exec(t.Context(), "liqod", "gateway-1", "gateway", []string{"/liqod", "host-state"}, &out))
			require.Equal(t, "gateway runs /liqod host-state\n", out.String())
		})
	}
}

func TestRedactorKeepsWords(t *testing.T) {
	t.Parallel()
	r := newRedactor()
	r.learn(&corev1.Secret{Data: map[string][]byte{
		"kubeconfig": []byte("server: https://milan.example:6443\nname: liqo-tenant-rome\nuser: system:serviceaccount:liqo-tenant-rome:peer-1\ntoken: \"AbCdEfGh0123456789\"\n"),
		"short":      []byte("milan"), "ca.crt": []byte("a certificate of an authority"), "clusterID": []byte("milan-in-lombardy"), "uses": []byte("100000000"),
		"tls.crt": []byte("-----BEGIN CERTIFICATE-----\nMIIBfakeLine0fTheCertificate\n-----END CERTIFICATE-----\n"),
	}})
	files := map[string]string{"a": "https://milan.example:6443 liqo-tenant-rome milan-in-lombardy a certificate of an authority system:serviceaccount:liqo-tenant-rome:peer-1 MIIBfakeLine0fTheCertificate",
		"b": "Bearer AbCdEfGh0123456789!", "c": base64.StdEncoding.EncodeToString([]byte("AbCdEfGh0123456789"))}
	want := files["a"]
	r.clean(files)
	require.Equal(t, map[string]string{"a": want, "b": "Bearer " + removed + "!", "c": removed}, files)
}
