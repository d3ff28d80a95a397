package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reflect/forge"
)

func TestWishFor(t *testing.T) {
	scope := Scope{Policy: forge.DenyList, ObjectOptions: forge.ObjectOptions{OriginClusterID: "rome", DestinationClusterID: "milan", RemoteNamespace: "shop-rome"}}
	onlyTo := func(cluster string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) {
			cm.Annotations = map[string]string{offloadingv1beta1.ReflectOnlyToAnnotation: cluster}
		}
	}
	refusing := configMaps()
	refusing.Forge = func(*corev1.ConfigMap, Scope) (*corev1.ConfigMap, error) {
		return nil, &forge.Refused{Reason: "NotNow", Message: "later"}
	}
	carried := configMaps()
	carried.Foreign = func(*corev1.ConfigMap, Scope) bool { return false }
	carried.Forge = func(cm *corev1.ConfigMap, _ Scope) (*corev1.ConfigMap, error) { return cm, nil }
	failing := configMaps()
	failing.Forge = func(*corev1.ConfigMap, Scope) (*corev1.ConfigMap, error) { return nil, errors.New("broken") }
	for name, tc := range map[string]struct {
		kind    Kind[*corev1.ConfigMap, *corev1.ConfigMap]
		local   *corev1.ConfigMap
		policy  forge.Policy
		want    bool
		reason  string
		message string
		fails   bool
	}{
		"gone":                   {kind: configMaps()},
		"there":                  {kind: configMaps(), local: local("app"), want: true},
		"of another cluster":     {kind: configMaps(), local: local("app", func(cm *corev1.ConfigMap) { cm.Labels[offloadingv1beta1.OriginLabel] = "paris" })},
		"not for such a kind":    {kind: carried, local: local("app", func(cm *corev1.ConfigMap) { cm.Labels[offloadingv1beta1.OriginLabel] = "paris" }), want: true},
		"of ours, come back":     {kind: configMaps(), local: local("app", func(cm *corev1.ConfigMap) { cm.Labels[offloadingv1beta1.OriginLabel] = "rome" }), want: true},
		"excluded":               {kind: configMaps(), local: local("app", annotated(offloadingv1beta1.SkipReflectionAnnotation))},
		"not allowed":            {kind: configMaps(), local: local("app"), policy: forge.AllowList},
		"allowed":                {kind: configMaps(), local: local("app", annotated(offloadingv1beta1.AllowReflectionAnnotation)), policy: forge.AllowList, want: true},
		"both annotations":       {kind: configMaps(), local: local("app", annotated(offloadingv1beta1.AllowReflectionAnnotation), annotated(offloadingv1beta1.SkipReflectionAnnotation)), reason: offloadingv1beta1.ReasonFailedReflection, message: BothAnnotations},
		"for this cluster only":  {kind: configMaps(), local: local("app", onlyTo("milan")), want: true},
		"for another cluster":    {kind: configMaps(), local: local("app", onlyTo("turin"), annotated(offloadingv1beta1.AllowReflectionAnnotation))},
		"refused":                {kind: refusing, local: local("app"), reason: "NotNow", message: "later"},
		"excluded before it all": {kind: failing, local: local("app", annotated(offloadingv1beta1.SkipReflectionAnnotation))},
		"failing":                {kind: failing, local: local("app"), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := scope
			if tc.policy != "" {
				s.Policy = tc.policy
			}
			w, err := tc.kind.wishFor(tc.local, s)
			require.Equal(t, tc.fails, err != nil)
			require.Equal(t, tc.want, w.want != nil)
			require.Equal(t, tc.reason, w.reason)
			require.Equal(t, tc.message, w.message)
		})
	}
}

func TestMapped(t *testing.T) {
	m := &offloadingv1beta1.NamespaceMap{
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"yes": "yes-rome", "renamed": "new", "refused": "no", "silent": "x"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"yes":     {RemoteNamespace: "yes-rome", Phase: offloadingv1beta1.MappingAccepted},
			"renamed": {RemoteNamespace: "old", Phase: offloadingv1beta1.MappingAccepted},
			"refused": {RemoteNamespace: "no", Phase: offloadingv1beta1.MappingCreationLoopBackOff},
			"over":    {RemoteNamespace: "over-rome", Phase: offloadingv1beta1.MappingAccepted},
		}},
	}
	require.Equal(t, map[string]string{"yes": "yes-rome"}, Mapped(m))
	require.Empty(t, Mapped(nil))
}
