package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/liqod/liqod/roles/cmd/report"
)

const versionAbout = `Version prints the version of this command. If there is a kubeconfig, it also prints the versions in its
cluster: of the chart and of Kubernetes, and the image of each role. It warns if roles run different
images, and if the release of the chart is not that of the images or of this command.

The exit code is 0, also with a warning; it is 2 if the cluster did not answer or something could not
be read. With --client, the command sends no request.`

// Build describes a binary.
type Build struct {
	// Version is that of liqod in the form of report.PlainVersion, GoVersion that of the compiler.
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	// Platform is the operating system and the architecture.
	Platform string `json:"platform"`
}

// String implements fmt.Stringer.
func (b Build) String() string {
	return fmt.Sprintf("liqod %s (%s, %s)", b.Version, b.GoVersion, b.Platform)
}

// versions is what version prints as data.
type versions struct {
	Build
	Cluster *installedVersions `json:"cluster,omitempty"`
}

type installedVersions struct {
	report.Installation
	Findings []report.Finding `json:"findings"`
}

func (c *commands) versions() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of this command and of the cluster",
		Long: versionAbout, Example: c.example("  %[1]s version\n  %[1]s version --client\n  %[1]s version --context rome -o json"), Args: noArguments,
	}
	in := c.inquiry(cmd)
	client := false
	cmd.Flags().BoolVar(&client, "client", false, "print the version of this command only")
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) error {
		out, data := cmd.OutOrStdout(), versions{Build: c.build}
		if in.output == "" {
			if err := say(out, "%s", c.build); err != nil {
				return err
			}
		}
		var failed error
		if !client {
			in.errors = cmd.ErrOrStderr()
			data.Cluster, failed = c.installedVersions(cmd, in)
		}
		switch {
		case in.output != "":
			failed = errors.Join(printData(out, in.output, data), failed)
		case data.Cluster != nil:
			failed = printText(out, report.VersionsText(data.Cluster.Installation, data.Cluster.Findings))
		}
		if failed != nil || data.Cluster == nil {
			return failed
		}
		return orCode(nil, report.Worst(data.Cluster.Findings))
	})
	return cmd
}

// installedVersions returns what runs of liqod in the cluster; nil without a kubeconfig.
func (c *commands) installedVersions(cmd *cobra.Command, in *inquiry) (*installedVersions, error) {
	s, err := c.inTime(cmd.Context(), in, c.lookAtVersions)
	if errors.Is(err, errNoCluster) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := &installedVersions{}
	out.Installation, out.Findings = report.Versions(s)
	return out, nil
}
