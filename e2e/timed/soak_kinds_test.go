package timed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// client is a typed client without its types.
type client interface {
	create(ctx context.Context, obj metav1.Object, manager string) (metav1.Object, error)
	get(ctx context.Context, name string) (metav1.Object, error)
	patch(ctx context.Context, name string, body []byte, manager string) (metav1.Object, error)
	delete(ctx context.Context, name string) error
	list(ctx context.Context) ([]metav1.Object, error)
}

// kind is a kind that is reflected: its random objects and changes, and the content that both
// clusters have to have.
type kind struct {
	// name as the settings call it.
	name string
	// policy: it has a reflection policy of its own.
	policy bool
	// always: an object is reflected whatever its annotations are.
	always bool
	// notRecreated: an object that is deleted in the provider is not created again.
	notRecreated bool
	at           func(c kubernetes.Interface, namespace string) client
	// make returns a random object of some name, without labels.
	make func(r *rand.Rand) metav1.Object
	// change is a random patch of the content.
	change func(r *rand.Rand) string
	// overwrite is a patch of the content in the provider that liqod has to revert; empty: none.
	overwrite string
	// content is what has to be the same in both clusters. It may be of either.
	content func(obj metav1.Object) any
	// owned are the fields of managedFields that belong to the content.
	owned []string
	// manager is the field manager under which the reflected object is written.
	manager string
	// empty reports whether a local object has nothing to reflect; nil: never.
	empty func(obj metav1.Object) bool
}

func kinds() []kind {
	return []kind{configMaps(), secrets(), services(), ingresses(), endpointSlices(), claims()}
}

const (
	reflectionManager = "liqod-vkubelet"
	endpointsManager  = "liqod-shadowendpointslice"
)

type typedClient[T, L any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
}

type typed[T metav1.Object, L runtime.Object] struct{ typedClient[T, L] }

func (c typed[T, L]) create(ctx context.Context, obj metav1.Object, manager string) (metav1.Object, error) {
	return c.Create(ctx, obj.(T), metav1.CreateOptions{FieldManager: manager})
}

func (c typed[T, L]) get(ctx context.Context, name string) (metav1.Object, error) {
	return c.Get(ctx, name, metav1.GetOptions{})
}

func (c typed[T, L]) patch(ctx context.Context, name string, body []byte, manager string) (metav1.Object, error) {
	return c.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager})
}

func (c typed[T, L]) delete(ctx context.Context, name string) error {
	return c.Delete(ctx, name, metav1.DeleteOptions{})
}

func (c typed[T, L]) list(ctx context.Context) ([]metav1.Object, error) {
	l, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []metav1.Object
	err = meta.EachListItem(l, func(obj runtime.Object) error {
		o, err := meta.Accessor(obj)
		out = append(out, o)
		return err
	})
	return out, err
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func word(r *rand.Rand) string { return fmt.Sprintf("w%d", r.IntN(1000)) }

func port(r *rand.Rand) int32 { return 1 + r.Int32N(60000) }

func configMaps() kind {
	return kind{
		name: "configmap", policy: true, manager: reflectionManager, owned: []string{"f:data", "f:binaryData", "f:immutable"},
		at: func(c kubernetes.Interface, ns string) client {
			return typed[*corev1.ConfigMap, *corev1.ConfigMapList]{c.CoreV1().ConfigMaps(ns)}
		},
		make: func(r *rand.Rand) metav1.Object {
			cm := &corev1.ConfigMap{Data: map[string]string{"a": word(r), "b": word(r)}}
			if r.IntN(4) == 0 {
				cm.BinaryData = map[string][]byte{"c": []byte(word(r))}
			}
			if r.IntN(8) == 0 {
				cm.Immutable = new(true)
			}
			return cm
		},
		change: func(r *rand.Rand) string {
			return one(r, fmt.Sprintf(`{"data":{"a":%q}}`, word(r)), `{"data":{"b":null}}`, fmt.Sprintf(`{"data":{"b":%q}}`, word(r)), `{"immutable":true}`)
		},
		overwrite: `{"data":{"a":"overwritten","more":"overwritten"}}`,
		content: func(obj metav1.Object) any {
			cm := obj.(*corev1.ConfigMap)
			return &corev1.ConfigMap{Data: cm.Data, BinaryData: cm.BinaryData, Immutable: cm.Immutable}
		},
	}
}

func secrets() kind {
	return kind{
		name: "secret", policy: true, manager: reflectionManager, owned: []string{"f:data", "f:type", "f:immutable"},
		at: func(c kubernetes.Interface, ns string) client {
			return typed[*corev1.Secret, *corev1.SecretList]{c.CoreV1().Secrets(ns)}
		},
		make: func(r *rand.Rand) metav1.Object {
			s := &corev1.Secret{Type: one(r, corev1.SecretTypeOpaque, "example.com/other"), Data: map[string][]byte{"a": []byte(word(r))}}
			if r.IntN(8) == 0 {
				s.Immutable = new(true)
			}
			return s
		},
		change:    func(r *rand.Rand) string { return fmt.Sprintf(`{"stringData":{%q:%q}}`, one(r, "a", "b"), word(r)) },
		overwrite: `{"stringData":{"a":"overwritten","more":"overwritten"}}`,
		content: func(obj metav1.Object) any {
			s := obj.(*corev1.Secret)
			return &corev1.Secret{Data: s.Data, Type: s.Type, Immutable: s.Immutable}
		},
	}
}

func services() kind {
	return kind{
		name: "service", policy: true, manager: reflectionManager, owned: []string{"f:spec"},
		at: func(c kubernetes.Interface, ns string) client {
			return typed[*corev1.Service, *corev1.ServiceList]{c.CoreV1().Services(ns)}
		},
		make:      func(r *rand.Rand) metav1.Object { return newService(r) },
		change:    changedService,
		overwrite: `{"spec":{"selector":{"app":"overwritten","more":"overwritten"}}}`,
		content:   func(obj metav1.Object) any { return serviceContent(obj.(*corev1.Service)) },
	}
}

// homeClass is a class of load balancers that the provider does not offer.
const homeClass = "romes.example.com/balancer"

// newService returns a Service of each type, and headless ones: a Service becomes headless
// or stops to be only by giving its name to another.
func newService(r *rand.Rand) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "a", Port: port(r)}}, Selector: map[string]string{"app": word(r)}}}
	if r.IntN(3) == 0 { // whatever its type is
		s.Spec.ExternalIPs = []string{externalIP(r)}
	}
	switch r.IntN(6) {
	case 0, 1:
		s.Spec.ClusterIP = corev1.ClusterIPNone
	case 2:
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, externalTraffic(r)
	case 3:
		s.Spec.Type, s.Spec.ExternalName, s.Spec.Selector = corev1.ServiceTypeExternalName, "example.com", nil
	case 4:
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, externalTraffic(r)
		s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts = one(r, nil, new(homeClass)), one(r, nil, new(true), new(false))
	default:
		if len(s.Spec.ExternalIPs) > 0 {
			s.Spec.ExternalTrafficPolicy = externalTraffic(r)
		}
	}
	return s
}

func externalTraffic(r *rand.Rand) corev1.ServiceExternalTrafficPolicy {
	return one(r, "", corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
}

func externalIP(r *rand.Rand) string { return fmt.Sprintf("192.0.2.%d", 1+r.IntN(250)) }

// changedService is a patch of a Service of any type: what does not fit its type is refused.
func changedService(r *rand.Rand) string {
	if r.IntN(2) == 0 {
		return retyped(r)
	}
	return one(r, fmt.Sprintf(`{"spec":{"ports":[{"name":"a","port":%d,"protocol":"TCP"}]}}`, port(r)),
		fmt.Sprintf(`{"spec":{"ports":[{"name":"a","port":%d,"protocol":"TCP"},{"name":"b","port":%d,"protocol":"UDP"}]}}`, port(r), port(r)),
		fmt.Sprintf(`{"spec":{"selector":{"app":%q}}}`, word(r)), `{"spec":{"sessionAffinity":"ClientIP"}}`, `{"spec":{"publishNotReadyAddresses":true}}`,
		fmt.Sprintf(`{"spec":{"externalIPs":[%q]}}`, externalIP(r)), `{"spec":{"externalIPs":null}}`,
		fmt.Sprintf(`{"spec":{"externalTrafficPolicy":%q}}`, one(r, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)))
}

// retyped is a patch that gives a Service another type in place. A name outside the
// cluster may stay behind, and a Service that had one may become headless.
func retyped(r *rand.Rand) string {
	inside := one(r, "", `,"externalName":null`)
	switch r.IntN(5) {
	case 0:
		return fmt.Sprintf(`{"spec":{"type":"ClusterIP"%s}}`, inside)
	case 1:
		return fmt.Sprintf(`{"spec":{"type":"ClusterIP","clusterIP":"None"%s}}`, inside)
	case 2:
		return fmt.Sprintf(`{"spec":{"type":"NodePort"%s}}`, inside)
	case 3:
		return fmt.Sprintf(`{"spec":{"type":"LoadBalancer"%s%s}}`, inside,
			one(r, "", fmt.Sprintf(`,"loadBalancerClass":%q`, homeClass), `,"allocateLoadBalancerNodePorts":false`))
	default:
		return fmt.Sprintf(`{"spec":{"type":"ExternalName","externalName":"%s.example.com"}}`, word(r))
	}
}

// serviceContent is the spec without what each cluster allocates. The addresses and the
// class of the consumer stay there: the provider has none of its own. How traffic from
// outside goes on is of no meaning, and refused, where there is none.
func serviceContent(service *corev1.Service) *corev1.ServiceSpec {
	s := service.Spec.DeepCopy()
	if s.ClusterIP != corev1.ClusterIPNone {
		s.ClusterIP = ""
	}
	s.ClusterIPs, s.HealthCheckNodePort = nil, 0
	for i := range s.Ports {
		s.Ports[i].NodePort = 0
	}
	if reflected(service) {
		return s
	}
	s.ExternalIPs, s.LoadBalancerClass = nil, nil
	if s.Type == corev1.ServiceTypeClusterIP {
		s.ExternalTrafficPolicy = ""
	}
	return s
}

func ingresses() kind {
	// Each has a host of its own: the provider lets no two clusters use one.
	rules := func(host uint64) string { return fmt.Sprintf(`{"spec":{"rules":[{"host":"h%d.example.com"}]}}`, host) }
	return kind{
		name: "ingress", policy: true, manager: reflectionManager, owned: []string{"f:spec"},
		at: func(c kubernetes.Interface, ns string) client {
			return typed[*networkingv1.Ingress, *networkingv1.IngressList]{c.NetworkingV1().Ingresses(ns)}
		},
		make: func(r *rand.Rand) metav1.Object {
			i := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: fmt.Sprintf("h%d.example.com", r.Uint64())}}}}
			if r.IntN(2) == 0 {
				i.Spec.IngressClassName = new("romes")
			}
			return i
		},
		change:    func(r *rand.Rand) string { return rules(r.Uint64()) },
		overwrite: rules(0),
		content: func(obj metav1.Object) any {
			s := obj.(*networkingv1.Ingress).Spec.DeepCopy()
			s.IngressClassName = nil
			return s
		},
	}
}

func endpointSlices() kind {
	return kind{
		name: "endpointslice", manager: endpointsManager, owned: []string{"f:endpoints", "f:ports", "f:addressType"},
		at: func(c kubernetes.Interface, ns string) client {
			return typed[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]{c.DiscoveryV1().EndpointSlices(ns)}
		},
		make: func(r *rand.Rand) metav1.Object {
			s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("a"), Port: new(port(r))}}}
			for i := range 1 + r.IntN(3) {
				e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.100.200.%d", 10*i+r.IntN(10))}}
				e.Conditions.Ready, e.Conditions.Serving = one(r, nil, new(true), new(false)), one(r, nil, new(true), new(false))
				e.NodeName = one(r, nil, new(provider), new(consumer+"-sim-1"))
				s.Endpoints = append(s.Endpoints, e)
			}
			return s
		},
		change: func(r *rand.Rand) string {
			return one(r, fmt.Sprintf(`{"ports":[{"name":"a","port":%d,"protocol":"TCP"}]}`, port(r)),
				fmt.Sprintf(`{"endpoints":[{"addresses":["10.100.201.%d"],"conditions":{"ready":%t}}]}`, r.IntN(250), r.IntN(2) == 0), `{"endpoints":[]}`)
		},
		overwrite: `{"endpoints":[{"addresses":["10.100.203.1"],"conditions":{"ready":true}}]}`,
		content:   func(obj metav1.Object) any { return sliceContent(obj) },
		empty:     func(obj metav1.Object) bool { return len(obj.(*discoveryv1.EndpointSlice).Endpoints) == 0 },
	}
}

// sliceContent is the content in the provider: the endpoints without the names of nodes. The
// Services here have no pods, so endpoints on the virtual node are reflected, too. In the provider
// the Ready condition of an endpoint is always set, and its zone hint is that of another cluster.
func sliceContent(obj metav1.Object) *discoveryv1.EndpointSlice {
	s := obj.(*discoveryv1.EndpointSlice).DeepCopy()
	out := &discoveryv1.EndpointSlice{AddressType: s.AddressType, Ports: s.Ports}
	for _, e := range s.Endpoints {
		e.NodeName = nil
		if e.Conditions.Ready == nil {
			e.Conditions.Ready = new(true)
		}
		if e.Hints == nil {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "elsewhere.liqo.io"}}}
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out
}

const (
	// liqoClass is the class at home whose volumes are in the provider.
	liqoClass = "liqo"
	// diskClass is the class of the provider. It waits for pods, of which there are none: a claim
	// in the provider never gets a volume, and is always deleted with the one at home. A claim with
	// a volume is kept in case of doubt, and would block the next claim of the name.
	diskClass = "disk"
)

// claims are claims of a scheduled pod. Of a claim without a volume only the metadata can change.
func claims() kind {
	return kind{
		name: "persistentvolumeclaim", always: true, notRecreated: true, manager: reflectionManager, owned: []string{"f:spec"},
		at: func(c kubernetes.Interface, ns string) client {
			return typed[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]{c.CoreV1().PersistentVolumeClaims(ns)}
		},
		make: func(r *rand.Rand) metav1.Object {
			size := resource.MustParse(fmt.Sprintf("%dMi", 1+r.IntN(100)))
			return &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"volume.kubernetes.io/selected-node": provider}},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: new(liqoClass), AccessModes: []corev1.PersistentVolumeAccessMode{one(r, corev1.ReadWriteOnce, corev1.ReadWriteMany)},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
				},
			}
		},
		change: func(r *rand.Rand) string {
			return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, homePrefix+"a", word(r))
		},
		overwrite: fmt.Sprintf(`{"metadata":{"labels":{%q:"overwritten"}}}`, homePrefix+"a"),
		content: func(obj metav1.Object) any {
			s := obj.(*corev1.PersistentVolumeClaim).Spec.DeepCopy()
			s.VolumeName = ""
			if !reflected(obj) {
				s.StorageClassName = new(diskClass)
			}
			return s
		},
	}
}

func TestServiceContent(t *testing.T) {
	exposed := corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ExternalIPs: []string{"192.0.2.1"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal}
	nodePort := func(policy corev1.ServiceExternalTrafficPolicy) corev1.ServiceSpec {
		return corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: policy}
	}
	balancer := corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new(homeClass), HealthCheckNodePort: 30000}
	for name, test := range map[string]struct {
		home, away corev1.ServiceSpec
		equal      bool
	}{
		"addresses stay at home":   {exposed, corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}, true},
		"addresses in both":        {exposed, exposed, false},
		"policy without addresses": {exposed, corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal}, false},
		"policy of node ports":     {nodePort(corev1.ServiceExternalTrafficPolicyLocal), nodePort(corev1.ServiceExternalTrafficPolicyLocal), true},
		"other policy":             {nodePort(corev1.ServiceExternalTrafficPolicyLocal), nodePort(corev1.ServiceExternalTrafficPolicyCluster), false},
		"class stays at home":      {balancer, corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, true},
		"class in both":            {balancer, balancer, false},
		"other type":               {exposed, nodePort(""), false},
		"headless":                 {corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}, corev1.ServiceSpec{ClusterIP: "10.0.0.1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			away := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{offloadingv1beta1.OriginLabel: consumer}}, Spec: test.away}
			require.Equal(t, test.equal, equality.Semantic.DeepEqual(serviceContent(&corev1.Service{Spec: test.home}), serviceContent(away)))
		})
	}
}
