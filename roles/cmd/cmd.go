// Package cmd holds the commands for people. A command talks to the cluster of the
// kubeconfig, with the rights of the user. It does nothing that kubectl could not do with the
// same kinds.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
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

// Config configures the commands.
type Config struct {
	// Program is the name of the program in help texts and messages.
	Program string
	// Build describes this binary.
	Build Build
}

// commands has the fields that all commands share. Tests replace connect and every.
type commands struct {
	program string
	build   Build
	connect func(*connection) (*clients, error)
	every   time.Duration // time between two looks at the awaited objects
}

// New returns the commands. They start nothing, and connect when they run.
func New(cfg Config) []*cobra.Command {
	c := &commands{program: cfg.Program, build: cfg.Build, connect: (*connection).clients, every: 500 * time.Millisecond}
	return c.all()
}

func (c *commands) all() []*cobra.Command {
	return completeKubeconfigs([]*cobra.Command{
		c.token(), c.peer(), c.unpeer(), c.offer(), c.offload(), c.unoffload(), c.status(), c.check(), c.dashboard(), c.network(), c.gather(), c.generate(), c.storage(), c.uninstall(), c.versions(),
	})
}

// example puts the name of the program into the lines of an example.
func (c *commands) example(lines string) string { return fmt.Sprintf(lines, c.program) }

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
	parent.Example = only.Example
	parent.Long = only.Long
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
func (c choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

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

// completer completes the first argument of a command with what it finds in the cluster.
func (c *commands) completer(conn *connection, find func(context.Context, *clients) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
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
