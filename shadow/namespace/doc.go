// Package namespace offloads namespaces. In the consumer, Offloading turns
// NamespaceOffloadings into entries of NamespaceMaps, one map per provider; it writes
// to its own cluster only, and never waits for a provider. In the provider, Maps turns
// the maps that peers have put into their tenant namespaces into twin namespaces, with
// the rights in them, and removes them again. A peer is another organisation: what
// Maps reads from it is judged before it is done.
package namespace
