package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqofake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
)

// cluster is a Cluster with fake clients. It counts the writes, and the write with the
// number broken fails.
type cluster struct {
	Cluster
	core   *fake.Clientset
	liqod  *liqofake.Clientset
	writes []string
	broken int
}

var errBroken = errors.New("the API server does not answer")

func newCluster(id string, objects ...runtime.Object) *cluster {
	c := &cluster{core: fake.NewClientset(), liqod: liqofake.NewSimpleClientset(objects...)}
	c.Cluster = Cluster{ID: id, Kube: c.core, Liqo: c.liqod}
	count := func(action clienttesting.Action) (bool, runtime.Object, error) {
		if slices.Contains([]string{"get", "list", "watch"}, action.GetVerb()) {
			return false, nil, nil
		}
		c.writes = append(c.writes, action.GetVerb()+" "+action.GetResource().Resource)
		if len(c.writes) == c.broken {
			return true, nil, errBroken
		}
		return false, nil, nil
	}
	c.core.PrependReactor("*", "*", count)
	c.liqod.PrependReactor("*", "*", count)
	return c
}

// state lists all objects.
func (c *cluster) state(t *testing.T) (out []string) {
	t.Helper()
	for _, list := range []runtime.Object{
		kubetest.List(t, c.Kube.CoreV1().Namespaces()), kubetest.List(t, c.Kube.CoreV1().ServiceAccounts("")), kubetest.List(t, c.Kube.CoreV1().Secrets("")),
		kubetest.List(t, c.Liqo.CoreV1beta1().ForeignClusters()), kubetest.List(t, c.Liqo.OffloadingV1beta1().VirtualNodes("")), kubetest.List(t, c.Liqo.OffloadingV1beta1().NamespaceMaps("")),
	} {
		require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			text := fmt.Sprintf("%T %s/%s %v", o, m.GetNamespace(), m.GetName(), m.GetLabels())
			if fc, ok := o.(*corev1beta1.ForeignCluster); ok {
				text += fmt.Sprintf(" %+v", fc.Spec)
			}
			out = append(out, text)
			return err
		}))
	}
	return out
}

// names returns those of the objects of a list.
func names(t *testing.T, list runtime.Object) (out []string) {
	t.Helper()
	require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		out = append(out, m.GetName())
		return err
	}))
	return out
}

// admit makes a consumer known, with an identity, as an enrolment does.
func (c *cluster) admit(t *testing.T, consumer string) {
	t.Helper()
	namespace, labels := corev1beta1.TenantNamespace(consumer), map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod}
	require.NoError(t, link.Tenant(t.Context(), c.Kube, consumer))
	kubetest.Create(t, c.Kube.CoreV1().ServiceAccounts(namespace), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "peer-1", Labels: labels}})
	require.NoError(t, c.edit(t.Context(), consumer, true, func(fc *corev1beta1.ForeignCluster) {
		fc.Spec.UserName, fc.Spec.AddressRanges = corev1beta1.PeerAccountUser(consumer, "peer-1"), []string{"10.1.0.0/16"}
	}))
}

// join makes a provider known, with credentials and a virtual node.
func (c *cluster) join(t *testing.T, provider string) {
	t.Helper()
	namespace := corev1beta1.TenantNamespace(provider)
	require.NoError(t, link.Tenant(t.Context(), c.Kube, provider))
	kubetest.Create(t, c.Kube.CoreV1().Secrets(namespace), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: provider, Labels: map[string]string{
		corev1beta1.IdentityTypeLabel: corev1beta1.IdentityControlPlane, corev1beta1.RemoteClusterIDLabel: provider}}})
	require.NoError(t, c.edit(t.Context(), provider, true, func(*corev1beta1.ForeignCluster) {}))
	kubetest.Create(t, c.Liqo.OffloadingV1beta1().VirtualNodes(namespace), &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: provider}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: provider}})
}

func TestRefusesIDs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ peer, message string }{
		"itself":             {"milan", "a cluster cannot be a peer of itself"},
		"no DNS label":       {"Rome!", "a DNS label of at most 51 characters is accepted"},
		"nothing":            {"", "a DNS label"},
		"a name of 52 bytes": {"a234567890123456789012345678901234567890123456789012", "at most 51"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			milan := newCluster("milan")
			_, err := milan.Dismiss(t.Context(), tc.peer)
			require.ErrorContains(t, err, tc.message)
			_, err = milan.Leave(t.Context(), tc.peer, false)
			require.ErrorContains(t, err, tc.message)
			require.Empty(t, milan.writes)
		})
	}
}

// TestInterrupted fails each write of the end of a peering, and repeats the call.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	unpeer := func(ctx context.Context, rome, milan *cluster) error {
		for _, step := range []func() ([]string, error){
			func() ([]string, error) { return rome.Leave(ctx, "milan", false) },
			func() ([]string, error) { return milan.Dismiss(ctx, "rome") },
		} {
			for {
				left, err := step()
				if err != nil {
					return err
				}
				if len(left) == 0 {
					break
				}
			}
		}
		return nil
	}
	whole := func() (rome, milan *cluster) {
		rome, milan = newCluster("rome"), newCluster("milan")
		milan.admit(t, "rome")
		rome.join(t, "milan")
		return rome, milan
	}
	rome, milan := whole()
	begin := len(rome.writes)
	require.NoError(t, unpeer(t.Context(), rome, milan))
	require.Empty(t, rome.state(t))
	require.Empty(t, milan.state(t))
	for n := begin + 1; n <= len(rome.writes); n++ {
		r, m := whole()
		r.broken = n
		require.ErrorIs(t, unpeer(t.Context(), r, m), errBroken)
		require.NoError(t, unpeer(t.Context(), r, m))
		require.Empty(t, r.state(t), "write %d in rome", n)
	}
}

// TestSpentTokens: the tokens that a consumer has used up are deleted with it, and so are the certificate requests
// that its enrolments have left; no others. A process may have been killed in Dismiss after it had taken the rights:
// the next one, which begins with Leave, deletes them before nothing is known of the consumer any more.
func TestSpentTokens(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *cluster){
		"Dismiss": func(t *testing.T, milan *cluster) {
			_, err := milan.Dismiss(t.Context(), "rome")
			require.NoError(t, err)
		},
		"Leave after a Dismiss that was killed": func(t *testing.T, milan *cluster) {
			milan.admit(t, "rome")
			require.NoError(t, milan.edit(t.Context(), "rome", false, func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = "" }))
			_, err := milan.Leave(t.Context(), "rome", false)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			milan := newCluster("milan")
			milan.Namespace = "liqod"
			secrets, requests := milan.Kube.CoreV1().Secrets("liqod"), milan.Kube.CertificatesV1().CertificateSigningRequests()
			used := func(id string, uses int, by ...string) {
				var redemptions []trust.Redemption
				for _, consumer := range by {
					redemptions = append(redemptions, trust.Redemption{ClusterID: consumer, Serial: "s"})
				}
				secret, err := trust.WithRedemptions(trust.NewSecret("liqod", trust.Record{ID: id, Hash: trust.Hash("x"), Uses: uses}), redemptions)
				require.NoError(t, err)
				kubetest.Create(t, secrets, secret)
			}
			used("spent", 1, "rome")
			used("new", 1)
			used("shared", 2, "rome", "genoa")
			used("more", 2, "rome")
			used("any", 0)
			for name, by := range map[string][2]string{
				"liqod-peer-rome-1": {"liqod", "rome"}, "liqod-peer-genoa-1": {"liqod", "genoa"}, "theirs": {"liqod", "rome"}, "liqod-peer-rome-2": {"somebody", "rome"},
			} {
				kubetest.Create(t, requests, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
					Name: name, Labels: map[string]string{corev1beta1.MadeByLabel: by[0], corev1beta1.RemoteClusterIDLabel: by[1]}}})
			}
			end(t, milan)
			require.ElementsMatch(t, []string{"token-new", "token-shared", "token-more", "token-any"}, names(t, kubetest.List(t, secrets)))
			require.ElementsMatch(t, []string{"liqod-peer-genoa-1", "theirs", "liqod-peer-rome-2"}, names(t, kubetest.List(t, requests)))
		})
	}
}

// TestTwoWays: the end of one direction does not affect the other.
func TestTwoWays(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rome, milan := newCluster("rome"), newCluster("milan")
	milan.admit(t, "rome")
	rome.join(t, "milan")
	alone := milan.state(t)
	rome.admit(t, "milan")
	milan.join(t, "rome")
	fc := kubetest.Get(t, milan.Liqo.CoreV1beta1().ForeignClusters(), "rome")
	require.Equal(t, "system:serviceaccount:liqo-tenant-rome:peer-1", fc.Spec.UserName, "joining takes no rights away")

	left, err := milan.Leave(ctx, "rome", false)
	require.NoError(t, err)
	require.Equal(t, []string{"virtual node rome: it is being drained"}, left)
	left, err = milan.Leave(ctx, "rome", false)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, alone, milan.state(t), "rome still uses milan")

	left, err = rome.Dismiss(ctx, "milan")
	require.NoError(t, err)
	require.Empty(t, left)
	fc, err = rome.Liqo.CoreV1beta1().ForeignClusters().Get(ctx, "milan", metav1.GetOptions{})
	require.NoError(t, err, "rome still uses milan")
	require.Empty(t, fc.Spec.UserName)
}

// TestDismissInvited: an unused token that was sent in return is deleted, so that it cannot
// restore the rights. A Secret of that name by another author stays.
func TestDismissInvited(t *testing.T) {
	t.Parallel()
	rome := newCluster("rome")
	rome.Namespace = "liqod"
	make := func(labels map[string]string, name string) {
		kubetest.Create(t, rome.core.CoreV1().Secrets("liqod"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	make(map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod}, "token-back-milan")
	make(map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod}, "peer-milan-back")
	make(nil, "token-back-turin")
	for _, peer := range []string{"milan", "turin"} {
		_, err := rome.Leave(t.Context(), peer, false)
		require.NoError(t, err)
		_, err = rome.Dismiss(t.Context(), peer)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"token-back-turin"}, names(t, kubetest.List(t, rome.core.CoreV1().Secrets("liqod"))))
}

// TestLeaveWaits: Leave waits until a reachable provider has removed this cluster's
// objects.
func TestLeaveWaits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, tc := range map[string]struct {
		api  metav1.ConditionStatus
		twin offloadingv1beta1.RemoteNamespaceStatus
		left []string
	}{
		"it answers":    {metav1.ConditionTrue, offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingAccepted}, []string{"namespace shop-rome of cluster milan"}},
		"it is away":    {metav1.ConditionFalse, offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingAccepted}, []string{"NamespaceMap milan"}},
		"it keeps data": {metav1.ConditionTrue, offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingTerminating, Message: "kept"}, []string{"NamespaceMap milan"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rome := newCluster("rome",
				&corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"},
					Status: corev1beta1.ForeignClusterStatus{TenantNamespace: corev1beta1.TenantNamespaces{Remote: "liqo-tenant-rome"}, Conditions: []metav1.Condition{{Type: corev1beta1.ConditionAPIServer, Status: tc.api}}}},
				&offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
					Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{"shop": tc.twin}}})
			left, err := rome.Leave(ctx, "milan", false)
			require.NoError(t, err)
			require.Equal(t, tc.left, left)
		})
	}
}

// TestDismissNetwork: what a consumer has said of its network goes before its namespace, and
// stays where this cluster uses it, too.
func TestDismissNetwork(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	said := func() *networkingv1beta1.Configuration {
		return &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "milan",
			Labels: map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}}}
	}
	own := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome"}}
	milan := newCluster("milan", said(), own)
	left, err := milan.Dismiss(ctx, "rome")
	require.NoError(t, err)
	require.Equal(t, []string{"Configuration milan"}, left)
	left, err = milan.Dismiss(ctx, "rome")
	require.NoError(t, err)
	require.NotContains(t, left, "Configuration milan")
	_, err = milan.liqod.NetworkingV1beta1().Configurations("liqo-tenant-rome").Get(ctx, "rome", metav1.GetOptions{})
	require.NoError(t, err, "this cluster's own goes with the namespace, or when its offers end")

	milan = newCluster("milan", said(), &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome"}})
	left, err = milan.Dismiss(ctx, "rome")
	require.NoError(t, err)
	require.Empty(t, left)
	kubetest.Get(t, milan.liqod.NetworkingV1beta1().Configurations("liqo-tenant-rome"), "milan")
}

// TestLeaveWithoutVirtualNodes: a Node whose VirtualNode went with a deleted tenant namespace, and
// did not come again, goes with the peering.
func TestLeaveWithoutVirtualNodes(t *testing.T) {
	t.Parallel()
	rome := newCluster("rome")
	for _, provider := range []string{"milan", "turin"} {
		kubetest.Create(t, rome.Kube.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: provider,
			Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, corev1beta1.RemoteClusterIDLabel: provider}}})
	}
	_, err := rome.Leave(t.Context(), "milan", false)
	require.NoError(t, err)
	require.Equal(t, []string{"turin"}, names(t, kubetest.List(t, rome.Kube.CoreV1().Nodes())))
}

// TestInstalled: only what an administrator writes says where liqod is. What the owners of other namespaces write there,
// with the same names and labels, neither leads the commands elsewhere nor stops them.
func TestInstalled(t *testing.T) {
	t.Parallel()
	binding := func(namespaces ...string) *rbacv1.ClusterRoleBinding {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: Controller}}
		for _, ns := range namespaces {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: Controller, Namespace: ns})
		}
		return b
	}
	configuration := func(namespace, config string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "liqod", Labels: map[string]string{"app.kubernetes.io/name": "liqod"}},
			Data: map[string]string{"config.yaml": config}}
	}
	own := configuration("liqod", "clusterID: rome")
	id, namespace, err := Installed(t.Context(), fake.NewClientset(binding("liqod"), own, configuration("aaa", "clusterID: evil"), configuration("bbb", "clusterID: [")))
	require.NoError(t, err)
	require.Equal(t, "rome", id)
	require.Equal(t, "liqod", namespace)

	for name, kube := range map[string]*fake.Clientset{
		"no binding":       fake.NewClientset(own),
		"no configuration": fake.NewClientset(binding("liqod"), configuration("aaa", "clusterID: evil")),
		"no id":            fake.NewClientset(binding("liqod"), configuration("liqod", "log: {level: debug}")),
	} {
		_, _, err = Installed(t.Context(), kube)
		require.ErrorIs(t, err, ErrNotInstalled, name)
	}
	for _, namespaces := range [][]string{nil, {""}, {"aaa", "liqod"}} {
		_, err = Namespace(t.Context(), fake.NewClientset(binding(namespaces...), own))
		require.ErrorContains(t, err, "one subject is accepted, the ServiceAccount of its controller", "%v", namespaces)
	}
}
