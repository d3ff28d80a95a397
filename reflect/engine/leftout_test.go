package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestAnnotationsThatAProviderLeavesOut: the object is reflected without them, one event
// says which they are, and no write follows.
func TestAnnotationsThatAProviderLeavesOut(t *testing.T) {
	r := newRig()
	r.admit = func(cm *corev1.ConfigMap) {
		delete(cm.Annotations, "cert-manager.io/issuer")
		delete(cm.Annotations, "example.com/odd")
	}
	r.offload(t, "shop")
	r.createHome(t, local("app", annotated("cert-manager.io/issuer"), annotated("example.com/odd"), annotated("note")))
	r.start(t)
	r.requireWrites(t, "create configmaps", "patch configmaps")
	r.requireEvent(t, "AnnotationsLeftOut", "cluster milan", ": cert-manager.io/issuer, example.com/odd;", "sharing.annotations")
	require.Equal(t, "true", r.there(t, "app").Annotations["note"])
	r.engine.Resync()
	r.idle(t, "shop")
	r.silent(t, "the provider has left the same annotations out")
	require.Empty(t, r.events.Events, "told once")
}
