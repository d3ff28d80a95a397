// Package conformance names what the conformance suite of Kubernetes consists of: the tests, and the programs of the
// images that they run.
package conformance

import _ "k8s.io/kubernetes/test/e2e"
