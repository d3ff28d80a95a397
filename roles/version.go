package roles

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version returns the version that the Go command has recorded in the binary: a tag, or a
// commit with a mark for local changes.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

func versionLine() string {
	return fmt.Sprintf("liqod %s (%s, %s/%s)", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
