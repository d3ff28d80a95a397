// Package client builds the configuration of API clients: where the API server is, who
// we are to it, and how requests behave when it is slow, away or hostile. It knows
// Kubernetes, and nothing of liqod.
//
// From the outside in, a hardened request passes patience (informers' reads only), the
// cap of concurrent writes, the gate (a lease's fence), the observer and the deadline.
package client
