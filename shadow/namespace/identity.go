package namespace

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// identity says which cluster a peering is with. An id alone does not: another cluster may be
// peered under the id of an earlier one. The zero value stands for no peering.
type identity struct {
	peer string // cluster id
	// cluster is the UID of the peer's kube-system namespace, as the peer has shown it;
	// empty: unknown.
	cluster string
	// peering is the UID of the ForeignCluster; since is when it was created.
	peering string
	since   metav1.Time
}

// identityOf returns the identity of the peer of a ForeignCluster, which may be nil.
func identityOf(fc *corev1beta1.ForeignCluster) identity {
	if fc == nil {
		return identity{}
	}
	cluster := cmp.Or(string(fc.Status.ClusterUID), fc.Annotations[corev1beta1.EnrolledUIDAnnotation])
	return identity{peer: fc.Spec.ClusterID, cluster: cluster, peering: "peering-" + string(fc.UID), since: fc.CreationTimestamp}
}

// mark returns the value of ConsumerUIDAnnotation for the twins of the cluster; empty: none.
func (i identity) mark() string {
	if i == (identity{}) {
		return ""
	}
	return i.peer + "/" + cmp.Or(i.cluster, i.peering)
}

// has reports whether a twin with the given mark is the cluster's.
func (i identity) has(mark string) bool {
	return (i.cluster != "" && mark == i.peer+"/"+i.cluster) || mark == i.peer+"/"+i.peering
}

// claim returns the mark that a twin is to have, or the reason for which the peer does not
// get the twin because the twin was made for another cluster of the same id. Without a
// peering the mark stays as it is, because nobody gets rights then.
func (m *Maps) claim(ctx context.Context, w wish, ns *corev1.Namespace) (mark, why string, err error) {
	have := ns.Annotations[offloadingv1beta1.ConsumerUIDAnnotation]
	switch {
	case w.of == (identity{}):
		return have, "", nil
	case w.of.has(have):
		return w.of.mark(), "", nil
	case have != "" && w.of.cluster == "" && m.entitled(w):
		return have, "", nil // the same enrolment, whose UID is not known at the moment
	case have != "":
		return "", w.anothers(), nil
	}
	// Nobody was peered when the twin was made, or people have taken its mark off.
	if m.entitled(w) || !ns.CreationTimestamp.Before(&w.of.since) {
		return w.of.mark(), "", nil
	}
	kept, err := m.holds(ctx, ns)
	if err != nil || kept == "" {
		return w.of.mark(), "", err
	}
	return "", w.anothers(), nil
}

// anothers tells that a twin is not the peer's. It does not tell whose it is: the peer reads
// the message. The peer has chosen its UID, too: one that a shell would run gets into no command.
func (w wish) anothers() string {
	return fmt.Sprintf("namespace %s exists already and was not made for this cluster %s, but for an earlier one with the same id, or for one that is not known: it is not given away with what it holds.", w.name, w.peer) +
		offloadingv1beta1.Command(" Its administrators hand it over with: kubectl annotate namespace %s --overwrite "+offloadingv1beta1.ConsumerUIDAnnotation+"=%s/%s; or they delete it", w.name, w.of.peer, cmp.Or(w.of.cluster, w.of.peering))
}
