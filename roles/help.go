package roles

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const about = `liqod joins several Kubernetes clusters. A cluster sees each of its peers as a virtual node.
Pods that are scheduled there run in the peer, and stay when the connection is lost.`

const aboutRoles = `One binary has all roles. They exchange data only through the Kubernetes API. A role needs a
kubeconfig, or the service account of its pod.

Settings come from these sources, each replacing the ones before: the defaults (shown with the
flags below), the YAML file of --config, variables (LIQOD_LOG_LEVEL is log.level), flags
(--log.level). An unknown or invalid setting ends the program with code 2. A first SIGTERM or
SIGINT stops all parts in order, within 30s. A second one ends the process at once.`

const roleExamples = `  liqod --role=controller --clusterID=rome --controller.vkubelet.image=liqod:dev
  liqod --role=controller,webhook --config=/etc/liqod/config.yaml
  LIQOD_LOG_LEVEL=debug liqod --role=webhook --kubeconfig=$HOME/.kube/config
  liqod config --role=vkubelet    # the values in effect, and the source of each`

// groups are the groups of commands, in the order of the help. Commands that are not listed
// are shown after them.
var groups = []struct {
	title    string
	commands []string
}{
	{"Peerings", []string{"token", "peer", "unpeer", "offer", "generate"}},
	{"Namespaces", []string{"offload", "unoffload"}},
	{"State", []string{"status", "check", "dashboard", "network", "storage", "gather"}},
	{"Roles and hosts", []string{"config", "cleanup", "uninstall", "host-state", "prepare-gateway"}},
}

// group sorts the commands of root into the groups that have any.
func group(root *cobra.Command) {
	for _, g := range groups {
		for _, c := range root.Commands() {
			if !slices.Contains(g.commands, c.Name()) {
				continue
			}
			if !root.ContainsGroup(g.title) {
				root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
			}
			c.GroupID = g.title
		}
	}
}

// setHelp gives root a help of one screen, and the help of a role if one is given. Commands
// keep the usual help.
func (p program) setHelp(root *cobra.Command, in *input) {
	usual := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		switch {
		case c != root:
			usual(c, args)
		case len(in.roles) > 0:
			p.helpRoles(c, in.roles)
		default:
			p.helpAll(c)
		}
	})
}

// helpAll prints the commands and the roles.
func (p program) helpAll(root *cobra.Command) {
	out := root.OutOrStdout()
	fmt.Fprintf(out, "%s\n\nUsage:\n  %[2]s COMMAND [flags]\n  %[2]s --role=NAME[,NAME] [flags]\n", root.Long, root.Name())
	names := 0
	for _, c := range root.Commands() {
		names = max(names, len(c.Name()))
	}
	for _, g := range root.Groups() {
		fmt.Fprintf(out, "\n%s\n", g.Title)
		helpGroup(out, root.Commands(), g.ID, names)
	}
	fmt.Fprintf(out, "\nOthers:\n")
	helpGroup(out, root.Commands(), "", names)
	fmt.Fprintf(out, "\nRoles (%s --role=NAME --help lists the settings):\n", root.Name())
	for _, r := range p.roles {
		fmt.Fprintf(out, "  %-*s  %s\n", names, r.Name, r.Short)
	}
	fmt.Fprintf(out, "\n%s COMMAND --help says more about a command, %[1]s --version prints the version.\n", root.Name())
}

// helpGroup prints the commands of a group, in the order of groups.
func helpGroup(out io.Writer, commands []*cobra.Command, id string, width int) {
	shown := slices.DeleteFunc(slices.Clone(commands), func(c *cobra.Command) bool {
		return c.GroupID != id || !c.IsAvailableCommand() && c.Name() != "help"
	})
	slices.SortStableFunc(shown, func(a, b *cobra.Command) int { return cmp.Compare(place(a), place(b)) })
	for _, c := range shown {
		fmt.Fprintf(out, "  %-*s  %s\n", width, c.Name(), c.Short)
	}
}

func place(c *cobra.Command) int {
	for _, g := range groups {
		if i := slices.Index(g.commands, c.Name()); i >= 0 {
			return i
		}
	}
	return 0
}

// helpRoles prints what the given roles do, and the flags of the settings.
func (p program) helpRoles(root *cobra.Command, names []string) {
	out := root.OutOrStdout()
	found, err := find(p.roles, names)
	if err != nil {
		fmt.Fprintln(root.ErrOrStderr(), err)
		p.helpAll(root)
		return
	}
	for _, r := range found {
		fmt.Fprintf(out, "Role %s: %s\n", r.Name, r.Short)
	}
	fmt.Fprintf(out, "\n%s\n\nUsage:\n  %s --role=%s [flags]\n\nExamples:\n%s\n\nFlags:\n%s", aboutRoles, root.Name(), strings.Join(names, ","),
		roleExamples, root.LocalFlags().FlagUsages())
}
