package forge

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/reasons"
)

// Secret returns the Secret in the provider. An error is always a *Refused. All types are reflected unchanged
// except the token of a service account, which is refused. Bootstrap tokens need no special
// case: they are only valid in kube-system, which is never a twin namespace.
func Secret(local *corev1.Secret, o ObjectOptions) (*corev1.Secret, error) {
	if local.Type == corev1.SecretTypeServiceAccountToken {
		return nil, &Refused{reasons.ReflectionDisabled, fmt.Sprintf("Secret %s has type %s: tokens of service accounts stay in this cluster; a copy of other type is reflected",
			local.Name, local.Type)}
	}
	out := local.DeepCopy()
	out.ObjectMeta = o.meta(&local.ObjectMeta)
	out.StringData = nil
	out.Type = cmp.Or(out.Type, corev1.SecretTypeOpaque)
	return out, nil
}

// MergeSecret returns a copy of have that is as wanted. It shares the content of its
// arguments.
func MergeSecret(have, want *corev1.Secret) *corev1.Secret {
	out := *have
	out.ObjectMeta = *have.ObjectMeta.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	out.Data, out.Immutable, out.Type = mergeData(have.Data, want.Data), mergeImmutable(have.Immutable, want.Immutable), want.Type
	return &out
}

// mergeData returns want, but reuses the values of have where they are equal. A generic
// comparison of have and the result is then fast, because it skips values that share
// memory instead of comparing them byte by byte.
func mergeData(have, want map[string][]byte) map[string][]byte {
	if want == nil {
		return nil
	}
	out := make(map[string][]byte, len(want))
	for key, value := range want {
		if old, ok := have[key]; ok && bytes.Equal(old, value) {
			value = old
		}
		out[key] = value
	}
	return out
}

// ReplacesSecret reports whether have must be deleted and created again to become as
// wanted: its type is immutable, and so is its content if the field immutable is set.
func ReplacesSecret(have, want *corev1.Secret) bool {
	return have.Type != want.Type || value(have.Immutable) && !maps.EqualFunc(have.Data, want.Data, bytes.Equal)
}
