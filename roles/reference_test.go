package roles

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// update writes docs/commands.md anew: go test ./roles -run TestCommandsReference -update
var update = flag.Bool("update", false, "write generated documents anew")

const referencePath = "../docs/commands.md"

const referenceHead = `<!-- Generated from the commands: go test ./roles -run TestCommandsReference -update -->

# Commands

What people run; the roles of the binary (` + "`liqod --role=…`" + `) and their settings are in [config.yaml](../config.yaml). The commands ask the cluster
of the kubeconfig, as kubectl does, with the rights of who runs them, and use nothing but the kinds that kubectl shows too.

As a plugin of kubectl: put the binary, or a link to it, into the PATH as ` + "`kubectl-liqo`" + `, and type ` + "`kubectl liqo status`" + `. For completion,
put an executable ` + "`kubectl_complete-liqo`" + ` beside it that runs ` + "`kubectl liqo __complete \"$@\"`" + `.

Exit codes: 0 done, or all is well; 1 it failed, or there are problems; 2 the command line is wrong, or it could not be found out; 130 interrupted.
`

// rootCommand is liqod with all of its commands.
func rootCommand(t *testing.T) *cobra.Command {
	t.Helper()
	configYAML := must(os.ReadFile("../config.yaml"))
	root := must(newCommand(program{name: ownName, roles: allRoles(), configYAML: configYAML}))
	return root
}

// Whoever changes a command changes its page.
func TestCommandsReference(t *testing.T) {
	root := rootCommand(t)
	root.InitDefaultCompletionCmd()
	want := referenceHead + reference(root.Commands())
	if *update {
		require.NoError(t, os.WriteFile(referencePath, []byte(want), 0o644))
	}
	have := must(os.ReadFile(referencePath))
	require.Equal(t, want, string(have), "docs/commands.md is out of date: go test ./roles -run TestCommandsReference -update")
}

func reference(commands []*cobra.Command) string {
	var b strings.Builder
	for _, c := range commands {
		switch {
		case c.Name() == "completion":
			fmt.Fprintf(&b, "\n## %s SHELL\n\n%s. Shells: %s. `%s bash --help` says where to put it.\n", c.CommandPath(), c.Short, strings.Join(names(c.Commands()), ", "), c.CommandPath())
			continue
		case c.Name() == "help", c.Hidden:
			continue
		case c.HasSubCommands():
			b.WriteString(reference(c.Commands()))
			continue
		}
		c.SetOut(io.Discard)
		_ = c.Help() // gives it its texts
		about := c.Long
		if about == "" {
			about = c.Short + "."
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", c.CommandPath(), about)
		fmt.Fprintf(&b, "\n```\n%s\n```\n", c.UseLine())
		if c.Example != "" {
			fmt.Fprintf(&b, "\n```bash\n%s\n```\n", unindent(c.Example))
		}
		c.InitDefaultHelpFlag()
		if c.Name() != "config" { // its flags are the settings
			fmt.Fprintf(&b, "\n```\n%s```\n", unindent(c.LocalFlags().FlagUsages()))
		}
	}
	return b.String()
}

func names(commands []*cobra.Command) (out []string) {
	for _, c := range commands {
		out = append(out, c.Name())
	}
	return out
}

// unindent takes two spaces from the beginning of each line.
func unindent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n  ", "\n"), "  ")
}
