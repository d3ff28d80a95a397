package link

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// A Source provides one condition of each peer that Conditions does not compute itself. Its
// methods must be safe for concurrent use.
type Source interface {
	// Condition returns the status, reason and message of the condition for a peer, without
	// any request. Its result must not differ while nothing has changed. It returns nil if
	// the condition does not apply to the peer. A source whose state is not loaded yet
	// returns the result of Standing.
	Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition
	// Subscribe registers f, which the source calls with a peer's id after each event that
	// may change its condition. It is called before the source runs. f does not block.
	Subscribe(f func(clusterID string))
}

// FirstOf returns a source of the first condition that the sources have for a peer.
func FirstOf(sources ...Source) Source { return firstOf(sources) }

type firstOf []Source

// Condition implements Source.
func (f firstOf) Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	for _, s := range f {
		if c := s.Condition(fc); c != nil {
			return c
		}
	}
	return nil
}

// Subscribe implements Source.
func (f firstOf) Subscribe(tell func(clusterID string)) {
	for _, s := range f {
		s.Subscribe(tell)
	}
}

// Standing returns a copy of the ForeignCluster's existing condition, or nil if it has
// none.
func Standing(fc *corev1beta1.ForeignCluster, kind string) *metav1.Condition {
	have := meta.FindStatusCondition(fc.Status.Conditions, kind)
	if have == nil {
		return nil
	}
	return have.DeepCopy()
}

// AddSource adds a source for a type of condition: ConditionAuthenticated,
// ConditionOutgoingPeering, ConditionIncomingPeering, ConditionNetwork or
// ConditionAPIServer. That for ConditionAPIServer counts for peers alone that this cluster
// has no credentials for, and so cannot probe. AddSource must be called before Run, once per
// type.
func (c *Conditions) AddSource(kind string, s Source) {
	c.sources[kind] = s
	s.Subscribe(func(id string) { c.loop.Add(loop.Key{Name: id}) })
}

// sourced returns the conditions of all sources for a ForeignCluster, by type.
func (c *Conditions) sourced(fc *corev1beta1.ForeignCluster) map[string]*metav1.Condition {
	out := map[string]*metav1.Condition{}
	for kind, s := range c.sources {
		out[kind] = s.Condition(fc)
	}
	return out
}

// maxVersion is the maximum length of a peer's version in the status, in bytes.
const maxVersion = 63

// peerVersion returns the version that the peer has reported, limited to printable ASCII
// characters and maxVersion.
func peerVersion(fc *corev1beta1.ForeignCluster) string {
	said := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, fc.Annotations[corev1beta1.PeerVersionAnnotation])
	return said[:min(len(said), maxVersion)]
}
