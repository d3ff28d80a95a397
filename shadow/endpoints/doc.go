// Package endpoints keeps the EndpointSlices of ShadowEndpointSlices in a provider. A
// consumer writes the ShadowEndpointSlices, with addresses of its own cluster. Only the
// provider writes EndpointSlices: it translates the addresses, leaves out addresses outside
// the consumer's ranges, and marks an endpoint ready only while the consumer says so and
// the consumer's API server and network checks pass. While a check is Unknown, endpoints
// keep their last readiness for a grace period.
//
// A label or annotation of the ShadowEndpointSlice is restored when it changes on the
// EndpointSlice, and removed when it disappears from the ShadowEndpointSlice. Other labels
// and annotations stay. An edit of endpoints or ports is reverted. AppliedAnnotation on the
// EndpointSlice records the keys that come from the ShadowEndpointSlice.
package endpoints
