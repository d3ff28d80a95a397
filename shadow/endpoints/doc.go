// Package endpoints keeps in a provider the EndpointSlices that ShadowEndpointSlices ask
// for. A consumer writes the shadows, and says in them its endpoints' own addresses; the
// provider alone writes EndpointSlices: it translates the addresses, leaves out those that
// are not the consumer's to give, and lets an endpoint count as ready only while the
// consumer is well (seed 000, DESIGN.md section 6 rule 4).
//
// What is asked for follows the ShadowEndpointSlice. Its labels and annotations are put
// back when they change, and those that it no longer has are removed; what others added
// stays. Endpoints and ports are the shadow's alone: an edit of them is undone.
// AppliedAnnotation on the EndpointSlice remembers what came from the shadow.
package endpoints
