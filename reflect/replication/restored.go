package replication

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// After a restore of its etcd from a backup, a consumer lacks the requests that were made
// since the backup. Their absence does not mean that they were withdrawn. Whatever the
// copies in the peer request in addition is therefore kept and marked, until a person
// removes the mark.

// forgetful is how long after a restore additional requests of a copy are attributed to it.
const forgetful = time.Hour

// forgot reports whether home may lack requests of the copy because this cluster was
// restored from a backup. It returns false once the copy has been marked for this
// restore.
func (p *pair[T]) forgot(remote T) bool {
	if !store.MadeBefore(remote, p.cfg.HomeLost) {
		return false
	}
	lost := p.cfg.HomeLost()
	return lost.After(p.judged) && p.cfg.Clock.Since(lost) < forgetful
}

// current returns nil if home is the current state in this cluster. The cache can still
// contain the state before the restore.
func (p *pair[T]) current(ctx context.Context, home T) error {
	live, err := p.here().Get(ctx, home.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && live.GetResourceVersion() != home.GetResourceVersion() {
		return loop.After(cacheDelay)
	}
	if err != nil {
		return fmt.Errorf("reading %s %s after this cluster's state went back: %w", p.kind.name, home.GetName(), err)
	}
	return nil
}

// keepAll marks a copy whose home object was lost by the restore.
func (p *pair[T]) keepAll(ctx context.Context, remote T) error {
	next := remote.DeepCopy()
	p.kind.keep(p.kind.empty(), next)
	if err := p.verify(ctx); err != nil {
		return err
	}
	if _, err := p.there().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return peerError{fmt.Errorf("marking the copy of %s %s, which is not known here: %w", p.kind.name, remote.GetName(), err)}
	}
	p.settleLoss(next)
	return nil
}

// settleLoss records that the copy has been marked for the latest restore.
func (p *pair[T]) settleLoss(next T) {
	p.judged = p.cfg.HomeLost()
	if hasKept(next) {
		p.cfg.Log.Warn("the state of this cluster went back: newer objects of the peer are kept",
			zap.String("peer", p.peer), zap.String("kind", p.kind.name))
	}
}

// hasKept reports whether keep has marked anything in a copy.
func hasKept(remote metav1.Object) bool {
	return remote.GetAnnotations()[offloadingv1beta1.KeptNamespacesAnnotation] != ""
}

func keptNamespaces(remote *offloadingv1beta1.NamespaceMap) []string {
	list := remote.Annotations[offloadingv1beta1.KeptNamespacesAnnotation]
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func setKept(remote *offloadingv1beta1.NamespaceMap, kept []string) {
	if len(kept) == 0 {
		delete(remote.Annotations, offloadingv1beta1.KeptNamespacesAnnotation)
		return
	}
	slices.Sort(kept)
	metav1.SetMetaDataAnnotation(&remote.ObjectMeta, offloadingv1beta1.KeptNamespacesAnnotation, strings.Join(kept, ","))
}

// keepDesired marks the namespaces that are mapped in remote and not in home.
func keepDesired(home, remote *offloadingv1beta1.NamespaceMap) {
	var kept []string
	for ns := range remote.Spec.DesiredMapping {
		if _, known := home.Spec.DesiredMapping[ns]; !known {
			kept = append(kept, ns)
		}
	}
	setKept(remote, kept)
}

// pushDesired copies the mapping of home to remote and keeps the marked namespaces that
// home lacks.
func pushDesired(home, remote *offloadingv1beta1.NamespaceMap) {
	before := remote.Spec
	remote.Spec = *home.Spec.DeepCopy()
	var kept []string
	for _, ns := range keptNamespaces(remote) {
		name, there := before.DesiredMapping[ns]
		if _, known := home.Spec.DesiredMapping[ns]; known || !there {
			continue
		}
		if remote.Spec.DesiredMapping == nil {
			remote.Spec.DesiredMapping = map[string]string{}
		}
		remote.Spec.DesiredMapping[ns] = name
		if services := before.Services[ns]; services != "" {
			if remote.Spec.Services == nil {
				remote.Spec.Services = map[string]offloadingv1beta1.ServiceNetwork{}
			}
			remote.Spec.Services[ns] = services
		}
		kept = append(kept, ns)
	}
	setKept(remote, kept)
}

// desiredHere returns the mapping of remote without the marked namespaces.
func desiredHere(remote *offloadingv1beta1.NamespaceMap) map[string]string {
	out := maps.Clone(remote.Spec.DesiredMapping)
	for _, ns := range keptNamespaces(remote) {
		delete(out, ns)
	}
	return out
}
