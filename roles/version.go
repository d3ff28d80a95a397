package roles

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version returns what the Go command recorded about the source: a tag, or the commit
// and whether it was changed.
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
