package link

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// A Source knows one condition of each peer that Conditions does not find out itself. It
// is safe for concurrent use.
type Source interface {
	// Condition returns what is to be said of the peer of a ForeignCluster, from memory: its
	// status, reason and message, which do not differ while nothing has changed. Nil where
	// the condition does not apply to the peer. A source that does not know yet, because its
	// process has just begun, returns Standing.
	Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition
	// Subscribe makes f be called with a peer's id each time that its condition may have
	// changed. It is called before anything runs. f returns at once.
	Subscribe(f func(clusterID string))
}

// Standing returns the condition that a ForeignCluster has already, nil if it has none.
func Standing(fc *corev1beta1.ForeignCluster, kind string) *metav1.Condition {
	have := meta.FindStatusCondition(fc.Status.Conditions, kind)
	if have == nil {
		return nil
	}
	return have.DeepCopy()
}

// AddSource makes the status of ForeignClusters have a condition, of the given type, from
// a source: ConditionAuthenticated, ConditionOutgoingPeering, ConditionIncomingPeering or
// ConditionNetwork. It is called before Run, once for each type.
func (c *Conditions) AddSource(kind string, s Source) {
	c.sources[kind] = s
	s.Subscribe(func(id string) { c.loop.Add(loop.Key{Name: id}) })
}

// ask asks the sources about a ForeignCluster.
func (c *Conditions) ask(fc *corev1beta1.ForeignCluster) map[string]*metav1.Condition {
	out := map[string]*metav1.Condition{}
	for kind, s := range c.sources {
		out[kind] = s.Condition(fc)
	}
	return out
}

// maxVersion is, in bytes, the longest version of a peer that is shown.
const maxVersion = 63

// peerVersion returns what the peer has said of its version, as far as it can be shown.
func peerVersion(fc *corev1beta1.ForeignCluster) string {
	said := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, fc.Annotations[corev1beta1.PeerVersionAnnotation])
	return said[:min(len(said), maxVersion)]
}
