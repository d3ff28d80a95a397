// Package cmd holds the commands for people. A command talks to the cluster of the
// kubeconfig, with the rights of the user. It does nothing that kubectl could not do with the
// same kinds.
package cmd

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/roles/cmd/report"
)

// Exit codes of the commands, beside 0.
const (
	// ExitProblem means that the command has failed, or has found a problem.
	ExitProblem = 1
	// ExitUsage means that the command line is wrong. The command has sent no request.
	ExitUsage = 2
	// ExitUnknown means that the command could not determine the state.
	ExitUnknown = 2
	// ExitInterrupted means that a signal ended the command.
	ExitInterrupted = 130
)

// Error ends the program with a code of its own.
type Error struct {
	// Code is the exit code.
	Code int
	// Err is printed. It is nil if the command has printed everything.
	Err error
	// Usage makes the program refer to the help of the command.
	Usage bool
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns what is told.
func (e *Error) Unwrap() error { return e.Err }

// UsageError returns the error of a wrong command line. The command has sent no request.
func UsageError(err error) error { return &Error{Code: ExitUsage, Err: err, Usage: true} }

// Usagef is UsageError with a formatted error.
func Usagef(format string, args ...any) error { return UsageError(fmt.Errorf(format, args...)) }

func unknown(err error) error { return &Error{Code: ExitUnknown, Err: err} }

// commands has the fields that all commands share. Tests replace connect and every.
type commands struct {
	program string // its name in help texts and messages
	build   Build
	connect func(*connection) (*clients, error)
	every   time.Duration // time between two looks at the awaited objects
}

//go:embed help.yaml
var helpYAML string

// interruptible ends the context of a command at the first signal.
func interruptible(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		if err != nil && ctx.Err() != nil {
			return &Error{Code: ExitInterrupted, Err: errors.New("interrupted")}
		}
		return err
	}
}

// parent returns a command that only has others below it.
func parent(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(below...)
	return OnlyBelow(cmd)
}

// OnlyBelow has a command refuse everything but the commands below it, and returns it.
func OnlyBelow(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, c := range cmd.Commands() {
			if !c.Hidden {
				names = append(names, c.Name())
			}
		}
		if len(args) == 0 {
			return Usagef("say what: %s %s", cmd.CommandPath(), strings.Join(names, "|"))
		}
		return Usagef("%s does not know %q: accepted is %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
	}
	cmd.RunE = func(*cobra.Command, []string) error { return nil } // Args refuses all there is
	return cmd
}

// shortened lets a parent with one command below it do without the name of that command:
// "offload shop" is "offload namespace shop".
func shortened(parent, only *cobra.Command) *cobra.Command {
	refuse := parent.Args
	parent.Use += " [" + only.Name() + "] NAME"
	parent.Flags().AddFlagSet(only.Flags())
	parent.ValidArgsFunction = only.ValidArgsFunction
	parent.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] != "" {
			return nil
		}
		return refuse(cmd, args)
	}
	parent.RunE = only.RunE
	return parent
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s takes no arguments: %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// oneName is told the arguments of a command that takes the name of one thing.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 1 && args[0] != "":
			return nil
		case len(args) > 1:
			return Usagef("%s takes one %s, not %d: %s", cmd.CommandPath(), what, len(args), strings.Join(args, ", "))
		}
		return Usagef("%s needs the name of a %s", cmd.CommandPath(), what)
	}
}

// choice is a flag with few values.
type choice struct {
	value  *string
	values []string
}

// String implements pflag.Value.
func (c choice) String() string { return ptr.Deref(c.value, "") }

// Set implements pflag.Value.
func (c choice) Set(s string) error {
	if !slices.Contains(c.values, s) {
		return fmt.Errorf("one of %s is accepted", strings.Join(c.values, ", "))
	}
	*c.value = s
	return nil
}

// Type implements pflag.Value.
func (c choice) Type() string { return strings.Join(c.values, "|") }

// addChoice adds a flag with few values, and completes them.
func addChoice(cmd *cobra.Command, into *string, name, short, usage string, values ...string) {
	cmd.Flags().VarP(choice{into, values}, name, short, usage)
	complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc(name, complete) // fails for flags only that do not exist
}

// completer completes arguments of a command, most of them at most, or a flag with what it finds in the cluster.
func (c *commands) completer(conn *connection, most int, find func(context.Context, *clients) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		to, err := c.connect(conn)
		var names []string
		if err == nil {
			names, _ = find(ctx, to) // what was found before an error is completed
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeKubeconfigs completes the flags of commands that name a part of a kubeconfig. It
// reads the kubeconfig and sends no request.
func completeKubeconfigs(commands []*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		completeKubeconfigs(cmd.Commands())
		completeFrom(cmd, clientcmd.FlagContext, clientcmd.RecommendedConfigPathFlag, contexts)
		completeFrom(cmd, "remote-"+clientcmd.FlagContext, "remote-"+clientcmd.RecommendedConfigPathFlag, contexts)
		completeFrom(cmd, clientcmd.FlagClusterName, clientcmd.RecommendedConfigPathFlag, func(c *clientcmdapi.Config) []string { return sortedKeys(c.Clusters) })
		completeFrom(cmd, clientcmd.FlagAuthInfoName, clientcmd.RecommendedConfigPathFlag, func(c *clientcmdapi.Config) []string { return sortedKeys(c.AuthInfos) })
	}
	return commands
}

func contexts(c *clientcmdapi.Config) []string { return sortedKeys(c.Contexts) }

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// completeFrom completes a flag with names from the kubeconfig that another flag selects.
func completeFrom(cmd *cobra.Command, flag, file string, find func(*clientcmdapi.Config) []string) {
	from := cmd.Flags().Lookup(file)
	if cmd.Flags().Lookup(flag) == nil || from == nil {
		return
	}
	// It fails only for a flag that a command shares with its parent, and completes already.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = from.Value.String()
		config, err := rules.Load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return find(config), cobra.ShellCompDirectiveNoFileComp
	})
}

// completePods completes pods as NAMESPACE/NAME, of the namespaces that are offloaded: first the namespace. Beside
// these it offers what others finds.
func (c *commands) completePods(conn *connection, most int, others func(context.Context, *clients) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, directive := c.completer(conn, most, func(ctx context.Context, to *clients) (out []string, err error) {
			namespace, _, whole := strings.Cut(typed, "/")
			if whole {
				pods, err := to.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
				return report.Names(pods.Items, func(p *corev1.Pod) string { return namespace + "/" + p.Name }), err
			}
			spaces, err := offloadedNames(ctx, to)
			for _, name := range spaces {
				out = append(out, name+"/")
			}
			if err == nil && len(args) == 0 && others != nil {
				more, failed := others(ctx, to)
				out, err = append(out, more...), failed
			}
			return out, err
		})(cmd, args, typed)
		return found, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// nodeNames returns the names of all Nodes.
func nodeNames(ctx context.Context, to *clients) ([]string, error) {
	nodes, err := to.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return report.Names(nodes.Items, func(n *corev1.Node) string { return n.Name }), err
}
