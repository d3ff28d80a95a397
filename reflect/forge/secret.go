package forge

import (
	"bytes"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Labels that the token controllers of this cluster keep on a service account's token.
const (
	tokenLastUsedLabel = "kubernetes.io/legacy-token-last-used"
	tokenInvalidLabel  = "kubernetes.io/legacy-token-invalid-since"
)

// Secret returns the Secret in the provider, or nil for one that stands for a Secret of
// another cluster. The error, if any, is a *Refused. All types go verbatim (a bootstrap
// token means something in kube-system only, which is never a twin namespace), but a
// token of a service account: with tokens it becomes an Opaque Secret, which the
// provider does not take for one of its own service accounts'; without, it is refused.
func Secret(local *corev1.Secret, o ObjectOptions, tokens bool) (*corev1.Secret, error) {
	if Foreign(local, o.OriginClusterID) {
		return nil, nil
	}
	out := local.DeepCopy()
	out.ObjectMeta = o.meta(&local.ObjectMeta)
	out.StringData = nil
	if out.Type == "" {
		out.Type = corev1.SecretTypeOpaque
	}
	if out.Type != corev1.SecretTypeServiceAccountToken {
		return out, nil
	}
	if !tokens {
		return nil, &Refused{ReasonReflectionDisabled, fmt.Sprintf("Secret %s has type %s: tokens of service accounts stay in this cluster; a copy of other type is reflected",
			local.Name, local.Type)}
	}
	opaqueToken(out, local.Annotations[corev1.ServiceAccountNameKey])
	return out, nil
}

// opaqueToken turns the forged token of a service account of that name into data.
func opaqueToken(out *corev1.Secret, account string) {
	out.Type = corev1.SecretTypeOpaque
	// The name may be longer than a label's value.
	if account != "" && len(validation.IsValidLabelValue(account)) == 0 {
		out.Labels[offloadingv1beta1.ServiceAccountNameLabel] = account
	}
	leave(&out.ObjectMeta, []string{tokenLastUsedLabel, tokenInvalidLabel},
		[]string{corev1.ServiceAccountNameKey, corev1.ServiceAccountUIDKey})
}

// MergeSecret returns have made as wanted. It shares the content of both.
func MergeSecret(have, want *corev1.Secret) *corev1.Secret {
	out := *have
	out.ObjectMeta = *have.ObjectMeta.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	out.Data, out.Immutable, out.Type = mergeData(have.Data, want.Data), mergeImmutable(have.Immutable, want.Immutable), want.Type
	return &out
}

// mergeData returns what is wanted, made of the values of have where they are equal: what
// compares objects in general does so byte by byte, but for what is one and the same.
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

// ReplacesSecret tells whether have must be deleted and created anew to become as
// wanted: its type never changes, and its content not when it is immutable.
func ReplacesSecret(have, want *corev1.Secret) bool {
	return have.Type != want.Type || value(have.Immutable) && !maps.EqualFunc(have.Data, want.Data, bytes.Equal)
}
