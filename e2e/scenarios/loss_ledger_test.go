package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/site"
)

// lookEvery is the time between two looks of a ledger.
const lookEvery = 500 * time.Millisecond

// ledger records what changes while a role is away. Its methods are safe for concurrent use.
type ledger struct {
	stop  func()
	began time.Time

	mu    sync.Mutex
	lines []string
	// fewer are the changes of numbers of endpoints and pods. Only the one who has called end reads it.
	fewer []string
}

// look returns what both clusters say: of virtual nodes, of each other, of endpoints and of pods.
func (w lossWorld) look(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		if err := w.conditions(ctx, s, out); err != nil {
			return nil, err
		}
	}
	for _, p := range w.shops {
		if err := p.look(ctx, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// conditions adds what a cluster says of its virtual node and of its peer.
func (w lossWorld) conditions(ctx context.Context, s *site.Site, out map[string]string) error {
	peer := w.other(s).Name
	nodes, err := s.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		virtual := n.Labels[offloadingv1beta1.TypeLabel] == offloadingv1beta1.TypeVirtualNode
		for _, c := range n.Status.Conditions {
			if virtual && (c.Type == corev1.NodeReady || c.Type == corev1.NodeNetworkUnavailable || c.Type == offloadingv1beta1.ReasonControllerSilent) {
				out[s.Name+": node "+n.Name+" "+string(c.Type)] = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
			}
		}
	}
	fc, err := s.Liqod().CoreV1beta1().ForeignClusters().Get(ctx, peer, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range fc.Status.Conditions {
		out[s.Name+": peer "+peer+" "+c.Type] = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
	}
	return nil
}

// wanted returns how look begins while all is well.
func wanted(what string) string {
	switch {
	case strings.HasSuffix(what, offloadedPods), strings.HasSuffix(what, providersEndpoints):
		return "2"
	case strings.HasSuffix(what, homesEndpoints):
		return "1"
	case strings.HasSuffix(what, string(corev1.NodeNetworkUnavailable)), strings.HasSuffix(what, offloadingv1beta1.ReasonControllerSilent):
		return "False"
	}
	return "True"
}

// watch records what both clusters say until end.
func (w lossWorld) watch(t *testing.T) *ledger {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	book, done := &ledger{began: time.Now()}, make(chan struct{})
	book.stop = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		before := map[string]string{}
		for ctx.Err() == nil {
			if seen, err := w.look(ctx); err == nil {
				book.compare(before, seen)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return book
}

// compare notes what is not as before, but for the first looks, and keeps it. The first look is no change of a shop, however
// long it has taken.
func (b *ledger) compare(before, seen map[string]string) {
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		was := before[what]
		before[what] = seen[what]
		if was == seen[what] || time.Since(b.began) < 2*lookEvery {
			continue
		}
		b.note("%s: %s -> %s", what, cmp.Or(was, "not there"), seen[what])
		if ofShop(what) && was != "" {
			b.mu.Lock()
			b.fewer = append(b.fewer, b.lines[len(b.lines)-1])
			b.mu.Unlock()
		}
	}
}

func (b *ledger) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf("%6.1fs  ", time.Since(b.began).Seconds())+fmt.Sprintf(format, args...))
}

// end ends the ledger and returns it.
func (b *ledger) end() string {
	b.stop()
	return strings.Join(b.lines, "\n")
}

// newPod is the pod that is created while a role is away.
const newPod = "new"

// tryNew creates a pod for milan, has turin peer with milan, notes what becomes of them, and says
// whether all is made.
func (w lossWorld) tryNew(t *testing.T, book *ledger, token string) (made bool) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: newPod}, Spec: testSpec(1, "serve")}
	pod.Spec.RuntimeClassName = ptr.To("liqo")
	began := time.Now()
	_, err := w.rome.Client().CoreV1().Pods(lossNamespace).Create(t.Context(), pod, metav1.CreateOptions{})
	book.note("new pod: created after %s: %v", time.Since(began).Round(time.Millisecond), err)
	if err == nil {
		fate := w.fate(t.Context(), began)
		book.note("new pod: %s", fate)
		made = strings.HasPrefix(fate, "Ready")
	}
	if token == "" {
		return made
	}
	began = time.Now()
	out, code, err := w.command(t.Context(), w.turin, "peer", "--token", token, "--timeout=1m")
	book.note("new peer: code %d after %s (%v): %s", code, time.Since(began).Round(time.Millisecond), err, strings.TrimSpace(out))
	return made && code == 0
}

// fate waits for 45 s until the new pod is Ready, and returns how it is.
func (w lossWorld) fate(ctx context.Context, began time.Time) string {
	ctx, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	tick := time.NewTicker(lookEvery / 5)
	defer tick.Stop()
	last := "not seen"
	for {
		p, err := w.rome.Client().CoreV1().Pods(lossNamespace).Get(ctx, newPod, metav1.GetOptions{})
		if err == nil && podReady(p) == corev1.ConditionTrue {
			return fmt.Sprintf("Ready after %s", time.Since(began).Round(100*time.Millisecond))
		}
		if err == nil {
			last = fmt.Sprintf("%s on node %q, reason %q: %s", p.Status.Phase, p.Spec.NodeName, p.Status.Reason, p.Status.Message)
		}
		select {
		case <-ctx.Done():
			return "after 45 s " + last
		case <-tick.C:
		}
	}
}

// forgetNew deletes the new pod, and ends the peering of turin.
func (w lossWorld) forgetNew(t *testing.T, book *ledger, token string) {
	t.Helper()
	pods := w.rome.Client().CoreV1().Pods(lossNamespace)
	if _, err := pods.Get(t.Context(), newPod, metav1.GetOptions{}); err == nil {
		book.note("new pod, once all is well: %s", w.fate(t.Context(), time.Now()))
		require.NoError(t, pods.Delete(t.Context(), newPod, metav1.DeleteOptions{}))
		within(t, longest, "the new pod is gone", isGone(pods, newPod))
	}
	if token == "" {
		return
	}
	for _, end := range []struct {
		s    *site.Site
		args []string
	}{
		{w.turin, []string{"peer", "--token", token, "--timeout=2m"}}, {w.turin, []string{"unpeer", w.milan.Name, "--timeout=1m"}},
		{w.milan, []string{"unpeer", w.turin.Name, "--timeout=1m"}},
	} {
		out, code, err := w.command(t.Context(), end.s, end.args...)
		book.note("%s in %s: code %d (%v): %s", end.args[0], end.s.Name, code, err, strings.TrimSpace(out))
	}
}

// statuses notes what liqod status prints in both clusters.
func (w lossWorld) statuses(t *testing.T, book *ledger) {
	t.Helper()
	for _, s := range []*site.Site{w.rome, w.milan} {
		out, code, err := w.command(t.Context(), s, "status")
		book.note("liqod status in %s: code %d (%v):\n%s", s.Name, code, err, out)
	}
}
