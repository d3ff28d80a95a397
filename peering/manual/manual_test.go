package manual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqofake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
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
	// The token controller does this in a real cluster.
	c.core.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if s := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret); s.Type == corev1.SecretTypeServiceAccountToken {
			s.Data = map[string][]byte{"token": []byte("token of " + s.Name), "ca.crt": []byte("ca")}
		}
		return false, nil, nil
	})
	c.core.PrependReactor("*", "*", count)
	c.liqod.PrependReactor("*", "*", count)
	return c
}

// state lists all objects.
func (c *cluster) state(t *testing.T) (out []string) {
	t.Helper()
	ctx := t.Context()
	add := func(list runtime.Object, err error) {
		require.NoError(t, err)
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
	namespaces, err := c.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	add(namespaces, err)
	accounts, err := c.Kube.CoreV1().ServiceAccounts("").List(ctx, metav1.ListOptions{})
	add(accounts, err)
	secrets, err := c.Kube.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	add(secrets, err)
	records, err := c.Liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	add(records, err)
	nodes, err := c.Liqo.OffloadingV1beta1().VirtualNodes("").List(ctx, metav1.ListOptions{})
	add(nodes, err)
	maps, err := c.Liqo.OffloadingV1beta1().NamespaceMaps("").List(ctx, metav1.ListOptions{})
	add(maps, err)
	return out
}

var ofRome = Admission{Consumer: "rome", AddressRanges: []string{"10.1.0.0/16"}}

func ofMilan(t *testing.T, cred Credentials) Offer {
	t.Helper()
	kubeconfig, err := Kubeconfig("milan", "https://milan.example:6443", nil, cred)
	require.NoError(t, err)
	return Offer{
		Provider: "milan", Node: "milan", Kubeconfig: kubeconfig, StorageClasses: []string{"", "fast"}, IngressClasses: []string{"nginx"},
		LoadBalancerClasses: []string{"lb"}, Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	milan := newCluster("milan")
	first, err := milan.Admit(t.Context(), ofRome)
	require.NoError(t, err)
	require.Equal(t, Credentials{User: "system:serviceaccount:liqo-tenant-rome:peer-1", Token: "token of peer-1", CA: []byte("ca")}, first)
	require.True(t, corev1beta1.ValidPeerUser("rome", first.User))
	require.Equal(t, []string{"create namespaces", "create serviceaccounts", "create secrets", "create foreignclusters"}, milan.writes, "rights come last")

	before := milan.state(t)
	again, err := milan.Admit(t.Context(), Admission{Consumer: "rome"})
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, before, milan.state(t))

	// The rights are revoked, so the old credentials are never valid again.
	fc, err := milan.Liqo.CoreV1beta1().ForeignClusters().Get(t.Context(), "rome", metav1.GetOptions{})
	require.NoError(t, err)
	fc.Spec.UserName = ""
	_, err = milan.Liqo.CoreV1beta1().ForeignClusters().Update(t.Context(), fc, metav1.UpdateOptions{})
	require.NoError(t, err)
	second, err := milan.Admit(t.Context(), ofRome)
	require.NoError(t, err)
	require.Equal(t, "system:serviceaccount:liqo-tenant-rome:peer-2", second.User)
	_, err = milan.Kube.CoreV1().ServiceAccounts("liqo-tenant-rome").Get(t.Context(), "peer-1", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestAdmitRefuses(t *testing.T) {
	t.Parallel()
	byHand := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "rome", UserName: "liqo.io:peer:rome:1"}}
	for name, tc := range map[string]struct {
		consumer, message string
		objects           []runtime.Object
	}{
		"itself":             {"milan", "a cluster cannot be a peer of itself", nil},
		"no DNS label":       {"Rome!", "a DNS label of at most 51 characters is accepted", nil},
		"nothing":            {"", "a DNS label", nil},
		"other credentials":  {"rome", `spec.userName "liqo.io:peer:rome:1", which this command has not made`, []runtime.Object{byHand}},
		"a name of 52 bytes": {"a234567890123456789012345678901234567890123456789012", "at most 51", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			milan := newCluster("milan", tc.objects...)
			_, err := milan.Admit(t.Context(), Admission{Consumer: tc.consumer})
			require.ErrorContains(t, err, tc.message)
			_, err = milan.Dismiss(t.Context(), "milan")
			require.ErrorContains(t, err, "cannot be a peer of itself")
		})
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	rome := newCluster("rome")
	offer := ofMilan(t, Credentials{Token: "token", CA: []byte("ca")})
	require.NoError(t, rome.Join(t.Context(), offer))
	before, writes := rome.state(t), len(rome.writes)
	require.NoError(t, rome.Join(t.Context(), offer))
	require.Equal(t, before, rome.state(t))
	require.Equal(t, []string{"create virtualnodes"}, rome.writes[writes:], "which is there already")

	secret, err := rome.Kube.CoreV1().Secrets("liqo-tenant-milan").Get(t.Context(), "milan", metav1.GetOptions{})
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
	require.NoError(t, err)
	require.Equal(t, "https://milan.example:6443 token", config.Host+" "+config.BearerToken)
	vn, err := rome.Liqo.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan").Get(t.Context(), "milan", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []offloadingv1beta1.ClassOffer{{Default: true}, {StorageClassName: "fast"}}, vn.Spec.StorageClasses)
	require.Equal(t, []offloadingv1beta1.ClassOffer{{IngressClassName: "nginx", Default: true}}, vn.Spec.IngressClasses)
	require.Equal(t, []offloadingv1beta1.ClassOffer{{LoadBalancerClassName: "lb", Default: true}}, vn.Spec.LoadBalancerClasses)
	require.Equal(t, "4", vn.Spec.ResourceQuota.Hard.Cpu().String())

	// New credentials replace the old ones.
	require.NoError(t, rome.Join(t.Context(), ofMilan(t, Credentials{Token: "renewed"})))
	secret, err = rome.Kube.CoreV1().Secrets("liqo-tenant-milan").Get(t.Context(), "milan", metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, string(secret.Data["kubeconfig"]), "renewed")
}

// TestInterrupted fails each write of an enrolment, and repeats the call.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	peer := func(ctx context.Context, rome, milan *cluster) error {
		cred, err := milan.Admit(ctx, ofRome)
		if err != nil {
			return err
		}
		return rome.Join(ctx, ofMilan(t, cred))
	}
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
		require.NoError(t, peer(t.Context(), rome, milan))
		return rome, milan
	}
	rome, milan := whole()
	wantRome, wantMilan := rome.state(t), milan.state(t)
	for n := 1; n <= len(milan.writes); n++ {
		r, m := newCluster("rome"), newCluster("milan")
		m.broken = n
		require.ErrorIs(t, peer(t.Context(), r, m), errBroken)
		require.NoError(t, peer(t.Context(), r, m))
		require.Len(t, m.state(t), len(wantMilan), "write %d in milan", n)
		require.Equal(t, wantRome, r.state(t), "write %d in milan", n)
	}
	for n := 1; n <= len(rome.writes); n++ {
		r, m := newCluster("rome"), newCluster("milan")
		r.broken = n
		require.ErrorIs(t, peer(t.Context(), r, m), errBroken)
		require.NoError(t, peer(t.Context(), r, m))
		require.Equal(t, wantMilan, m.state(t), "write %d in rome", n)
		require.Equal(t, wantRome, r.state(t), "write %d in rome", n)
	}

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

// TestSpentTokens: the tokens that a consumer has used up are deleted with it.
func TestSpentTokens(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	milan := newCluster("milan")
	milan.Namespace = "liqod"
	used := func(id string, uses int, by ...string) *corev1.Secret {
		var redemptions []trust.Redemption
		for _, consumer := range by {
			redemptions = append(redemptions, trust.Redemption{ClusterID: consumer, Serial: "s"})
		}
		secret, err := trust.WithRedemptions(trust.NewSecret("liqod", trust.Record{ID: id, Hash: trust.Hash("x"), Uses: uses}), redemptions)
		require.NoError(t, err)
		return secret
	}
	for _, secret := range []*corev1.Secret{used("spent", 1, "rome"), used("new", 1), used("shared", 2, "rome", "genoa"), used("more", 2, "rome"), used("any", 0)} {
		_, err := milan.Kube.CoreV1().Secrets("liqod").Create(ctx, secret, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := milan.Dismiss(ctx, "rome")
	require.NoError(t, err)
	list, err := milan.Kube.CoreV1().Secrets("liqod").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	require.ElementsMatch(t, []string{"token-new", "token-shared", "token-more", "token-any"}, names)
}

// TestKilledInDismiss: a process was killed in Dismiss after it had taken the rights. The
// next one, which begins with Leave, must delete what the enrolments have left before
// nothing is known of the consumer any more.
func TestKilledInDismiss(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	milan := newCluster("milan")
	milan.Namespace = "liqod"
	_, err := milan.Admit(ctx, ofRome)
	require.NoError(t, err)
	require.NoError(t, milan.edit(ctx, "rome", false, func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = "" }))
	spent, err := trust.WithRedemptions(trust.NewSecret("liqod", trust.Record{ID: "spent", Hash: trust.Hash("x"), Uses: 1}), []trust.Redemption{{ClusterID: "rome", Serial: "s"}})
	require.NoError(t, err)
	_, err = milan.Kube.CoreV1().Secrets("liqod").Create(ctx, spent, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = milan.Kube.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
		Name: "liqod-peer-rome-1", Labels: map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod, corev1beta1.RemoteClusterIDLabel: "rome"}}}, metav1.CreateOptions{})
	require.NoError(t, err)

	_, err = milan.Leave(ctx, "rome", false)
	require.NoError(t, err)
	requests, err := milan.Kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, requests.Items)
	secrets, err := milan.Kube.CoreV1().Secrets("liqod").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, secrets.Items)
}

// TestLeftRequests: a consumer's leftover certificate requests are deleted with it, and no
// others.
func TestLeftRequests(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	milan := newCluster("milan")
	requests := milan.Kube.CertificatesV1().CertificateSigningRequests()
	for name, by := range map[string][2]string{
		"liqod-peer-rome-1": {"liqod", "rome"}, "liqod-peer-genoa-1": {"liqod", "genoa"}, "theirs": {"liqod", "rome"}, "liqod-peer-rome-2": {"somebody", "rome"},
	} {
		_, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1beta1.MadeByLabel: by[0], corev1beta1.RemoteClusterIDLabel: by[1]}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := milan.Dismiss(ctx, "rome")
	require.NoError(t, err)
	list, err := requests.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	require.ElementsMatch(t, []string{"liqod-peer-genoa-1", "theirs", "liqod-peer-rome-2"}, names)
}

// TestTwoWays: the end of one direction does not affect the other.
func TestTwoWays(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rome, milan := newCluster("rome"), newCluster("milan")
	cred, err := milan.Admit(ctx, ofRome)
	require.NoError(t, err)
	require.NoError(t, rome.Join(ctx, ofMilan(t, cred)))
	alone := milan.state(t)
	cred, err = rome.Admit(ctx, Admission{Consumer: "milan"})
	require.NoError(t, err)
	kubeconfig, err := Kubeconfig("rome", "https://rome.example", []byte("another ca"), cred)
	require.NoError(t, err)
	require.NoError(t, milan.Join(ctx, Offer{Provider: "rome", Node: "rome", Kubeconfig: kubeconfig}))
	fc, err := milan.Liqo.CoreV1beta1().ForeignClusters().Get(ctx, "rome", metav1.GetOptions{})
	require.NoError(t, err)
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
	ctx := t.Context()
	rome := newCluster("rome")
	rome.Namespace = "liqod"
	make := func(labels map[string]string, name string) {
		_, err := rome.core.CoreV1().Secrets("liqod").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	make(map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod}, "token-back-milan")
	make(map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod}, "peer-milan-back")
	make(nil, "token-back-turin")
	for _, peer := range []string{"milan", "turin"} {
		_, err := rome.Leave(ctx, peer, false)
		require.NoError(t, err)
		_, err = rome.Dismiss(ctx, peer)
		require.NoError(t, err)
	}
	left, err := rome.core.CoreV1().Secrets("liqod").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, left.Items, 1)
	require.Equal(t, "token-back-turin", left.Items[0].Name)
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
	_, err = milan.liqod.NetworkingV1beta1().Configurations("liqo-tenant-rome").Get(ctx, "milan", metav1.GetOptions{})
	require.NoError(t, err)
}

// TestLeaveWithoutVirtualNodes: a Node whose VirtualNode went with a deleted tenant namespace, and
// did not come again, goes with the peering.
func TestLeaveWithoutVirtualNodes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rome := newCluster("rome")
	for name, provider := range map[string]string{"milan": "milan", "turin": "turin"} {
		_, err := rome.Kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, corev1beta1.RemoteClusterIDLabel: provider}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := rome.Leave(ctx, "milan", false)
	require.NoError(t, err)
	nodes, err := rome.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 1)
	require.Equal(t, "turin", nodes.Items[0].Name)
}
