// Package v1beta1 holds the networking.liqo.io/v1beta1 kinds, by which two clusters join
// their networks: Configuration, with which each tells the other its ranges and gateways,
// and Connection, which each makes of both. It imports nothing of ours.
//
// +k8s:deepcopy-gen=package
// +groupName=networking.liqo.io
package v1beta1
