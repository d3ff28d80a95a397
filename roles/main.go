package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/liqod/liqod/roles/cmd"
	"github.com/liqod/liqod/roles/cmd/report"
)

// Exit codes of the binary, beside those of package cmd.
const (
	exitFailure = 1   // the command failed
	exitKilled  = 130 // a second signal arrived during the shutdown
)

const (
	ownName    = "liqod"
	pluginName = "kubectl liqo"
)

var errKilled = errors.New("killed by a second signal")

// Execute runs the binary and returns its exit code: 0, 1 for a failure, 2 for a command line
// or configuration that is not accepted, 130 after a second signal, and the codes of the
// commands. The first argument is the name of the called program. With the name
// kubectl-liqo, the binary is a plugin of kubectl. configYAML is the embedded config.yaml.
func Execute(args []string, configYAML []byte, stdout, stderr io.Writer) int {
	return run(allRoles(), args, configYAML, stdout, stderr)
}

func run(all []Role, args []string, configYAML []byte, stdout, stderr io.Writer) int {
	// Room for two: a second signal must not be lost during the shutdown.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	name := programName(args)
	root, err := newCommand(program{name: name, roles: all, configYAML: configYAML, env: os.Environ(), signals: signals})
	called := root // the command of args, after it has run
	if err == nil {
		root.SetArgs(args[min(1, len(args)):])
		root.SetOut(stdout)
		root.SetErr(stderr)
		called, err = root.ExecuteContextC(context.Background())
	}
	var coded *cmd.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded) && coded.Err == nil:
		return coded.Code
	}
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", name, report.Printable(err.Error()))
	switch {
	case errors.Is(err, errKilled):
		return exitKilled
	case coded == nil:
		return exitFailure
	case coded.Usage:
		_, _ = fmt.Fprintf(stderr, "%s --help says more.\n", called.CommandPath())
	}
	return coded.Code
}

// programName returns the name of the program for messages and help texts.
func programName(args []string) string {
	if len(args) > 0 && strings.TrimSuffix(filepath.Base(args[0]), ".exe") == "kubectl-liqo" {
		return pluginName
	}
	return ownName
}

// allRoles returns every role, in the order of the documentation.
func allRoles() []Role {
	return []Role{
		{Name: "controller", Short: "peers, namespaces, virtual nodes, and the pods of peers; one active replica", Build: buildController},
		{Name: "vkubelet", Short: "one virtual node: its Node, its pods, the kubelet API; one active replica", Build: buildVKubelet},
		{Name: "webhook", Short: "admission of pods in offloaded namespaces; every replica serves", Build: buildWebhook},
		{Name: "gateway", Short: "tunnels to the peers and address translation", Build: buildGateway},
		{Name: "route", Short: "overlay and routes between a node's pods and the gateways", Build: buildRoute},
		{Name: "ipam", Short: "allocation of networks and addresses; one active replica", Build: buildIPAM},
	}
}
