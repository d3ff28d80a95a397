package main

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// copiers are those of all kinds, on watches that they share.
func copiers(home, away kubernetes.Interface, o copierOptions) []copier {
	chosen := informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = o.selector })
	factory := func(c kubernetes.Interface, namespace string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(namespace), informers.WithTransform(lean), chosen)
	}
	here, there := factory(home, o.homeNamespace), factory(away, o.awayNamespace)
	core, hereCore, thereCore := away.CoreV1(), here.Core().V1(), there.Core().V1()
	return []copier{
		newCopier(copierConfig[*corev1.ConfigMap]{
			kind: "ConfigMap", local: hereCore.ConfigMaps().Informer(), remote: thereCore.ConfigMaps().Informer(),
			away: core.ConfigMaps(o.awayNamespace), empty: func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, carry: carryConfigMap,
		}, o),
		newCopier(copierConfig[*corev1.Secret]{
			kind: "Secret", local: hereCore.Secrets().Informer(), remote: thereCore.Secrets().Informer(),
			away: core.Secrets(o.awayNamespace), empty: func() *corev1.Secret { return &corev1.Secret{} }, carry: carrySecret,
		}, o),
		newCopier(copierConfig[*corev1.Service]{
			kind: "Service", local: hereCore.Services().Informer(), remote: thereCore.Services().Informer(),
			away: core.Services(o.awayNamespace), empty: func() *corev1.Service { return &corev1.Service{} }, carry: carryService,
		}, o),
		newCopier(copierConfig[*discoveryv1.EndpointSlice]{
			kind: "EndpointSlice", local: here.Discovery().V1().EndpointSlices().Informer(), remote: there.Discovery().V1().EndpointSlices().Informer(),
			away: away.DiscoveryV1().EndpointSlices(o.awayNamespace), empty: func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
			carry: carryEndpointSlice,
		}, o),
	}
}

// The functions below put what is copied of an object into what is away.

func carryConfigMap(from, into *corev1.ConfigMap) {
	from = from.DeepCopy()
	into.Data, into.BinaryData, into.Immutable = from.Data, from.BinaryData, from.Immutable
}

func carrySecret(from, into *corev1.Secret) {
	from = from.DeepCopy()
	into.Data, into.Type, into.Immutable = from.Data, from.Type, from.Immutable
}

// carryService leaves each cluster its own addresses.
func carryService(from, into *corev1.Service) {
	ip, ips := into.Spec.ClusterIP, into.Spec.ClusterIPs
	into.Spec = *from.Spec.DeepCopy()
	into.Spec.ClusterIP, into.Spec.ClusterIPs = ip, ips
}

func carryEndpointSlice(from, into *discoveryv1.EndpointSlice) {
	from = from.DeepCopy()
	into.AddressType, into.Endpoints, into.Ports = from.AddressType, from.Endpoints, from.Ports
}
