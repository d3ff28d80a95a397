package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/roles/cmd/report"
)

const storageListAbout = `List shows the volumes of the class liqo that this cluster knows: of its own claims, wherever the data
is, and of the claims that peers have here. It names the place of the data. Of kept data, whose claim is
gone, it says why it is kept, and how to get it back or delete it. It changes nothing.

What you may not read is named in the last line. The exit code is 2 if you may read neither
PersistentVolumeClaims nor PersistentVolumes.`

// storage is the parent of the commands about volumes.
func (c *commands) storage() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "Show volumes, where their data is, and kept data", Long: storageListAbout,
		Example: c.example("  %[1]s storage list\n  %[1]s storage list -o json | jq '.volumes[] | select(.phase == \"kept\")'"), Args: noArguments}
	var output string
	addChoice(cmd, &output, "output", "o", "format, instead of text", asJSON, asYAML)
	conn := c.connection(cmd.Flags())
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) error {
		to, err := c.connect(conn)
		if err != nil {
			return err
		}
		stored, err := readStored(cmd.Context(), to)
		if err != nil {
			return unknown(explain(err))
		}
		stored.Program = c.program
		list := report.ListStorage(stored)
		if err := list.Err(); err != nil {
			return unknown(err)
		}
		if output != "" {
			return printData(cmd.OutOrStdout(), output, list)
		}
		return printText(cmd.OutOrStdout(), list.Text())
	})
	return parent("storage", "Show the volumes of the class liqo", cmd)
}

// readStored reads what storage list judges. Only a missing right is no error.
func readStored(ctx context.Context, to *clients) (*report.Stored, error) {
	s, core, all := &report.Stored{}, to.kube.CoreV1(), metav1.ListOptions{}
	for _, read := range []struct {
		what string
		list func() error
	}{
		// Volumes first: a claim that is created meanwhile makes none of them kept.
		{report.ReadStored, func() error {
			list, err := core.PersistentVolumes().List(ctx, all)
			if err == nil {
				s.Volumes = list.Items
			}
			return err
		}},
		{report.ReadStoredClaims, func() error {
			list, err := core.PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, all)
			if err == nil {
				s.Claims = list.Items
			}
			return err
		}},
		{report.ReadStoredClass, func() error {
			list, err := to.kube.StorageV1().StorageClasses().List(ctx, all)
			if err == nil {
				s.Classes = list.Items
			}
			return err
		}},
		{report.ReadStoredSpaces, func() error {
			list, err := core.Namespaces().List(ctx, all)
			if err == nil {
				s.Namespaces = list.Items
			}
			return err
		}},
		{report.ReadStoredMaps, func() error {
			list, err := to.liqo.OffloadingV1beta1().NamespaceMaps(metav1.NamespaceAll).List(ctx, all)
			if err == nil {
				s.Maps = list.Items
			}
			return err
		}},
	} {
		switch err := read.list(); {
		case err == nil, noSuchKind(err):
		case apierrors.IsForbidden(err):
			s.Unread = append(s.Unread, read.what)
		default:
			return nil, fmt.Errorf("listing %s: %w", read.what, err)
		}
	}
	return s, nil
}
