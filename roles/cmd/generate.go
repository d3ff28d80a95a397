package cmd

import (
	"errors"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

// generate is the parent of the commands that print YAML instead of writing objects.
func (c *commands) generate() *cobra.Command {
	return parent("generate", "Print objects instead of writing them, for GitOps", c.generatePeering())
}

func (c *commands) generatePeering() *cobra.Command {
	p := peering{}
	cmd := &cobra.Command{Use: "peering", Short: "Print the objects with which this cluster uses another one", Args: noArguments}
	flags := cmd.Flags()
	namespace := flags.StringP("namespace", "n", usualNamespace, "`namespace` that liqod is installed in")
	consumer := flags.String("for", "", "print the objects for the other cluster, which the cluster with this `id` will use")
	p.ask(flags)
	flags.StringSliceVar(&p.AddressRanges, "pod-cidr", nil, "`range` of this cluster's pods, if it is not the configured one; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if p.Token == "" {
			return Usagef("generate peering needs --token: liqod token create prints one, in the other cluster")
		}
		if err := p.check(); err != nil {
			return err
		}
		var err error
		if p.Token, err = readToken(p.Token, cmd.InOrStdin()); err != nil {
			return err
		}
		half := p.Objects
		if cmd.Flags().Changed("for") {
			if p.Request != nil {
				return Usagef("--cpu, --memory and --pods are what a cluster asks for: they are of no use with --for")
			}
			half = func(namespace string) (*corev1.Secret, *corev1beta1.ForeignCluster, error) {
				return p.Counterpart(*consumer, namespace)
			}
		}
		secret, fc, err := half(*namespace)
		if err != nil {
			return UsageError(err)
		}
		for _, obj := range []runtime.Object{secret, fc} {
			if err := errors.Join(say(cmd.OutOrStdout(), "---"), printObject(cmd.OutOrStdout(), asYAML, obj)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
