// Package v1alpha1 holds the sharing.liqo.io/v1alpha1 kinds, by which clusters negotiate
// capacity: ResourceRequest and ResourceOffer (seed 003). It imports nothing of ours but
// what the kinds share with ForeignCluster.
//
// +k8s:deepcopy-gen=package
// +groupName=sharing.liqo.io
package v1alpha1
