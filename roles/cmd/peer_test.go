package cmd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/trust"
)

// installation is a cluster in which the chart has been installed, with a node.
func installation(t *testing.T, id string) *cluster {
	t.Helper()
	c := newCluster()
	kubetest.Create(t, c.core.CoreV1().ConfigMaps("liqod"), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "liqod", Labels: map[string]string{"app.kubernetes.io/name": "liqod"}}, Data: map[string]string{"config.yaml": "clusterID: " + id},
	})
	kubetest.Create(t, c.core.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id + "-1"}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("10Gi"), corev1.ResourcePods: resource.MustParse("110")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}})
	// As the controller does.
	c.liqod.PrependReactor("create", "virtualnodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		vn := action.(clienttesting.CreateAction).GetObject().(*offloadingv1beta1.VirtualNode)
		vn.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Message: "the Node is Ready"}}
		return false, nil, nil
	})
	return c
}

// both runs a command that knows two clusters: the one of --remote-context, and its own.
func both(t *testing.T, here, there *cluster, args ...string) (string, error) {
	t.Helper()
	return execute(t, &commands{program: "liqod", build: Build{Version: "test"}, every: time.Millisecond, connect: func(conn *connection) (*clients, error) {
		c, server := here, "https://rome.example"
		if conn.overrides.CurrentContext == "milan" {
			c, server = there, "https://milan.example"
		}
		return &clients{kube: c.core, liqo: c.liqod, now: time.Now, server: server}, nil
	}}, args...)
}

func TestPeer(t *testing.T) {
	t.Parallel()
	rome, milan := installation(t, "rome"), provider(t)
	milan.configure(t, "authentication: {url: \"https://auth.milan.example\"}")
	said := must(both(t, rome, milan, "peer", "--remote-context=milan", "--cpu=4", "--pod-cidr=10.42.0.0/16", "--wait=false"))
	require.Equal(t, "rome: the capacity of cluster milan is asked for\n", said)
	secret := kubetest.Get(t, rome.core.CoreV1().Secrets("liqod"), "peer-milan-token")
	token := must(trust.ParseToken(string(secret.Data["token"])))
	require.Equal(t, "milan https://auth.milan.example", token.ClusterID+" "+token.AuthURL)
	record := milan.record(t, token.ID)
	require.Equal(t, "rome", record.ClusterID, "nobody else may use the token")
	require.Equal(t, 1, record.Uses)
	require.False(t, record.Expiration.IsZero())

	for id, c := range map[string]*cluster{"rome": milan, "milan": rome} {
		c.add(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + id, Labels: map[string]string{"liqo.io/tenant-namespace": "true"}}})
	}
	kubetest.Create(t, rome.liqod.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}})
	milan.add(t, foreignCluster("rome"))
	said = must(both(t, rome, milan, "unpeer", "milan"))
	require.Contains(t, said, "rome: virtual node milan: it is being drained\nrome: namespace liqo-tenant-milan is being removed\n")
	require.Contains(t, said, "rome: nothing of the peering with cluster milan is left, but data in volumes is kept (liqod storage list); in that cluster, its people end the other half: liqod unpeer rome\n")
	said = must(both(t, rome, milan, "unpeer", "milan", "--remote-context=milan"))
	require.Contains(t, said, "milan: ForeignCluster rome is being removed\n")
	require.Contains(t, said, "nothing of the peering of rome and milan is left, but data in volumes is kept: liqod storage list\n")
	require.Empty(t, kubetest.List(t, milan.core.CoreV1().Namespaces(), metav1.ListOptions{LabelSelector: "liqo.io/tenant-namespace"}).Items)
}

func TestPeerRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"itself":           {[]string{"peer", "--remote-context=rome"}, ExitProblem, "a cluster cannot be a peer of itself"},
		"no endpoint":      {[]string{"peer", "--remote-context=milan"}, ExitProblem, "in cluster milan: it is not known how other clusters reach this one"},
		"no token":         {[]string{"peer", "--token=x"}, ExitProblem, "not a token: it begins with liqod1."},
		"an empty input":   {[]string{"peer", "--token=-"}, ExitUsage, "there is no token in the standard input"},
		"own token":        {[]string{"peer", "--token", token(t, "rome")}, ExitProblem, "a cluster cannot be a peer of itself"},
		"unpeer itself":    {[]string{"unpeer", "rome"}, ExitUsage, "this is cluster rome: a cluster cannot be a peer of itself"},
		"unpeer no id":     {[]string{"unpeer", "Milan!"}, ExitUsage, "a DNS label of at most 51 characters is accepted"},
		"unpeer nobody":    {[]string{"unpeer", "nosuch"}, ExitProblem, `there is no peer "nosuch": this cluster has no peers`},
		"token for itself": {[]string{"token", "create", "--for=rome", "--url=https://rome"}, ExitProblem, "itself"},
		"no certificates":  {[]string{"token", "create", "--url=https://rome"}, ExitProblem, "is the controller running?"},
		"another":          {[]string{"unpeer", "turin", "--remote-context=milan"}, ExitUsage, "the other cluster is milan, and not turin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rome, milan := installation(t, "rome"), installation(t, "milan")
			_, err := both(t, rome, milan, tc.args...)
			require.ErrorContains(t, err, tc.says)
			require.Equal(t, tc.code, code(err))
			require.Empty(t, milan.writes())
		})
	}
}

func (c *cluster) writes() (out []string) {
	for _, a := range append(c.core.Actions(), c.liqod.Actions()...) {
		if a.GetVerb() != "get" && a.GetVerb() != "list" && a.GetNamespace() != "liqod" && a.GetResource().Resource != "nodes" {
			out = append(out, a.GetVerb()+" "+a.GetResource().Resource)
		}
	}
	return out
}

func token(t *testing.T, clusterID string) string {
	t.Helper()
	token := must(trust.NewToken("https://milan.example:8443", clusterID, strings.Repeat("0", 64)))
	return token.String()
}

// says lets the record of milan have conditions, each time others until the last.
func (c *cluster) says(steps ...[]metav1.Condition) {
	c.liqod.PrependReactor("get", "foreignclusters", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := c.liqod.Tracker().Get(action.GetResource(), "", action.(clienttesting.GetAction).GetName())
		if err != nil {
			return true, nil, err
		}
		fc := obj.(*corev1beta1.ForeignCluster).DeepCopy()
		fc.Status.Conditions = steps[0]
		if len(steps) > 1 {
			steps = steps[1:]
		}
		return true, fc, nil
	})
}

func is(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func TestPeerByToken(t *testing.T) {
	t.Parallel()
	rome := installation(t, "rome")
	good := is(corev1beta1.ConditionAuthenticated, metav1.ConditionTrue, corev1beta1.ReasonEnrolled, "this cluster is user x of cluster milan")
	given := token(t, "milan")
	rome.says(nil, nil, []metav1.Condition{is(corev1beta1.ConditionAuthenticated, metav1.ConditionFalse, corev1beta1.ReasonPeerUnreachable, "no answer "+mark(t, given))},
		[]metav1.Condition{good, is(corev1beta1.ConditionOutgoingPeering, metav1.ConditionFalse, "Pending", "the request waits")},
		[]metav1.Condition{good, is(corev1beta1.ConditionOutgoingPeering, metav1.ConditionTrue, "Offered", "milan offers")})
	kubetest.Create(t, rome.liqod.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Namespace: "liqo-tenant-milan"}})
	args := []string{"peer", "--token", given, "--name=Milano", "--cpu=4", "--storage-class=fast", "--pod-cidr=10.42.0.0/16"}
	said := rome.ran(t, args...)
	require.Contains(t, said, "rome: the capacity of cluster milan is asked for\n")
	require.Contains(t, said, "identity: no answer "+mark(t, given)+"\n")
	require.Contains(t, said, "identity: this cluster is user x of cluster milan\n")
	require.Contains(t, said, "virtual node milan: the Node is Ready\n")

	secret := kubetest.Get(t, rome.core.CoreV1().Secrets("liqod"), "peer-milan-token")
	require.Equal(t, map[string][]byte{"token": []byte(given), "addressRanges": []byte("10.42.0.0/16")}, secret.Data)
	fc := kubetest.Get(t, rome.liqod.CoreV1beta1().ForeignClusters(), "milan")
	require.Equal(t, corev1beta1.ForeignClusterSpec{
		ClusterID: "milan", ClusterName: "Milano", TokenSecretRef: &corev1beta1.SecretReference{Name: "peer-milan-token"}, OutgoingPeeringEnabled: corev1beta1.PeeringYes,
		Request: corev1beta1.CapacityRequest{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}, StorageClasses: []string{"fast"}},
	}, fc.Spec)

	rome.add(t, &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
		Spec: sharingv1alpha1.ResourceOfferSpec{ProviderClusterID: "milan", Accepts: &sharingv1alpha1.Accepts{Trust: corev1beta1.TrustStrict}}})
	before := len(rome.writes())
	said = rome.ran(t, "peer", "--token", given)
	require.Len(t, rome.writes(), before, "asked for again nothing is written")
	require.Contains(t, lastLine(said), "cluster milan: it trusts this cluster as another organisation, and leaves out")
	require.Contains(t, lastLine(said), "--trust=Organisation")

	rome.ran(t, "unpeer", "milan")
	_, err := rome.core.CoreV1().Secrets("liqod").Get(t.Context(), "peer-milan-token", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
	require.Empty(t, kubetest.List(t, rome.liqod.CoreV1beta1().ForeignClusters()).Items)
}

// mark is the text by which a condition says that it is about a token.
func mark(t *testing.T, text string) string {
	t.Helper()
	token := must(trust.ParseToken(text))
	return token.Mark()
}

func TestPeerByTokenThatIsRefused(t *testing.T) {
	t.Parallel()
	rome, given := installation(t, "rome"), token(t, "milan")
	rome.says([]metav1.Condition{is(corev1beta1.ConditionAuthenticated, metav1.ConditionFalse, corev1beta1.ReasonTokenRefused, "make another "+mark(t, given))})
	require.EqualError(t, errOf(rome.run(t, "peer", "--token", given)), "cluster milan cannot be used: identity: make another "+mark(t, given))
}

// A refusal of an earlier token is no answer to this one: it is neither printed nor the end.
func TestPeerByTokenAfterAnotherOne(t *testing.T) {
	t.Parallel()
	refused := func(text string) []metav1.Condition {
		return []metav1.Condition{is(corev1beta1.ConditionAuthenticated, metav1.ConditionFalse, corev1beta1.ReasonTokenRefused, text)}
	}
	old, given := token(t, "milan"), token(t, "milan")
	rome := installation(t, "rome")
	steps := make([][]metav1.Condition, 0, 101)
	for range 100 {
		steps = append(steps, refused("make another "+mark(t, old)))
	}
	rome.says(append(steps, refused("it is used up "+mark(t, given)))...)
	said, err := rome.run(t, "peer", "--token", given)
	require.EqualError(t, err, "cluster milan cannot be used: identity: it is used up "+mark(t, given))
	require.NotContains(t, said, "make another")

	rome = installation(t, "rome")
	rome.says(refused("make another " + mark(t, old)))
	said, err = rome.run(t, "peer", "--token", given, "--timeout=1s")
	require.ErrorContains(t, err, "cluster milan cannot be used yet, timed out after 1s; what was asked for stands: waiting for liqod's controller")
	require.ErrorContains(t, err, "The last state is not about this token: make another "+mark(t, old))
	require.NotContains(t, said, "make another")
}

// Offering itself in return takes a way in that the controller knows of.
func TestPeerBothWays(t *testing.T) {
	t.Parallel()
	milan := installation(t, "milan")
	args := []string{"peer", "--token", token(t, "turin"), "--wait=false", "--both-ways"}
	require.ErrorContains(t, errOf(milan.run(t, args...)), "set authentication.url of the chart")
	require.Empty(t, kubetest.List(t, milan.liqod.CoreV1beta1().ForeignClusters()).Items)
	milan.configure(t, "authentication: {url: \"https://milan.example:8443\"}")
	milan.ran(t, args...)
	fc := kubetest.Get(t, milan.liqod.CoreV1beta1().ForeignClusters(), "turin")
	require.Equal(t, corev1beta1.PeeringYes, fc.Spec.IncomingPeeringEnabled)
}

func TestUnpeerByForce(t *testing.T) {
	t.Parallel()
	rome := installation(t, "rome")
	rome.says([]metav1.Condition{is(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, "silent")})
	rome.ran(t, "peer", "--token", token(t, "milan"), "--wait=false")
	kubetest.Create(t, rome.liqod.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Namespace: "liqo-tenant-milan"}})
	for pod, node := range map[string]string{"there": "milan", "here": "rome-1"} {
		kubetest.Create(t, rome.core.CoreV1().Pods("shop"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Spec: corev1.PodSpec{NodeName: node}})
	}
	rome.ran(t, "unpeer", "milan", "--force")
	pods := kubetest.List(t, rome.core.CoreV1().Pods("shop"))
	require.Len(t, pods.Items, 1)
	require.Equal(t, "here", pods.Items[0].Name)
}
