// Package v1beta1 holds the core.liqo.io/v1beta1 kinds: ForeignCluster, the record
// of one peer. It imports nothing of ours.
//
// +k8s:deepcopy-gen=package
// +groupName=core.liqo.io
package v1beta1
