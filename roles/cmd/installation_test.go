package cmd

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/roles/cmd/report"
)

// withMallory adds objects with names and labels of liqod, in a namespace of somebody else that sorts before liqod's.
func (c *cluster) withMallory(t *testing.T) {
	t.Helper()
	labels := func(component string) map[string]string {
		return map[string]string{"app.kubernetes.io/name": "liqod", "app.kubernetes.io/instance": "mallory", report.ComponentLabel: component,
			offloadingv1beta1.VirtualNodeLabel: "milan", host.GatewayKey: "true"}
	}
	meta := metav1.ObjectMeta{Namespace: "aaa", Name: "liqod", Labels: labels(report.Controller)}
	deployment := deploymentOf("aaa", join.Controller, meta.Labels)
	deployment.Spec.Template.Spec.Containers[0].Image = "mallory:1"
	gateway := meta
	gateway.Name, gateway.Annotations = "liqod-gateway-9", map[string]string{host.GatewayKey: `{"name":"mallory","number":9}`}
	c.add(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "aaa"}}, deployment,
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"config.yaml": "clusterID: ["}},
		&corev1.Secret{ObjectMeta: meta}, &corev1.Pod{ObjectMeta: meta}, &appsv1.DaemonSet{ObjectMeta: meta},
		&coordinationv1.Lease{ObjectMeta: gateway})
}

// TestNobodyElseSaysWhatLiqodIs: the owner of a namespace neither leads the commands of an administrator elsewhere, nor
// stops them, nor chooses the image of their pods.
func TestNobodyElseSaysWhatLiqodIs(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"status", "check", "version", "uninstall", "status -n shop", "token create --url https://rome.example:5001", "token list",
		"network explain 10.9.9.9", "offer list"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			alone, beside := paint(t).cluster(t), paint(t).cluster(t)
			beside.withMallory(t)
			want, wantErr := alone.run(t, strings.Fields(args)...)
			got, err := beside.run(t, strings.Fields(args)...)
			require.Equal(t, code(wantErr), code(err), err)
			if wantErr != nil {
				require.EqualError(t, err, wantErr.Error())
			}
			require.NotContains(t, got, "aaa")
			require.NotContains(t, got, "mallory")
			require.Equal(t, strings.Count(want, "\n"), strings.Count(got, "\n"), got)
			for _, a := range append(beside.core.Actions(), beside.liqod.Actions()...) {
				require.NotEqual(t, "aaa", a.GetNamespace(), "%v", a)
			}
		})
	}
	c := paint(t).cluster(t)
	c.withMallory(t)
	files, _, _ := gathered(t, c)
	require.Contains(t, files["about.txt"], "namespace of liqod: liqod\n")
	for name := range files {
		require.NotContains(t, name, "aaa")
	}
	image := must(ownImage(t.Context(), &clients{kube: c.core}))
	require.Equal(t, "liqod:0.1.0", image)
}

// TestLiqodIsNotFound: a command that cannot find out where liqod is says which object and which flag would tell.
func TestLiqodIsNotFound(t *testing.T) {
	t.Parallel()
	forbidden := newCluster()
	forbidden.forbid("get", "clusterrolebindings")
	several := newCluster()
	require.NoError(t, several.core.Tracker().Delete(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), "", join.Controller))
	several.add(t, binding("aaa", "liqod"))
	for name, c := range map[string]*cluster{"no rights": forbidden, "several": several} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for args, says := range map[string]string{
				"gather --file -": "--namespace names it", "network check": "--image names it", "network perf": "--image names it",
				"storage move x --to rome-1": "--image names it", "token list": join.Controller, "network explain 10.9.9.9": join.Controller,
			} {
				out, err := c.run(t, strings.Fields(args)...)
				require.ErrorContains(t, err, says, args)
				require.ErrorContains(t, err, "ClusterRoleBinding "+join.Controller, args)
				require.Empty(t, out, args)
			}
			out, err := c.run(t, "check")
			require.Error(t, err)
			require.Contains(t, out, "--namespace")
			require.Empty(t, c.writes())
		})
	}
}

// labelLists has the functions of commands and of peerings that list objects by a label, and why the answer is true: who may
// write in any namespace may set all labels there.
var labelLists = map[string]string{
	"look.go installation":         "in liqod's namespace",
	"look.go reads":                "objects of the cluster, and in liqod's namespace; of vkubelets, those outside of tenant namespaces are left out",
	"look.go hosted":               "each is judged for itself, as a pod of a peer; nothing follows for other pods",
	"gather_objects.go listed":     "objects of the cluster; in namespaces, without a label",
	"network.go sharedObjects":     "Namespaces; EndpointSlices, as role route reads them",
	"pre.go readWebhooks":          "in the namespace that a webhook configuration names",
	"rotate.go announcements":      "in liqod's namespace",
	"network/network.go Fabric":    "in liqod's namespace",
	"network/network.go readNodes": "in liqod's namespace",
	"network/helpers.go prepare":   "objects of the cluster",
	"move/copy.go ofMove":          "in the namespaces of a move",
	"move/copy.go Copies":          "shown as the progress of a move; nothing else follows",

	"peering/auth/cluster.go Namespaces":            "objects of the cluster",
	"peering/link/rights.go Retire":                 "in a tenant namespace",
	"peering/join/identity.go other":                "in a tenant namespace",
	"peering/link/directory.go begin":               "in a tenant namespace",
	"peering/join/cluster_consumer.go replicated":   "in a tenant namespace",
	"peering/join/cluster_consumer.go dropLost":     "objects of the cluster",
	"peering/join/cluster_consumer.go uses":         "in a tenant namespace",
	"peering/join/cluster_provider.go dropRequests": "in a tenant namespace",
}

// TestListsByLabel: each list by a label is in the table.
func TestListsByLabel(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, root := range []string{".", "../../peering"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file := must(parser.ParseFile(gotoken.NewFileSet(), path, nil, 0))
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(f, func(n ast.Node) bool {
					if by, ok := n.(*ast.KeyValueExpr); ok && isName(by.Key, "LabelSelector") {
						seen[filepath.ToSlash(strings.TrimPrefix(path, "../../"))+" "+f.Name.Name] = true
					}
					if by, ok := n.(*ast.SelectorExpr); ok && isName(by.Sel, "LabelSelector") && !isName(by.X, "metav1") {
						seen[filepath.ToSlash(strings.TrimPrefix(path, "../../"))+" "+f.Name.Name] = true
					}
					return true
				})
			}
			return nil
		}))
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(labelLists)), slices.Collect(maps.Keys(seen)), "say in the table why nobody else can lead the command elsewhere by a label")
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
