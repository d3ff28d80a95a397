package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/roles/cmd/report"
)

// cluster is a cluster of fakes, with a namespace shop.
type cluster struct {
	core  *fake.Clientset
	liqod *liqodfake.Clientset
}

func newCluster(objects ...runtime.Object) *cluster {
	return &cluster{
		core:  fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, binding("liqod")),
		liqod: liqodfake.NewSimpleClientset(objects...),
	}
}

// binding is the ClusterRoleBinding of the chart, with an account of the controller in each of the namespaces.
func binding(namespaces ...string) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: join.Controller}}
	for _, ns := range namespaces {
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: join.Controller, Namespace: ns})
	}
	return b
}

func foreignCluster(id string) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: id}}
}

// answers lets the NamespaceOffloading have a status, each time another one until the last.
func (c *cluster) answers(statuses ...offloadingv1beta1.NamespaceOffloadingStatus) {
	c.liqod.PrependReactor("get", "namespaceoffloadings", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := c.liqod.Tracker().Get(action.GetResource(), action.GetNamespace(), offloadingv1beta1.NamespaceOffloadingName)
		if err != nil {
			return true, nil, err
		}
		o := obj.(*offloadingv1beta1.NamespaceOffloading).DeepCopy()
		o.Status = statuses[0]
		if len(statuses) > 1 {
			statuses = statuses[1:]
		}
		return true, o, nil
	})
}

// add adds objects as they are: liqod's, or those of Kubernetes.
func (c *cluster) add(t *testing.T, objects ...runtime.Object) {
	t.Helper()
	for _, obj := range objects {
		tracker := c.core.Tracker()
		if strings.Contains(reflect.TypeOf(obj).Elem().PkgPath(), "liqod") {
			tracker = c.liqod.Tracker()
		}
		require.NoError(t, tracker.Add(obj))
	}
}

// forbid refuses requests of a verb for resources.
func (c *cluster) forbid(verb string, resources ...string) {
	for _, resource := range resources {
		c.core.PrependReactor(verb, resource, forbidden)
		c.liqod.PrependReactor(verb, resource, forbidden)
	}
}

func forbidden(action clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", nil)
}

func (c *cluster) clients() *clients { return &clients{kube: c.core, liqo: c.liqod, now: time.Now} }

// commands are those of a program for the cluster.
func (c *cluster) commands() *commands {
	return &commands{program: "liqod", build: Build{Version: "0.1.0", GoVersion: "go1.26", Platform: "linux/amd64"}, every: time.Millisecond,
		connect: func(*connection) (*clients, error) { return c.clients(), nil }}
}

// run runs the commands in the cluster as the program would.
func (c *cluster) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return execute(t, c.commands(), args...)
}

// ran returns what a command has printed, which has not failed.
func (c *cluster) ran(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run(t, args...)
	require.NoError(t, err, out)
	return out
}

// fails returns what a command has printed that has failed with a code and a text.
func (c *cluster) fails(t *testing.T, with int, says string, args ...string) string {
	t.Helper()
	out, err := c.run(t, args...)
	require.ErrorContains(t, err, says, out)
	require.Equal(t, with, code(err), out)
	return out
}

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

func execute(t *testing.T, c *commands, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := rootOf(c, &out, args).ExecuteContext(t.Context())
	return out.String(), err
}

func rootOf(c *commands, out io.Writer, args []string) *cobra.Command {
	root := &cobra.Command{Use: "liqod", SilenceErrors: true, SilenceUsage: true}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError(err) })
	root.AddCommand(c.all()...)
	root.SetOut(out)
	root.SetErr(out)
	root.SetArgs(args)
	return root
}

func (c *cluster) offloading(t *testing.T) *offloadingv1beta1.NamespaceOffloading {
	t.Helper()
	list := kubetest.List(t, c.liqod.OffloadingV1beta1().NamespaceOffloadings("shop"))
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

func code(err error) int {
	var coded *Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.Code
	}
	return ExitProblem
}

// TestHelpTexts: help.yaml has a text for each command that people run, and for no other.
func TestHelpTexts(t *testing.T) {
	var texts map[string]helpText
	require.NoError(t, yaml.UnmarshalStrict([]byte(helpYAML), &texts))
	c := &commands{program: "liqod"}
	var see func([]*cobra.Command)
	see = func(commands []*cobra.Command) {
		for _, cmd := range commands {
			path := cmd.CommandPath()
			require.Empty(t, cmd.Long, "%s: only its help reads the texts", path)
			c.describe(cmd)
			require.Equal(t, !cmd.Hidden && (!cmd.HasSubCommands() || cmd.HasFlags()), cmd.Long != "", path)
			require.NotContains(t, cmd.Long+cmd.Example, "${", path)
			delete(texts, path)
			see(cmd.Commands())
		}
	}
	see(c.all())
	require.Empty(t, texts, "no commands")
}

// TestUsage: a wrong command is refused without a request.
func TestUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"offload nothing":        {[]string{"offload"}, "say what: liqod offload namespace"},
		"offload something":      {[]string{"offload", "pod", "web"}, `liqod offload does not know "pod": accepted is namespace`},
		"no namespace":           {[]string{"offload", "namespace"}, "liqod offload namespace needs the name of a namespace"},
		"two namespaces":         {[]string{"unoffload", "namespace", "a", "b"}, "takes one namespace, not 2: a, b"},
		"strategy":               {[]string{"offload", "ns", "shop", "--pod-offloading-strategy=Here"}, "one of LocalAndRemote, Remote, Local is accepted"},
		"mapping":                {[]string{"offload", "ns", "shop", "--namespace-mapping-strategy=x"}, "one of DefaultName, EnforceSameName, SelectedName is accepted"},
		"name missing":           {[]string{"offload", "ns", "shop", "--namespace-mapping-strategy=SelectedName"}, "needs --remote-namespace-name"},
		"name without selection": {[]string{"offload", "ns", "shop", "--remote-namespace-name=x"}, "SelectedName only"},
		"selector":               {[]string{"offload", "ns", "shop", "-l", "a in"}, `--selector "a in"`},
		"output":                 {[]string{"status", "-o", "name"}, "one of wide, json, yaml is accepted"},
		"wait of another check":  {[]string{"check", "--pre", "--wait"}, "--wait is for an installed liqod"},
		"check takes nothing":    {[]string{"check", "milan"}, `liqod check takes no arguments: "milan"`},
		"check a value":          {[]string{"check", "--wait", "5m"}, `liqod check takes no arguments: "5m"`},

		"peer with nobody":       {[]string{"peer"}, "peer needs the other cluster, by --token, or by --remote-kubeconfig"},
		"peer in both ways":      {[]string{"peer", "--remote-context=milan", "--token=x"}, "by --token, or by --remote-kubeconfig"},
		"peer by an argument":    {[]string{"peer", "milan", "--remote-context=milan"}, "takes no arguments"},
		"quantity":               {[]string{"peer", "--remote-context=milan", "--cpu=many"}, "--cpu=many is no quantity"},
		"negative quantity":      {[]string{"peer", "--remote-context=milan", "--memory=-1Gi"}, "--memory=-1Gi is no quantity"},
		"range":                  {[]string{"peer", "--remote-context=milan", "--pod-cidr=10.42.0.1/16"}, "a range without host bits"},
		"unpeer whom":            {[]string{"unpeer"}, "needs the name of a peer"},
		"unpeer force and a way": {[]string{"unpeer", "milan", "--force", "--remote-context=milan"}, "leave out the way to it"},

		"token for both ways": {[]string{"token", "create", "--both-ways"}, "--both-ways needs --for"},
		"ttl":                 {[]string{"token", "create", "--ttl=1s"}, "--ttl=1s"},
		"negative ttl":        {[]string{"token", "create", "--ttl=-1h"}, "--ttl"},
		"uses":                {[]string{"token", "create", "--uses=101"}, "--uses=101"},
		"negative uses":       {[]string{"token", "create", "--uses=-1"}, "--uses"},
		"token for no id":     {[]string{"token", "create", "--for=Rome!"}, "--for"},
		"url":                 {[]string{"token", "create", "--url=http://milan"}, "--url"},
		"trust":               {[]string{"token", "create", "--trust=organisation"}, "Strict, Organisation"},
		"token output":        {[]string{"token", "create", "-o", "wide"}, "yaml, json"},
		"token argument":      {[]string{"token", "create", "rome"}, "no arguments"},
		"revoke nothing":      {[]string{"token", "revoke"}, ""},

		"dashboard argument": {[]string{"dashboard", "milan"}, `takes no arguments: "milan"`},
		"dashboard too fast": {[]string{"dashboard", "--every=10ms"}, "--every 10ms is too short: 1s or more is accepted"},
		"dashboard timeout":  {[]string{"dashboard", "--timeout=0s"}, "--timeout 0s is accepted if it is more than 0"},
		"dashboard port":     {[]string{"dashboard", "--port=70000"}, "port"},
		"gather lines":       {[]string{"gather", "--lines=0"}, ""},
		"gather pods":        {[]string{"gather", "--max-pods=0"}, ""},
		"gather timeout":     {[]string{"gather", "--timeout=0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.fails(t, ExitUsage, tc.says, tc.args...)
			require.Empty(t, c.core.Actions())
			require.Empty(t, c.liqod.Actions())
		})
	}
}

func TestPrintedOffloading(t *testing.T) {
	t.Parallel()
	out, err := newCluster().run(t, "offload", "namespace", "shop", "-o", "yaml", "--pod-offloading-strategy=Remote",
		"--selector", "region in (north,south),!old", "-l", "liqo.io/remote-cluster-id=milan")
	require.NoError(t, err)
	require.Equal(t, `apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceOffloading
metadata:
  name: offloading
  namespace: shop
spec:
  clusterSelector:
    nodeSelectorTerms:
    - matchExpressions:
      - key: old
        operator: DoesNotExist
      - key: region
        operator: In
        values:
        - north
        - south
    - matchExpressions:
      - key: liqo.io/remote-cluster-id
        operator: In
        values:
        - milan
  namespaceMappingStrategy: DefaultName
  podOffloadingStrategy: Remote
  services: Twin
`, out)
	out = must(newCluster().run(t, "offload", "namespace", "shop", "-o", "json", "--namespace-mapping-strategy=SelectedName", "--remote-namespace-name=store"))
	var o offloadingv1beta1.NamespaceOffloading
	require.NoError(t, json.Unmarshal([]byte(out), &o))
	require.Equal(t, "store", o.Spec.RemoteNamespaceName)
}

func TestNodeSelector(t *testing.T) {
	t.Parallel()
	have := must(nodeSelector([]string{"a!=b,c notin (d),e,f>1,g<2,h==i"}))
	require.Len(t, have.NodeSelectorTerms, 1)
	operators := map[string]corev1.NodeSelectorOperator{}
	for _, r := range have.NodeSelectorTerms[0].MatchExpressions {
		operators[r.Key] = r.Operator
	}
	require.Equal(t, map[string]corev1.NodeSelectorOperator{"a": "NotIn", "c": "NotIn", "e": "Exists", "f": "Gt", "g": "Lt", "h": "In"}, operators)
}

func writeKubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: server}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: "secret"}},
		Contexts:  map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "c",
	}, path))
	return path
}

// clientsOf are those of an API server.
func clientsOf(t *testing.T, server string, warnings io.Writer) *clients {
	t.Helper()
	conn := (&commands{}).newConnection()
	conn.kubeconfig, conn.warnings = writeKubeconfig(t, server), warnings
	to := must(conn.clients())
	return to
}

// What cannot be asked is not down: the code says that nothing was found out.
func TestClusterThatCannotBeAsked(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(refusing.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	t.Setenv("HOME", t.TempDir())
	good, gone := writeKubeconfig(t, closed.URL), filepath.Join(t.TempDir(), "gone")
	const sep = string(os.PathListSeparator)
	for name, tc := range map[string]struct {
		variable string // KUBECONFIG
		args     []string
		code     int
		says     string
	}{
		"away":           {gone, []string{"status", "--kubeconfig", good}, ExitUnknown, "the API server does not answer; is it the one that you mean (--context, --kubeconfig)? Get \"" + closed.URL},
		"away, of check": {good, []string{"check"}, ExitUnknown, "the API server does not answer"},
		"refuses":        {"", []string{"check", "--kubeconfig", writeKubeconfig(t, refusing.URL)}, ExitUnknown, "does not accept the credentials"},
		"no context":     {good, []string{"check", "--context", "paris"}, ExitUnknown, `"paris" does not exist`},
		"nothing known":  {"", []string{"status"}, ExitUnknown, "name a kubeconfig with --kubeconfig or KUBECONFIG"},
		"no file":        {gone, []string{"status"}, ExitUnknown, "KUBECONFIG names " + gone + ", which does not exist: set it to a kubeconfig, or name one with --kubeconfig"},
		"no two files":   {gone + sep + gone + "2", []string{"status"}, ExitUnknown, "KUBECONFIG names " + gone + ", " + gone + "2, which does not exist"},
		"one of two":     {gone + sep + good, []string{"status", "--context=paris"}, ExitUnknown, "without " + gone + " of KUBECONFIG, which does not exist: context \"paris\" does not exist: there are c"},
		"by a flag":      {good, []string{"status", "--kubeconfig", gone}, ExitUnknown, "--kubeconfig names " + gone + ", which does not exist"},
		"the other one":  {gone, []string{"unpeer", "milan", "--kubeconfig", good, "--remote-context=milan"}, ExitProblem, "the API server does not answer"},
		"of the other":   {good, []string{"peer", "--remote-kubeconfig", gone}, ExitProblem, "the API server does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(clientcmd.RecommendedConfigPathEnvVar, tc.variable)
			c := &commands{program: "liqod", connect: (*connection).clients, every: time.Millisecond}
			_, err := execute(t, c, tc.args...)
			require.ErrorContains(t, err, tc.says)
			require.Equal(t, tc.code, code(err))
		})
	}
}

func TestConnectionFlags(t *testing.T) {
	t.Parallel()
	var conn *connection
	c := &commands{connect: func(have *connection) (*clients, error) {
		conn = have
		return nil, errors.New("far enough")
	}}
	require.EqualError(t, errOf(execute(t, c, "status", "--kubeconfig=k", "--context=x", "--cluster=y", "--user=z", "--as=jane", "--as-group=a", "--as-group=b", "--timeout=3s")), "far enough")
	require.Equal(t, "k", conn.kubeconfig)
	require.Equal(t, 3*time.Second, conn.limit)
	require.Equal(t, "x", conn.overrides.CurrentContext)
	require.Equal(t, clientcmdapi.Context{Cluster: "y", AuthInfo: "z"}, conn.overrides.Context)
	require.Equal(t, "jane", conn.overrides.AuthInfo.Impersonate)
	require.Equal(t, []string{"a", "b"}, conn.overrides.AuthInfo.ImpersonateGroups)
}

// What an API server warns of is told as kubectl tells it, and not among what is printed.
func TestWarningsOfTheCluster(t *testing.T) {
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", `299 - "nothing says how"`)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	told := &bytes.Buffer{}
	require.Equal(t, os.Stderr, (&commands{}).newConnection().warnings)
	to := clientsOf(t, server.URL, told)
	for range 2 {
		require.NoError(t, to.liqo.CoreV1beta1().ForeignClusters().Delete(t.Context(), "rome", metav1.DeleteOptions{}))
	}
	require.Equal(t, "Warning: nothing says how\n", told.String())
}

func TestClusterClock(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
	}))
	t.Cleanup(server.Close)
	clock := &clusterClock{}
	require.WithinDuration(t, time.Now(), clock.now(), time.Minute)
	client := must(rest.HTTPClientFor(&rest.Config{WrapTransport: clock.watch}))
	request := must(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil))
	answer := must(client.Do(request))
	require.NoError(t, answer.Body.Close())
	require.WithinDuration(t, time.Now().Add(time.Hour), clock.now(), time.Minute)
}

func TestCodesOfLevels(t *testing.T) {
	t.Parallel()
	for level, want := range map[report.Level]int{report.OK: 0, report.Warning: 0, report.Unknown: ExitUnknown, report.Problem: ExitProblem} {
		require.Equal(t, want, code(orCode(nil, level)), level)
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	run := interruptible(func(cmd *cobra.Command, _ []string) error { return cmd.Context().Err() })
	cmd := &cobra.Command{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd.SetContext(ctx)
	require.Equal(t, ExitInterrupted, code(run(cmd, nil)))
}

func TestCompletionsFromTheKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c1": {Server: "https://rome.example"}, "c2": {Server: "https://milan.example"}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: "secret"}},
		Contexts:  map[string]*clientcmdapi.Context{"rome": {Cluster: "c1", AuthInfo: "u"}, "milan": {Cluster: "c2", AuthInfo: "u"}},
	}, path))
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
	c := newCluster()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"__complete", "status", "--context", ""}, "milan\nrome\n:4\n"},
		{[]string{"__complete", "offload", "shop", "--context", ""}, "milan\nrome\n:4\n"},
		{[]string{"__complete", "offload", "namespace", "shop", "--context", ""}, "milan\nrome\n:4\n"},
		{[]string{"__complete", "token", "create", "--cluster", ""}, "c1\nc2\n:4\n"},
		{[]string{"__complete", "check", "--user", ""}, "u\n:4\n"},
		{[]string{"__complete", "peer", "--remote-context", ""}, "milan\nrome\n:4\n"},
		{[]string{"__complete", "peer", "--remote-kubeconfig", "/nowhere", "--remote-context", ""}, ":4\n"},
		{[]string{"__complete", "unpeer", "--remote-kubeconfig", path, "--remote-context", ""}, "milan\nrome\n:4\n"},
	} {
		out := c.ran(t, tc.args...)
		require.True(t, strings.HasPrefix(out, tc.want), "%v: %s", tc.args, out)
	}
	require.Empty(t, c.core.Actions(), "it needs no request")
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	c := newCluster(&offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}},
		foreignCluster("milan"))
	now := metav1.Now()
	for _, ns := range []metav1.ObjectMeta{
		{Name: "market"}, {Name: "kube-system"}, {Name: "kube-public"}, {Name: "kube-node-lease"}, {Name: "liqod"}, {Name: "liqo-tenant-milan"}, {Name: "liqo-storage"},
		{Name: "other-tenant", Labels: map[string]string{"liqo.io/tenant-namespace": "true"}}, {Name: "ending", DeletionTimestamp: &now, Finalizers: []string{"x"}},
		{Name: "shop-turin", Annotations: map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-turin/rome"}},
	} {
		c.add(t, &corev1.Namespace{ObjectMeta: ns})
	}
	c.add(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rome-1"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}}, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": offloadingv1beta1.StorageProvisioner}}})
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"__complete", "offload", "namespace", ""}, "market\n:4\n"},
		{[]string{"__complete", "offload", ""}, "market\n:4\n"},
		{[]string{"__complete", "unoffload", ""}, "shop\n:4\n"},
		{[]string{"__complete", "network", "check", ""}, "shop/\nmilan\n:6\n"},
		{[]string{"__complete", "network", "check", "shop/"}, "shop/web\n:6\n"},
		{[]string{"__complete", "network", "check", "shop/web", ""}, "shop/\n:6\n"},
		{[]string{"__complete", "network", "explain", "shop/"}, "shop/web\n:6\n"},
		{[]string{"__complete", "network", "explain", "shop/web", ""}, ":4\n"},
		{[]string{"__complete", "network", "perf", ""}, "milan\n:4\n"},
		{[]string{"__complete", "storage", "move", "-n", "shop", ""}, "data\n:4\n"},
		{[]string{"__complete", "storage", "move", "-n", "shop", "data", "--to", ""}, "milan\nrome-1\n:4\n"},
		{[]string{"__complete", "unpeer", ""}, "milan\n:4\n"},
		{[]string{"__complete", "status", ""}, "milan\n:4\n"},
		{[]string{"__complete", "token", "create", "--for", ""}, "milan\n:4\n"},
		{[]string{"__complete", "unoffload", "namespace", ""}, "shop\n"},
		{[]string{"__complete", "offload", "namespace", "shop", "--pod-offloading-strategy", ""}, "LocalAndRemote\nRemote\nLocal\n"},
		{[]string{"__complete", "status", "-o", ""}, "wide\njson\nyaml\n"},
	} {
		out := c.ran(t, tc.args...)
		require.Contains(t, out, tc.want)
	}
}
