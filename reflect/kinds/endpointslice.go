package kinds

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// EndpointSlices returns the description of reflected EndpointSlices. They become
// ShadowEndpointSlices with the endpoints that the provider cannot find by itself.
// services is the setting of Services: an EndpointSlice without reflection annotations
// follows its Service.
func EndpointSlices(services engine.Setting, external forge.External) engine.Description {
	k := kindBetween("endpointslice", &discoveryv1.EndpointSlice{}, func(c engine.Clients, namespace string) objects[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
		return c.Kube.DiscoveryV1().EndpointSlices(namespace)
	}, &offloadingv1beta1.ShadowEndpointSlice{}, func(c engine.Clients, namespace string) objects[*offloadingv1beta1.ShadowEndpointSlice, *offloadingv1beta1.ShadowEndpointSliceList] {
		return c.Liqo.OffloadingV1beta1().ShadowEndpointSlices(namespace)
	})
	k.Forge = func(local *discoveryv1.EndpointSlice, s engine.Scope) (*offloadingv1beta1.ShadowEndpointSlice, error) {
		return forge.EndpointSlice(local, s.ObjectOptions, placeOf(s), external), nil
	}
	k.Foreign = func(local *discoveryv1.EndpointSlice, s engine.Scope) bool {
		return forge.ForeignEndpointSlice(local, s.ObjectOptions)
	}
	k.HasEndpoints = true
	k.Derived = true // after a restored backup stale addresses must not remain for long
	k.Whole = true   // the type is defined by liqod, and the consumer writes the whole spec
	k.Merge, k.Replaces, k.Misleads = forge.MergeEndpointSlice, forge.ReplacesEndpointSlice, forge.MisleadsEndpointSlice
	k.Chosen = func(local *discoveryv1.EndpointSlice, s engine.Scope) (bool, string) {
		var service *corev1.Service
		if services.Workers > 0 {
			service = serviceOf(local, s.Home)
		}
		yes, conflict := forge.ReflectsSlice(services.Policy, local.Annotations, service)
		if conflict {
			return yes, engine.BothAnnotations
		}
		return yes, ""
	}
	if services.Workers > 0 {
		k.Related = []engine.Related{{Informer: serviceKind().Local, Keys: slicesOf}}
		k.Indexers = cache.Indexers{serviceIndex: store.Index(func(s *discoveryv1.EndpointSlice) []string {
			return []string{s.Labels[discoveryv1.LabelServiceName]}
		})}
		k.Excluded = func(ctx context.Context, c engine.Clients, local *discoveryv1.EndpointSlice, s engine.Scope) (bool, error) {
			return excludedSlice(ctx, c, local, s, services.Policy)
		}
	}
	return k
}

// placeOf returns a function that reports the location of an endpoint: on a virtual node
// of the provider, a pod that the provider has offloaded to this cluster, or elsewhere.
func placeOf(s engine.Scope) func(*discoveryv1.Endpoint) forge.Place {
	return func(e *discoveryv1.Endpoint) forge.Place {
		switch {
		case e.NodeName != nil && s.VirtualNode(*e.NodeName):
			return forge.OnProvider
		case s.Hosted(e.TargetRef):
			return forge.OfProvider
		default:
			return forge.Elsewhere
		}
	}
}

// excludedSlice reads the Service live. With a stale cache that lacks the Service, all
// its endpoints would be removed.
func excludedSlice(ctx context.Context, c engine.Clients, local *discoveryv1.EndpointSlice, s engine.Scope, policy forge.Policy) (bool, error) {
	if forge.EndpointSlice(local, s.ObjectOptions, placeOf(s), nil) == nil {
		return true, nil
	}
	var service *corev1.Service
	var err error
	if name := local.Labels[discoveryv1.LabelServiceName]; name != "" {
		service, err = store.OrNil(c.Kube.CoreV1().Services(local.Namespace).Get(ctx, name, metav1.GetOptions{}))
	}
	if err != nil {
		return false, err
	}
	yes, _ := forge.ReflectsSlice(policy, local.Annotations, service)
	return !yes, nil
}

// serviceOf returns the Service that an EndpointSlice belongs to, or nil.
func serviceOf(slice *discoveryv1.EndpointSlice, home engine.Informers) *corev1.Service {
	return store.Cached[*corev1.Service](serviceKind().Local(home).GetStore(), cache.NewObjectName(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]))
}

// serviceIndex is the index of EndpointSlices by the name of their Service.
const serviceIndex = "service"

// slicesOf returns the keys of the EndpointSlices of a Service.
func slicesOf(service any, slices cache.Indexer) []string {
	s, ok := service.(*corev1.Service)
	if !ok {
		return nil
	}
	// IndexKeys fails only for a missing index.
	keys, _ := slices.IndexKeys(serviceIndex, s.Name)
	return keys
}
