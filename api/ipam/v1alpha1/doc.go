// Package v1alpha1 holds the ipam.liqo.io/v1alpha1 kinds: Network and IP, which claim a
// range or an address, and AddressPool, the allocator's record. It imports nothing of ours
// but the kinds of addresses.
//
// +k8s:deepcopy-gen=package
// +groupName=ipam.liqo.io
// +groupGoName=IPAM
package v1alpha1
