package link

import (
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/health/probe"
)

// facts is all that the status of a ForeignCluster is made from.
type facts struct {
	clusterID, ownID string
	user, problem    string // problem: what is wrong with the ForeignCluster itself
	credentials      bool
	endpoint         Endpoint
	state            probe.State
	uid              types.UID // of the cluster that answers; empty if it has not said
	unknown          error     // why it has not
	virtualNode      bool
	tenant           bool // the tenant namespace exists
	now              time.Time
}

// status returns the status that follows from the facts and from what was known before.
func (f facts) status(fc *corev1beta1.ForeignCluster) corev1beta1.ForeignClusterStatus {
	out := *fc.Status.DeepCopy()
	out.ObservedGeneration = fc.Generation
	out.Role = f.role()
	out.APIServerURL = f.endpoint.Clients.Host
	out.TenantNamespace = f.tenantNamespaces()
	if out.ClusterUID == "" {
		out.ClusterUID = f.uid
	}
	replaced := f.uid != "" && out.ClusterUID != f.uid
	if server := f.server(&out, replaced); server != nil {
		f.set(&out.Conditions, fc, *server)
	} else {
		meta.RemoveStatusCondition(&out.Conditions, corev1beta1.ConditionAPIServer)
	}
	f.set(&out.Conditions, fc, f.ready(out.Conditions))
	return out
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

// server returns the condition of the peer's API server; nil where nothing can be asked.
func (f facts) server(status *corev1beta1.ForeignClusterStatus, replaced bool) *metav1.Condition {
	is := func(s metav1.ConditionStatus, reason, message string) *metav1.Condition {
		return &metav1.Condition{Type: corev1beta1.ConditionAPIServer, Status: s, Reason: reason, Message: message}
	}
	switch {
	case !f.credentials:
		return nil
	case f.endpoint.Problem != "":
		return is(metav1.ConditionFalse, corev1beta1.ReasonInvalidCredentials, f.endpoint.Problem)
	case f.state.Verdict == probe.Down:
		return is(metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, fmt.Sprintf("%s: %s", f.endpoint.Clients.Host, f.state.Reason))
	case f.state.Verdict == probe.Unknown:
		// Whoever takes over begins without a verdict. The last one stands until then.
		have := meta.FindStatusCondition(status.Conditions, corev1beta1.ConditionAPIServer)
		if have != nil && have.Reason != corev1beta1.ReasonInvalidCredentials {
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

// stable returns the part of an error that is the same each time: the rest (ports,
// times) would make a status write of every attempt.
func stable(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return "the request for namespace kube-system is not answered"
}

// ready sums the checks up.
func (f facts) ready(conditions []metav1.Condition) metav1.Condition {
	out := metav1.Condition{Type: corev1beta1.ConditionReady}
	if f.problem != "" {
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, corev1beta1.ReasonCheckFailed, f.problem
		return out
	}
	checked := false
	var pending *metav1.Condition
	for _, kind := range []string{corev1beta1.ConditionAPIServer, corev1beta1.ConditionNetwork} {
		c := meta.FindStatusCondition(conditions, kind)
		switch {
		case c == nil:
			continue
		case c.Status == metav1.ConditionFalse:
			out.Status, out.Reason, out.Message = metav1.ConditionFalse, corev1beta1.ReasonCheckFailed, kind+": "+c.Message
			return out
		case c.Status == metav1.ConditionUnknown && pending == nil:
			pending = c
		}
		checked = true
	}
	switch {
	case !checked:
		out.Status, out.Reason, out.Message = f.unchecked()
	case pending != nil:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, pending.Reason, pending.Type+": "+pending.Message
	default:
		out.Status, out.Reason, out.Message = metav1.ConditionTrue, corev1beta1.ReasonAllChecksPassed, "all checks pass"
	}
	return out
}

// unchecked is the verdict on a peer that no check applies to.
func (f facts) unchecked() (status metav1.ConditionStatus, reason, message string) {
	namespace := corev1beta1.TenantNamespace(f.clusterID)
	switch {
	case f.role() != corev1beta1.RoleConsumer:
		return metav1.ConditionUnknown, corev1beta1.ReasonNoCredentials, fmt.Sprintf("nothing can be checked from here: namespace %s has no Secret with the label %s=%s",
			namespace, corev1beta1.IdentityTypeLabel, corev1beta1.IdentityControlPlane)
	case !f.tenant:
		return metav1.ConditionUnknown, corev1beta1.ReasonNoCredentials, fmt.Sprintf("the rights of the cluster are kept in namespace %s, which is awaited with the labels %s=true and %s=%s",
			namespace, corev1beta1.TenantNamespaceLabel, corev1beta1.RemoteClusterIDLabel, f.clusterID)
	}
	return metav1.ConditionTrue, corev1beta1.ReasonAllChecksPassed, "the cluster may use this one; it reaches us, and nothing can be checked from this side"
}

func (f facts) set(conditions *[]metav1.Condition, fc *corev1beta1.ForeignCluster, c metav1.Condition) {
	c.ObservedGeneration = fc.Generation
	c.LastTransitionTime = metav1.NewTime(f.now)
	*conditions = slices.Clone(*conditions)
	meta.SetStatusCondition(conditions, c)
}
