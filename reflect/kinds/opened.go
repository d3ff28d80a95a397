package kinds

// follow updates the map open (by local namespace) to match want, which maps local to
// remote namespaces. It removes and returns entries that are unwanted or have another
// remote namespace, which the caller must close. It starts missing entries.
func follow[T any](open map[string]T, want map[string]string, remoteOf func(T) string, start func(local, remote string) T) (closing []T) {
	for local, have := range open {
		if want[local] != remoteOf(have) {
			closing = append(closing, have)
			delete(open, local)
		}
	}
	for local, remote := range want {
		if _, ok := open[local]; !ok {
			open[local] = start(local, remote)
		}
	}
	return closing
}
