package cmd

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// A name that does not exist is an error that says which names do.
func TestUnpeerOfNobody(t *testing.T) {
	t.Parallel()
	rome := installation(t, "rome")
	for _, id := range []string{"turin", "milan"} {
		rome.add(t, foreignCluster(id))
	}
	_, err := rome.run(t, "unpeer", "nosuch")
	require.EqualError(t, err, `there is no peer "nosuch": the peers are milan, turin`)
	require.Equal(t, ExitProblem, code(err))
	require.Empty(t, rome.writes())
}

// TestUnpeerPrintsNoWarningOfTheAPIServer: unpeer deletes the tenant namespaces in both clusters. The policy
// liqod-tenants warns of such a deletion, and is meant for kubectl. Other commands print the warnings of the API server.
func TestUnpeerPrintsNoWarningOfTheAPIServer(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]io.Writer{"unpeer": io.Discard, "peer": os.Stderr} {
		var have []io.Writer
		c := &commands{program: "liqod", every: time.Millisecond, connect: func(conn *connection) (*clients, error) {
			have = append(have, conn.warnings)
			rome := installation(t, "rome")
			return &clients{kube: rome.core, liqo: rome.liqod, now: time.Now}, nil
		}}
		require.Error(t, errOf(execute(t, c, name, map[string]string{"unpeer": "milan", "peer": "--timeout=1s"}[name], "--remote-context=milan")), "both ways lead to one cluster")
		require.Equal(t, []io.Writer{want, want}, have, name)
	}
}

// The end of a peering that was interrupted is completed, although its record is gone.
func TestUnpeerCompletes(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]func(rome, milan *cluster) error{
		"a tenant namespace here": func(rome, _ *cluster) error {
			return rome.core.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan"}})
		},
		"a record there": func(_, milan *cluster) error {
			return milan.liqod.Tracker().Add(foreignCluster("rome"))
		},
		"a tenant namespace there": func(_, milan *cluster) error {
			return milan.core.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rome, milan := installation(t, "rome"), installation(t, "milan")
			require.NoError(t, left(rome, milan))
			said := must(both(t, rome, milan, "unpeer", "milan", "--remote-context=milan"))
			require.Contains(t, said, "is being removed\nnothing of the peering of rome and milan is left, but data in volumes is kept: liqod storage list\n")
		})
	}
}

func TestUnoffloadOfNothing(t *testing.T) {
	t.Parallel()
	_, err := newCluster().run(t, "unoffload", "namespace", "nosuch")
	require.EqualError(t, err, "there is no namespace nosuch in this cluster, and no namespace is offloaded")
	require.Equal(t, ExitProblem, code(err))
	c := newCluster(existing(func(*offloadingv1beta1.NamespaceOffloading) {}))
	_, err = c.run(t, "unoffload", "nosuch")
	require.EqualError(t, err, "there is no namespace nosuch in this cluster: the only one that is offloaded is shop")
	require.Equal(t, ExitProblem, code(err))
	require.NotNil(t, c.offloading(t))
}

// The twins of a namespace that is gone at home are still waited for.
func TestUnoffloadOfADeletedNamespace(t *testing.T) {
	t.Parallel()
	c := newCluster(&offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"gone": {RemoteNamespace: "gone-rome", Phase: offloadingv1beta1.MappingTerminating}}},
	})
	out, err := c.run(t, "unoffload", "namespace", "gone", "--timeout=1s")
	require.ErrorContains(t, err, "Left: milan: namespace gone-rome is being removed")
	require.Contains(t, out, "namespace gone: it is gone from this cluster\n")
}

// The administrator of one namespace may not read NamespaceMaps.
func TestUnoffloadByTheAdministratorOfANamespace(t *testing.T) {
	t.Parallel()
	c := newCluster(existing(func(*offloadingv1beta1.NamespaceOffloading) {}))
	c.forbid("list", "namespacemaps")
	out := c.ran(t, "unoffload", "shop")
	require.Equal(t, "namespace shop: its offloading is deleted\n"+
		"namespace shop: taken back; you may not read NamespaceMaps, so it is not known whether the providers have deleted everything yet\n", out)
	require.Nil(t, c.offloading(t))
}

// serving returns the URL of an API server that has what says that liqod is installed, and nothing else.
func serving(t *testing.T, id string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/liqod-controller":
			_, _ = w.Write([]byte(`{"kind":"ClusterRoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","subjects":[{"kind":"ServiceAccount","name":"liqod-controller","namespace":"liqod"}]}`))
			return
		case "/api/v1/namespaces/liqod/configmaps/liqod":
			_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"liqod","namespace":"liqod"},"data":{"config.yaml":"clusterID: ` + id + `"}}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"List","apiVersion":"v1","items":[]}`))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// The timeout holds from the first request, and the message names the flags of the cluster
// that is away.
func TestTimeoutOfEachRead(t *testing.T) {
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	away, rome := writeKubeconfig(t, silent.URL), writeKubeconfig(t, serving(t, "rome"))
	for name, args := range map[string][]string{
		"unpeer, here":  {"unpeer", "milan", "--kubeconfig", away},
		"unpeer, there": {"unpeer", "milan", "--kubeconfig", rome, "--remote-kubeconfig", away},
		"peer, here":    {"peer", "--remote-kubeconfig", rome, "--kubeconfig", away},
		"peer, there":   {"peer", "--remote-kubeconfig", away, "--kubeconfig", rome},
		"by token":      {"peer", "--token", token(t, "milan"), "--kubeconfig", away},
		"offload":       {"offload", "shop", "--kubeconfig", away},
		"unoffload":     {"unoffload", "shop", "--kubeconfig", away},
		"explain":       {"network", "explain", "10.0.0.1", "--kubeconfig", away},
		"status":        {"status", "--kubeconfig", away},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			c := &commands{program: "liqod", connect: (*connection).clients, every: time.Millisecond}
			_, err := execute(t, c, append(args, "--timeout=1s")...)
			require.ErrorContains(t, err, "timed out after 1s")
			require.ErrorContains(t, err, silent.URL)
			// The client library ends a silent request after ten seconds by itself.
			require.Less(t, time.Since(began), 8*time.Second)
		})
	}
	c := &commands{program: "liqod", connect: (*connection).clients, every: time.Millisecond}
	gone := writeKubeconfig(t, closed.URL)
	_, err := execute(t, c, "unpeer", "milan", "--kubeconfig", rome, "--remote-kubeconfig", gone)
	require.ErrorContains(t, err, "the API server does not answer; is it the one that you mean (--remote-context, --remote-kubeconfig)? ")
	require.ErrorContains(t, err, closed.URL)
	_, err = execute(t, c, "unpeer", "turin", "--kubeconfig", rome, "--remote-kubeconfig", writeKubeconfig(t, serving(t, "milan")))
	require.EqualError(t, err, "the other cluster is milan, and not turin (--remote-context, --remote-kubeconfig)")
	_, err = execute(t, c, "peer", "--kubeconfig", rome, "--remote-kubeconfig", rome)
	require.ErrorContains(t, err, "both kubeconfigs lead to cluster rome")
	require.ErrorContains(t, errOf(execute(t, c, "peer", "--kubeconfig", rome, "--remote-kubeconfig", writeKubeconfig(t, serving(t, "")))), "or it is not the cluster that you mean (--remote-context, --remote-kubeconfig)")
}

// A cluster that falls silent during the end of a peering is named.
func TestUnpeerSaysWhoIsSilent(t *testing.T) {
	t.Parallel()
	rome, milan := installation(t, "rome"), installation(t, "milan")
	for c, id := range map[*cluster]string{rome: "milan", milan: "rome"} {
		c.add(t, foreignCluster(id))
	}
	milan.liqod.PrependReactor("get", "foreignclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewTimeoutError("etcd is away", 1)
	})
	_, err := both(t, rome, milan, "unpeer", "milan", "--remote-context=milan", "--timeout=1s")
	require.ErrorContains(t, err, "the peering with cluster milan has not ended, timed out after 1s; ask again to go on")
	require.ErrorContains(t, err, "Cluster milan at https://milan.example has not answered (--remote-context, --remote-kubeconfig)")
}

func TestLimitedKeepsOtherErrors(t *testing.T) {
	t.Parallel()
	timeout := time.Duration(0)
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	err := limited(&timeout, func(cmd *cobra.Command, _ []string) error {
		_, set := cmd.Context().Deadline()
		require.False(t, set, "zero is without end")
		return context.Canceled
	})(cmd, nil)
	require.Equal(t, context.Canceled, err)
}
