package kinds

// follow makes open, by local namespace, match want, local to remote names: what leads to
// another namespace, or is not wanted, is taken out and returned, for the caller to close;
// what is missing is started.
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
