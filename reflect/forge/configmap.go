package forge

import (
	"bytes"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/reasons"
)

// RootCAConfigMap is the name of the ConfigMap with the CA certificates of the cluster's
// API server. Kubernetes creates it in every namespace. It is reflected under any policy,
// so that offloaded pods can verify the API server of their own cluster.
const RootCAConfigMap = "kube-root-ca.crt"

// rootCASuffixLength is the number of characters of the cluster id that are appended to
// the name of the reflected root CA. The name without a suffix belongs to the provider's
// own root CA.
const rootCASuffixLength = 5

// RemoteConfigMapName returns the name in the provider of a ConfigMap of the cluster with
// this id.
func RemoteConfigMapName(name, originClusterID string) string {
	if name != RootCAConfigMap {
		return name
	}
	suffix := originClusterID[:min(len(originClusterID), rootCASuffixLength)]
	// A prefix of an id may end in characters that a name must not end in.
	return RootCAConfigMap + "." + strings.TrimRight(suffix, "-.")
}

// LocalConfigMapName is the inverse of RemoteConfigMapName.
func LocalConfigMapName(remoteName, originClusterID string) string {
	if remoteName == RemoteConfigMapName(RootCAConfigMap, originClusterID) {
		return RootCAConfigMap
	}
	return remoteName
}

// ConfigMap returns the ConfigMap in the provider. An error is always a *Refused.
func ConfigMap(local *corev1.ConfigMap, o ObjectOptions) (*corev1.ConfigMap, error) {
	if local.Name == RemoteConfigMapName(RootCAConfigMap, o.OriginClusterID) {
		return nil, &Refused{reasons.NameTaken, fmt.Sprintf("ConfigMap %s: in the provider this is the name of %s of this cluster; use another name",
			local.Name, RootCAConfigMap)}
	}
	out := local.DeepCopy()
	out.ObjectMeta = o.meta(&local.ObjectMeta)
	out.Name = RemoteConfigMapName(local.Name, o.OriginClusterID)
	return out, nil
}

// MergeConfigMap returns a copy of have that is as wanted. It shares the content of its
// arguments.
func MergeConfigMap(have, want *corev1.ConfigMap) *corev1.ConfigMap {
	out := *have
	out.ObjectMeta = *have.ObjectMeta.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	out.Data, out.BinaryData = want.Data, mergeData(have.BinaryData, want.BinaryData)
	out.Immutable = mergeImmutable(have.Immutable, want.Immutable)
	return &out
}

// ReplacesConfigMap reports whether have must be deleted and created again to become as
// wanted: it is immutable and its content differs.
func ReplacesConfigMap(have, want *corev1.ConfigMap) bool {
	return value(have.Immutable) && !(maps.Equal(have.Data, want.Data) && maps.EqualFunc(have.BinaryData, want.BinaryData, bytes.Equal))
}

// mergeImmutable returns want, unless have is already immutable: the field cannot be
// reset. An admission webhook of the provider may have set it, and would set it again on
// a new object.
func mergeImmutable(have, want *bool) *bool {
	if value(have) {
		return have
	}
	return want
}
