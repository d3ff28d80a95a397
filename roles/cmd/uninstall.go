package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/liqod/liqod/roles/cmd/report"
)

func (c *commands) uninstall() *cobra.Command {
	cmd := &cobra.Command{Use: "uninstall", Short: "Prepare the removal of liqod, and say what remains", Args: noArguments}
	all := cmd.Flags().Bool("end-all", false, "take all namespaces back, and end all peerings")
	timeout := addTimeout(cmd.Flags(), 10*time.Minute)
	conn := c.connection(cmd.Flags())
	cmd.RunE = interruptible(limited(timeout, c.connected(conn, func(cmd *cobra.Command, to *clients, _ []string) error {
		ctx := cmd.Context()
		s, err := c.lookAtRemains(ctx, to)
		if err != nil {
			return err
		}
		if *all {
			if err := c.endAll(cmd, conn, to, s.Remaining()); err != nil {
				return explain(err)
			}
			if s, err = c.lookAtRemains(ctx, to); err != nil {
				return err
			}
		}
		if left := s.Remaining().String(); left != "" {
			return fmt.Errorf("liqod cannot be uninstalled yet, as its controller has to take back what it has made: %s. To end all of it: %s uninstall --end-all", left, c.program)
		}
		return printText(cmd.OutOrStdout(), report.UninstallSteps(s))
	})))
	return cmd
}

// endAll takes the offloaded namespaces back, ends the peerings, and waits until nothing of them is left.
func (c *commands) endAll(cmd *cobra.Command, conn *connection, to *clients, r report.Remains) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	for _, namespace := range r.Namespaces {
		uid, err := takeBack(ctx, to, namespace, out)
		if err != nil {
			return err
		}
		if err := c.untilTakenBack(ctx, to, namespace, uid, out); err != nil {
			return err
		}
	}
	if len(r.Peers) > 0 {
		here, err := c.side(ctx, conn)
		if err != nil {
			return err
		}
		for _, peer := range r.Peers {
			if err := c.separate(ctx, here, nil, peer, false, out); err != nil {
				return err
			}
		}
	}
	last, err := c.until(ctx, out, func(ctx context.Context) (look, error) {
		s, err := c.lookAtRemains(ctx, to)
		if err != nil {
			return look{}, err
		}
		left := s.Remaining().String()
		if left == "" {
			return look{done: true}, nil
		}
		return look{lines: map[string]string{"waiting": left}}, nil
	})
	return last.outcome(err, "not everything has ended", "ask again to go on. Left")
}

// lookAtRemains reads what uninstall judges. Without the kinds that Remaining needs, the state is unknown.
func (c *commands) lookAtRemains(ctx context.Context, to *clients) (*report.Snapshot, error) {
	needed := []string{report.ReadOffloadings, report.ReadForeignClusters, report.ReadVirtualNodes, report.ReadMaps}
	s, err := c.readSome(ctx, to, "", append(needed, report.ReadKinds, report.ReadTenants)...)
	if err != nil {
		return nil, err
	}
	for _, what := range needed {
		if err := s.Unread[what]; err != nil {
			return nil, unknown(explain(fmt.Errorf("reading %s: %w", what, err)))
		}
	}
	return s, nil
}
