// Package client builds the configuration of Kubernetes API clients: the address of the
// API server, the credentials, and the behaviour of requests when the server is slow,
// unreachable or hostile. It has no liqod types.
//
// A hardened request passes these round trippers, outermost first: patience (retries the
// reads of informers), headed (ends watches after the state of the server went back), capped
// (bounds concurrent writes), gated (rejects writes without a valid lease), observed (metrics)
// and deadline (timeouts). Below them is distrusted, for an API server of another
// organisation: it pins the host and limits sizes.
package client
