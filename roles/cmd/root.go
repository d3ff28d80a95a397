package cmd

import (
	_ "embed"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Commands returns the commands of a program, which build describes. They start nothing, and connect when they run.
func Commands(program string, build Build) []*cobra.Command {
	c := &commands{program: program, build: build, connect: (*connection).clients, every: 500 * time.Millisecond}
	return c.all()
}

func (c *commands) all() []*cobra.Command {
	return completeKubeconfigs(c.helped([]*cobra.Command{
		c.token(), c.peer(), c.unpeer(), c.offer(), c.offload(), c.unoffload(), c.status(), c.check(), c.dashboard(), c.network(), c.gather(), c.generate(), c.storage(), c.uninstall(), c.versions(),
	}))
}

// helpText says what a command is for.
type helpText struct{ Long, Example string }

// helped has commands, and those below them, describe themselves when a person asks for their help. A process that
// runs roles has the commands, too, and does not read the texts.
func (c *commands) helped(commands []*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		usual := cmd.HelpFunc()
		cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
			c.describe(cmd)
			usual(cmd, args)
		})
	}
	return commands
}

// describe gives a command its text of help.yaml.
func (c *commands) describe(cmd *cobra.Command) {
	var texts map[string]helpText
	_ = yaml.Unmarshal([]byte(strings.ReplaceAll(helpYAML, "${program}", c.program)), &texts) // TestHelpTexts reads it
	has := texts[strings.TrimPrefix(cmd.CommandPath(), c.program+" ")]
	cmd.Long = has.Long
	if has.Example != "" {
		cmd.Example = "  " + strings.ReplaceAll(has.Example, "\n", "\n  ")
	}
}
