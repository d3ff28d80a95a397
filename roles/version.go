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

// buildInfo describes a binary.
type buildInfo struct {
	// Version is that of liqod, GoVersion that of the compiler.
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	// Platform is the operating system and the architecture.
	Platform string `json:"platform"`
}

func build() buildInfo {
	return buildInfo{Version: version(), GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

func versionLine() string {
	b := build()
	return fmt.Sprintf("liqod %s (%s, %s)", b.Version, b.GoVersion, b.Platform)
}
