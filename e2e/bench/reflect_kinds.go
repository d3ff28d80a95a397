package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	objectLabel    = "app"
	objectSelector = objectLabel + "=bench"
	// objectService is the Service, of each namespace, that all EndpointSlices belong to.
	objectService = "bench"
	// objectBytes is the size of the data of a ConfigMap and a Secret.
	objectBytes = 512
)

// objectKind is a kind of objects that is measured. Each object carries a version, which
// tells in the provider whether a change has arrived.
type objectKind struct {
	name     string // as the settings call it
	resource string // as the API server calls it
	// written is the resource that liqod writes in the provider.
	written string
	// namespaces says that it is measured only where many namespaces are.
	namespaces bool

	create func(ctx context.Context, c kubernetes.Interface, namespace, name string, version int32) error
	update func(ctx context.Context, c kubernetes.Interface, namespace, name string, version int32) error
	delete func(ctx context.Context, c kubernetes.Interface, namespace, name string) error
	source func(c kubernetes.Interface, namespace string) source
	// version is 0 for an object of another type.
	version func(metav1.Object) int32
}

// objectClient is what is needed of a typed client.
type objectClient[T, L any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// typedKind makes the functions of a kind from what is particular to it.
func typedKind[T metav1.Object, L runtime.Object](k objectKind, at func(kubernetes.Interface, string) objectClient[T, L],
	make func(m metav1.ObjectMeta, version int32) T, patch func(version int32) string, version func(T) int32) objectKind {
	k.create = func(ctx context.Context, c kubernetes.Interface, namespace, name string, v int32) error {
		obj := make(metav1.ObjectMeta{Name: name, Labels: map[string]string{objectLabel: "bench"}}, v)
		_, err := at(c, namespace).Create(ctx, obj, metav1.CreateOptions{})
		return err
	}
	k.update = func(ctx context.Context, c kubernetes.Interface, namespace, name string, v int32) error {
		_, err := at(c, namespace).Patch(ctx, name, types.MergePatchType, []byte(patch(v)), metav1.PatchOptions{})
		return err
	}
	k.delete = func(ctx context.Context, c kubernetes.Interface, namespace, name string) error {
		return at(c, namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	k.source = func(c kubernetes.Interface, namespace string) source {
		client := at(c, namespace)
		return source{
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = objectSelector
				return client.List(ctx, o)
			},
			watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = objectSelector
				return client.Watch(ctx, o)
			},
		}
	}
	k.version = func(obj metav1.Object) int32 {
		if o, ok := obj.(T); ok {
			return version(o)
		}
		return 0
	}
	return k
}

// objectKinds are all that are reflected; those for many namespaces only come last.
func objectKinds() []objectKind {
	return []objectKind{configMapKind(), secretKind(), serviceKind(), endpointSliceKind(), ingressKind()}
}

func configMapKind() objectKind {
	return typedKind(objectKind{name: "configmap", resource: "configmaps", written: "configmaps"},
		func(c kubernetes.Interface, ns string) objectClient[*corev1.ConfigMap, *corev1.ConfigMapList] {
			return c.CoreV1().ConfigMaps(ns)
		},
		func(m metav1.ObjectMeta, v int32) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"v": text(v), "content": strings.Repeat("c", objectBytes)}}
		},
		func(v int32) string { return fmt.Sprintf(`{"data":{"v":%q}}`, text(v)) },
		func(o *corev1.ConfigMap) int32 { return number(o.Data["v"]) })
}

func secretKind() objectKind {
	return typedKind(objectKind{name: "secret", resource: "secrets", written: "secrets"},
		func(c kubernetes.Interface, ns string) objectClient[*corev1.Secret, *corev1.SecretList] {
			return c.CoreV1().Secrets(ns)
		},
		func(m metav1.ObjectMeta, v int32) *corev1.Secret {
			return &corev1.Secret{ObjectMeta: m, Data: map[string][]byte{"v": []byte(text(v)), "content": make([]byte, objectBytes)}}
		},
		func(v int32) string {
			return fmt.Sprintf(`{"data":{"v":%q}}`, base64.StdEncoding.EncodeToString([]byte(text(v))))
		},
		func(o *corev1.Secret) int32 { return number(string(o.Data["v"])) })
}

// serviceKind has Services without selector: nobody but us acts on them.
func serviceKind() objectKind {
	return typedKind(objectKind{name: "service", resource: "services", written: "services"},
		func(c kubernetes.Interface, ns string) objectClient[*corev1.Service, *corev1.ServiceList] {
			return c.CoreV1().Services(ns)
		},
		func(m metav1.ObjectMeta, v int32) *corev1.Service {
			return &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "p", Port: v}}}}
		},
		func(v int32) string {
			return fmt.Sprintf(`{"spec":{"ports":[{"name":"p","port":%d,"protocol":"TCP"}]}}`, v)
		},
		func(o *corev1.Service) int32 {
			if len(o.Spec.Ports) == 0 {
				return 0
			}
			return o.Spec.Ports[0].Port
		})
}

func endpointSliceKind() objectKind {
	return typedKind(objectKind{name: "endpointslice", resource: "endpointslices", written: "shadowendpointslices"},
		func(c kubernetes.Interface, ns string) objectClient[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
			return c.DiscoveryV1().EndpointSlices(ns)
		},
		func(m metav1.ObjectMeta, v int32) *discoveryv1.EndpointSlice {
			m.Labels[discoveryv1.LabelServiceName] = objectService
			return &discoveryv1.EndpointSlice{
				ObjectMeta: m, AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints: []discoveryv1.Endpoint{
					{Addresses: []string{"10.100.200.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
					{Addresses: []string{"10.100.200.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
				},
				Ports: []discoveryv1.EndpointPort{{Name: ptr.To("p"), Port: &v, Protocol: ptr.To(corev1.ProtocolTCP)}},
			}
		},
		func(v int32) string { return fmt.Sprintf(`{"ports":[{"name":"p","port":%d,"protocol":"TCP"}]}`, v) },
		func(o *discoveryv1.EndpointSlice) int32 {
			if len(o.Ports) == 0 {
				return 0
			}
			return ptr.Deref(o.Ports[0].Port, 0)
		})
}

func ingressKind() objectKind {
	spec := func(v int32) networkingv1.IngressSpec {
		return networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: objectService, Port: networkingv1.ServiceBackendPort{Number: v}},
		}}
	}
	return typedKind(objectKind{name: "ingress", resource: "ingresses", written: "ingresses", namespaces: true},
		func(c kubernetes.Interface, ns string) objectClient[*networkingv1.Ingress, *networkingv1.IngressList] {
			return c.NetworkingV1().Ingresses(ns)
		},
		func(m metav1.ObjectMeta, v int32) *networkingv1.Ingress {
			return &networkingv1.Ingress{ObjectMeta: m, Spec: spec(v)}
		},
		func(v int32) string {
			return fmt.Sprintf(`{"spec":{"defaultBackend":{"service":{"port":{"number":%d}}}}}`, v)
		},
		func(o *networkingv1.Ingress) int32 {
			if o.Spec.DefaultBackend == nil || o.Spec.DefaultBackend.Service == nil {
				return 0
			}
			return o.Spec.DefaultBackend.Service.Port.Number
		})
}

func text(version int32) string { return strconv.Itoa(int(version)) }

// number is 0 for what is no version.
func number(text string) int32 {
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(v)
}

// createService makes the Service that the EndpointSlices of a namespace belong to.
func (w *world) createService(ctx context.Context, namespace string) error {
	_, err := w.atRome.core.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: objectService}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating Service %s/%s: %w", namespace, objectService, err)
	}
	return nil
}
