package kinds

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// view is the known state of one pod. Fields are nil if an object does not exist.
type view struct {
	key    loop.Key
	twin   *twin
	local  *corev1.Pod
	shadow *offloadingv1beta1.ShadowPod
	remote *corev1.Pod
}

// there returns the key of the objects in the provider.
func (v view) there() loop.Key { return v.twin.key(v.key.Name) }

func (p *Pods) sync(ctx context.Context, key loop.Key) error {
	v := view{key: key, local: p.localPod(key), twin: p.twins.Get(key.Namespace)}
	if v.twin == nil {
		return p.notOffloaded(ctx, v.local)
	}
	if err := p.cfg.Gate(); err != nil {
		p.cfg.Log.Debug("writes to the provider are blocked", zap.Error(err))
		return p.holdUnready(ctx, v.local) // Resync follows
	}
	if !v.twin.synced() {
		return p.holdUnready(ctx, v.local) // enqueueTwin follows
	}
	p.look(&v)
	return p.syncOpen(ctx, v)
}

// syncOpen is syncTwin as long as the gate is open. When it closes meanwhile, the pod is unready
// at once: it does not wait until a provider that is down answers.
func (p *Pods) syncOpen(ctx context.Context, v view) error {
	open, done := p.cfg.While(ctx)
	defer done()
	err := p.syncTwin(open, v)
	if err == nil || open.Err() == nil || ctx.Err() != nil {
		return err
	}
	p.cfg.Log.Debug("a sync was ended because the provider is down", zap.Stringer("key", v.key), zap.Error(err))
	return p.holdUnready(ctx, p.localPod(v.key)) // Resync follows
}

// look adds the ShadowPod and the remote pod to the view.
func (p *Pods) look(v *view) {
	v.shadow, v.remote = v.twin.shadows.Get(v.there()), v.twin.pods.Get(v.there())
	if v.local != nil && v.shadow != nil && !foreign(v.shadow, v.local) && foreign(v.remote, v.local) {
		v.remote = nil // the provider will replace the pod of a predecessor by that of this one
	}
}

// localPod returns the pod from the cache or from a more recent write, or nil if it does
// not exist.
func (p *Pods) localPod(key loop.Key) *corev1.Pod {
	cached := p.locals.Cached(key)
	if cached == nil || ended(cached) {
		return cached
	}
	return p.locals.Latest(key, cached)
}

// syncTwin is the part of sync for a pod whose twin namespace has synced.
func (p *Pods) syncTwin(ctx context.Context, v view) error {
	switch {
	case v.local == nil:
		return p.withdrawOrphan(ctx, v)
	case foreign(v.shadow, v.local) || (v.shadow == nil && foreign(v.remote, v.local)):
		// The objects belong to an earlier pod of the same name. The new pod waits until
		// they are gone.
		return p.withdrawOrphan(ctx, v)
	case v.local.DeletionTimestamp != nil:
		return p.terminate(ctx, v)
	case ended(v.local):
		return nil
	case v.shadow == nil:
		return p.offload(ctx, v)
	case v.shadow.DeletionTimestamp != nil:
		return nil // the end of the deletion triggers a new sync
	default:
		return p.reflect(ctx, v)
	}
}

// foreign reports whether an object in the provider, which may be nil, is of another pod.
func foreign[T store.Object](there T, local *corev1.Pod) bool {
	var none T
	return there != none && localUID(there) != local.UID
}

// offload creates the ShadowPod, with one write.
func (p *Pods) offload(ctx context.Context, v view) error {
	if v.remote != nil {
		// The remote pod remains from a ShadowPod that was deleted in the provider: wait
		// until it is gone.
		return p.report(ctx, v.local, nil, v.remote)
	}
	if started(v.local) {
		return p.offloadAgain(ctx, v)
	}
	if admitted, err := p.admit(ctx, v); !admitted {
		return err
	}
	return p.create(ctx, v)
}

func (p *Pods) create(ctx context.Context, v view) error {
	if vn := p.cfg.virtualNode(); vn == nil || vn.DeletionTimestamp != nil {
		return nil // the node is being drained: a new pod would be evicted at once
	}
	if p.cfg.Workers == 0 {
		return p.writeStatus(ctx, v.local, p.pending(v.local, reasons.OffloadingSwitchedOff, "offloading is switched off here: reflection.pod.workers is 0 (in the chart offloading.reflection.pod.workers); delete the pod, and it is scheduled to another node"))
	}
	withheld, err := p.cfg.Claims.withheld(ctx, v.local, v.twin.remote)
	if err != nil {
		return err
	}
	if withheld != "" {
		return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, reasons.RemoteVolumeTaken, withheld)), loop.After(engine.TakenRetry))
	}
	o := p.options(v)
	if why := p.awaitsAPI(v.local, o); why != "" {
		return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, reasons.HomeAPIServerUnknown, why)), loop.After(homeAPIRetry))
	}
	if o.Home {
		if o.DNS, err = p.cfg.HomeDNS(); err != nil {
			return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, reasons.HomeServicesUnknown, fmt.Sprintf(
				"namespace %s has services Home, and pods in cluster %s do not reach the Services of this cluster: %s", v.key.Namespace, p.cfg.Destination, err))), loop.After(homeAPIRetry))
		}
	}
	if o.ClaimedVolumes, err = p.cfg.Claims.ephemeral(ctx, v.local); err != nil {
		return err
	}
	want, err := forge.ShadowPod(v.local, o)
	var refused *forge.Refused
	if errors.As(err, &refused) {
		return p.writeStatus(ctx, v.local, p.pending(v.local, refused.Reason, refused.Message))
	}
	if err != nil {
		return fmt.Errorf("forging the ShadowPod: %w", err)
	}
	if started(v.local) {
		want.Spec.EarlierRestarts = forge.EarlierRestarts(v.local)
	}
	if err := p.awaitCopies(ctx, v, o, want); err != nil {
		return err
	}
	if err := p.createShadow(ctx, v, want); err != nil {
		return err
	}
	if started(v.local) {
		p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, offloadingv1beta1.ReasonPodReplaced,
			fmt.Sprintf("the pod was deleted in cluster %s with its ShadowPod; it is created there again", p.cfg.Destination))
	}
	if fields := forge.HostNamespaces(&v.local.Spec); len(fields) > 0 {
		p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, reasons.HostNamespacesLeftOut,
			fmt.Sprintf("cluster %s runs the pod without %s: it has a network and processes of its own there", p.cfg.Destination, strings.Join(fields, ", ")))
	}
	return nil
}

func (p *Pods) createShadow(ctx context.Context, v view, want *offloadingv1beta1.ShadowPod) error {
	pending := func(reason, message string) error {
		return p.writeStatus(ctx, v.local, p.pending(v.local, reason, message))
	}
	_, err := creation[*offloadingv1beta1.ShadowPod]{
		all: v.twin.shadows, client: p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote),
		mine: func(have *offloadingv1beta1.ShadowPod) bool {
			return have.Labels[offloadingv1beta1.NodeNameLabel] == p.cfg.Node
		},
		stranger: func(have *offloadingv1beta1.ShadowPod) error {
			return pending(reasons.ShadowPodTaken, fmt.Sprintf("a ShadowPod %s/%s of virtual node %q has the name in cluster %s; waiting until it is gone",
				v.twin.remote, v.key.Name, have.Labels[offloadingv1beta1.NodeNameLabel], p.cfg.Destination))
		},
		ending: func() error {
			return pending(reasons.TwinNamespaceTerminating, fmt.Sprintf("the namespace %s of cluster %s is being deleted; waiting until it is there again", v.twin.remote, p.cfg.Destination))
		},
		failed: func(err error) error {
			refused := fmt.Errorf("creating the ShadowPod: %w", err)
			if engine.IsRefusal(err) {
				return errors.Join(pending(refusalReason(err), store.ClipMessage(fmt.Sprintf("cluster %s refuses the ShadowPod: %s", p.cfg.Destination, offloadingv1beta1.ExplainBound(err.Error())))), refused)
			}
			return refused
		},
	}.create(ctx, want)
	return err
}

// awaitCopies returns nil when the provider has what a new pod names, as this cluster has it: a
// container reads variables, Services and optional references only once. Until then it returns
// the error by which the pod is tried again. Pods.Settled does that earlier.
func (p *Pods) awaitCopies(ctx context.Context, v view, o forge.PodOptions, want *offloadingv1beta1.ShadowPod) error {
	var missing forge.Named
	var waited time.Duration
	var err error
	for range 2 { // the copy may arrive before the wait for it is noted
		var is bool
		if missing, is, err = p.missing(ctx, v.key.Namespace, want, forge.Tokens(v.local, o), boundSince(v.local)); err == nil && !is {
			return nil
		}
		waited = p.await(v.key, v.local.UID, missing)
	}
	message := fmt.Sprintf("cluster %s does not have %s %s/%s yet as it is here", p.cfg.Destination, missing.Kind, v.key.Namespace, missing.Name)
	if missing.Name == "" {
		message = fmt.Sprintf("it is not known yet what cluster %s has of what the pod names", p.cfg.Destination)
	}
	switch left := copiesPatience - waited; {
	case left <= 0:
		if p.isNews(v.local.UID, reasons.NotReflectedYet) {
			p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, reasons.NotReflectedYet, fmt.Sprintf("the pod starts although %s, after %s", message, copiesPatience))
		}
		return nil
	case err != nil:
		return err
	case waited < copiesSilence:
		return loop.After(copiesSilence - waited)
	default:
		return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, reasons.NotReflectedYet, message)), loop.After(min(copiesRetry, left)))
	}
}

func (p *Pods) options(v view) forge.PodOptions {
	o := forge.PodOptions{NodeName: p.cfg.Node, ObjectOptions: p.cfg.objectOptions(p.cfg.virtualNode(), v.twin.remote)}
	o.Home = p.cfg.Namespaces.Map().AtHome(v.key.Namespace)
	o.API, _ = p.apiAccess(o.Home) // awaitsAPI has the error
	return o
}

// reflect updates the ShadowPod and the local status. The status is written even if the
// provider rejects the update of the ShadowPod.
func (p *Pods) reflect(ctx context.Context, v view) error {
	err := p.carry(ctx, v)
	if err != nil && !engine.IsRefusal(err) {
		return err
	}
	p.tellNotCarried(v, err)
	p.tellLeftOut(v)
	return errors.Join(p.report(ctx, v.local, v.shadow, v.remote), err)
}

// carry writes changes of the local pod to its ShadowPod.
func (p *Pods) carry(ctx context.Context, v view) error {
	want, differs := forge.UpdateShadowPod(v.shadow, v.local, p.options(v))
	if !differs {
		return nil
	}
	if _, err := v.twin.shadows.Note(p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Update(ctx, want, metav1.UpdateOptions{FieldManager: engine.FieldManager})); err != nil {
		return fmt.Errorf("updating the ShadowPod: %w", err)
	}
	return nil
}

// tellNotCarried records an event about a change that the provider rejects: of the
// ShadowPod (refused), or of a running pod. If the remote pod does not exist, the status
// of the local pod has the reason instead.
func (p *Pods) tellNotCarried(v view, refused error) {
	reason, what := reasons.UpdateRefused, ""
	if refused != nil {
		what = refused.Error()
	} else if c := meta.FindStatusCondition(v.shadow.Status.Conditions, offloadingv1beta1.ShadowPodEnforced); v.remote != nil && c != nil && c.Status == metav1.ConditionFalse {
		reason, what = c.Reason, c.Message
	}
	what = store.ClipMessage(what)
	before := p.memo(v.local.UID).rejected
	if before == what {
		return
	}
	p.change(v.local.UID, func(r *memo) { r.rejected = what })
	if what != "" {
		p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, reason, fmt.Sprintf("in cluster %s: %s", p.cfg.Destination, what))
	}
}

// tellLeftOut records an event about labels and annotations that the provider does not accept,
// once for each pod and list of them. A pod that follows an earlier version of its ShadowPod may
// still get what it lacks.
func (p *Pods) tellLeftOut(v view) {
	if v.remote == nil || v.remote.Annotations[offloadingv1beta1.LeftOutAnnotation] != offloadingv1beta1.MarksSum(v.shadow) {
		return
	}
	keys := strings.Join(forge.LeftOutOfPod(v.shadow, v.remote), ", ")
	if keys == "" || !p.isNews(v.local.UID, reasons.AnnotationsLeftOut+keys) {
		return
	}
	p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, reasons.AnnotationsLeftOut, forge.LeftOutMessage(p.cfg.Destination, keys))
}

const (
	// homeAPIPatience is how long a pod waits for the address after it was bound to the
	// virtual node. The environment of a pod cannot change later, but a pod that has no need
	// for the API server must not wait for ever.
	homeAPIPatience = 30 * time.Second
	homeAPIRetry    = 5 * time.Second
)

// HomeAPI finds the address at which pods in the provider reach the consumer's API server.
type HomeAPI interface {
	// Fabric reports whether there is such an address, or will be.
	Fabric() bool
	// Address returns the address and port, or the reason for which none is known. atHome is for pods that use
	// the consumer's Services: they reach the one of the API server.
	Address(atHome bool) (netip.AddrPort, error)
}

// apiAccess returns how a pod that starts now reaches the consumer's API server, and the
// reason if its address is not known yet.
func (p *Pods) apiAccess(atHome bool) (forge.APIAccess, error) {
	access := p.cfg.API
	if access.Host != "" || p.cfg.HomeAPI == nil || !p.cfg.HomeAPI.Fabric() {
		return access, nil
	}
	server, err := p.cfg.HomeAPI.Address(atHome)
	if err != nil {
		return access, err
	}
	access.Host, access.Port, access.Service = server.Addr().String(), strconv.Itoa(int(server.Port())), atHome
	return access, nil
}

// awaitsAPI returns the reason for which a new pod has to wait for the address of the
// consumer's API server; "": it need not. The pod that waits too long starts without the
// address, and an event says so.
func (p *Pods) awaitsAPI(local *corev1.Pod, o forge.PodOptions) string {
	_, err := p.apiAccess(o.Home)
	if err == nil || started(local) || len(forge.Tokens(local, o)) == 0 {
		return ""
	}
	if p.now().Sub(boundSince(local)) < homeAPIPatience {
		return fmt.Sprintf("the address of this cluster's API server for cluster %s is not known yet: %s", p.cfg.Destination, err)
	}
	p.cfg.Recorder.Event(local, corev1.EventTypeWarning, reasons.HomeAPIServerUnknown, fmt.Sprintf(
		"the pod starts in cluster %s without the address of the API server of this cluster, and clients in it do not reach the API server: %s", p.cfg.Destination, err))
	return ""
}
