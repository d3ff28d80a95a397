package forge

import (
	"bytes"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// RootCAConfigMap is the name of the ConfigMap with the certificates of the cluster's own
// API server, that every namespace has. It is reflected under any policy: with it pods
// of this cluster know their API server from the provider, too.
const RootCAConfigMap = "kube-root-ca.crt"

// rootCASuffixLength is how many characters of the cluster's id tell its root CA from
// that of the provider, which has the name without it.
const rootCASuffixLength = 5

// RemoteConfigMapName returns the name in the provider of a ConfigMap of the cluster
// with that id.
func RemoteConfigMapName(name, originClusterID string) string {
	if name != RootCAConfigMap {
		return name
	}
	suffix := originClusterID[:min(len(originClusterID), rootCASuffixLength)]
	// A name may not end like this, which the beginning of an id may.
	return RootCAConfigMap + "." + strings.TrimRight(suffix, "-.")
}

// LocalConfigMapName is the inverse of RemoteConfigMapName.
func LocalConfigMapName(remoteName, originClusterID string) string {
	if remoteName == RemoteConfigMapName(RootCAConfigMap, originClusterID) {
		return RootCAConfigMap
	}
	return remoteName
}

// ConfigMap returns the ConfigMap in the provider, or nil for one that stands for a
// ConfigMap of another cluster. The error, if any, is a *Refused.
func ConfigMap(local *corev1.ConfigMap, o ObjectOptions) (*corev1.ConfigMap, error) {
	if Foreign(local, o.OriginClusterID) {
		return nil, nil
	}
	if local.Name == RemoteConfigMapName(RootCAConfigMap, o.OriginClusterID) {
		return nil, &Refused{ReasonNameTaken, fmt.Sprintf("ConfigMap %s: in the provider this is the name of %s of this cluster; use another name",
			local.Name, RootCAConfigMap)}
	}
	out := local.DeepCopy()
	out.ObjectMeta = o.meta(&local.ObjectMeta)
	out.Name = RemoteConfigMapName(local.Name, o.OriginClusterID)
	return out, nil
}

// MergeConfigMap returns have made as wanted. It shares the content of both.
func MergeConfigMap(have, want *corev1.ConfigMap) *corev1.ConfigMap {
	out := *have
	out.ObjectMeta = *have.ObjectMeta.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	out.Data, out.BinaryData = want.Data, mergeData(have.BinaryData, want.BinaryData)
	out.Immutable = mergeImmutable(have.Immutable, want.Immutable)
	return &out
}

// ReplacesConfigMap tells whether have must be deleted and created anew to become as
// wanted, since it is immutable, and its content differs.
func ReplacesConfigMap(have, want *corev1.ConfigMap) bool {
	return value(have.Immutable) && !(maps.Equal(have.Data, want.Data) && maps.EqualFunc(have.BinaryData, want.BinaryData, bytes.Equal))
}

// mergeImmutable returns what is wanted, but that what is immutable stays so: admission in
// the provider may have made it, and would again.
func mergeImmutable(have, want *bool) *bool {
	if value(have) {
		return have
	}
	return want
}
