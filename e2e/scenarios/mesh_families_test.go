package scenarios

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/e2e/lab"
)

// testMeshFamilies: of two providers one has Services of IPv4 only. What prefers both
// families has the one there; what requires both is refused there, and somebody is told.
func testMeshFamilies(t *testing.T, m mesh) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	turin := m.list[2]
	w := &world{sites: m.sites, rome: m.list[0], milan: m.list[1]}
	s := w.servicePair(t, "families")
	other := servicePair{w, s.home, turin.Client().CoreV1().Services("families-rome")}
	for _, service := range []*corev1.Service{familiesOf("prefer", corev1.IPFamilyPolicyPreferDualStack), familiesOf("require", corev1.IPFamilyPolicyRequireDualStack)} {
		local := s.create(t, service)
		s.until(t, local.Name, local.Name+" of both families in milan", ofFamilies(w.milan, v4, v6))
		if local.Name == "require" {
			w.eventAbout(t, local, "FailedReflection", "cluster turin refuses it")
		}
	}
	other.until(t, "prefer", "of the family that turin has", ofFamilies(turin, v4))
	away(t, "not of fewer families than are required", getter(other.remote, "require"))
	s.patch(t, "require", `{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`)
	other.until(t, "require", "no longer refused", ofFamilies(turin, v4))
	begin := time.Now()
	hold(t, time.Until(begin.Add(2*time.Second)), "what turin lacks is not asked for again", func(context.Context) error {
		all := m.writes(t, turin, begin)
		return lab.Wrong(nil, len(all) > 0, "%v", all)
	})
}
