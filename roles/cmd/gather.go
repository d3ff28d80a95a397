package cmd

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/liqod/liqod/roles/cmd/report"
)

const gatherAbout = `Gather writes an archive (tar.gz) for the search for a problem of this cluster: liqod's objects, the
objects that they lead to, events, logs and metrics of liqod's pods, the findings of check, and the
state of the network in the pods of the roles gateway and route. Run it in both clusters.

The archive has no value of a Secret. Of Secrets it has the names, the keys and the sizes. Values
of the Secrets of liqod and its tenant namespaces are also removed from all other files, logs
included. Of pods of your namespaces it has no environment and no arguments. It does have names of
objects, addresses and messages: look into it before you send it to others.

What you may not read is left out, and listed in unread.txt. The state of the network needs the right
to exec in the pods of both roles, the metrics that to proxy to pods.`

const gatherExamples = `  %[1]s gather
  %[1]s gather --context rome --file rome.tar.gz --since 1h
  %[1]s gather --file - | tar tz`

// gathering has the flags of gather.
type gathering struct {
	conn      *connection
	namespace string
	file      string
	since     time.Duration
	lines     int64
	mostPods  int
	timeout   time.Duration
}

func (c *commands) gather() *cobra.Command {
	g := &gathering{}
	cmd := &cobra.Command{
		Use: "gather", Short: "Write an archive with the state of liqod in this cluster", Long: gatherAbout, Example: c.example(gatherExamples), Args: noArguments,
	}
	flags := cmd.Flags()
	flags.StringVarP(&g.file, "file", "f", "", "`file` to create; - is the standard output; else liqod-CLUSTER-TIME.tar.gz")
	flags.StringVarP(&g.namespace, "namespace", "n", "", "`namespace` that liqod is installed in; else that of ClusterRoleBinding liqod-controller")
	flags.DurationVar(&g.since, "since", 0, "no log lines that are older; 0 is all that is kept")
	flags.Int64Var(&g.lines, "lines", 5000, "log lines of each container")
	flags.IntVar(&g.mostPods, "max-pods", 50, "pods of each role, for logs, metrics and the state of the network")
	flags.DurationVar(&g.timeout, "timeout", 2*time.Minute, "how long to read; the archive has what was read until then")
	g.conn = c.connection(flags)
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) error {
		if g.lines < 1 || g.mostPods < 1 {
			return Usagef("--lines and --max-pods: numbers from 1 on are accepted")
		}
		if g.timeout <= 0 {
			return Usagef("--timeout=%s: more than 0 is accepted", g.timeout)
		}
		return c.writeArchive(cmd, g)
	})
	return cmd
}

// writeArchive reads a cluster and writes what it has read.
func (c *commands) writeArchive(cmd *cobra.Command, g *gathering) error {
	ctx, cancel := after(cmd.Context(), g.timeout)
	defer cancel()
	g.conn.limit = min(g.timeout, patience)
	to, err := c.connect(g.conn)
	if err != nil {
		return err
	}
	snap, err := c.read(ctx, to, g.namespace, false)
	if err != nil {
		return err
	}
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	if err := snap.Unread[report.ReadInstallation]; err != nil && g.namespace == "" {
		return fmt.Errorf("values of the Secrets of liqod cannot be removed from an archive without its namespace: %w", err)
	}
	h := &harvest{to: to, snap: snap, flags: g, redactor: newRedactor(), texts: map[string]string{}, unread: map[string]error{}}
	h.all(ctx, c.build.Version)
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	cluster := cmp.Or(snap.ClusterID, "unknown")
	top := "liqod-" + cluster + "-" + snap.Taken.UTC().Format("20060102-150405")
	files, unread := h.files()
	if g.file == "-" {
		return pack(cmd.OutOrStdout(), top, files, snap.Taken)
	}
	file := cmp.Or(g.file, top+".tar.gz")
	if err := create(file, func(out io.Writer) error { return pack(out, top, files, snap.Taken) }); err != nil {
		return err
	}
	if err := say(cmd.OutOrStdout(), "%s: %d files about cluster %s", file, len(files), cluster); err != nil {
		return err
	}
	if unread > 0 {
		return say(cmd.OutOrStdout(), "%d things could not be read: see unread.txt in it", unread)
	}
	return nil
}

// create writes a new file that only its owner may read. It leaves no half of a file behind.
func create(name string, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already: name another one with --file", name)
	}
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", name, err), os.Remove(name))
	}
	return nil
}

// pack writes files as tar.gz, sorted, below a folder.
func pack(out io.Writer, top string, files map[string]string, now time.Time) error {
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(top, name), Mode: 0o600, Size: int64(len(files[name])), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
		if _, err := io.Copy(archive, strings.NewReader(files[name])); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// execution runs a command in a container, and writes its output. It is a field of clients.
type execution func(ctx context.Context, namespace, pod, container string, command []string, out io.Writer) error
