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

const (
	authenticated = corev1beta1.ConditionAuthenticated
	outgoing      = corev1beta1.ConditionOutgoingPeering
	incoming      = corev1beta1.ConditionIncomingPeering
)

func says(status metav1.ConditionStatus, reason string) *metav1.Condition {
	return &metav1.Condition{Status: status, Reason: reason, Message: "as told"}
}

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

// TestUseWithoutRights: OutgoingPeering is not True for a peer that has revoked this
// cluster's rights, whatever it offers.
func TestUseWithoutRights(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		unknown error
		told    *metav1.Condition
		want    string
	}{
		"all is well":          {nil, says("True", "Accepted"), "True Accepted"},
		"no rights":            {apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", nil), says("True", "Accepted"), "Unknown RightsRevoked"},
		"not who it was":       {fmt.Errorf("asking: %w", apierrors.NewUnauthorized("expired")), says("True", "Accepted"), "Unknown RightsRevoked"},
		"no answer":            {errors.New("timeout"), says("True", "Accepted"), "True Accepted"},
		"was not used before":  {apierrors.NewUnauthorized("expired"), says("False", "NotAsked"), "False NotAsked"},
		"it is not to be used": {apierrors.NewUnauthorized("expired"), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts{clusterID: "milan", ownID: "rome", now: time.Unix(1000, 0), credentials: true, state: health.State{Verdict: health.Up}, uid: "u", unknown: tc.unknown,
				told: map[string]*metav1.Condition{outgoing: tc.told, incoming: says("True", "c")}}
			got := f.status(milan("")).Conditions
			have := ""
			if c := meta.FindStatusCondition(got, outgoing); c != nil {
				have = string(c.Status) + " " + c.Reason
			}
			require.Equal(t, tc.want, have)
			require.True(t, meta.IsStatusConditionTrue(got, incoming), "the other direction is another's to tell")
		})
	}
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

// TestConsumerThatHasLeft: nothing is said of the API server of a consumer that uses this cluster
// no more, nor of the network to it: it renews no heartbeat, and its gateway is gone.
func TestConsumerThatHasLeft(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{"Accepted": true, corev1beta1.ReasonEndedByPeer: false} {
		f := facts{clusterID: "milan", ownID: "rome", now: time.Unix(1000, 0), user: "u", tenant: true, told: map[string]*metav1.Condition{
			incoming: says("False", reason), server: says("False", corev1beta1.ReasonHeartbeatMissed), corev1beta1.ConditionNetwork: says("False", "TunnelDown")}}
		fc := milan("liqo.io:peer:milan:1")
		fc.Status.Conditions = []metav1.Condition{{Type: server, Status: "True", Reason: corev1beta1.ReasonHeartbeatSeen}}
		got := f.status(fc).Conditions
		require.Equal(t, want, meta.FindStatusCondition(got, server) != nil, reason)
		require.Equal(t, want, meta.FindStatusCondition(got, corev1beta1.ConditionNetwork) != nil, reason)
		if !want {
			require.Equal(t, reason, meta.FindStatusCondition(got, ready).Reason)
		}
	}
}

func TestReadyOfWhatSourcesTell(t *testing.T) {
	t.Parallel()
	up := facts{credentials: true, uid: "u", state: health.State{Verdict: health.Up}}
	type told = map[string]*metav1.Condition
	for name, tc := range map[string]struct {
		facts facts
		told  told
		want  string
	}{
		"all true":                        {up, told{authenticated: says("True", "a"), outgoing: says("True", "b"), incoming: says("True", "c")}, "True AllChecksPassed"},
		"one does not apply":              {up, told{authenticated: says("True", "a"), outgoing: nil}, "True AllChecksPassed"},
		"refused":                         {up, told{authenticated: says("True", "a"), outgoing: says("False", "Refused")}, "False Refused"},
		"waiting":                         {up, told{outgoing: says("Unknown", "Pending"), incoming: says("True", "c")}, "Unknown Pending"},
		"a failure before what waits":     {up, told{authenticated: says("Unknown", "Renewing"), incoming: says("False", "Full")}, "False Full"},
		"the identity before the rest":    {facts{credentials: true, state: health.State{Verdict: health.Down}}, told{authenticated: says("False", "Expired"), outgoing: says("False", "Away")}, "False Expired"},
		"the API server before offers":    {facts{credentials: true, state: health.State{Verdict: health.Down}}, told{authenticated: says("True", "a"), outgoing: says("False", "Away")}, "False APIServerNotReady"},
		"a token refused, no credentials": {facts{}, told{authenticated: says("False", "TokenRefused")}, "False TokenRefused"},
		"an identity not in use yet":      {facts{}, told{authenticated: says("True", "a")}, "Unknown NoCredentials"},
		"the same, of a consumer":         {facts{user: "u", tenant: true}, told{authenticated: says("True", "a"), outgoing: says("False", "NotAsked"), incoming: says("True", "c")}, "Unknown NoCredentials"},
		"a consumer":                      {facts{user: "u", tenant: true}, told{incoming: says("True", "c")}, "True AllChecksPassed"},
		"a consumer, nothing applies":     {facts{user: "u", tenant: true}, told{outgoing: nil}, "Unknown NothingChecked"},
		"a consumer that is down":         {facts{user: "u", tenant: true}, told{incoming: says("True", "c"), server: says("False", "PeerReportsDown")}, "False PeerReportsDown"},
		"a consumer that is not heard of": {facts{user: "u", tenant: true}, told{incoming: says("True", "c"), server: says("Unknown", "NoGateway")}, "Unknown NoGateway"},
		"a consumer that is given none":   {facts{user: "u", tenant: true}, told{incoming: says("False", "Full")}, "False Full"},
		"another ForeignCluster of it":    {func() facts { f := up; f.namesakes = []string{"turin"}; return f }(), told{authenticated: says("True", "a")}, "False SameCluster"},
		"its rights are taken back":       {facts{credentials: true, state: up.state, unknown: apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", nil)}, told{authenticated: says("True", "a")}, "Unknown IdentityUnknown"},
		"this cluster answers":            {func() facts { f := up; f.ownUID = "u"; return f }(), told{authenticated: says("True", "a")}, "False SelfPeering"},
		"a problem before all else": {func() facts { f := up; f.problem = problem{"InvalidUser", "two"}; return f }(),
			told{authenticated: says("False", "x")}, "False InvalidUser"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tc.facts
			f.clusterID, f.ownID, f.now, f.told = "milan", "rome", time.Unix(1000, 0), tc.told
			fc := milan("")
			fc.Status.Conditions = []metav1.Condition{{Type: outgoing, Status: "True", Reason: "Before"}}
			got := f.status(fc)
			c := meta.FindStatusCondition(got.Conditions, ready)
			require.Equal(t, tc.want, string(c.Status)+" "+c.Reason, c.Message)
			for kind, want := range tc.told {
				have := meta.FindStatusCondition(got.Conditions, kind)
				require.Equal(t, want == nil, have == nil, kind)
			}
			fc.Status = got
			f.now = f.now.Add(time.Hour)
			require.Equal(t, got, f.status(fc), "the same facts give the same status")
		})
	}
}

// TestReadyOfAClosedPeer: a peer that people do not let in, and that goes on asking, is Ready if all else
// is. Offers that it has not returned yet count, and so does a refusal by a policy.
func TestReadyOfAClosedPeer(t *testing.T) {
	t.Parallel()
	up := facts{credentials: true, uid: "u", state: health.State{Verdict: health.Up}}
	consumer := facts{user: "u", tenant: true}
	for name, tc := range map[string]struct {
		facts  facts
		enable corev1beta1.PeeringEnabled
		told   map[string]*metav1.Condition
		want   string
	}{
		"closed, a provider too":      {up, corev1beta1.PeeringNo, map[string]*metav1.Condition{outgoing: says("True", "b"), incoming: says("False", "NotAllowed")}, "True AllChecksPassed"},
		"closed, and the other fails": {up, corev1beta1.PeeringNo, map[string]*metav1.Condition{outgoing: says("False", "Away"), incoming: says("False", "NotAllowed")}, "False Away"},
		"rights taken back": {up, corev1beta1.PeeringAuto,
			map[string]*metav1.Condition{corev1beta1.ConditionNetwork: says("False", "TunnelSilent"), outgoing: says("Unknown", "RightsRevoked"), incoming: says("True", "b")}, "False RightsRevoked"},
		"rights taken back, and the other direction fails": {up, corev1beta1.PeeringAuto,
			map[string]*metav1.Condition{outgoing: says("Unknown", "RightsRevoked"), incoming: says("False", "Withdrawn")}, "False Withdrawn"},
		"closed, a consumer that is seen": {consumer, corev1beta1.PeeringNo,
			map[string]*metav1.Condition{server: says("True", "HeartbeatSeen"), incoming: says("False", "NotAllowed")}, "True AllChecksPassed"},
		"closed, nothing else": {consumer, corev1beta1.PeeringNo, map[string]*metav1.Condition{incoming: says("False", "NotAllowed")}, "Unknown NothingChecked"},
		"closed, offers left":  {up, corev1beta1.PeeringNo, map[string]*metav1.Condition{outgoing: says("True", "b"), incoming: says("False", "Withdrawn")}, "False Withdrawn"},
		"by a policy":          {up, corev1beta1.PeeringAuto, map[string]*metav1.Condition{outgoing: says("True", "b"), incoming: says("False", "NotAllowed")}, "False NotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tc.facts
			f.clusterID, f.ownID, f.now, f.told = "milan", "rome", time.Unix(1000, 0), tc.told
			fc := milan("")
			fc.Spec.IncomingPeeringEnabled = tc.enable
			got := f.status(fc).Conditions
			c := meta.FindStatusCondition(got, ready)
			require.Equal(t, tc.want, string(c.Status)+" "+c.Reason, c.Message)
			require.Equal(t, tc.told[incoming].Reason, meta.FindStatusCondition(got, incoming).Reason, "the condition itself stays")
		})
	}
}

// TestServerWithoutCredentials: what the source reports of a peer's API server counts while
// this cluster has no credentials to probe it with.
func TestServerWithoutCredentials(t *testing.T) {
	t.Parallel()
	down, up := says("False", "PeerReportsDown"), says("True", "PeerReportsUp")
	for name, tc := range map[string]struct {
		facts  facts
		told   *metav1.Condition
		before string // reason of the condition before
		want   string // empty: there is none
	}{
		"down":                        {facts{user: "u", tenant: true}, down, "PeerReportsUp", "False PeerReportsDown"},
		"up":                          {facts{user: "u", tenant: true}, up, "PeerReportsDown", "True PeerReportsUp"},
		"no report":                   {facts{user: "u", tenant: true}, nil, "PeerReportsUp", ""},
		"credentials, up":             {facts{credentials: true, uid: "u", state: health.State{Verdict: health.Up}}, down, "", "True APIServerReady"},
		"credentials, down":           {facts{credentials: true, state: health.State{Verdict: health.Down}}, up, "", "False APIServerNotReady"},
		"credentials, not probed":     {facts{credentials: true}, up, "", "Unknown Probing"},
		"credentials of no use":       {facts{credentials: true, endpoint: Endpoint{Problem: "no kubeconfig"}}, up, "", "False InvalidCredentials"},
		"credentials not read so far": {facts{unread: true}, up, "APIServerReady", "Unknown APIServerReady"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tc.facts
			f.clusterID, f.ownID, f.now, f.told = "milan", "rome", time.Unix(1000, 0), map[string]*metav1.Condition{server: tc.told}
			fc := milan("")
			if tc.before != "" {
				fc.Status.Conditions = []metav1.Condition{{Type: server, Status: "Unknown", Reason: tc.before}}
			}
			for range 2 { // the same facts give the same status
				fc.Status = f.status(fc)
				have := ""
				if c := meta.FindStatusCondition(fc.Status.Conditions, server); c != nil {
					have = string(c.Status) + " " + c.Reason
				}
				require.Equal(t, tc.want, have)
			}
		})
	}
}

func TestOwnUIDIsNotRecorded(t *testing.T) {
	t.Parallel()
	f := facts{clusterID: "milan", ownID: "rome", credentials: true, uid: "u", ownUID: "u", state: health.State{Verdict: health.Up}}
	require.Empty(t, f.status(milan("")).ClusterUID)
}

func TestVersionOfThePeer(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{"": "", "1.2.3": "1.2.3", "1\n2\x00é3": "123", strings.Repeat("9", 100): strings.Repeat("9", longestVersion)} {
		fc := milan("")
		fc.Annotations = map[string]string{corev1beta1.PeerVersionAnnotation: said}
		require.Equal(t, want, facts{clusterID: "milan", ownID: "rome"}.status(fc).Version)
	}
}

func TestFoundByDiscovery(t *testing.T) {
	t.Parallel()
	fc := milan("")
	fc.Labels = map[string]string{corev1beta1.DiscoveredLabel: corev1beta1.DiscoveredByDNS}
	f := facts{clusterID: "milan", ownID: "rome", now: time.Unix(1000, 0)}
	require.Equal(t, corev1beta1.ReasonNotPeered, meta.FindStatusCondition(f.status(fc).Conditions, ready).Reason)
	f.user, f.tenant = "liqo.io:peer:milan:1", true
	require.Equal(t, corev1beta1.ReasonNothingChecked, meta.FindStatusCondition(f.status(fc).Conditions, ready).Reason)
}

// TestAwaited: an admitted consumer that has not enrolled yet is no problem of this
// cluster.
func TestAwaited(t *testing.T) {
	t.Parallel()
	fc := milan("")
	fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringYes
	f := facts{clusterID: "milan", ownID: "rome", now: time.Unix(1000, 0)}
	require.Equal(t, corev1beta1.ReasonAwaitsEnrolment, meta.FindStatusCondition(f.status(fc).Conditions, ready).Reason)
	fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringYes
	require.Equal(t, corev1beta1.ReasonNoCredentials, meta.FindStatusCondition(f.status(fc).Conditions, ready).Reason)
	fc.Spec.OutgoingPeeringEnabled, f.user, f.tenant = corev1beta1.PeeringAuto, "liqo.io:peer:milan:1", true
	require.Equal(t, corev1beta1.ReasonNothingChecked, meta.FindStatusCondition(f.status(fc).Conditions, ready).Reason)
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
			return meta.FindStatusCondition(w.cluster("milan").Status.Conditions, incoming) == nil
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
