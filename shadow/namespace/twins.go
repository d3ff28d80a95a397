package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// Names of the ClusterRoles that are bound in twin namespaces, and of their RoleBindings.
const (
	// PeerTwinRole is bound to the user of the peer.
	PeerTwinRole = "liqod-peer-twin"
	// ControllerTwinRole is bound to the controller's service account.
	ControllerTwinRole = "liqod-controller-twin"
)

const (
	managedByNamespaceMap = "namespacemap" // value of liqo.io/managed-by
	// parallelTwins limits the concurrent requests for one map.
	parallelTwins = 8
	// mostTold is the number of entries that the condition of a map and the events of one sync
	// name as failed.
	mostTold = 20
)

// errStale means that the cache lags behind the API server, so nothing was decided.
var errStale = errors.New("the cache is behind the API server")

// madeFor reports whether Maps created a namespace for a map. Only maps with the fixed name
// have twins. A namespace that refers to another map is not liqod's to delete.
func (m *Maps) madeFor(ns *corev1.Namespace, key loop.Key) bool {
	return key.Name == m.cfg.ClusterID && corev1beta1.PeerOfNamespace(key.Namespace) != "" &&
		ns.Annotations[offloadingv1beta1.ManagedByNamespaceMapAnnotation] == key.String()
}

func originalOf(ns *corev1.Namespace) string {
	return ns.Annotations[offloadingv1beta1.OriginalNameAnnotation]
}

// wish is one entry of a map: a twin and its rights.
type wish struct {
	key      loop.Key // of the map
	peer     string
	original string
	name     string
	services offloadingv1beta1.ServiceNetwork // empty: those of the twin
	user     string                           // of the peer; empty: none
	noUser   string                           // why there is no user
	of       identity
	refused  string // why there is no such twin, whatever exists; empty: there may be
	early    string // why the peer gets no twin and no rights yet; empty: it may
	all      together
}

// enforce creates, corrects and deletes the twins of one map, and writes its status.
func (m *Maps) enforce(ctx context.Context, nm *offloadingv1beta1.NamespaceMap, peer string) error {
	key := cache.MetaObjectToName(nm)
	user, noUser := m.user(peer)
	of, early, twins := identityOf(m.record(peer)), m.early(peer), m.twins(key)
	all := m.together(peer, len(nm.Spec.DesiredMapping))
	status := offloadingv1beta1.NamespaceMapStatus{ObservedGeneration: nm.Generation, Conditions: nm.Status.Conditions,
		CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{}}
	err := m.unmap(ctx, nm, user, twins, status.CurrentMapping)
	if errors.Is(err, errStale) {
		return loop.After(cacheDelay)
	}
	errs := []error{err}

	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallelTwins)
	taken, over := standing(nm, twins), beyond(nm, twins, m.cfg.NamespacesPerPeer)
	for _, original := range slices.Sorted(maps.Keys(nm.Spec.DesiredMapping)) {
		w := wish{key: key, peer: peer, original: original, name: nm.Spec.DesiredMapping[original], services: nm.Spec.Services[original], user: user, noUser: noUser, of: of, early: early, all: all}
		switch other, named := taken[w.name]; {
		case named && other != original:
			w.refused = fmt.Sprintf("namespace %s is requested twice: it is the twin of %s", w.name, other)
		case over[original]:
			w.refused = m.tooMany(peer)
		default:
			taken[w.name] = original
		}
		group.Go(func() error {
			answer, err := m.twin(ctx, w, twins[w.name])
			mu.Lock()
			defer mu.Unlock()
			status.CurrentMapping[w.original] = answer
			errs = append(errs, err)
			return nil
		})
	}
	errs = append(errs, group.Wait())
	reason, message := sumUp(status.CurrentMapping, noUser)
	m.ready(&status, nm, reason, message)
	if len(status.CurrentMapping) == 0 {
		status.CurrentMapping = nil
	}
	if err := errors.Join(append(errs, m.report(ctx, nm, status))...); err != nil {
		return err
	}
	for _, s := range status.CurrentMapping {
		if s.Phase == offloadingv1beta1.MappingTerminating && s.Message != "" {
			return loop.After(keptRetry)
		}
	}
	return nil
}

// standing returns, by name, the original namespace of each wanted twin that exists. A
// second entry with the same name does not affect that twin.
func standing(nm *offloadingv1beta1.NamespaceMap, twins map[string]*corev1.Namespace) map[string]string {
	out := map[string]string{}
	for name, ns := range twins {
		if original := originalOf(ns); original != "" && wanted(nm, ns) {
			out[name] = original
		}
	}
	return out
}

func sumUp(current map[string]offloadingv1beta1.RemoteNamespaceStatus, noUser string) (reason, message string) {
	var failed []string
	var kept []string
	ready, terminating := 0, 0
	for _, original := range slices.Sorted(maps.Keys(current)) {
		switch s := current[original]; s.Phase {
		case offloadingv1beta1.MappingAccepted:
			ready++
		case offloadingv1beta1.MappingTerminating:
			terminating++
			if s.Message != "" {
				kept = append(kept, s.Message)
			}
		default:
			failed = append(failed, original+": "+s.Message)
		}
	}
	switch {
	case noUser != "":
		return offloadingv1beta1.ReasonInvalid, noUser
	case len(failed) > 0:
		return offloadingv1beta1.ReasonCreationLoopBackOff, store.First(failed, mostTold, "; ", "; %d more namespaces")
	case terminating > 0:
		return offloadingv1beta1.ReasonTerminating, strings.Join(append([]string{fmt.Sprintf("twin namespaces: %d; no longer requested: %d", ready, terminating)}, kept...), "; ")
	}
	return offloadingv1beta1.ReasonNamespaceCreated, fmt.Sprintf("twin namespaces: %d", ready)
}

// record returns the ForeignCluster of a peer, or nil if there is none or it is being deleted.
func (m *Maps) record(peer string) *corev1beta1.ForeignCluster {
	fc := store.Known(m.cfg.ForeignClusters.Lister().Get(peer))
	if fc != nil && fc.DeletionTimestamp != nil {
		return nil
	}
	return fc
}

// early returns the reason for which a peer gets no twins yet, or "". A peer that enrolled
// with a token may only request capacity until a Quota for it exists; before that, nothing
// would limit its pods.
func (m *Maps) early(peer string) string {
	fc := m.record(peer)
	if fc == nil || !corev1beta1.Enrolled(fc) {
		return ""
	}
	if len(store.Listed(m.cfg.Quotas.Lister().Quotas(corev1beta1.TenantNamespace(peer)).List(labels.Everything()))) > 0 {
		return ""
	}
	return fmt.Sprintf("cluster %s has no offer yet: it may use cluster %s once it has requested and got capacity there, or once a Quota exists in namespace %s there",
		peer, m.cfg.ClusterID, corev1beta1.TenantNamespace(peer))
}

// entitled reports whether a peer's user already has rights in a twin.
func (m *Maps) entitled(w wish) bool {
	b := store.Known(m.cfg.RoleBindings.Lister().RoleBindings(w.name).Get(PeerTwinRole))
	return b != nil && w.user != "" && slices.Contains(b.Subjects, store.UserSubject(w.user))
}

// user returns the user that a peer's rights are bound to, or the reason for which there is
// none.
func (m *Maps) user(peer string) (user, none string) {
	fc := m.record(peer)
	if fc == nil {
		return "", fmt.Sprintf("there is no ForeignCluster %s: the cluster has no rights here", peer)
	}
	if fc.Spec.UserName == "" {
		return "", fmt.Sprintf("ForeignCluster %s has no spec.userName: the cluster has no rights here", peer)
	}
	user = fc.Spec.UserName
	if !corev1beta1.ValidPeerUser(peer, user) {
		return "", fmt.Sprintf("spec.userName of ForeignCluster %s is %q: accepted are %s%s:<serial> and system:serviceaccount:%s:<name>",
			peer, user, corev1beta1.PeerUserPrefix, peer, corev1beta1.TenantNamespace(peer))
	}
	return user, ""
}

// unmap deletes the twins whose entries are gone, after a live read of the map has
// confirmed it, and adds their answers to current.
func (m *Maps) unmap(ctx context.Context, nm *offloadingv1beta1.NamespaceMap, user string, twins map[string]*corev1.Namespace, current map[string]offloadingv1beta1.RemoteNamespaceStatus) error {
	var gone []*corev1.Namespace
	for _, ns := range twins {
		if !wanted(nm, ns) {
			gone = append(gone, ns)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	live, err := m.cfg.Liqo.OffloadingV1beta1().NamespaceMaps(nm.Namespace).Get(ctx, nm.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("confirming that twins are no longer wanted: %w", err)
	}
	for _, ns := range gone {
		original := originalOf(ns)
		if live.UID != nm.UID || wanted(live, ns) {
			return errStale
		}
		kept, err := m.giveUp(ctx, ns, user)
		if err != nil {
			return err
		}
		if _, again := nm.Spec.DesiredMapping[original]; !again && original != "" {
			current[original] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: ns.Name, Phase: offloadingv1beta1.MappingTerminating, Message: kept}
		}
	}
	return nil
}

// wanted reports whether a map has an entry for one of its twins.
func wanted(nm *offloadingv1beta1.NamespaceMap, ns *corev1.Namespace) bool {
	if original := originalOf(ns); original != "" {
		return nm.Spec.DesiredMapping[original] == ns.Name
	}
	return wants(nm, ns.Name) // the annotation was removed by hand: it is restored
}

func (w wish) failed(message string) offloadingv1beta1.RemoteNamespaceStatus {
	return offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: w.name, Phase: offloadingv1beta1.MappingCreationLoopBackOff, Message: message}
}

func (w wish) terminating(message string) offloadingv1beta1.RemoteNamespaceStatus {
	return offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: w.name, Phase: offloadingv1beta1.MappingTerminating, Message: message}
}

// taken is the answer for a name that the peer may not give, and for one that is another's. It is
// one text for both, so that a peer does not learn which namespaces there are.
func (m *Maps) taken(w wish) string {
	return fmt.Sprintf("namespace %[3]s exists already and was not made for cluster %[2]s, or %[1]s does not let %[2]s name a namespace %[3]s: new names that end in -%[2]s are accepted "+
		"(namespaceMappingStrategy DefaultName), and those that controller.twinNames of %[1]s lists", m.cfg.ClusterID, w.peer, w.name)
}

// twin creates or corrects one twin, and returns the answer for its entry. have is the
// cached namespace if it is a twin of this map.
func (m *Maps) twin(ctx context.Context, w wish, have *corev1.Namespace) (offloadingv1beta1.RemoteNamespaceStatus, error) {
	if why := cmp.Or(w.refused, twinRefusal(w.name, m.cfg.OwnNamespace)); why != "" {
		return w.failed(why), nil
	}
	if w.early != "" && !m.entitled(w) { // the peer keeps its rights while its Quota is missing
		if have == nil {
			return w.failed(w.early), nil
		}
		return w.failed(w.early), m.revoke(ctx, w.name, w.user)
	}
	if have == nil {
		var err error
		have, err = m.create(ctx, w)
		var often tooOften
		if errors.As(err, &often) {
			return w.failed(fmt.Sprintf("namespace %s waits: %v", w.name, often)), loop.After(often.wait)
		}
		if err != nil {
			return w.failed(fmt.Sprintf("namespace %s cannot be created: %v", w.name, err)), err
		}
		if have == nil {
			return w.failed(m.taken(w)), nil
		}
	}
	switch {
	case !m.madeFor(have, w.key):
		return w.failed(m.taken(w)), nil
	case have.DeletionTimestamp != nil:
		return w.terminating(fmt.Sprintf("namespace %s is being deleted, and is created again when it is gone", w.name)), m.revoke(ctx, w.name, w.user)
	case originalOf(have) != "" && originalOf(have) != w.original:
		return w.terminating(fmt.Sprintf("namespace %s was the twin of %s and is being removed", w.name, originalOf(have))), nil
	}
	labels := m.twinLabels(w)
	if have.Labels[offloadingv1beta1.BoundedLabel] != "" && labels[offloadingv1beta1.BoundedLabel] == "" {
		labels[offloadingv1beta1.BoundedLabel] = "false"
	}
	mark, why, err := m.claim(ctx, w, have)
	if err != nil {
		return w.failed(fmt.Sprintf("namespace %s cannot be set up: %v", w.name, err)), err
	}
	if why != "" {
		return w.failed(why), m.revoke(ctx, w.name, "")
	}
	if err := m.correct(ctx, have, labels, w.annotations(mark)); err != nil {
		return w.failed(fmt.Sprintf("namespace %s cannot be set up: %v", w.name, err)), err
	}
	return m.open(ctx, w)
}

// open bounds the twin, and then gives the peer its rights there.
func (m *Maps) open(ctx context.Context, w wish) (offloadingv1beta1.RemoteNamespaceStatus, error) {
	err := m.bound(ctx, w.peer, w.name, w.all)
	var foreign foreignError
	if errors.As(err, &foreign) {
		return w.failed(string(foreign)), nil
	}
	if err != nil {
		return w.failed(fmt.Sprintf("namespace %s cannot be bounded: %v", w.name, err)), err
	}
	if err := m.bind(ctx, w); err != nil {
		return w.failed(fmt.Sprintf("rights in namespace %s cannot be given: %v", w.name, err)), err
	}
	if w.user == "" {
		return w.failed(w.noUser), nil
	}
	return offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: w.name, Phase: offloadingv1beta1.MappingAccepted}, nil
}

// annotations returns those of the twin, with a mark of ConsumerUIDAnnotation or without.
func (w wish) annotations(mark string) map[string]string {
	out := map[string]string{
		offloadingv1beta1.ManagedByNamespaceMapAnnotation: w.key.String(),
		offloadingv1beta1.OriginalNameAnnotation:          w.original,
	}
	if mark != "" {
		out[offloadingv1beta1.ConsumerUIDAnnotation] = mark
	}
	if w.services == offloadingv1beta1.ServicesHome {
		out[offloadingv1beta1.ServicesAnnotation] = string(w.services)
	}
	return out
}

func (m *Maps) twinLabels(w wish) map[string]string {
	out := map[string]string{
		corev1beta1.RemoteClusterIDLabel: w.peer,
		corev1beta1.PodSecurityLabel:     m.cfg.PodSecurityLevel,
	}
	// The label limits the calls of the ShadowPod webhook to namespaces with a Quota.
	if len(store.Listed(m.cfg.Quotas.Lister().Quotas(w.key.Namespace).List(labels.Everything()))) > 0 {
		out[offloadingv1beta1.BoundedLabel] = "true"
	}
	return out
}

// create creates a twin that the cache lacks. It returns the existing namespace if there is one of that name, and nil
// if the peer may not choose its name.
func (m *Maps) create(ctx context.Context, w wish) (*corev1.Namespace, error) {
	if !mayName(w.name, w.peer, m.cfg.TwinNames(w.peer)) {
		return nil, nil
	}
	if ns, err := m.cfg.Namespaces.Lister().Get(w.name); err == nil {
		return ns, nil
	}
	if wait := m.creations.Take(w.peer, max(m.cfg.NamespacesPerPeer, fewestCreations), creationInterval, m.cfg.Clock.Now()); wait > 0 {
		return nil, tooOften{wait}
	}
	ns, err := m.cfg.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: w.name, Labels: m.twinLabels(w), Annotations: w.annotations(w.of.mark()),
	}}, metav1.CreateOptions{})
	if err == nil {
		m.cfg.Log.Info("twin namespace created", zap.String("namespace", ns.Name), zap.String("peer", w.peer))
	}
	if apierrors.IsAlreadyExists(err) {
		ns, err = m.cfg.Kube.CoreV1().Namespaces().Get(ctx, w.name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("creating the twin namespace %s: %w", w.name, err)
	}
	return ns, nil
}

// correct restores the labels and annotations of a twin. A twin that was kept for its volumes is wanted again: a
// consent to delete the volumes does not outlast that.
func (m *Maps) correct(ctx context.Context, ns *corev1.Namespace, labels, annotations map[string]string) error {
	ours := []string{offloadingv1beta1.DataKeptAnnotation, offloadingv1beta1.DeleteVolumesAnnotation, offloadingv1beta1.ServicesAnnotation}
	metadata := store.Patch{}
	store.Put(metadata, "labels", store.MapChanges(labels, ns.Labels, nil))
	store.Put(metadata, "annotations", store.MapChanges(annotations, ns.Annotations, ours))
	if len(metadata) == 0 {
		return nil
	}
	return patchNamespace(ctx, m.cfg.Kube, ns, metadata)
}

// bind grants the rights in a twin, and revokes those that no longer apply.
func (m *Maps) bind(ctx context.Context, w wish) error {
	marks := map[string]string{offloadingv1beta1.ManagedByLabel: managedByNamespaceMap, corev1beta1.RemoteClusterIDLabel: w.peer}
	own := store.Binding{Namespace: w.name, Name: ControllerTwinRole, ClusterRole: ControllerTwinRole, Labels: marks,
		Subjects: []rbacv1.Subject{store.ServiceAccountSubject(m.cfg.OwnNamespace, m.cfg.ServiceAccount)}}
	// Revoke first: a failure of another write must not keep a right alive.
	if err := m.revoke(ctx, w.name, w.user); err != nil {
		return err
	}
	if err := m.bindings.Ensure(ctx, own); err != nil || w.user == "" {
		return err
	}
	return m.bindings.Ensure(ctx, store.Binding{Namespace: w.name, Name: PeerTwinRole, ClusterRole: PeerTwinRole, Labels: marks,
		Subjects: []rbacv1.Subject{store.UserSubject(w.user)}})
}

// revoke removes the peer's rights in a twin from every user except the given one, or from all. It
// applies to twins that are being deleted, too, because that may take long.
func (m *Maps) revoke(ctx context.Context, twin, user string) error {
	var subjects []rbacv1.Subject
	if user != "" {
		subjects = append(subjects, store.UserSubject(user))
	}
	return m.bindings.RemoveUnless(ctx, twin, PeerTwinRole, subjects...)
}
