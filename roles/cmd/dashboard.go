package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/roles/cmd/dashboard"
	"github.com/liqod/liqod/roles/cmd/report"
)

// shortestPause is the least time between two reads of the cluster for the page.
const shortestPause = time.Second

func (c *commands) dashboard() *cobra.Command {
	cmd := &cobra.Command{Use: "dashboard", Short: "Serve a page with the clusters, pods, capacity and events", Args: noArguments}
	in := &inquiry{}
	cfg := dashboard.Config{}
	flags := cmd.Flags()
	flags.Uint16Var(&cfg.Port, "port", 0, "`port` of 127.0.0.1 to listen on; 0 takes a free one")
	flags.DurationVar(&cfg.Every, "every", 5*time.Second, "pause between two reads of the cluster while a browser shows the page")
	flags.StringVarP(&in.namespace, "namespace", "n", "", "`namespace` that liqod is installed in; else that of ClusterRoleBinding liqod-controller")
	flags.DurationVar(&cfg.Timeout, "timeout", 15*time.Second, "how long the cluster may take to answer")
	in.conn = c.connection(flags)
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) error {
		switch {
		case cfg.Every < shortestPause:
			return Usagef("--every %s is too short: %s or more is accepted", cfg.Every, shortestPause)
		case cfg.Timeout <= 0:
			return Usagef("--timeout %s is accepted if it is more than 0", cfg.Timeout)
		}
		in.conn.limit = cfg.Timeout // the discovery client takes no context
		to, err := c.connect(in.conn)
		if err != nil {
			return err
		}
		cfg.Source = &shownCluster{c: c, to: to, namespace: in.namespace}
		server, err := dashboard.Listen(cmd.Context(), cfg)
		if err != nil {
			return fmt.Errorf("opening the port of the page; another --port is accepted, and 0 takes a free one: %w", err)
		}
		if err := say(cmd.OutOrStdout(), "The page is at\n\n  %s\n\nCtrl-C ends it.", server.URL()); err != nil {
			return errors.Join(err, server.Close())
		}
		return server.Run(cmd.Context())
	})
	return cmd
}

// shownCluster implements dashboard.Source.
type shownCluster struct {
	c         *commands
	to        *clients
	namespace string

	applications map[string]*report.Application
	looked       time.Time // at the applications
}

// lookAgain is how old applications may be: they need several requests for each namespace, and change seldom.
const lookAgain = time.Minute

// Observe implements dashboard.Source.
func (s *shownCluster) Observe(ctx context.Context) (*report.Snapshot, error) {
	snap, err := s.c.read(ctx, s.to, s.namespace, true)
	if err != nil {
		return nil, err
	}
	if time.Since(s.looked) > lookAgain || !slices.Equal(slices.Sorted(maps.Keys(s.applications)), snap.Leaving()) {
		readApplications(ctx, s.to, snap)
		if ctx.Err() != nil {
			return snap, nil // what is missing in it is read again
		}
		s.applications, s.looked = snap.Applications, time.Now()
	}
	snap.Applications = s.applications
	return snap, nil
}

// Metrics implements dashboard.Source.
func (s *shownCluster) Metrics(ctx context.Context, pod *corev1.Pod) ([]byte, error) {
	return s.to.kube.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, strconv.Itoa(report.HealthPort(pod)), "metrics", nil).DoRaw(ctx)
}

// mostEvents is how many events of a namespace are read.
const mostEvents = 1000

// Events implements dashboard.Source.
func (s *shownCluster) Events(ctx context.Context, namespace string) (events []corev1.Event, more bool, err error) {
	list, err := s.to.kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{Limit: mostEvents})
	if err != nil {
		return nil, false, err
	}
	return list.Items, list.Continue != "", nil
}
