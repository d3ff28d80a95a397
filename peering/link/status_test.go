package link

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
)

const network = corev1beta1.ConditionNetwork

type (
	toldBySources = map[string]*metav1.Condition
	// wantStatus are the conditions of a peer as "Status Reason", "" for none, by type.
	wantStatus = map[string]string
)

func says(status metav1.ConditionStatus, reason string) *metav1.Condition {
	return &metav1.Condition{Status: status, Reason: reason, Message: "as told"}
}

// was returns the condition that a peer has had for an hour.
func was(kind string, status metav1.ConditionStatus, reason string) []metav1.Condition {
	return []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: "before", LastTransitionTime: metav1.NewTime(time.Unix(1000, 0).Add(-time.Hour))}}
}

// conditionOf returns a condition as "Status Reason", "" for none.
func conditionOf(conditions []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

func incomingIs(enabled corev1beta1.PeeringEnabled) func(*corev1beta1.ForeignCluster) {
	return func(fc *corev1beta1.ForeignCluster) { fc.Spec.IncomingPeeringEnabled = enabled }
}

func discovered(fc *corev1beta1.ForeignCluster) {
	fc.Labels = map[string]string{corev1beta1.DiscoveredLabel: corev1beta1.DiscoveredByDNS}
}

func TestStatusOfFacts(t *testing.T) {
	t.Parallel()
	up := facts{credentials: true, uid: "u", state: health.State{Verdict: health.Up}}
	down := facts{credentials: true, state: health.State{Verdict: health.Down}}
	consumer := facts{user: "u", tenant: true}
	with := func(f facts, change func(*facts)) facts { change(&f); return f }
	forbidden, expired := apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", nil), apierrors.NewUnauthorized("expired")
	unknown := func(err error) facts { return with(up, func(f *facts) { f.unknown = err }) }
	used := func(out *metav1.Condition) toldBySources {
		return toldBySources{outgoing: out, incoming: says("True", "c")}
	}
	for name, tc := range map[string]struct {
		facts  facts
		edit   func(*corev1beta1.ForeignCluster)
		before []metav1.Condition
		told   toldBySources
		want   wantStatus
		role   corev1beta1.RoleType
	}{
		"nothing known":    {want: wantStatus{server: "", ready: "Unknown NoCredentials"}, role: corev1beta1.RoleUnknown},
		"a consumer":       {facts: consumer, want: wantStatus{server: "", ready: "Unknown NothingChecked"}, role: corev1beta1.RoleConsumer},
		"no tenant yet":    {facts: facts{user: "u"}, want: wantStatus{server: "", ready: "Unknown NoCredentials"}, role: corev1beta1.RoleConsumer},
		"nothing but one":  {facts: facts{tenant: true}, want: wantStatus{server: "", ready: "Unknown NoCredentials"}, role: corev1beta1.RoleUnknown},
		"both":             {facts: with(consumer, func(f *facts) { f.virtualNode = true }), want: wantStatus{server: "", ready: "Unknown NoCredentials"}, role: corev1beta1.RoleConsumerAndProvider},
		"probing":          {facts: facts{credentials: true}, want: wantStatus{server: "Unknown Probing", ready: "Unknown Probing"}, role: corev1beta1.RoleProvider},
		"taken over up":    {facts: facts{credentials: true}, before: was(server, "True", "APIServerReady"), want: wantStatus{server: "True APIServerReady", ready: "True AllChecksPassed"}},
		"taken over down":  {facts: facts{credentials: true}, before: was(server, "False", "APIServerNotReady"), want: wantStatus{server: "False APIServerNotReady", ready: "False APIServerNotReady"}},
		"mended secret":    {facts: facts{credentials: true}, before: was(server, "False", "InvalidCredentials"), want: wantStatus{server: "Unknown Probing", ready: "Unknown Probing"}},
		"not read yet":     {facts: facts{unread: true, virtualNode: true}, before: was(server, "False", "InvalidCredentials"), want: wantStatus{server: "False InvalidCredentials", ready: "False InvalidCredentials"}, role: corev1beta1.RoleProvider},
		"not read, new":    {facts: facts{unread: true}, want: wantStatus{server: "", ready: "Unknown NoCredentials"}, role: corev1beta1.RoleUnknown},
		"read meanwhile":   {facts: facts{unread: true, credentials: true}, want: wantStatus{server: "Unknown Probing", ready: "Unknown Probing"}, role: corev1beta1.RoleProvider},
		"up":               {facts: up, want: wantStatus{server: "True APIServerReady", ready: "True AllChecksPassed"}, role: corev1beta1.RoleProvider},
		"up, network down": {facts: up, before: was(network, "False", "x"), want: wantStatus{server: "True APIServerReady", ready: "False x"}},
		"credentials gone": {facts: facts{virtualNode: true}, before: was(server, "True", "APIServerReady"), want: wantStatus{server: "", ready: "Unknown NoCredentials"}, role: corev1beta1.RoleProvider},

		"all true":           {facts: up, told: toldBySources{authenticated: says("True", "a"), outgoing: says("True", "b"), incoming: says("True", "c")}, want: wantStatus{ready: "True AllChecksPassed"}},
		"one does not apply": {facts: up, before: was(outgoing, "True", "Before"), told: toldBySources{authenticated: says("True", "a"), outgoing: nil}, want: wantStatus{ready: "True AllChecksPassed"}},
		"refused":            {facts: up, told: toldBySources{authenticated: says("True", "a"), outgoing: says("False", "Refused")}, want: wantStatus{ready: "False Refused"}},
		"waiting":            {facts: up, told: used(says("Unknown", "Pending")), want: wantStatus{ready: "Unknown Pending"}},
		"a failure before what waits": {facts: up, told: toldBySources{authenticated: says("Unknown", "Renewing"), incoming: says("False", "Full")},
			want: wantStatus{ready: "False Full"}},
		"the identity before the rest":    {facts: down, told: toldBySources{authenticated: says("False", "Expired"), outgoing: says("False", "Away")}, want: wantStatus{ready: "False Expired"}},
		"the API server before offers":    {facts: down, told: toldBySources{authenticated: says("True", "a"), outgoing: says("False", "Away")}, want: wantStatus{ready: "False APIServerNotReady"}},
		"a token refused, no credentials": {told: toldBySources{authenticated: says("False", "TokenRefused")}, want: wantStatus{ready: "False TokenRefused"}},
		"an identity not in use yet":      {told: toldBySources{authenticated: says("True", "a")}, want: wantStatus{ready: "Unknown NoCredentials"}},
		"the same, of a consumer": {facts: consumer, told: toldBySources{authenticated: says("True", "a"), outgoing: says("False", "NotAsked"), incoming: says("True", "c")},
			want: wantStatus{ready: "Unknown NoCredentials"}},
		"a consumer that is served":       {facts: consumer, told: toldBySources{incoming: says("True", "c")}, want: wantStatus{ready: "True AllChecksPassed"}},
		"a consumer, nothing applies":     {facts: consumer, before: was(outgoing, "True", "Before"), told: toldBySources{outgoing: nil}, want: wantStatus{ready: "Unknown NothingChecked"}},
		"a consumer that is given none":   {facts: consumer, told: toldBySources{incoming: says("False", "Full")}, want: wantStatus{ready: "False Full"}},
		"a consumer that is not heard of": {facts: consumer, told: toldBySources{incoming: says("True", "c"), server: says("Unknown", "NoGateway")}, want: wantStatus{ready: "Unknown NoGateway"}},
		"another ForeignCluster of it": {facts: with(up, func(f *facts) { f.namesakes = []string{"turin"} }), told: toldBySources{authenticated: says("True", "a")},
			want: wantStatus{ready: "False SameCluster"}},
		"its rights are taken back": {facts: facts{credentials: true, state: up.state, unknown: forbidden}, told: toldBySources{authenticated: says("True", "a")},
			want: wantStatus{ready: "Unknown IdentityUnknown"}},
		"this cluster answers": {facts: with(up, func(f *facts) { f.ownUID = "u" }), told: toldBySources{authenticated: says("True", "a")}, want: wantStatus{ready: "False SelfPeering"}},
		"a problem before all else": {facts: with(up, func(f *facts) { f.problem = problem{"InvalidUser", "two"} }), told: toldBySources{authenticated: says("False", "x")},
			want: wantStatus{ready: "False InvalidUser"}},

		// A peer that people do not let in, and that goes on asking, is Ready if all else is. Offers that it has
		// not returned yet count, and so does a refusal by a policy.
		"closed, a provider too": {facts: up, edit: incomingIs(corev1beta1.PeeringNo), told: toldBySources{outgoing: says("True", "b"), incoming: says("False", "NotAllowed")},
			want: wantStatus{ready: "True AllChecksPassed"}},
		"closed, and the other fails": {facts: up, edit: incomingIs(corev1beta1.PeeringNo), told: toldBySources{outgoing: says("False", "Away"), incoming: says("False", "NotAllowed")},
			want: wantStatus{ready: "False Away"}},
		"rights taken back": {facts: up, told: toldBySources{network: says("False", "TunnelSilent"), outgoing: says("Unknown", "RightsRevoked"), incoming: says("True", "b")},
			want: wantStatus{ready: "False RightsRevoked"}},
		"rights taken back, and the other direction fails": {facts: up, told: toldBySources{outgoing: says("Unknown", "RightsRevoked"), incoming: says("False", "Withdrawn")},
			want: wantStatus{ready: "False Withdrawn"}},
		"closed, a consumer that is seen": {facts: consumer, edit: incomingIs(corev1beta1.PeeringNo), told: toldBySources{server: says("True", "HeartbeatSeen"), incoming: says("False", "NotAllowed")},
			want: wantStatus{ready: "True AllChecksPassed"}},
		"closed, nothing else": {facts: consumer, edit: incomingIs(corev1beta1.PeeringNo), told: toldBySources{incoming: says("False", "NotAllowed")}, want: wantStatus{ready: "Unknown NothingChecked"}},
		"closed, offers left": {facts: up, edit: incomingIs(corev1beta1.PeeringNo), told: toldBySources{outgoing: says("True", "b"), incoming: says("False", "Withdrawn")},
			want: wantStatus{ready: "False Withdrawn"}},
		"by a policy": {facts: up, told: toldBySources{outgoing: says("True", "b"), incoming: says("False", "NotAllowed")}, want: wantStatus{ready: "False NotAllowed"}},

		// What the source reports of a peer's API server counts while this cluster has no credentials to probe it with.
		"reported down": {facts: consumer, before: was(server, "Unknown", "PeerReportsUp"), told: toldBySources{incoming: says("True", "c"), server: says("False", "PeerReportsDown")},
			want: wantStatus{server: "False PeerReportsDown", ready: "False PeerReportsDown"}},
		"reported up":                 {facts: consumer, before: was(server, "Unknown", "PeerReportsDown"), told: toldBySources{server: says("True", "PeerReportsUp")}, want: wantStatus{server: "True PeerReportsUp"}},
		"no report":                   {facts: consumer, before: was(server, "Unknown", "PeerReportsUp"), told: toldBySources{server: nil}, want: wantStatus{server: ""}},
		"credentials, up":             {facts: up, told: toldBySources{server: says("False", "PeerReportsDown")}, want: wantStatus{server: "True APIServerReady"}},
		"credentials, down":           {facts: down, told: toldBySources{server: says("True", "PeerReportsUp")}, want: wantStatus{server: "False APIServerNotReady"}},
		"credentials, not probed":     {facts: facts{credentials: true}, told: toldBySources{server: says("True", "PeerReportsUp")}, want: wantStatus{server: "Unknown Probing"}},
		"credentials of no use":       {facts: facts{credentials: true, endpoint: Endpoint{Problem: "no kubeconfig"}}, told: toldBySources{server: says("True", "PeerReportsUp")}, want: wantStatus{server: "False InvalidCredentials"}},
		"credentials not read so far": {facts: facts{unread: true}, before: was(server, "Unknown", "APIServerReady"), told: toldBySources{server: says("True", "PeerReportsUp")}, want: wantStatus{server: "Unknown APIServerReady"}},

		// Nothing is said of the API server of a consumer that uses this cluster no more, nor of the network to it: it
		// renews no heartbeat, and its gateway is gone.
		"a consumer that is not used now": {facts: consumer, before: was(server, "True", corev1beta1.ReasonHeartbeatSeen),
			told: toldBySources{incoming: says("False", "Accepted"), server: says("False", "HeartbeatMissed"), network: says("False", "TunnelDown")},
			want: wantStatus{server: "False HeartbeatMissed", network: "False TunnelDown"}},
		"a consumer that has left": {facts: consumer, before: was(server, "True", corev1beta1.ReasonHeartbeatSeen),
			told: toldBySources{incoming: says("False", corev1beta1.ReasonEndedByPeer), server: says("False", "HeartbeatMissed"), network: says("False", "TunnelDown")},
			want: wantStatus{server: "", network: "", ready: "False EndedByPeer"}},

		// OutgoingPeering is not True for a peer that has revoked this cluster's rights, whatever it offers. The other
		// direction is another's to tell.
		"all is well":          {facts: up, told: used(says("True", "Accepted")), want: wantStatus{outgoing: "True Accepted"}},
		"no rights":            {facts: unknown(forbidden), told: used(says("True", "Accepted")), want: wantStatus{outgoing: "Unknown RightsRevoked"}},
		"not who it was":       {facts: unknown(fmt.Errorf("asking: %w", expired)), told: used(says("True", "Accepted")), want: wantStatus{outgoing: "Unknown RightsRevoked"}},
		"no answer":            {facts: unknown(errors.New("timeout")), told: used(says("True", "Accepted")), want: wantStatus{outgoing: "True Accepted"}},
		"was not used before":  {facts: unknown(expired), told: used(says("False", "NotAsked")), want: wantStatus{outgoing: "False NotAsked"}},
		"it is not to be used": {facts: unknown(expired), told: used(nil), want: wantStatus{outgoing: ""}},

		"found":   {edit: discovered, want: wantStatus{ready: "Unknown NotPeered"}},
		"awaited": {edit: incomingIs(corev1beta1.PeeringYes), want: wantStatus{ready: "Unknown AwaitsEnrolment"}},
		"awaited, and wanted": {edit: func(fc *corev1beta1.ForeignCluster) {
			fc.Spec.IncomingPeeringEnabled, fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringYes, corev1beta1.PeeringYes
		}, want: wantStatus{ready: "Unknown NoCredentials"}},
		"awaited, and here":     {facts: consumer, edit: incomingIs(corev1beta1.PeeringYes), want: wantStatus{ready: "Unknown NothingChecked"}},
		"found, and a consumer": {facts: consumer, edit: discovered, want: wantStatus{ready: "Unknown NothingChecked"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, fc := tc.facts, milan("")
			f.clusterID, f.ownID, f.now, f.told = "milan", "rome", time.Unix(1000, 0), tc.told
			if tc.edit != nil {
				tc.edit(fc)
			}
			fc.Status.Conditions = tc.before
			got := f.status(fc)
			for kind, want := range tc.want {
				require.Equal(t, want, conditionOf(got.Conditions, kind), kind)
			}
			for kind, told := range tc.told {
				if _, special := tc.want[kind]; special || kind == server {
					continue
				}
				want := ""
				if told != nil {
					want = string(told.Status) + " " + told.Reason
				}
				require.Equal(t, want, conditionOf(got.Conditions, kind), "it is as told")
			}
			if tc.role != "" {
				require.Equal(t, tc.role, got.Role)
			}
			require.Equal(t, f.uid != f.ownUID, got.ClusterUID != "", "the own UID is not recorded")
			fc.Status = got
			f.now = f.now.Add(time.Hour)
			require.Equal(t, got, f.status(fc), "the same facts give the same status, times included")
		})
	}
}

const (
	authenticated = corev1beta1.ConditionAuthenticated
	outgoing      = corev1beta1.ConditionOutgoingPeering
	incoming      = corev1beta1.ConditionIncomingPeering
)

// TestRival: a claim of the peer's id by another cluster is shown, and does not affect the
// peer.
func TestRival(t *testing.T) {
	t.Parallel()
	f := facts{credentials: true, uid: "u", state: health.State{Verdict: health.Up}, clusterID: "milan", ownID: "rome", now: time.Unix(1000, 0)}
	fc := milan("")
	fc.Annotations = map[string]string{corev1beta1.RivalUIDAnnotation: "uid-of-another"}
	fc.Status = f.status(fc)
	c := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionUniqueID)
	require.NotNil(t, c)
	require.Equal(t, "False ClaimedByAnother", string(c.Status)+" "+c.Reason)
	require.Contains(t, c.Message, "UID uid-of-another")
	require.True(t, meta.IsStatusConditionTrue(fc.Status.Conditions, ready))
	require.Equal(t, fc.Status, f.status(fc), "nothing is written again")
	delete(fc.Annotations, corev1beta1.RivalUIDAnnotation)
	require.Nil(t, meta.FindStatusCondition(f.status(fc).Conditions, corev1beta1.ConditionUniqueID))
}

// TestUseWithoutRightsStands: the revocation is shown until the peer's identity can be read
// again.
func TestUseWithoutRightsStands(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", nil)
	f := facts{clusterID: "milan", ownID: "rome", now: time.Unix(1000, 0), credentials: true, state: health.State{Verdict: health.Up}, unknown: forbidden,
		told: map[string]*metav1.Condition{outgoing: says("True", "Accepted")}}
	fc := milan("")
	reason := func() string {
		fc.Status = f.status(fc)
		return meta.FindStatusCondition(fc.Status.Conditions, outgoing).Reason
	}
	require.Equal(t, "RightsRevoked", reason())
	f.unknown = errors.New("timeout")
	require.Equal(t, "RightsRevoked", reason(), "no answer")
	f.unknown, f.state.Verdict = nil, health.Down
	require.Equal(t, "RightsRevoked", reason(), "it is away")
	f.uid, f.state.Verdict = "u", health.Up
	require.Equal(t, "Accepted", reason(), "it lets this cluster read again")
}

func TestVersionOfThePeer(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{"": "", "1.2.3": "1.2.3", "1\n2\x00é3": "123", strings.Repeat("9", 100): strings.Repeat("9", longestVersion)} {
		fc := milan("")
		fc.Annotations = map[string]string{corev1beta1.PeerVersionAnnotation: said}
		require.Equal(t, want, facts{clusterID: "milan", ownID: "rome"}.status(fc).Version)
	}
}

// source is a Source with the same condition for every peer.
type source struct {
	mu   sync.Mutex
	says *metav1.Condition
	told func(string)
}

func (s *source) Condition(*corev1beta1.ForeignCluster) *metav1.Condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.says
}

func (s *source) Subscribe(f func(string)) { s.told = f }

func (s *source) set(c *metav1.Condition) {
	s.mu.Lock()
	s.says = c
	s.mu.Unlock()
	s.told("milan")
}

func TestSource(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenant("milan"), milan("liqo.io:peer:milan:1"))
		s := &source{}
		w.conditions.AddSource(incoming, s)
		w.run()
		w.awaits(ready, "Unknown NothingChecked")
		s.set(says("Unknown", "Waiting"))
		w.awaits(incoming, "Unknown Waiting")
		w.awaits(ready, "Unknown Waiting")
		s.set(says("True", "Offered"))
		w.awaits(ready, "True AllChecksPassed")
		s.set(nil)
		w.awaits(ready, "Unknown NothingChecked")
		w.eventually("it does not apply", func() bool {
			return w.condition(incoming) == nil
		})
		require.Nil(t, Standing(w.cluster("milan"), incoming))
		require.Equal(t, "NothingChecked", Standing(w.cluster("milan"), ready).Reason)
	})
}

// TestSelf: a cluster cannot be a peer of itself, under its own id or another one.
func TestSelf(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid-of-rome"}}
		self := milan("liqo.io:peer:rome:1")
		self.Name, self.Spec.ClusterID = "rome", "rome"
		w := newWorld(t, own, tenant("rome"), tenant("milan"), self, milan(""), secret("milan", "milan", "config"))
		p := newPeer("uid-of-rome")
		w.addPeer("config", p)
		w.run()
		w.awaits(ready, "False SelfPeering")
		w.eventually("by its id", func() bool { return w.is("rome", ready, "False SelfPeering") })
		require.Empty(t, w.cluster("milan").Status.ClusterUID)
		require.ErrorIs(t, w.conditions.Identity(t.Context(), "milan", p.core), ErrSelf)
		require.ErrorIs(t, w.conditions.Identity(t.Context(), "rome", p.core), ErrSelf)
		w.settled()
		all := kubetest.List(t, w.core.RbacV1().ClusterRoleBindings())
		require.Empty(t, all.Items, "a cluster has no rights in itself")
	})
}

// TestSameClusterTwice: if one cluster is recorded under two ids, both ForeignClusters show
// it.
func TestSameClusterTwice(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		turin := milan("")
		turin.Name, turin.Spec.ClusterID = "turin", "turin"
		w := newWorld(t, tenant("milan"), tenant("turin"), milan(""), turin, secret("milan", "milan", "one"), secret("turin", "turin", "two"))
		w.addPeer("one", newPeer("uid-1"))
		w.addPeer("two", newPeer("uid-1"))
		w.run()
		for _, name := range []string{"milan", "turin"} {
			w.eventually(name, func() bool { return w.is(name, ready, "False SameCluster") })
		}
	})
}

// TestLongMessages: a long message of a peer is clipped to the API's limit, so that the
// status can be written.
func TestLongMessages(t *testing.T) {
	t.Parallel()
	f := facts{clusterID: "milan", ownID: "rome", now: time.Unix(1000, 0), told: map[string]*metav1.Condition{
		corev1beta1.ConditionIncomingPeering: {Status: metav1.ConditionFalse, Reason: "OfferNotUsed", Message: strings.Repeat("é", 1<<20)},
	}}
	for _, c := range f.status(milan("")).Conditions {
		require.LessOrEqual(t, len(c.Message), 32768, c.Type)
	}
}
