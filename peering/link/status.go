package link

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/store"
)

// facts are the inputs of a ForeignCluster's status.
type facts struct {
	clusterID, ownID string
	user             string
	problem          problem // what is wrong with the ForeignCluster itself
	ownUID           types.UID
	namesakes        []string                     // other ForeignClusters with the UID of the answering cluster
	told             map[string]*metav1.Condition // conditions of the sources, by type; nil: does not apply
	credentials      bool
	unread           bool // the credentials have not been read yet
	endpoint         Endpoint
	state            health.State
	uid              types.UID // of the answering cluster; empty: unknown
	unknown          error     // why uid is unknown
	virtualNode      bool
	found            bool // discovery created the ForeignCluster
	awaited          bool // the peer may use this cluster, which does not use the peer
	closed           bool // people do not let the peer use this cluster
	tenant           bool // the tenant namespace exists
	now              time.Time
	dwell            map[string]*health.Dwell // by type of condition
	held             *time.Duration           // until a condition that dwell holds is due
}

// problem is the reason for which a ForeignCluster has no effect.
type problem struct{ reason, message string }

// kinds are the condition types of the checks in the order of their dependence: without an
// identity there is no access to the API server, and without that no other check.
var kinds = []string{
	corev1beta1.ConditionAuthenticated, corev1beta1.ConditionAPIServer, corev1beta1.ConditionNetwork,
	corev1beta1.ConditionOutgoingPeering, corev1beta1.ConditionIncomingPeering,
}

// status returns the status that follows from the facts and the previous status.
func (f facts) status(fc *corev1beta1.ForeignCluster) corev1beta1.ForeignClusterStatus {
	out := *fc.Status.DeepCopy()
	out.ObservedGeneration = fc.Generation
	f.told = f.inUse()
	f.found = fc.Labels[corev1beta1.DiscoveredLabel] != ""
	f.awaited = fc.Spec.IncomingPeeringEnabled == corev1beta1.PeeringYes && fc.Spec.OutgoingPeeringEnabled != corev1beta1.PeeringYes
	f.closed = fc.Spec.IncomingPeeringEnabled == corev1beta1.PeeringNo
	f.unread = f.unread && !f.credentials
	if f.unread {
		f.credentials = out.TenantNamespace.Remote != "" // keep the previous value
	} else {
		out.APIServerURL = f.endpoint.Clients.Host
	}
	out.Role = f.role()
	out.TenantNamespace = f.tenantNamespaces()
	out.Version = peerVersion(fc)
	if out.ClusterUID == "" && !f.isSelf() {
		out.ClusterUID = f.uid
	}
	replaced := f.uid != "" && out.ClusterUID != f.uid
	f.put(&out.Conditions, fc, corev1beta1.ConditionAPIServer, f.steady(fc, corev1beta1.ConditionAPIServer, f.server(&out, replaced)))
	for kind, told := range f.told {
		if kind == corev1beta1.ConditionAPIServer {
			continue // server has weighed it
		}
		if kind == corev1beta1.ConditionOutgoingPeering && f.revoked(meta.FindStatusCondition(fc.Status.Conditions, kind)) && told != nil && told.Status == metav1.ConditionTrue {
			told = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: corev1beta1.ReasonRightsRevoked, Message: fmt.Sprintf(
				"cluster %s has revoked the rights of this one, and what runs there is out of reach: if its people have ended the peering, end it here, too (liqod unpeer %s); else get another identity with a token of it",
				f.clusterID, f.clusterID)}
		}
		f.put(&out.Conditions, fc, kind, f.steady(fc, kind, told))
	}
	f.put(&out.Conditions, fc, corev1beta1.ConditionUniqueID, contested(fc))
	f.set(&out.Conditions, fc, f.ready(out.Conditions))
	return out
}

// inUse returns the conditions of the sources that apply. Nothing depends on the API server of a
// consumer, and on the network to it, once that has ended its use of this cluster.
func (f facts) inUse() map[string]*metav1.Condition {
	incoming := f.told[corev1beta1.ConditionIncomingPeering]
	if incoming == nil || incoming.Reason != corev1beta1.ReasonEndedByPeer {
		return f.told
	}
	out := maps.Clone(f.told)
	out[corev1beta1.ConditionAPIServer], out[corev1beta1.ConditionNetwork] = nil, nil
	return out
}

// steady returns the condition that counts if a source has c. A peer can turn its conditions as
// often as it likes; each turn costs writes of the ForeignCluster and of all its EndpointSlices.
// The status Unknown is not held: it follows from what this cluster's own roles do.
func (f facts) steady(fc *corev1beta1.ForeignCluster, kind string, c *metav1.Condition) *metav1.Condition {
	d := f.dwell[kind]
	if d == nil {
		return c
	}
	v := health.Up
	switch {
	case c == nil:
		v = health.Unknown // a peer can take its heartbeats back, and renew them again
	case c.Status == metav1.ConditionFalse:
		v = health.Down
	}
	if _, again := d.Pass(v, f.now); again > 0 {
		*f.held = max(*f.held, again)
		return Standing(fc, kind)
	}
	return c
}

// revoked reports whether the peer has revoked this cluster's rights. While the peer does
// not answer, the previous result stays.
func (f facts) revoked(before *metav1.Condition) bool {
	if revoked(f.unknown) {
		return true
	}
	return f.uid == "" && before != nil && before.Reason == corev1beta1.ReasonRightsRevoked
}

// contested returns the condition for a claim of the peer's id by another cluster, or nil
// if there is none.
func contested(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	rival, id := fc.Annotations[corev1beta1.RivalUIDAnnotation], fc.Spec.ClusterID
	if rival == "" {
		return nil
	}
	return &metav1.Condition{Status: metav1.ConditionFalse, Reason: corev1beta1.ReasonClaimedByAnother, Message: fmt.Sprintf(
		"another cluster (its kube-system namespace has UID %.64s) has asked to be %s, too, and was refused: give it an id of its own (discovery.config.clusterID of its chart); "+
			"if %s was rebuilt, end its peering here first (liqod unpeer %s); if it will not come again: kubectl annotate foreigncluster %s %s-",
		rival, id, id, id, fc.Name, corev1beta1.RivalUIDAnnotation)}
}

// isSelf reports whether this cluster itself answers at the peer's address.
func (f facts) isSelf() bool { return f.uid != "" && f.uid == f.ownUID }

// put sets the condition of a type, or removes it if c is nil.
func (f facts) put(conditions *[]metav1.Condition, fc *corev1beta1.ForeignCluster, kind string, c *metav1.Condition) {
	if c == nil {
		meta.RemoveStatusCondition(conditions, kind)
		return
	}
	own := *c
	own.Type = kind
	f.set(conditions, fc, own)
}

func (f facts) role() corev1beta1.RoleType {
	provider, consumer := f.credentials || f.virtualNode, f.user != ""
	switch {
	case provider && consumer:
		return corev1beta1.RoleConsumerAndProvider
	case provider:
		return corev1beta1.RoleProvider
	case consumer:
		return corev1beta1.RoleConsumer
	}
	return corev1beta1.RoleUnknown
}

func (f facts) tenantNamespaces() corev1beta1.TenantNamespaces {
	var out corev1beta1.TenantNamespaces
	if f.tenant {
		out.Local = corev1beta1.TenantNamespace(f.clusterID)
	}
	if f.credentials {
		out.Remote = corev1beta1.TenantNamespace(f.ownID)
	}
	return out
}

// server returns the condition of the peer's API server. Without credentials it is that of
// the source, and nil if there is none.
func (f facts) server(status *corev1beta1.ForeignClusterStatus, replaced bool) *metav1.Condition {
	is := func(s metav1.ConditionStatus, reason, message string) *metav1.Condition {
		return &metav1.Condition{Type: corev1beta1.ConditionAPIServer, Status: s, Reason: reason, Message: message}
	}
	switch {
	case f.unread:
		return meta.FindStatusCondition(status.Conditions, corev1beta1.ConditionAPIServer)
	case !f.credentials:
		return f.told[corev1beta1.ConditionAPIServer]
	case f.endpoint.Problem != "":
		return is(metav1.ConditionFalse, corev1beta1.ReasonInvalidCredentials, f.endpoint.Problem)
	case f.state.Verdict == health.Down:
		return is(metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, fmt.Sprintf("%s: %s", f.endpoint.Clients.Host, f.state.Reason))
	case f.state.Verdict == health.Unknown:
		// After a restart there is no result yet. The previous condition stays until there
		// is one.
		have := meta.FindStatusCondition(status.Conditions, corev1beta1.ConditionAPIServer)
		if have != nil && have.Reason != corev1beta1.ReasonInvalidCredentials && have.Reason != corev1beta1.ReasonNoController {
			return have
		}
		return is(metav1.ConditionUnknown, corev1beta1.ReasonProbing, "the API server has not answered yet")
	case replaced:
		return is(metav1.ConditionFalse, corev1beta1.ReasonClusterReplaced, fmt.Sprintf(
			"the kube-system namespace of the cluster at %s has UID %s, recorded is %s: it is not written to; if it is meant to be the peer, clear status.clusterUID or make the ForeignCluster anew",
			f.endpoint.Clients.Host, f.uid, status.ClusterUID))
	case f.unknown != nil:
		return is(metav1.ConditionUnknown, corev1beta1.ReasonIdentityUnknown,
			"the API server answers, but does not tell which cluster it is: "+stable(f.unknown))
	}
	return is(metav1.ConditionTrue, corev1beta1.ReasonAPIServerReady, "the API server answers")
}

// stable returns the part of an error that is the same at each attempt. Ports or times in
// the message would cause a status write per attempt.
func stable(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return "the request for namespace kube-system is not answered"
}

// ready sums up the checks. Its reason is that of the first failed check, or else of the
// first unknown one. A peer that has taken the rights back, or has lost the tenant namespace, ends
// its tunnel with them. A request that is refused by the will of people is no failure.
func (f facts) ready(conditions []metav1.Condition) metav1.Condition {
	out := metav1.Condition{Type: corev1beta1.ConditionReady}
	if p := f.trouble(); p.reason != "" {
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, p.reason, p.message
		return out
	}
	var applies []metav1.Condition
	for _, kind := range kinds {
		if c := meta.FindStatusCondition(conditions, kind); c != nil && !(f.closed && c.Reason == sharingv1alpha1.ReasonNotAllowed) {
			applies = append(applies, *c)
		}
	}
	// The peer has granted an identity whose credentials this cluster cannot use yet.
	lacking := !f.credentials && meta.IsStatusConditionTrue(conditions, corev1beta1.ConditionAuthenticated)
	if lacking || len(applies) == 0 {
		out.Status, out.Reason, out.Message = f.unchecked(lacking)
		return out
	}
	for _, verdict := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown} {
		i := slices.IndexFunc(applies, func(c metav1.Condition) bool { return c.Status == verdict })
		if i >= 0 {
			cause := applies[i]
			revoked := slices.IndexFunc(applies, func(c metav1.Condition) bool {
				return slices.Contains([]string{corev1beta1.ReasonRightsRevoked, corev1beta1.ReasonTenantAwaited, sharingv1alpha1.ReasonReplicationFailed}, c.Reason)
			})
			if away := cause.Type == corev1beta1.ConditionAPIServer || cause.Type == corev1beta1.ConditionNetwork; away && revoked >= 0 {
				cause = applies[revoked]
			}
			out.Status, out.Reason, out.Message = verdict, cause.Reason, cause.Type+": "+cause.Message
			return out
		}
	}
	out.Status, out.Reason, out.Message = metav1.ConditionTrue, corev1beta1.ReasonAllChecksPassed, "all checks pass"
	return out
}

// trouble returns the problem with the peer as a whole, if any.
func (f facts) trouble() problem {
	switch {
	case f.clusterID == f.ownID:
		return problem{corev1beta1.ReasonSelfPeering, fmt.Sprintf("this cluster itself has the id %s: a cluster cannot be a peer of itself; "+
			"if another cluster has been given the same id, install one of them anew with an id of its own", f.ownID)}
	case f.isSelf():
		return problem{corev1beta1.ReasonSelfPeering, fmt.Sprintf("the API server at %s is the one of this cluster itself, %s: liqod writes nothing there", f.endpoint.Clients.Host, f.ownID)}
	case f.problem.reason != "":
		return f.problem
	case len(f.namesakes) > 0:
		return problem{corev1beta1.ReasonSameCluster, fmt.Sprintf("the same cluster (its kube-system namespace has UID %s) is the peer %s, too: delete one of the ForeignClusters",
			f.uid, strings.Join(f.namesakes, ", "))}
	}
	return problem{}
}

// unchecked returns the result for a peer that no check applies to, or whose credentials
// are missing.
func (f facts) unchecked(lacking bool) (status metav1.ConditionStatus, reason, message string) {
	namespace := corev1beta1.TenantNamespace(f.clusterID)
	switch {
	case f.closed && !lacking && f.role() == corev1beta1.RoleConsumer:
		return metav1.ConditionUnknown, corev1beta1.ReasonNothingChecked, "this cluster does not let the cluster use it (spec.incomingPeeringEnabled is No), and nothing of it can be checked from this side"
	case f.found && f.role() == corev1beta1.RoleUnknown:
		return metav1.ConditionUnknown, corev1beta1.ReasonNotPeered, "the cluster was found by discovery and is not used: to use it, put a token of it into the Secret of spec.tokenSecretRef, and set spec.outgoingPeeringEnabled: Yes"
	case f.awaited && !lacking && f.role() == corev1beta1.RoleUnknown:
		return metav1.ConditionUnknown, corev1beta1.ReasonAwaitsEnrolment, "the cluster may use this one, but has no identity here yet: it gets one with a token of this cluster"
	case lacking, f.role() != corev1beta1.RoleConsumer:
		return metav1.ConditionUnknown, corev1beta1.ReasonNoCredentials, fmt.Sprintf("nothing can be checked from here: namespace %s has no Secret with the label %s=%s",
			namespace, corev1beta1.IdentityTypeLabel, corev1beta1.IdentityControlPlane)
	case !f.tenant:
		return metav1.ConditionUnknown, corev1beta1.ReasonNoCredentials, fmt.Sprintf("the rights of the cluster belong into namespace %s, which does not exist yet with the labels %s=true and %s=%s",
			namespace, corev1beta1.TenantNamespaceLabel, corev1beta1.RemoteClusterIDLabel, f.clusterID)
	}
	return metav1.ConditionUnknown, corev1beta1.ReasonNothingChecked, "the cluster may use this one, and nothing can be checked from this side: there are no credentials for it, no tunnel to it, and it asks for nothing"
}

func (f facts) set(conditions *[]metav1.Condition, fc *corev1beta1.ForeignCluster, c metav1.Condition) {
	c.ObservedGeneration = fc.Generation
	c.LastTransitionTime = metav1.NewTime(f.now)
	*conditions = slices.Clone(*conditions)
	// While no controller ran, nobody could find out: what is Unknown now is so from now on.
	if have := meta.FindStatusCondition(*conditions, c.Type); have != nil && have.Reason == corev1beta1.ReasonNoController && c.Reason != have.Reason {
		have.LastTransitionTime = c.LastTransitionTime
	}
	store.SetCondition(conditions, c) // SetCondition clips the message: a peer's text may be too long
}
