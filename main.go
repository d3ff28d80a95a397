// Command liqod joins Kubernetes clusters: every role of it, and the commands for people.
package main

import (
	_ "embed"
	"os"

	"github.com/liqod/liqod/roles"
)

//go:embed config.yaml
var configYAML []byte

func main() {
	os.Exit(roles.Execute(os.Args, configYAML, os.Stdout, os.Stderr))
}
