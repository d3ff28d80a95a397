package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/roles/cmd/move"
	"github.com/liqod/liqod/roles/cmd/report"
)

// storage is the parent of the commands about volumes.
func (c *commands) storage() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "Show volumes, where their data is, and kept data", Args: noArguments}
	var output, namespace string
	cmd.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceAll, "`namespace` of the claims; else all")
	addChoice(cmd, &output, "output", "o", "format, instead of text", asJSON, asYAML)
	conn := c.connection(cmd.Flags())
	cmd.RunE = interruptible(c.connected(conn, func(cmd *cobra.Command, to *clients, _ []string) error {
		stored, err := c.lookAtStorage(cmd.Context(), to, namespace)
		if err != nil {
			return unknown(explain(err))
		}
		list := stored.Storage()
		if err := list.Err(); err != nil && namespace == "" {
			return unknown(fmt.Errorf("%w; -n NAMESPACE reads one namespace", err))
		} else if err != nil {
			return unknown(err)
		}
		return show(cmd.OutOrStdout(), output, list, list.Text)
	}))
	return parent("storage", "Show the volumes of the class liqo, and move their data", cmd, c.storageMove(), c.storageCopy())
}

// lookAtStorage reads what storage list judges of a namespace, of all if it is empty. Only a missing right is
// no error.
func (c *commands) lookAtStorage(ctx context.Context, to *clients, namespace string) (*report.Snapshot, error) {
	s, core, all := &report.Snapshot{Program: c.program, Unread: map[string]error{}}, to.kube.CoreV1(), metav1.ListOptions{}
	r := &reading{to: to, snap: s}
	// Volumes first: a claim that is created meanwhile makes none of them kept.
	r.read(ctx, report.ReadStored, list(core.PersistentVolumes().List, all, func(l *corev1.PersistentVolumeList) {
		s.Volumes = slices.DeleteFunc(l.Items, func(v corev1.PersistentVolume) bool {
			return namespace != "" && (v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Namespace != namespace)
		})
	}))
	r.read(ctx, report.ReadStoredClaims, r.claimsIn(namespace))
	r.read(ctx, report.ReadStoredClass, r.classes())
	r.read(ctx, report.ReadStoredSpaces, list(core.Namespaces().List, all, func(l *corev1.NamespaceList) { s.Namespaces = l.Items }))
	r.together(ctx, report.ReadMaps)
	r.copies(ctx, namespace)
	for _, what := range slices.Sorted(maps.Keys(s.Unread)) {
		if err := s.Unread[what]; !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("listing %s: %w", what, err)
		}
	}
	return r.end(ctx)
}

func (c *commands) storageMove() *cobra.Command {
	cmd := &cobra.Command{Use: "move CLAIM", Short: "Move the data of a claim to another cluster", Args: oneName("PersistentVolumeClaim")}
	cfg, undo := move.Config{Program: c.program}, false
	flags := cmd.Flags()
	flags.StringVarP(&cfg.Namespace, "namespace", "n", metav1.NamespaceDefault, "`namespace` of the claim")
	flags.StringVar(&cfg.Node, "to", "", "`node` that the data moves to; a virtual node for its provider")
	flags.BoolVar(&cfg.KeepSetuid, "keep-setuid", false, "to this cluster: keep the bits setuid and setgid of files, and their capabilities")
	flags.BoolVar(&undo, "undo", false, "give up a move, and delete the copy")
	flags.StringVar(&cfg.Image, "image", "", "`image` of the pods that copy; else that of liqod's controller")
	flags.StringVar(&cfg.StorageNamespace, "storage-namespace", "liqo-storage", "`namespace` of the data in this cluster, as storage.storageNamespace of the chart")
	conn := c.connection(flags)
	_ = cmd.RegisterFlagCompletionFunc("to", c.completer(conn, math.MaxInt, nodeNames)) // fails for flags only that do not exist
	cmd.ValidArgsFunction = c.completer(conn, 1, func(ctx context.Context, to *clients) ([]string, error) {
		list, err := to.kube.CoreV1().PersistentVolumeClaims(cfg.Namespace).List(ctx, metav1.ListOptions{})
		return report.Names(list.Items, func(claim *corev1.PersistentVolumeClaim) string {
			if claim.Annotations[report.Provisioner] != offloadingv1beta1.StorageProvisioner {
				return ""
			}
			return claim.Name
		}), err
	})
	cmd.RunE = interruptible(func(cmd *cobra.Command, args []string) error {
		if undo == (cfg.Node != "") {
			return Usagef("give either --to NODE or --undo")
		}
		to, err := c.connect(conn)
		if err != nil {
			return err
		}
		cfg.Kube, cfg.Liqo, cfg.Claim, cfg.Every, cfg.Now = to.kube, to.liqo, args[0], 2*c.every, to.now
		cfg.Say = func(line string) error { return say(cmd.OutOrStdout(), "%s", report.Line(line)) }
		if undo {
			return explain(move.Undo(cmd.Context(), cfg))
		}
		if cfg.Image == "" {
			if cfg.Image, err = ownImage(cmd.Context(), to); err != nil {
				return explain(err)
			}
		}
		return explain(move.Run(cmd.Context(), cfg))
	})
	return cmd
}

// ownImage returns the image of the controller of this cluster.
func ownImage(ctx context.Context, to *clients) (string, error) {
	namespace, err := join.Namespace(ctx, to.kube)
	if err != nil {
		return "", fmt.Errorf("looking for liqod's image (--image names it): %w", err)
	}
	controller, err := to.kube.AppsV1().Deployments(namespace).Get(ctx, join.Controller, metav1.GetOptions{})
	if err == nil && len(controller.Spec.Template.Spec.Containers) == 0 {
		err = errors.New("it has no container")
	}
	if err != nil {
		return "", fmt.Errorf("reading the image of Deployment %s/%s (--image names another one): %w", namespace, join.Controller, err)
	}
	return controller.Spec.Template.Spec.Containers[0].Image, nil
}

// storageCopy is what the pods of a move run.
func (c *commands) storageCopy() *cobra.Command {
	o := move.Options{Every: time.Second}
	cmd := &cobra.Command{Use: "copy", Hidden: true, Short: "Copy files to or from another pod", Args: noArguments}
	flags := cmd.Flags()
	read := flags.String("read", "", "`folder` to send")
	write := flags.String("write", "", "`folder` to fill")
	flags.StringVar(&o.Listen, "listen", "", "`address` to listen on")
	flags.StringSliceVar(&o.Connect, "connect", nil, "`address` to connect to; of two, that of the sender and that of the receiver, and each gets what the other one sends")
	flags.StringVar(&o.Keys, "key", "", "`folder` with tls.crt and tls.key of this end, and sender.crt or receiver.crt of the other one")
	flags.BoolVar(&o.Plain, "plain", false, "leave out setuid, setgid and capabilities")
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) error {
		relay := len(o.Connect) == 2 && *read+*write+o.Listen == ""
		if !relay && ((*read == "") == (*write == "") || len(o.Connect) > 1 || (o.Listen == "") == (len(o.Connect) == 0)) {
			return Usagef("give --read or --write, and --listen or --connect; or --connect twice")
		}
		o.Folder, o.Send, o.Out = *read+*write, *read != "", cmd.OutOrStdout()
		return move.Copy(cmd.Context(), o)
	})
	return cmd
}
