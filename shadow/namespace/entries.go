package namespace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	listers "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// entries reads and writes single entries of this cluster's own NamespaceMaps.
type entries struct {
	liqo        versioned.Interface
	lister      listers.NamespaceMapLister
	offloadings listers.NamespaceOffloadingLister

	// mu serialises the writes, each of which starts with a live read. Many namespaces
	// share one map, and a lagging cache would cause conflicts between their writes.
	mu sync.Mutex
}

// isHome reports whether a map is this cluster's own, not one replicated here by a peer.
func isHome(m *offloadingv1beta1.NamespaceMap) bool {
	return m.Labels[offloadingv1beta1.ReplicatedLabel] != "true" && m.Namespace == corev1beta1.TenantNamespace(m.Name)
}

// home returns the cached own map for a provider, or nil.
func (e *entries) home(provider string) *offloadingv1beta1.NamespaceMap {
	m, err := e.lister.NamespaceMaps(corev1beta1.TenantNamespace(provider)).Get(provider)
	if err != nil || !isHome(m) {
		return nil
	}
	return m
}

// providers returns the sorted ids of the providers whose cached own map has an entry for a
// namespace.
func (e *entries) providers(namespace string) []string {
	var out []string
	for _, m := range store.Listed(e.lister.List(labels.Everything())) {
		if _, ok := m.Spec.DesiredMapping[namespace]; ok && isHome(m) {
			out = append(out, m.Name)
		}
	}
	slices.Sort(out)
	return out
}

// entry is the twin of a namespace.
type entry struct {
	name string
	// services is empty for ServicesTwin.
	services offloadingv1beta1.ServiceNetwork
}

// entryOf returns the entry that a NamespaceOffloading asks for.
func entryOf(nso *offloadingv1beta1.NamespaceOffloading, name string) entry {
	if nso.Spec.Services != offloadingv1beta1.ServicesHome {
		return entry{name: name}
	}
	return entry{name, offloadingv1beta1.ServicesHome}
}

func (w entry) in(m *offloadingv1beta1.NamespaceMap, namespace string) bool {
	return m.Spec.DesiredMapping[namespace] == w.name && m.Spec.Services[namespace] == w.services
}

// has reports whether the cached map of a provider has an entry.
func (e *entries) has(provider, namespace string, want entry) bool {
	m := e.home(provider)
	return m != nil && want.in(m, namespace)
}

// set adds an entry to the map of a provider. The returned text, if any, says why that is
// not possible. It is for the author of the NamespaceOffloading.
func (e *entries) set(ctx context.Context, provider, namespace string, want entry) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := store.Live(ctx, "NamespaceMap", e.liqo.OffloadingV1beta1().NamespaceMaps(corev1beta1.TenantNamespace(provider)), provider)
	if err != nil {
		return "", err
	}
	if m == nil {
		return e.create(ctx, provider, namespace, want)
	}
	if !isHome(m) {
		return fmt.Sprintf("NamespaceMap %s/%s was written by cluster %s and cannot request namespaces from it", m.Namespace, m.Name, provider), nil
	}
	if problem := taken(m, namespace, want.name); problem != "" {
		return problem, nil
	}
	if want.in(m, namespace) {
		return "", nil
	}
	if err = e.patch(ctx, m, namespace, &want); apierrors.IsInvalid(err) {
		return fmt.Sprintf("the NamespaceMap of cluster %s accepts no more namespaces: %v", provider, err), nil
	}
	return "", err
}

// taken returns a message if another namespace already uses the name for its twin, else "".
func taken(m *offloadingv1beta1.NamespaceMap, namespace, name string) string {
	for _, other := range slices.Sorted(maps.Keys(m.Spec.DesiredMapping)) {
		if other != namespace && m.Spec.DesiredMapping[other] == name {
			return fmt.Sprintf("namespace %s is already offloaded to cluster %s as %s: choose another name with namespaceMappingStrategy SelectedName",
				other, m.Name, name)
		}
	}
	return ""
}

// unset removes an entry from the map of a provider.
func (e *entries) unset(ctx context.Context, provider, namespace string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := store.Live(ctx, "NamespaceMap", e.liqo.OffloadingV1beta1().NamespaceMaps(corev1beta1.TenantNamespace(provider)), provider)
	if err != nil || m == nil {
		return err
	}
	if _, ok := m.Spec.DesiredMapping[namespace]; !ok || !isHome(m) {
		return nil
	}
	return e.patch(ctx, m, namespace, nil)
}

// create creates the map of a provider. If the map existed before and was deleted by hand,
// the new one has all former entries from the start. Otherwise the provider would delete
// the twins that are missing from it.
func (e *entries) create(ctx context.Context, provider, namespace string, want entry) (string, error) {
	m := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1beta1.TenantNamespace(provider),
			Name:      provider,
			Labels:    map[string]string{corev1beta1.RemoteClusterIDLabel: provider, offloadingv1beta1.ReplicationLabel: "true", offloadingv1beta1.RemoteIDLabel: provider},
		},
		Spec: e.asked(provider),
	}
	problem := taken(m, namespace, want.name)
	if problem == "" {
		want.add(&m.Spec, namespace)
	}
	_, err := store.Write(ctx, "NamespaceMap", e.liqo.OffloadingV1beta1().NamespaceMaps(m.Namespace), "", nil, m)
	return problem, err
}

// asked returns the entries of a provider's map as the NamespaceOffloadings record them.
func (e *entries) asked(provider string) (out offloadingv1beta1.NamespaceMapSpec) {
	for _, nso := range store.Listed(e.offloadings.List(labels.Everything())) {
		if slices.Contains(offloadingv1beta1.ProvidersOf(nso), provider) {
			entryOf(nso, nso.Status.RemoteNamespaceName).add(&out, nso.Namespace)
		}
	}
	return out
}

func (w entry) add(to *offloadingv1beta1.NamespaceMapSpec, namespace string) {
	if to.DesiredMapping == nil {
		to.DesiredMapping, to.Services = map[string]string{}, map[string]offloadingv1beta1.ServiceNetwork{}
	}
	to.DesiredMapping[namespace] = w.name
	if w.services != "" {
		to.Services[namespace] = w.services
	}
}

// patch sets one entry, or removes it if want is nil. Other entries are not part of the
// patch. A map that has changed since it was read is a conflict.
func (e *entries) patch(ctx context.Context, m *offloadingv1beta1.NamespaceMap, namespace string, want *entry) error {
	var name, services any
	if want != nil {
		name = want.name
	}
	if want != nil && want.services != "" {
		services = want.services
	}
	spec := store.Patch{"desiredMapping": store.Patch{namespace: name}}
	if services != nil || m.Spec.Services[namespace] != "" {
		spec["services"] = store.Patch{namespace: services}
	}
	_, err := store.Merge(ctx, "NamespaceMap", e.liqo.OffloadingV1beta1().NamespaceMaps(m.Namespace), "", m, store.Patch{
		"metadata": store.Patch{"resourceVersion": m.ResourceVersion},
		"spec":     spec,
	})
	if name == nil {
		return store.IgnoreNotFound(err)
	}
	return err
}
