// Package v1beta1 holds the offloading.liqo.io/v1beta1 kinds: VirtualNode,
// NamespaceOffloading, NamespaceMap and ShadowPod, with the labels, annotations,
// condition types and reasons that go with them. It imports nothing of ours.
//
// +k8s:deepcopy-gen=package
// +groupName=offloading.liqo.io
package v1beta1
