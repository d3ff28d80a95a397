package v1beta1

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AllShares returns the values that AcceptTwinSharesAnnotation can list.
func AllShares() []string { return []string{ShareSecrets, ShareClaims, ShareServices} }

// IsAccepted reports whether a namespace is a twin that its owner provides, rather than one
// that liqod made.
func IsAccepted(namespace metav1.Object) bool {
	annotations := namespace.GetAnnotations()
	return annotations[ManagedByNamespaceMapAnnotation] == "" && annotations[AcceptedForAnnotation] != ""
}

// SharesOf returns what the owner of a namespace lets the peer use of it. Its error names the
// accepted values.
func SharesOf(namespace metav1.Object) ([]string, error) {
	var list []string
	for share := range strings.SplitSeq(namespace.GetAnnotations()[AcceptTwinSharesAnnotation], ",") {
		share = strings.TrimSpace(share)
		switch {
		case share == "":
		case !slices.Contains(AllShares(), share):
			return nil, fmt.Errorf("annotation %s of namespace %s has %.63q: a list of %s is accepted", AcceptTwinSharesAnnotation, namespace.GetName(), share, strings.Join(AllShares(), ","))
		default:
			list = append(list, share)
		}
	}
	return list, nil
}

// Shares reports whether the peer of a twin namespace may use something of the namespace. In a
// namespace that liqod made for it, it may use everything.
func Shares(namespace metav1.Object, what string) bool {
	if !IsAccepted(namespace) {
		return true
	}
	list, err := SharesOf(namespace)
	return err == nil && slices.Contains(list, what)
}

// NotShared says that the owner of a namespace does not share something, and how to.
func NotShared(namespace metav1.Object, what string) string {
	return fmt.Sprintf("namespace %s, which accepts this cluster, does not share its %s: its owner allows it by adding %s to the annotation %s", namespace.GetName(), what, what, AcceptTwinSharesAnnotation)
}
