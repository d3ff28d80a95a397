// Package namespace offloads namespaces. In the consumer, Offloading turns
// NamespaceOffloadings into entries of NamespaceMaps, one map per provider. It writes to
// its own cluster only, and never waits for a provider. In the provider, Maps reads the
// NamespaceMaps that peers have replicated into their tenant namespaces. It creates a twin
// namespace for each entry, with the peer's rights in it, and deletes a twin whose entry is
// gone. A peer is another organisation, so Maps validates everything that it reads from a
// map.
package namespace
