package cmd

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/liqod/liqod/roles/cmd/report"
)

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
		found, directive := c.completer(conn, func(ctx context.Context, to *clients) (out []string, err error) {
			namespace, _, whole := strings.Cut(typed, "/")
			if whole {
				pods, err := to.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
				return namesOf(pods.Items, err, func(p *corev1.Pod) string { return namespace + "/" + p.Name })
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
		})(cmd, nil, typed)
		return found, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// completeFlag completes a flag with what is found in the cluster.
func (c *commands) completeFlag(cmd *cobra.Command, conn *connection, flag string, find func(context.Context, *clients) ([]string, error)) {
	complete := c.completer(conn, find)
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return complete(cmd, nil, typed)
	}) // fails for flags only that do not exist
}

// namesOf returns the name of each item of a list that was read with err. An item with an empty name is left out.
func namesOf[T any](items []T, err error, name func(*T) string) ([]string, error) {
	return report.Names(items, name), err
}

// nodeNames returns the names of all Nodes.
func nodeNames(ctx context.Context, to *clients) ([]string, error) {
	nodes, err := to.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return namesOf(nodes.Items, err, func(n *corev1.Node) string { return n.Name })
}
