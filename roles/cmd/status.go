package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

// inquiry has the flags of status and check.
type inquiry struct {
	conn      *connection
	namespace string
	output    string
	timeout   time.Duration
	// errors gets the line about a read that takes long; nil for none.
	errors io.Writer
}

// quietly is the time after which a terminal gets a line about a read that has not ended.
const quietly = time.Second

// reading prints a line for a person at a terminal if a read takes long. The caller calls end after the read.
func (in *inquiry) reading() (end func() bool) {
	return time.AfterFunc(quietly, func() {
		if onTerminal(in.errors) {
			_ = say(in.errors, "reading the cluster ...") // the result counts
		}
	}).Stop
}

func (c *commands) inquiry(cmd *cobra.Command, formats ...string) *inquiry {
	in := &inquiry{}
	flags := cmd.Flags()
	addChoice(cmd, &in.output, "output", "o", "format, instead of text", append(formats, asJSON, asYAML)...)
	flags.StringVarP(&in.namespace, "namespace", "n", "", "`namespace` that liqod is installed in; else that of ClusterRoleBinding liqod-controller")
	flags.DurationVar(&in.timeout, "timeout", 30*time.Second, "how long the cluster may take to answer")
	in.conn = c.connection(flags)
	return in
}

func (c *commands) snapshot(ctx context.Context, in *inquiry) (*report.Snapshot, error) {
	return c.inTime(ctx, in, func(ctx context.Context, to *clients, namespace string) (*report.Snapshot, error) {
		s, err := c.read(ctx, to, namespace, false)
		if err == nil {
			readApplications(ctx, to, s)
		}
		return s, err
	})
}

// inTime calls read with the cluster of an inquiry, within its timeout.
func (c *commands) inTime(ctx context.Context, in *inquiry, read func(context.Context, *clients, string) (*report.Snapshot, error)) (*report.Snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, in.timeout, fmt.Errorf("%w after %s", errTimeout, in.timeout))
	defer cancel()
	in.conn.limit = in.timeout // the discovery client takes no context
	to, err := c.connect(in.conn)
	if err != nil {
		return nil, err
	}
	defer in.reading()()
	return read(ctx, to, in.namespace)
}

func (c *commands) status() *cobra.Command {
	cmd := &cobra.Command{Use: "status [PEER...]", Short: "Show the state of the peerings and of offloaded namespaces", Args: cobra.ArbitraryArgs}
	in := c.inquiry(cmd, asWide)
	cmd.Flags().Lookup("namespace").Usage = "`namespace` of an application to show alone; or the one that liqod is installed in"
	watch := cmd.Flags().BoolP("watch", "w", false, "print the state again when it changes, until interrupted")
	cmd.ValidArgsFunction = c.completer(in.conn, 1, peerNames)
	cmd.RunE = interruptible(func(cmd *cobra.Command, args []string) error {
		if *watch {
			return c.watchStatus(cmd.Context(), in, args, cmd.OutOrStdout())
		}
		in.errors = cmd.ErrOrStderr()
		status, err := c.summary(cmd.Context(), in, args)
		if err != nil {
			return err
		}
		return orCode(in.print(cmd.OutOrStdout(), status, len(args) > 0), status.Health)
	})
	return cmd
}

// summary reads the cluster, and returns the status of it or of some peers.
func (c *commands) summary(ctx context.Context, in *inquiry, peers []string) (*report.Status, error) {
	s, err := c.inTime(ctx, in, c.lookAt)
	if err != nil {
		return nil, err
	}
	if s.Only != "" && len(peers) > 0 {
		return nil, Usagef("-n %s is not the namespace of liqod, and peers are not of one namespace: leave out -n or the peers", s.Only)
	}
	status, err := report.Summarize(s).Of(peers...)
	if err != nil {
		return nil, unknown(err)
	}
	return status, nil
}

// print prints a status in the wanted format.
func (in *inquiry) print(out io.Writer, status *report.Status, detail bool) error {
	wide := in.output == asWide
	switch {
	case in.output != "" && !wide:
		return printData(out, in.output, status)
	case detail:
		return printText(out, status.DetailText(wide))
	}
	return printText(out, status.Text(wide))
}

func (c *commands) check() *cobra.Command {
	cmd := &cobra.Command{Use: "check", Short: "Find problems of the installation and the peerings", Args: noArguments}
	in := c.inquiry(cmd)
	wait := cmd.Flags().Duration("wait", 0, "wait until nothing is a problem or unknown, for at most this `time`")
	cmd.Flags().Lookup("wait").NoOptDefVal = "5m"
	pre := cmd.Flags().Bool("pre", false, "examine a cluster before the installation of liqod")
	token := cmd.Flags().String("token", "", "examine a `token` of another cluster before the peering; - reads it from the standard input")
	before := limited(&in.timeout, func(cmd *cobra.Command, _ []string) error { return c.beforehand(cmd, in, *pre, *token) })
	cmd.RunE = interruptible(func(cmd *cobra.Command, args []string) error {
		in.errors = cmd.ErrOrStderr()
		switch early := *pre || *token != ""; {
		case early && cmd.Flags().Changed("wait"):
			return Usagef("--wait is for an installed liqod: it is of no use with --pre and --token")
		case early:
			return before(cmd, args)
		case *wait > 0:
			return c.checkUntilWell(cmd, in, *wait)
		}
		s, err := c.snapshot(cmd.Context(), in)
		if err != nil {
			return err
		}
		return printFindings(cmd, in.output, report.Check(s))
	})
	return cmd
}

// checkUntilWell repeats check until nothing is a problem or unknown, or until the time is over, and
// prints the last findings.
func (c *commands) checkUntilWell(cmd *cobra.Command, in *inquiry, limit time.Duration) error {
	if _, err := c.connect(in.conn); err != nil {
		return err
	}
	ctx, cancel := after(cmd.Context(), limit)
	defer cancel()
	var findings []report.Finding
	repeated := *c
	repeated.every *= watchEvery
	out := in.errors
	in.errors = nil // nothing between the lines about progress
	_, err := repeated.until(ctx, out, func(ctx context.Context) (look, error) {
		s, err := c.snapshot(ctx, in)
		if err != nil {
			return look{}, err
		}
		findings = report.Check(s)
		if level := report.Worst(findings); level == report.OK || level == report.Warning {
			return look{done: true}, nil
		}
		return look{lines: map[string]string{"waiting": report.Left(findings)}}, nil
	})
	if findings == nil {
		return unknown(err)
	}
	failed := printFindings(cmd, in.output, findings)
	if err == nil {
		return failed
	}
	var coded *Error
	if errors.As(failed, &coded) && coded.Err == nil {
		coded.Err = fmt.Errorf("not everything is well, %w", err)
	}
	return failed
}

// orCode returns an error, or the exit code of a level.
func orCode(err error, level report.Level) error {
	code := map[report.Level]int{report.Problem: ExitProblem, report.Unknown: ExitUnknown}[level]
	if err != nil || code == 0 {
		return err
	}
	return &Error{Code: code}
}

func peerNames(ctx context.Context, to *clients) ([]string, error) {
	list, err := to.liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	return report.Names(list.Items, func(fc *corev1beta1.ForeignCluster) string { return fc.Spec.ClusterID }), err
}

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
	cmd := &cobra.Command{Use: "version", Short: "Print the versions of this command and of the cluster", Args: noArguments}
	in := c.inquiry(cmd)
	client := cmd.Flags().Bool("client", false, "print the version of this command only")
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) error {
		out, data := cmd.OutOrStdout(), versions{Build: c.build}
		if in.output == "" {
			if err := say(out, "%s", c.build); err != nil {
				return err
			}
		}
		var failed error
		if !*client {
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
	s, err := c.inTime(cmd.Context(), in, func(ctx context.Context, to *clients, namespace string) (*report.Snapshot, error) {
		return c.readSome(ctx, to, namespace, report.ReadLeases, report.ReadConfiguration, report.ReadVKubelets, report.ReadDaemonSets, report.ReadRolePods)
	})
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
