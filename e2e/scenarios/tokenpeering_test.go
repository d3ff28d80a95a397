package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/trust"
)

// TestTokenPeering makes and ends peerings with a token, as people do who have access to
// one of the clusters only.
func TestTokenPeering(t *testing.T) {
	w := newClusters(t, func(o *lab.ClusterOptions) { o.Audit = true }, map[string]any{
		"peering":        map[string]any{"renewAt": 0.02}, // of 10 minutes: each 12 s
		"authentication": map[string]any{"lifetime": "10m", "requestsPerAddress": 100000, "requestsPerMinute": 100000},
		"controller":     map[string]any{"drainTimeout": drainTimeout.String(), "drainForceAfter": drainForceAfter.String()},
	})
	kubetest.Create(t, w.rome.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	before := w.rest(t)
	t.Run("Unpeer", func(t *testing.T) { testTokenUnpeer(t, w, before) })
	t.Run("Tenant", func(t *testing.T) { testTokenTenant(t, w, before) })
	t.Run("GitOps", func(t *testing.T) { testTokenGitOps(t, w, before) })
	t.Run("Renewal", func(t *testing.T) { testTokenRenewal(t, w, before) })
	t.Run("Revoked", func(t *testing.T) { testTokenRevoked(t, w, before) })
	t.Run("Dead", func(t *testing.T) { testTokenDeadPeer(t, w, before) })
	t.Run("Enrolment", func(t *testing.T) { testEnrolment(t, w) })
}

// rest returns what is in both clusters when they have come to rest.
func (w *world) rest(t *testing.T) map[*site.Site][]string {
	t.Helper()
	return atRest(t, w.rome, w.milan)
}

// atRest returns what is in clusters when they have come to rest.
func atRest(t *testing.T, sites ...*site.Site) map[*site.Site][]string {
	t.Helper()
	out := map[*site.Site][]string{}
	for _, s := range sites {
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		have := must(s.AtRest(ctx))(t)
		out[s] = have
	}
	return out
}

// nothingLeft waits until a cluster is as it was.
func nothingLeft(t *testing.T, s *site.Site, before []string, patience time.Duration) {
	t.Helper()
	within(t, patience, "nothing is left in "+s.Name, func(ctx context.Context) error {
		have, err := s.Inventory(ctx)
		if err != nil {
			return err
		}
		return site.Changes(before, have)
	})
}

// token prints a token of milan.
func (w *world) token(t *testing.T, args ...string) string {
	t.Helper()
	return tokenOf(t, w.sites, w.milan, args...)
}

// tokenOf prints a token of a cluster, as soon as its controller has made what tokens name.
func tokenOf(t *testing.T, sites *site.Sites, s *site.Site, args ...string) (token string) {
	t.Helper()
	within(t, longest, s.Name+" gives a token", func(ctx context.Context) error {
		var told strings.Builder
		cmd := sites.Command(ctx, append([]string{"token", "create", "--kubeconfig", s.Kubeconfig}, args...)...)
		cmd.Stderr = &told
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%w: %s", err, told.String())
		}
		for line := range strings.Lines(string(out)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "liqod1.") {
				token = line
				return nil
			}
		}
		return fmt.Errorf("no token in %q", out)
	})
	return token
}

// join peers with a token, and runs the vkubelet as its Deployment would.
func (w *world) join(t *testing.T, args ...string) {
	t.Helper()
	vkubelet := make(chan error, 1)
	go func() { vkubelet <- w.rome.StartVKubelet(t.Context(), tenantOfMilan, "milan") }()
	out := w.done(t, w.rome, append([]string{"peer", "--timeout=1m"}, args...)...)
	require.NoError(t, <-vkubelet)
	require.Contains(t, out, "virtual node milan")
}

// leave ends the peering in both clusters, each by its own people.
func (w *world) leave(t *testing.T, before map[*site.Site][]string) {
	t.Helper()
	begin := time.Now()
	out := w.done(t, w.rome, "unpeer", "milan", "--timeout=1m")
	t.Logf("from the command to the end in rome: %s\n%s", time.Since(begin).Round(time.Millisecond), out)
	if p := w.rome.VKubelet("milan"); p != nil {
		(*p).Kill()
	}
	nothingLeft(t, w.rome, before[w.rome], quickly)
	within(t, quickly, "milan says who has ended it", peerSays(w.milan, "rome", corev1beta1.ConditionReady, metav1.ConditionFalse, corev1beta1.ReasonEndedByPeer))
	w.dismiss(t, before)
}

// dismiss ends the other half of the peering, in milan.
func (w *world) dismiss(t *testing.T, before map[*site.Site][]string) {
	t.Helper()
	w.done(t, w.milan, "unpeer", "rome", "--timeout=1m")
	nothingLeft(t, w.milan, before[w.milan], quickly)
}

// runs lets a pod run in milan.
func (w *world) runs(t *testing.T, name string) {
	t.Helper()
	w.done(t, w.rome, "offload", "namespace", "shop", "--pod-offloading-strategy=Remote")
	w.bare(t, "shop", name, nil)
	within(t, soon, "the pod runs in milan", w.placed("shop", name, "milan"))
}

func (w *world) unoffloaded(t *testing.T) {
	t.Helper()
	w.done(t, w.rome, "unoffload", "namespace", "shop", "--timeout=1m")
	pods := kubetest.List(t, w.rome.Client().CoreV1().Pods("shop"))
	for i := range pods.Items {
		_ = w.rome.Client().CoreV1().Pods("shop").Delete(t.Context(), pods.Items[i].Name, metav1.DeleteOptions{})
	}
}

func testTokenUnpeer(t *testing.T, w *world, before map[*site.Site][]string) {
	begin := time.Now()
	token := w.token(t)
	w.join(t, "--token", token, "--pod-cidr", w.rome.Options.PodCIDR, "--pod-cidr", w.milan.Options.PodCIDR)
	took := time.Since(begin)
	t.Logf("from token create to a virtual node that is Ready: %s", took.Round(time.Millisecond))
	requireFaster(t, took, 10*time.Second, "a peering by token")
	w.runs(t, "away")

	// Milan needs no way to rome, and has none.
	secrets := kubetest.List(t, w.milan.Client().CoreV1().Secrets("liqo-tenant-rome"), metav1.ListOptions{LabelSelector: corev1beta1.IdentityTypeLabel})
	require.Empty(t, secrets.Items)
	fc := kubetest.Get(t, w.milan.Liqod().CoreV1beta1().ForeignClusters(), "rome")
	require.Equal(t, []string{w.rome.Options.PodCIDR}, fc.Spec.AddressRanges, "not milan's own")
	require.Equal(t, corev1beta1.RoleConsumer, fc.Status.Role)

	again := w.rest(t)
	w.done(t, w.rome, "peer", "--token", token)
	require.NoError(t, site.Changes(again[w.rome], w.rest(t)[w.rome]), "asked for again nothing is made anew")
	w.unoffloaded(t)
	w.leave(t, before)

	// The token is spent: the sentence says what to do.
	out, code, err := w.command(t.Context(), w.rome, "peer", "--token", token, "--timeout=30s")
	require.NoError(t, err)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "get a new one (liqod token create)")
	w.done(t, w.rome, "unpeer", "milan")
	nothingLeft(t, w.rome, before[w.rome], quickly)
}

// testTokenTenant deletes the tenant namespace by hand, in each of the clusters. It is made again,
// the peering heals without a new token, and the same pod runs on in milan.
func testTokenTenant(t *testing.T, w *world, before map[*site.Site][]string) {
	ctx := t.Context()
	w.join(t, "--token", w.token(t))
	w.runs(t, "away")
	uids := func(ctx context.Context) (local, remote types.UID, err error) {
		home, err := w.rome.Client().CoreV1().Pods("shop").Get(ctx, "away", metav1.GetOptions{})
		if err != nil {
			return "", "", err
		}
		there, err := w.milan.Client().CoreV1().Pods("shop-rome").Get(ctx, "away", metav1.GetOptions{})
		if err != nil {
			return "", "", err
		}
		if home.DeletionTimestamp != nil || home.Status.Phase != corev1.PodRunning || there.DeletionTimestamp != nil {
			return "", "", fmt.Errorf("at home: deleted at %s, %s; there: deleted at %s", home.DeletionTimestamp, home.Status.Phase, there.DeletionTimestamp)
		}
		return home.UID, there.UID, nil
	}
	local, remote, err := uids(ctx)
	require.NoError(t, err)
	for _, tc := range []struct {
		s    *site.Site
		peer string
	}{{w.milan, "rome"}, {w.rome, "milan"}} {
		namespaces, name, begin := tc.s.Client().CoreV1().Namespaces(), corev1beta1.TenantNamespace(tc.peer), time.Now()
		was := kubetest.Get(t, namespaces, name)
		require.NoError(t, namespaces.Delete(ctx, name, metav1.DeleteOptions{}))
		within(t, bounded, "the namespace is made again in "+tc.s.Name, lab.Is(namespaces, name, func(is *corev1.Namespace) bool {
			return is.UID != was.UID
		}))
		t.Logf("%s: the namespace is there again after %s", tc.s.Name, time.Since(begin).Round(time.Millisecond))
		if tc.s == w.rome {
			(*w.rome.VKubelet("milan")).Kill() // as Kubernetes did with its Deployment
			require.NoError(t, w.rome.StartVKubelet(ctx, tenantOfMilan, "milan"))
		}
		within(t, longest, "rome uses milan", peerSays(w.rome, "milan", corev1beta1.ConditionReady, metav1.ConditionTrue, ""))
		within(t, longest, "milan is used", peerSays(w.milan, "rome", corev1beta1.ConditionReady, metav1.ConditionTrue, ""))
		t.Logf("%s: all is well after %s", tc.s.Name, time.Since(begin).Round(time.Millisecond))
		w.bare(t, "shop", "later-"+tc.peer, nil)
		within(t, longest, "another pod runs in milan", w.placed("shop", "later-"+tc.peer, "milan"))
		within(t, soon, "the same pod runs on", func(ctx context.Context) error {
			home, there, err := uids(ctx)
			return lab.Wrong(err, home != local || there != remote, "UIDs %s, %s: those before are %s, %s", home, there, local, remote)
		})
	}
	w.unoffloaded(t)
	w.leave(t, before)
}

const gitOpsManifests = `
apiVersion: core.liqo.io/v1beta1
kind: ForeignCluster
metadata: {name: milan}
spec:
  clusterID: milan
  tokenSecretRef: {name: milan}
  outgoingPeeringEnabled: "Yes"
---
apiVersion: v1
kind: Secret
metadata: {name: milan, namespace: liqod}
stringData: {token: %s}
`

// testTokenGitOps applies resources only, the one that names the other first; and deletes
// them, in either order.
func testTokenGitOps(t *testing.T, w *world, before map[*site.Site][]string) {
	t.Run("ConsumerFirst", func(t *testing.T) {
		token := w.applied(t)
		w.deleted(t, w.rome, "milan", before, false)
		w.revoke(t, token)
		w.deleted(t, w.milan, "rome", before, false)
	})
	t.Run("ProviderFirst", func(t *testing.T) {
		w.revoke(t, w.applied(t))
		w.deleted(t, w.milan, "rome", before, false)
		w.deleted(t, w.rome, "milan", before, false)
	})
	t.Run("Killed", func(t *testing.T) {
		w.revoke(t, w.applied(t))
		w.deleted(t, w.rome, "milan", before, true)
		w.deleted(t, w.milan, "rome", before, true)
	})
}

// revoke removes a token of milan, which its people have made.
func (w *world) revoke(t *testing.T, token string) {
	t.Helper()
	parsed := must(trust.ParseToken(token))(t)
	require.NoError(t, w.milan.Client().CoreV1().Secrets("liqod").Delete(t.Context(), trust.SecretName(parsed.ID), metav1.DeleteOptions{}))
}

// deleted deletes what a site knows of a peer, and wants nothing of it to be left, also if
// the controller is killed meanwhile.
func (w *world) deleted(t *testing.T, s *site.Site, peer string, before map[*site.Site][]string, killed bool) {
	t.Helper()
	kill := func() {
		if killed {
			s.Controller.Kill()
			require.NoError(t, w.sites.Restart(&s.Controller))
		}
	}
	begin := time.Now()
	records := s.Liqod().CoreV1beta1().ForeignClusters()
	require.NoError(t, records.Delete(t.Context(), peer, metav1.DeleteOptions{}))
	kill()
	if s == w.rome {
		within(t, bounded, "the virtual node is gone", w.virtualNodeGone("milan"))
		kill()
		if p := w.rome.VKubelet("milan"); p != nil {
			(*p).Kill()
		}
		w.unoffloaded(t)
	}
	within(t, bounded, "the ForeignCluster is gone from "+s.Name, isGone(records, peer))
	t.Logf("from the deletion to the end in %s: %s", s.Name, time.Since(begin).Round(time.Millisecond))
	nothingLeft(t, s, before[s], quickly)
}

// applied makes a peering by resources alone, with a pod that runs in milan, and returns
// the token.
func (w *world) applied(t *testing.T) string {
	t.Helper()
	begin, token := time.Now(), w.token(t)
	require.NoError(t, w.rome.Apply(t.Context(), []byte(fmt.Sprintf(gitOpsManifests, token))))
	require.NoError(t, w.rome.StartVKubelet(t.Context(), tenantOfMilan, "milan"))
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	require.NoError(t, w.rome.WaitVirtualNode(ctx, "milan", corev1.ConditionTrue))
	t.Logf("from the resources to a virtual node that is Ready: %s", time.Since(begin).Round(time.Millisecond))
	require.NoError(t, w.rome.Client().CoreV1().Secrets("liqod").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	w.runs(t, "away")
	return token
}

// describe lets rome reach milan by wires.
func (w *world) describe(t *testing.T) (api, auth *wire) {
	t.Helper()
	api, auth = newWire(t, strings.TrimPrefix(w.milan.APIServer, "https://")), newWire(t, strings.TrimPrefix(w.milan.AuthURL, "https://"))
	kubetest.Create(t, w.rome.Liqod().CoreV1beta1().ForeignClusters(), &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan"},
		Spec:       corev1beta1.ForeignClusterSpec{ClusterID: "milan", AuthURL: auth.url(), APIServer: corev1beta1.APIServerOverride{URL: api.url()}},
	})
	return api, auth
}

// renewals returns, by a watch, when an identity was renewed since the last call.
func (w *world) renewals(t *testing.T) func() []time.Time {
	t.Helper()
	stream := must(w.rome.Client().CoreV1().Secrets(corev1beta1.TenantNamespace(w.milan.Name)).Watch(t.Context(), metav1.ListOptions{
		LabelSelector: corev1beta1.EnrolledLabel, TimeoutSeconds: ptr.To[int64](600),
	}))(t)
	t.Cleanup(stream.Stop)
	var mu sync.Mutex
	var times []time.Time
	go func() {
		last := ""
		for event := range stream.ResultChan() {
			secret, ok := event.Object.(*corev1.Secret)
			if !ok {
				continue
			}
			kubeconfig := string(secret.Data[corev1beta1.KubeconfigSecretKey])
			if last != "" && kubeconfig != last {
				mu.Lock()
				times = append(times, time.Now())
				mu.Unlock()
			}
			last = kubeconfig
		}
	}()
	return func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		out := times
		times = nil
		return out
	}
}

// comesAndGoes lets a pod run in milan and end, and returns how long that took.
func (w *world) comesAndGoes(t *testing.T, name string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	begin := time.Now()
	w.bare(t, "shop", name, nil)
	require.NoError(t, lab.Eventually(ctx, w.placed("shop", name, "milan")))
	require.NoError(t, w.rome.Client().CoreV1().Pods("shop").Delete(ctx, name, metav1.DeleteOptions{}))
	require.NoError(t, lab.Eventually(ctx, w.podGone("shop", name)))
	return time.Since(begin)
}

// testTokenRenewal renews certificates of 10 minutes each 12 seconds, while pods come and
// go, and lets the endpoint be away for longer than that.
func testTokenRenewal(t *testing.T, w *world, before map[*site.Site][]string) {
	_, auth := w.describe(t)
	w.mendsToken(t, "--pod-cidr", w.rome.Options.PodCIDR)
	w.runs(t, "first")
	renewals, transitions := w.renewals(t), w.transitions(t, "milan")
	begin, slowest, pods := time.Now(), time.Duration(0), 0
	var renewed []time.Time
	for len(renewed) < 3 {
		require.Less(t, time.Since(begin), 2*longest, "%d renewals", len(renewed))
		slowest = max(slowest, w.comesAndGoes(t, fmt.Sprintf("pod-%d", pods)))
		pods++
		renewed = append(renewed, renewals()...)
	}
	slowest = max(slowest, w.comesAndGoes(t, "last"))
	t.Logf("renewals after %v; each of %d pods ran and went within %s", renewed, pods, slowest.Round(time.Millisecond))
	requireFaster(t, slowest, 5*time.Second, "a pod during renewals")
	// What reads by watches goes on: nothing is listed or watched anew because of a renewal.
	again := must(w.milan.Audited(func(r lab.AuditRecord) bool {
		return (r.Verb == "list" || r.Verb == "watch") && strings.HasPrefix(r.User.Username, corev1beta1.PeerUserPrefix+"rome:") &&
			slices.ContainsFunc(renewed, func(at time.Time) bool {
				since := r.RequestReceivedTimestamp.Sub(at)
				return since > -100*time.Millisecond && since < time.Second
			})
	}))(t)
	require.Empty(t, again)

	auth.set(true)
	within(t, 90*time.Second, "the endpoint is away", peerSays(w.rome, "milan", corev1beta1.ConditionAuthenticated, metav1.ConditionTrue, corev1beta1.ReasonRenewalFails))
	w.bare(t, "shop", "meanwhile", nil)
	within(t, quickly, "the identity is good still", w.placed("shop", "meanwhile", "milan"))
	_ = renewals()
	auth.set(false)
	within(t, 90*time.Second, "it is back", peerSays(w.rome, "milan", corev1beta1.ConditionAuthenticated, metav1.ConditionTrue, corev1beta1.ReasonEnrolled))
	require.NotEmpty(t, renewals())
	require.Equal(t, []corev1.ConditionStatus{corev1.ConditionTrue}, transitions(), "the Node was Ready all the time")
	w.unoffloaded(t)
	w.leave(t, before)
}

// testTokenRevoked: milan takes the rights of rome back. Rome treats milan as lost, names milan's
// act as the cause, and goes on with a new identity.
func testTokenRevoked(t *testing.T, w *world, before map[*site.Site][]string) {
	w.join(t, "--token", w.token(t))
	w.runs(t, "kept")
	within(t, soon, "the node is Ready", w.node("milan", corev1.ConditionTrue))
	enrolments{w}.revoke(t, "rome")
	within(t, 30*time.Second, "the node is not Ready", w.node("milan", corev1.ConditionFalse, corev1beta1.ReasonRightsRevoked))
	within(t, 30*time.Second, "the peering says who did it", peerSays(w.rome, "milan", corev1beta1.ConditionOutgoingPeering, metav1.ConditionUnknown, corev1beta1.ReasonRightsRevoked))
	w.done(t, w.rome, "peer", "--token", w.token(t), "--timeout=1m")
	within(t, time.Minute, "the node is Ready again", w.node("milan", corev1.ConditionTrue))
	within(t, soon, "its pod has run on", w.placed("shop", "kept", "milan"))
	w.unoffloaded(t)
	w.leave(t, before)
}

// testTokenDeadPeer unpeers from a cluster that packets no longer reach: by force where it
// runs something.
func testTokenDeadPeer(t *testing.T, w *world, before map[*site.Site][]string) {
	for name, runs := range map[string]bool{"idle": false, "running": true} {
		t.Run(name, func(t *testing.T) {
			api, auth := w.describe(t)
			args := []string{"unpeer", "milan", "--timeout=1m"}
			if !runs {
				w.join(t, "--token", w.token(t))
			} else {
				w.mendsNoProvider(t)
				w.runs(t, "lost")
				args = append(args, "--force")
			}
			api.set(true)
			auth.set(true)
			begin := time.Now()
			out := w.done(t, w.rome, args...)
			took := time.Since(begin)
			t.Logf("from the command to the end in rome: %s\n%s", took.Round(time.Millisecond), out)
			requireFaster(t, took, 30*time.Second, "the end of a peering")
			(*w.rome.VKubelet("milan")).Kill()
			if runs {
				w.unoffloaded(t)
			}
			nothingLeft(t, w.rome, before[w.rome], quickly)
			w.dismiss(t, before)
		})
	}
}
