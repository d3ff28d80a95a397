package roles

import (
	"runtime"
	"runtime/debug"

	"github.com/liqod/liqod/roles/cmd"
	"github.com/liqod/liqod/roles/cmd/report"
)

// version returns the version that the Go command has recorded in the binary, in the form of
// report.PlainVersion.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return report.PlainVersion(info.Main.Version)
}

func build() cmd.Build {
	return cmd.Build{Version: version(), GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
}
