package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/roles/cmd/report"
)

var errTimeout = errors.New("timed out")

func addWait(flags *pflag.FlagSet, limit time.Duration, until string) (wait *bool, timeout *time.Duration) {
	return flags.Bool("wait", true, "wait "+until), addTimeout(flags, limit)
}

func addTimeout(flags *pflag.FlagSet, limit time.Duration) *time.Duration {
	return flags.Duration("timeout", limit, "how long to wait, for each answer and in all; 0 is without end")
}

// limited ends the context of a command after a timeout, for its first request, too. Zero is
// without end.
func limited(timeout *time.Duration, run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := after(cmd.Context(), *timeout)
		defer cancel()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, errTimeout) && !errors.Is(err, errTimeout) {
			return fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
}

// after ends a context after a timeout, with errTimeout as its cause. Zero is without end.
func after(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w after %s", errTimeout, timeout))
}

// look is the progress of a wait at one time.
type look struct {
	// lines has the state of each part, by its name.
	lines map[string]string
	// done means that the wait is over, and failed that waiting longer is useless.
	done, failed bool
	// summary says it all in place of the lines; it may be empty.
	summary string
}

// until polls until a look is done or failed, or until ctx ends. It prints each part whose
// state has changed. It returns the last look. Its error is errTimeout if that ended ctx.
func (c *commands) until(ctx context.Context, out io.Writer, see func(context.Context) (look, error)) (look, error) {
	told := map[string]string{}
	var last look
	err := wait.PollUntilContextCancel(ctx, c.every, true, func(ctx context.Context) (bool, error) {
		now, err := see(ctx)
		if ctx.Err() != nil {
			return false, nil
		}
		if err != nil {
			if permanent(err) {
				return false, err
			}
			now = look{lines: map[string]string{"": "waiting for the API server: " + err.Error()}}
		} else {
			last = now
		}
		for _, part := range slices.Sorted(maps.Keys(now.lines)) {
			line := now.lines[part]
			if was, seen := told[part]; !seen || line != was {
				told[part] = line
				if err := say(out, "%s", prefixed(part, line)); err != nil {
					return false, err
				}
			}
		}
		return now.done || now.failed, nil
	})
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errTimeout) {
		err = cause
	}
	return last, err
}

// permanent reports whether a retry is useless after err.
func permanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || noSuchKind(err)
}

func prefixed(part, line string) string {
	switch {
	case part == "":
		return report.Line(line)
	case line == "": // the part says it all
		return report.Line(part)
	}
	return report.Line(part + ": " + line)
}

// untilOffloaded waits until every selected provider has the twin of a namespace.
func (c *commands) untilOffloaded(ctx context.Context, to *clients, namespace string, out io.Writer) error {
	last, err := c.until(ctx, out, func(ctx context.Context) (look, error) {
		o, err := store.Live(ctx, "NamespaceOffloading", to.liqo.OffloadingV1beta1().NamespaceOffloadings(namespace), offloadingv1beta1.NamespaceOffloadingName)
		switch {
		case err != nil:
			return look{}, err
		case o == nil:
			return look{lines: map[string]string{"": "the NamespaceOffloading was deleted meanwhile"}, failed: true}, nil
		}
		return c.offloaded(o), nil
	})
	if err := last.outcome(err, "namespace "+namespace+" is not offloaded yet", "what was asked for stands. Still missing"); err != nil {
		return err
	}
	return say(out, "namespace %s: offloaded; %s", namespace, last.summary)
}

// outcome is the error of a wait with this last look, or nil. not says what is not the case then, and known begins what is
// known of it.
func (l look) outcome(err error, not, known string) error {
	switch {
	case errors.Is(err, errTimeout):
		return fmt.Errorf("%s, %w; %s: %s", not, err, known, l.missing())
	case err == nil && l.failed:
		return fmt.Errorf("%s: %s", strings.TrimSuffix(not, " yet"), l.missing())
	}
	return err
}

// missing describes the parts that were not done when a wait ended early.
func (l look) missing() string {
	if l.summary != "" {
		return l.summary
	}
	var parts []string
	for _, part := range slices.Sorted(maps.Keys(l.lines)) {
		parts = append(parts, prefixed(part, l.lines[part]))
	}
	if len(parts) == 0 {
		return "an answer of the API server"
	}
	return strings.Join(parts, "; ")
}

// offloaded judges a NamespaceOffloading.
func (c *commands) offloaded(o *offloadingv1beta1.NamespaceOffloading) look {
	ready := meta.FindStatusCondition(o.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady)
	if o.Status.ObservedGeneration != o.Generation || ready == nil {
		return look{lines: map[string]string{"": "waiting for liqod's controller to process it (if that takes long: " + c.program + " check)"}}
	}
	now := look{lines: map[string]string{}, summary: report.Line(ready.Message)}
	for id, c := range report.Selected(o) {
		now.lines[id] = c.Message
	}
	now.done = o.Status.OffloadingPhase == offloadingv1beta1.PhaseReady
	now.failed = ready.Reason == offloadingv1beta1.ReasonInvalid || o.Status.OffloadingPhase == offloadingv1beta1.PhaseNoClusterSelected
	return now
}

// untilTakenBack waits until a NamespaceOffloading and the twins of its namespace are gone.
func (c *commands) untilTakenBack(ctx context.Context, to *clients, namespace, uid string, out io.Writer) error {
	begun, unseen := uid != "", false
	last, err := c.until(ctx, out, func(ctx context.Context) (look, error) {
		now := look{lines: map[string]string{}}
		o, err := store.Live(ctx, "NamespaceOffloading", to.liqo.OffloadingV1beta1().NamespaceOffloadings(namespace), offloadingv1beta1.NamespaceOffloadingName)
		switch {
		case err != nil:
			return now, err
		case o != nil && string(o.UID) == uid:
			now.lines[""] = "waiting for liqod's controller to withdraw it (if that takes long: " + c.program + " check)"
			return now, nil
		case o != nil:
			now.lines[""], now.failed = "the namespace was offloaded again meanwhile", true
			return now, nil
		}
		maps, err := store.Find[*offloadingv1beta1.NamespaceMap](ctx, "NamespaceMap", to.liqo.OffloadingV1beta1().NamespaceMaps(""), metav1.ListOptions{})
		if apierrors.IsForbidden(err) { // as for the administrator of one namespace
			unseen, now.done = true, true
			return now, nil
		}
		if err != nil {
			return now, err
		}
		left := twins(namespace, maps, now.lines)
		now.done = left == 0
		begun = begun || len(now.lines) > 0
		return now, nil
	})
	if err := last.outcome(err, "namespace "+namespace+" is not gone from everywhere", "nothing more has to be asked for. Left"); err != nil {
		return err
	}
	switch {
	case !begun:
		return nil
	case unseen:
		return say(out, "namespace %s: taken back; you may not read NamespaceMaps, so it is not known whether the providers have deleted everything yet", namespace)
	case len(last.lines) > 0:
		return say(out, "namespace %s: taken back; what is kept for its volumes stays until somebody deletes it", namespace)
	}
	return say(out, "namespace %s: no provider has anything of it any more", namespace)
}

// twins returns the state of the remaining twins of a namespace, by provider, and the number
// of twins that are still to be deleted. Twins that are kept for their volumes do not count.
func twins(namespace string, all []*offloadingv1beta1.NamespaceMap, lines map[string]string) (left int) {
	for _, m := range all {
		own := m.Labels[offloadingv1beta1.ReplicatedLabel] != "true" && m.Namespace == corev1beta1.TenantNamespace(m.Name)
		twin, ok := m.Status.CurrentMapping[namespace]
		if !own || !ok {
			continue
		}
		if twin.Phase == offloadingv1beta1.MappingTerminating && twin.Message != "" {
			lines[m.Name] = twin.Message
			continue
		}
		left++
		lines[m.Name] = fmt.Sprintf("namespace %s is being removed", twin.RemoteNamespace)
		c := meta.FindStatusCondition(m.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady)
		if c != nil && c.Reason == offloadingv1beta1.ReasonReplicationFailed {
			lines[m.Name] = fmt.Sprintf("namespace %s is removed when the cluster is reached again: %s", twin.RemoteNamespace, c.Message)
		}
	}
	return left
}
