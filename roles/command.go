package roles

import (
	"errors"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/liqod/liqod/roles/cmd"
	"github.com/liqod/liqod/roles/config"
)

// program is the input of the commands.
type program struct {
	name       string
	roles      []Role
	configYAML []byte
	env        []string
	signals    <-chan os.Signal
}

func newCommand(p program) (*cobra.Command, error) {
	settings, err := config.Schema(p.configYAML)
	if err != nil {
		return nil, err
	}
	root := &cobra.Command{
		Use:                        "liqod --role=NAME[,NAME]",
		Short:                      "Seamless Kubernetes multi-cluster",
		Long:                       about,
		Args:                       noArguments,
		Version:                    build().String(),
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(cmd.Commands(p.name, build())...)
	if p.name == pluginName {
		asPlugin(root)
		group(root)
		return completed(root), nil
	}
	in := addFlags(root.Flags(), settings)
	root.RunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().NFlag() == 0 {
			return c.Help()
		}
		return p.start(c, in)
	}
	root.AddCommand(configCommand(p, settings))
	root.AddCommand(hostCommands()...)
	group(root)
	p.setHelp(root, in)
	return completed(root), nil
}

// completed adds the command completion, which refuses shells that it does not know.
func completed(root *cobra.Command) *cobra.Command {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			cmd.OnlyBelow(c)
		}
	}
	return root
}

// asPlugin turns root into the root command of the kubectl plugin, which runs no roles.
func asPlugin(root *cobra.Command) {
	root.Use, root.Long = "kubectl-liqo", ""
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: pluginName}
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

// noArguments returns an error if there are arguments besides flags and commands.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasParent() {
		return cmd.Usagef("%s takes no arguments: %q", c.CommandPath(), args[0])
	}
	if known := ofLiqoctl(args); known != "" {
		return cmd.Usagef("%s", known)
	}
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return cmd.Usagef("unknown command %q; did you mean %s?", args[0], strings.Join(near, ", "))
	}
	var names []string
	for _, below := range c.Commands() {
		names = append(names, below.Name())
	}
	hint := "; roles are run by --role=NAME"
	if c.Flags().Lookup("role") == nil {
		hint = ""
	}
	return cmd.Usagef("unknown command %q: the commands are %s%s", args[0], strings.Join(names, ", "), hint)
}

// input has the values of the flags that are no settings.
type input struct {
	settings []config.Setting
	roles    []string
	file     string
}

func addFlags(flags *pflag.FlagSet, settings []config.Setting) *input {
	in := &input{settings: settings}
	flags.SortFlags = false
	flags.StringSliceVar(&in.roles, "role", nil, "`roles` to run in this process")
	flags.StringVar(&in.file, "config", "", "`file` with settings, in the form of config.yaml")
	config.AddFlags(flags, settings)
	return in
}

func flagError(c *cobra.Command, err error) error {
	if known := ofLiqoctl(c.Flags().Args()); known != "" && !c.HasParent() {
		return cmd.Usagef("%s", known)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return cmd.UsageError(err)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := config.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return cmd.Usagef("unknown flag --%s; did you mean --%s?", unknown.GetSpecifiedName(), near)
	}
	return cmd.Usagef("unknown flag --%s", unknown.GetSpecifiedName())
}

func (p program) load(c *cobra.Command, in *input) (*config.Effective, error) {
	cfg, err := config.Load(config.Sources{Settings: in.settings, File: in.file, Env: p.env, Flags: c.Flags()})
	if err != nil {
		return nil, cmd.UsageError(err)
	}
	if err := cfg.ValidateFor(in.roles); err != nil {
		return nil, cmd.UsageError(err)
	}
	return cfg, nil
}

func (p program) start(c *cobra.Command, in *input) error {
	roles, err := find(p.roles, in.roles)
	if err != nil {
		return err
	}
	if err := runsOn(runtime.GOOS, roles); err != nil {
		return err
	}
	cfg, err := p.load(c, in)
	if err != nil {
		return err
	}
	proc := newProcess(cfg, c.ErrOrStderr())
	if err := proc.bridge(); err != nil {
		return err
	}
	return proc.run(c.Context(), roles, p.signals)
}

func configCommand(p program, settings []config.Setting) *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration, and where each value came from",
		Long: "Config prints what a process started with the same flags, file and environment would use,\n" +
			"as YAML that --config accepts. With --role it also checks what those roles need.",
		Args: noArguments,
	}
	in := addFlags(c.Flags(), settings)
	c.RunE = func(c *cobra.Command, _ []string) error {
		for _, name := range in.roles {
			if _, err := find(p.roles, []string{name}); err != nil {
				return err
			}
		}
		cfg, err := p.load(c, in)
		if err != nil {
			return err
		}
		return cfg.Print(c.OutOrStdout())
	}
	return c
}
