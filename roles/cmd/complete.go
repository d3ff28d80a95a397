package cmd

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// completeKubeconfigs completes the flags of commands that name a part of a kubeconfig. It
// reads the kubeconfig and sends no request.
func completeKubeconfigs(commands []*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		completeKubeconfigs(cmd.Commands())
		completeFrom(cmd, clientcmd.FlagContext, clientcmd.RecommendedConfigPathFlag, contexts)
		completeFrom(cmd, "remote-"+clientcmd.FlagContext, "remote-"+clientcmd.RecommendedConfigPathFlag, contexts)
		completeFrom(cmd, clientcmd.FlagClusterName, clientcmd.RecommendedConfigPathFlag, func(c *clientcmdapi.Config) []string { return names(c.Clusters) })
		completeFrom(cmd, clientcmd.FlagAuthInfoName, clientcmd.RecommendedConfigPathFlag, func(c *clientcmdapi.Config) []string { return names(c.AuthInfos) })
	}
	return commands
}

func contexts(c *clientcmdapi.Config) []string { return names(c.Contexts) }

func names[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

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
