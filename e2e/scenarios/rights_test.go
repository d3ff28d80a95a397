package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/e2e/lab"
)

const (
	tenantOfRome  = "liqo-tenant-rome"
	tenantOfParis = "liqo-tenant-paris"
	tenantOfMilan = "liqo-tenant-milan"
	twinOfRome    = "shop-rome"
	twinOfParis   = "shop-paris"
)

// anotherPeer is paris as milan has it, which asks for a twin of a namespace.
func anotherPeer(namespace, twin string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-paris, labels: {liqo.io/remote-cluster-id: paris, liqo.io/tenant-namespace: "true"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: peer-1, namespace: liqo-tenant-paris}
---
apiVersion: core.liqo.io/v1beta1
kind: ForeignCluster
metadata: {name: paris}
spec: {clusterID: paris, userName: "system:serviceaccount:liqo-tenant-paris:peer-1"}
---
apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceMap
metadata:
  name: milan
  namespace: liqo-tenant-paris
  labels: {liqo.io/replicated: "true", liqo.io/originID: paris, liqo.io/remote-cluster-id: paris}
spec: {desiredMapping: {%s: %s}}
`, namespace, twin)
}

// attacker is whoever has the credentials that the consumer rome holds in milan.
type attacker struct {
	*world
	core  kubernetes.Interface
	liqod versioned.Interface
}

func clients(t *testing.T, config *rest.Config) (kubernetes.Interface, versioned.Interface) {
	t.Helper()
	core := must(kubernetes.NewForConfig(config))(t)
	liqod := must(versioned.NewForConfig(config))(t)
	return core, liqod
}

// TestPeerRights shows that the credentials that a peer holds, used past liqod, allow
// what a peer may do and nothing else; and so for the identities of the roles.
func TestPeerRights(t *testing.T) {
	w := newWorld(t)
	w.deploy(t, "shop", 1)
	t.Run("HostileConsumer", func(t *testing.T) { testHostileConsumer(t, w) })
	t.Run("HostileProvider", func(t *testing.T) { testHostileProvider(t, w) })
	w.removeDeployment(t, "shop", "web")
	require.NoError(t, w.milan.Configure(t.Context(), map[string]any{"sharing": map[string]any{
		"storageClasses": []string{"disk"}, "ingressClasses": []string{"milans"}, "loadBalancerClasses": []string{"milans"},
	}}))
	require.NoError(t, w.milan.Apply(t.Context(), []byte(anotherPeer("shop", twinOfParis))))
	within(t, time.Minute, "paris has a twin namespace", lab.Exists(w.milan.Client().RbacV1().RoleBindings(twinOfParis), "liqod-peer-twin"))
	rome := holder{in: w.milan, namespace: tenantOfRome, account: "peer-1",
		scopes: []string{tenantOfRome, twinOfRome, tenantOfParis, twinOfParis, "default", "kube-system", "liqod"}}
	p := attacker{world: w}
	p.core, p.liqod = clients(t, rome.config(t))

	t.Run("enumerated", func(t *testing.T) { enumerated(t, w, rome) })
	t.Run("forced", func(t *testing.T) { forced(t, p) })
	t.Run("refused", func(t *testing.T) { refused(t, p, refusedSpecs()) })
	t.Run("forbidden", func(t *testing.T) { forbidden(t, p) })
	t.Run("trust", func(t *testing.T) { trustedApart(t, p) })
	t.Run("without-label", func(t *testing.T) { withoutLabel(t, p) })
	inTurn(t, w, []part[*world]{
		{"orphan", orphan}, {"kept", keptTwins}, {"allowed", allowed}, {"vkubelet", vkubeletRights}, {"controller", controllerRights},
		{"controller-policies", controllerPolicies}, {"people", people},
	})
	t.Run("taken-host", func(t *testing.T) { takenHost(t, p) })
	t.Run("later-host", func(t *testing.T) { laterHost(t, w) })
	t.Run("revoked", func(t *testing.T) { revoked(t, p) })
}

const bindingsOfPeople = `
apiVersion: v1
kind: Namespace
metadata: {name: market}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ann, namespace: market}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: carl, namespace: market}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: carl}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bob}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
`

// people asks with the roles of Kubernetes: ann administers a namespace, carl edits it, bob
// views the cluster.
func people(t *testing.T, w *world) {
	require.NoError(t, w.rome.Apply(t.Context(), []byte(bindingsOfPeople)))
	offload := []string{"offload", "market", "--timeout=30s", "--as"}
	within(t, 3*time.Minute, "ann may offload her namespace", w.says(w.rome, append(offload, "ann"), 0, "namespace market: offloaded"))
	require.NoError(t, w.says(w.rome, []string{"status", "-n", "market", "--as", "ann"}, 0, "Namespace market of cluster", ": healthy", "milan: 0 pods", "No right to read Deployments of liqod")(t.Context()))
	require.NoError(t, w.says(w.rome, []string{"status", "-n", "shop", "--as", "ann"}, 2, "no right to read Pods of namespace shop")(t.Context()))
	require.NoError(t, w.says(w.rome, append(offload, "carl"), 0, "offloading is asked for already")(t.Context()), "who edits a namespace may see that")
	require.NoError(t, w.says(w.rome, []string{"offload", "market", "--pod-offloading-strategy=Remote", "--as", "carl"}, 1, "forbidden")(t.Context()))
	require.NoError(t, w.says(w.rome, []string{"unoffload", "market", "--as", "carl"}, 1, "forbidden")(t.Context()))
	require.NoError(t, w.says(w.rome, []string{"offload", "shop", "--pod-offloading-strategy=Remote", "--as", "ann"}, 1, "forbidden")(t.Context()))
	for _, args := range [][]string{{"status"}, {"check"}} {
		out, code, err := w.command(t.Context(), w.rome, append(args, "--as", "bob")...)
		require.NoError(t, err)
		require.NotEqual(t, 2, code, out)
		require.NotContains(t, out, "cannot be read")
		require.NotContains(t, out, "forbidden")
		require.Contains(t, out, "milan")
	}
	within(t, 3*time.Minute, "ann takes her namespace back", w.says(w.rome, []string{"unoffload", "market", "--as", "ann"}, 0, "namespace market: "))
	require.NoError(t, w.rome.Client().CoreV1().Namespaces().Delete(t.Context(), "market", metav1.DeleteOptions{}))
}

func enumerated(t *testing.T, w *world, rome holder) {
	home := []string{tenantOfMilan, "shop", "default", "kube-system", "kube-node-lease", "liqod"}
	begin := time.Now()
	golden(t, "peer-rights.txt", "What a peer (rome) may do in its provider (milan). shop-rome is its twin namespace; paris is another peer.", rome)
	golden(t, "vkubelet-rights.txt", "What the vkubelet of virtual node milan may do at home (rome). shop is an offloaded namespace.",
		holder{in: w.rome, namespace: tenantOfMilan, account: "vk-milan", scopes: home})
	golden(t, "controller-rights.txt", "What the controller may do: in a consumer (rome), where shop is offloaded, and in a provider (milan), where shop-rome is its twin.",
		holder{in: w.rome, namespace: "liqod", account: "liqod-controller", scopes: home},
		holder{in: w.milan, namespace: "liqod", account: "liqod-controller", scopes: []string{tenantOfRome, twinOfRome, "default", "kube-system", "liqod"}})
	golden(t, "webhook-rights.txt", "What the webhook may do at home (rome). shop is an offloaded namespace.",
		holder{in: w.rome, namespace: "liqod", account: "liqod-webhook", scopes: home})
	t.Logf("all rights enumerated: %s", time.Since(begin).Round(time.Millisecond))
}

// revoked gives the peer's rights to another name. That rights end with a name, and with another one,
// TestTokenPeering shows.
func revoked(t *testing.T, p attacker) {
	ctx := t.Context()
	setUser := func(name string) error {
		patch := fmt.Appendf(nil, `{"spec":{"userName":%q}}`, name)
		return second(p.milan.Liqod().CoreV1beta1().ForeignClusters().Patch(ctx, "rome", types.MergePatchType, patch, metav1.PatchOptions{}))
	}
	// Names that are no peer's are refused; those of another peer take effect as none, where
	// they get past the webhook.
	unruled(t, p.milan)
	for _, name := range []string{"system:authenticated", "system:masters", "system:serviceaccount:liqod:liqod-controller"} {
		require.True(t, apierrors.IsInvalid(setUser(name)), "%s must be refused", name)
	}
	for _, name := range []string{"system:serviceaccount:liqo-tenant-paris:peer-1", "liqo.io:peer:paris:1"} {
		require.NoError(t, setUser(name))
		within(t, 5*time.Second, name+" gets no rights", func(ctx context.Context) error {
			for _, ns := range []string{tenantOfRome, twinOfRome} {
				bindings, err := p.milan.Client().RbacV1().RoleBindings(ns).List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				for _, b := range bindings.Items {
					if strings.HasPrefix(b.RoleRef.Name, "liqod-peer-") {
						return fmt.Errorf("RoleBinding %s/%s binds %v", ns, b.Name, b.Subjects)
					}
				}
			}
			return nil
		})
	}
}
