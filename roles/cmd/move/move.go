// Package move moves the data of a PersistentVolumeClaim of the class liqo between this cluster and
// a provider, or between two providers. Each step is recorded in the annotations of the claim, or in the pods that copy, so
// that a command that was interrupted anywhere goes on where it was.
//
// The pods copy the files of one volume to another over a connection, as a tar archive. The archive begins after the last
// file that has arrived, so that a copy that was interrupted anywhere is resumed. The copy ends when both ends have read
// all files again, and their archives have the same checksum. Owners, modes, times, symbolic and hard links, holes,
// special files and extended attributes are those of the sender.
package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

// Config says what is moved, and with what.
type Config struct {
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// Namespace and Claim name the claim, Node the node that its data moves to.
	Namespace, Claim, Node string
	// KeepSetuid has files come home with the bits setuid and setgid, and with capabilities.
	KeepSetuid bool
	// Image is that of the pods that copy. StorageNamespace has the claims whose volumes are on
	// nodes of this cluster.
	Image, StorageNamespace string
	// Program is the name of the program in messages.
	Program string
	// Now is the time by the cluster's clock.
	Now func() time.Time
	// Every is the time between two looks at the cluster.
	Every time.Duration
	// Say prints a line.
	Say func(line string) error
}

// mover moves one claim.
type mover struct {
	Config
	claim *corev1.PersistentVolumeClaim
	// from and to are where the data is and where it moves to.
	from, to place
	// relay is the node of the pod that passes on what two providers send. It is empty otherwise.
	relay string
	// secrets have the keys of the ends, by the names of their pods.
	secrets map[string]*corev1.Secret
	// locked is the time of the lock, if this call has locked the claim.
	locked time.Time
	// said is the last line of a wait.
	said string
}

// settling is longer than a pod takes from the webhook, which has read the claim, to the API server.
const settling = 15 * time.Second

// Run moves the data, or goes on where an earlier call was interrupted. At any time the claim has one
// volume with all data: the earlier one until the copy is whole in its place, then the copy.
func Run(ctx context.Context, cfg Config) error {
	m := &mover{Config: cfg}
	if err := m.look(ctx); err != nil {
		return err
	}
	if done, err := m.check(ctx); done || err != nil {
		return err
	}
	// Pods may not start before the end.
	if err := m.lock(ctx); err != nil {
		return err
	}
	steps := []func(context.Context) error{m.exchangeVolumes, m.clear, m.unlock, m.discarded}
	if !m.committed() {
		steps = slices.Insert(steps, 0, m.copy, m.commit)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Undo gives up a move whose copy is not in use yet: the claim keeps its volume, and the copy is
// deleted.
func Undo(ctx context.Context, cfg Config) error {
	m := &mover{Config: cfg}
	if err := m.read(ctx); err != nil {
		return err
	}
	m.Node = m.claim.Annotations[offloadingv1beta1.MoveToAnnotation]
	switch {
	case m.Node == "" && m.claim.Annotations[offloadingv1beta1.DiscardCopyAnnotation] == "":
		return m.Say(fmt.Sprintf("PersistentVolumeClaim %s is not being moved", m.Claim))
	case m.committed():
		return fmt.Errorf("the copy on node %s is verified, and the claim has it already: %s, and then move the data back", m.Node, m.finish(m.Node))
	case m.Node != "":
		if err := m.clear(ctx); err != nil {
			return err
		}
		if err := m.abandon(ctx); err != nil {
			return err
		}
	}
	return m.discarded(ctx)
}

// check returns an error if the data cannot be moved. done is true if it is there already.
func (m *mover) check(ctx context.Context) (done bool, err error) {
	switch to := m.claim.Annotations[offloadingv1beta1.MoveToAnnotation]; {
	case to != "" && to != m.Node:
		return false, fmt.Errorf("PersistentVolumeClaim %s is being moved%s: %s, or end it with %s", m.Claim, target(to), m.finish(to), m.command("--undo"))
	case to == m.Node:
		return false, m.unused(ctx)
	case m.claim.Annotations[offloadingv1beta1.DiscardCopyAnnotation] != "":
		if err := m.discarded(ctx); err != nil || m.claim.Annotations[offloadingv1beta1.DiscardCopyAnnotation] != "" {
			return true, err
		}
	}
	if m.from.cluster == m.to.cluster {
		return true, m.Say(fmt.Sprintf("the data of PersistentVolumeClaim %s is in %s", m.Claim, m.to))
	}
	if err := m.movable(ctx); err != nil {
		return false, err
	}
	return false, m.unused(ctx)
}

// lock keeps pods that use the claim from being created, and requires the webhook to do so.
func (m *mover) lock(ctx context.Context) error {
	if m.claim.Annotations[offloadingv1beta1.MoveToAnnotation] == "" {
		err := m.annotate(ctx, map[string]any{offloadingv1beta1.MoveToAnnotation: m.Node}, func() error {
			if to := m.claim.Annotations[offloadingv1beta1.MoveToAnnotation]; to != "" && to != m.Node {
				return fmt.Errorf("PersistentVolumeClaim %s is being moved%s since a moment ago", m.Claim, target(to))
			}
			return nil
		})
		if err != nil {
			return err
		}
		m.locked = m.Now()
	}
	if m.committed() {
		return nil
	}
	if err := m.fenced(ctx); err != nil {
		return errors.Join(err, m.abandon(ctx))
	}
	lines := []string{
		fmt.Sprintf("moving the data of PersistentVolumeClaim %s from %s to %s; new pods that use it are refused until the end", m.Claim, m.from, m.to),
		"at the end, Kubernetes shows the claim as Lost for a moment, with the warning ClaimLost: no data is lost by that",
		fmt.Sprintf("later pods with the claim run in %s: spread constraints and affinity of their workload, a StatefulSet for example, may not fit that", m.to),
	}
	if m.to.cluster == "" && !m.KeepSetuid {
		lines = append(lines, "the bits setuid and setgid of files, and their capabilities, do not come along (--keep-setuid keeps them)")
	}
	for _, line := range lines {
		if err := m.Say(line); err != nil {
			return err
		}
	}
	return nil
}

// committed reports whether the copy is whole and the claim is to get it.
func (m *mover) committed() bool {
	return m.Node != "" && m.claim.Annotations[report.SelectedNode] == m.Node && m.claim.Annotations[offloadingv1beta1.MoveToAnnotation] == m.Node
}

// commit decides, in one write, that the claim gets the copy, and that the earlier volume is deleted
// after that.
func (m *mover) commit(ctx context.Context) error {
	begun := m.begun()
	if err := m.clearPods(ctx); err != nil {
		return err
	}
	err := m.until(ctx, func(context.Context) (string, bool, error) {
		return "waiting for pods whose creation began before the move", m.Now().Sub(begun) >= settling, nil
	})
	if err != nil {
		return err
	}
	return m.annotate(ctx, map[string]any{report.SelectedNode: m.Node, offloadingv1beta1.DiscardCopyAnnotation: m.from.copy()}, func() error {
		if m.claim.Annotations[offloadingv1beta1.MoveToAnnotation] != m.Node {
			return fmt.Errorf("the move of PersistentVolumeClaim %s was ended meanwhile (annotation %s)", m.Claim, offloadingv1beta1.MoveToAnnotation)
		}
		return m.unused(ctx)
	})
}

// unlock lets pods use the claim again.
func (m *mover) unlock(ctx context.Context) error {
	if err := m.annotate(ctx, map[string]any{offloadingv1beta1.MoveToAnnotation: nil}, nil); err != nil {
		return err
	}
	return m.Say(fmt.Sprintf("PersistentVolumeClaim %s has its data in %s; pods may use it again", m.Claim, m.to))
}

// abandon ends a move before its commit. The copy is deleted if there is still a virtual node for it.
func (m *mover) abandon(ctx context.Context) error {
	to, err := m.placeOfNode(ctx, m.Node)
	if err != nil {
		return err
	}
	change := map[string]any{offloadingv1beta1.MoveToAnnotation: nil}
	if to.node == "" {
		if err := m.Say(fmt.Sprintf("there is no virtual node for what was copied%s: it stays there, as a PersistentVolumeClaim named %s", target(m.Node), m.Claim)); err != nil {
			return err
		}
	} else {
		change[offloadingv1beta1.DiscardCopyAnnotation] = to.copy()
	}
	return m.annotate(ctx, change, func() error {
		if m.committed() {
			return fmt.Errorf("another command has ended the copy meanwhile: %s", m.finish(m.Node))
		}
		return nil
	})
}

// discarded waits for a while until the volume that the claim does not use any more is deleted.
func (m *mover) discarded(ctx context.Context) error {
	limit := m.Now().Add(time.Minute)
	gone := false
	err := m.until(ctx, func(ctx context.Context) (string, bool, error) {
		if err := m.read(ctx); err != nil {
			return "", false, err
		}
		gone = m.claim.Annotations[offloadingv1beta1.DiscardCopyAnnotation] == ""
		return "deleting the other copy", gone || m.Now().After(limit), nil
	})
	switch {
	case err != nil:
		return err
	case !gone:
		return m.Say("the other copy is deleted as soon as liqod reaches its cluster; until then the claim cannot be moved again")
	}
	return m.Say("the other copy is deleted")
}

func (m *mover) command(args string) string {
	return fmt.Sprintf("%s storage move -n %s %s %s", m.Program, m.Namespace, m.Claim, args)
}

// target names the node of a move. It is empty for what is no name: whoever may annotate the claim has written it.
func target(node string) string { return offloadingv1beta1.Command(" to node %s", node) }

// finish returns how a move to a node is finished.
func (m *mover) finish(node string) string {
	to := offloadingv1beta1.Command("--to %s", node)
	if to == "" {
		return fmt.Sprintf("finish the move by correcting the annotation %s, which names no node", offloadingv1beta1.MoveToAnnotation)
	}
	return "finish the move with " + m.command(to)
}
