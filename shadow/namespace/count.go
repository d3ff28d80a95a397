package namespace

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	// creationInterval is the time after which a peer may have one more twin created. A suite
	// of tests that makes a namespace in each second is steady use, and never slower for it.
	creationInterval = time.Second
	// fewestCreations is the least number of twins that a peer may have created at once.
	fewestCreations = 20
)

// beyond returns the entries of a map for which there is no room: a peer may have at most
// most twins. All its twins count, also those that are being deleted or are kept for their
// volumes. An existing twin always stays.
func beyond(nm *offloadingv1beta1.NamespaceMap, twins map[string]*corev1.Namespace, most int) map[string]bool {
	out := map[string]bool{}
	count := len(twins)
	for _, original := range slices.Sorted(maps.Keys(nm.Spec.DesiredMapping)) {
		switch {
		case twins[nm.Spec.DesiredMapping[original]] != nil:
		case count < most:
			count++
		default:
			out[original] = true
		}
	}
	return out
}

// tooMany is the message for an entry for which there is no room.
func (m *Maps) tooMany(peer string) string {
	return fmt.Sprintf("cluster %s may have %d namespaces in %s, and has or asks for more: offload fewer, or have sharing.namespacesPerPeer of %s raised. Namespaces that are being deleted or are kept for their volumes count too",
		peer, m.cfg.NamespacesPerPeer, m.cfg.ClusterID, m.cfg.ClusterID)
}

// tooOften is the error for a twin that is created later.
type tooOften struct{ wait time.Duration }

// Error implements error.
func (tooOften) Error() string {
	return fmt.Sprintf("more namespaces were created for the cluster in a short time than sharing.namespacesPerPeer: one more is created each %s, and this one follows by itself", creationInterval)
}
