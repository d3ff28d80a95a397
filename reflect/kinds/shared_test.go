package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// shared is a site with the reflection of objects, which the provider gives UIDs.
type shared struct {
	*site
	engine   *engine.Engine
	services engine.Setting
	off      string // the kind that is not reflected
	external forge.External
}

func newShared(objects ...runtime.Object) *shared {
	s := &shared{site: shopSite(objects...), services: engine.Setting{Policy: forge.DenyList, Workers: 2}}
	var serial atomic.Int64
	withUID := func(action clienttesting.Action) (bool, runtime.Object, error) {
		if m, err := meta.Accessor(action.(clienttesting.CreateAction).GetObject()); err == nil {
			m.SetUID(types.UID(fmt.Sprintf("remote-%d", serial.Add(1))))
		}
		return false, nil, nil
	}
	s.remote.PrependReactor("create", "*", withUID)
	s.remoteLiqod.PrependReactor("create", "*", withUID)
	return s
}

// newEngine makes the engine and the informers of what it follows, which are to be started.
func (s *shared) newEngine(t *testing.T) externalversions.SharedInformerFactory {
	t.Helper()
	own := externalversions.NewSharedInformerFactory(s.homeLiqod, 0)
	own.Offloading().V1beta1().VirtualNodes().Informer()
	namespaces, err := engine.NewFollower(own.Offloading().V1beta1().NamespaceMaps(), tenant, "milan")
	require.NoError(t, err)
	setting := func(resource string) engine.Setting {
		if resource == s.off {
			return engine.Setting{}
		}
		return engine.Setting{Policy: forge.DenyList, Workers: 2}
	}
	s.engine = engine.New(engine.Config{
		Home: engine.Clients{Kube: s.home, Liqo: s.homeLiqod}, Remote: engine.Clients{Kube: s.remote, Liqo: s.remoteLiqod},
		Target: ofNode(namespaces, own, s.events, func() error { return s.gate }, nil).Target,
		Kinds: []engine.Choice{
			{Kind: ConfigMaps(), Setting: setting("configmap")}, {Kind: Secrets(), Setting: setting("secret")}, {Kind: Services(), Setting: s.services},
			{Kind: Ingresses(), Setting: setting("ingress")}, {Kind: EndpointSlices(s.services, s.external), Setting: engine.Setting{Workers: 2}},
		},
		Settled: func(namespace, resource, name string) {
			if s.pods != nil {
				s.pods.Settled(namespace, resource, name)
			}
		},
	})
	return own
}

// start starts the engine without Pods.
func (s *shared) start(t *testing.T) (stop func()) {
	t.Helper()
	own := s.newEngine(t)
	return kubetest.Run(t, func(ctx context.Context) error {
		own.Start(ctx.Done())
		defer own.Shutdown()
		return s.engine.Run(ctx)
	})
}

// written returns the writes to the provider since the last call, sorted.
func (s *shared) written() []string {
	all := append(writes(s.remote.Actions()), writes(s.remoteLiqod.Actions())...)
	slices.Sort(all)
	return all
}

func (s *shared) forget() {
	s.remote.ClearActions()
	s.remoteLiqod.ClearActions()
}

// requireWritten waits for exactly these writes, and clears the record of writes.
func (s *shared) requireWritten(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() bool { return len(s.written()) >= len(want) }, "writes")
	require.Equal(t, want, s.written())
	s.forget()
}

func (s *shared) silent(t *testing.T) {
	t.Helper()
	require.Never(t, func() bool { return len(s.written()) > 0 }, 250*time.Millisecond, 10*time.Millisecond)
}

func in(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("local-" + name)}
}

func webSlice(change ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: in("web-x"), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{
		{Addresses: []string{"10.0.0.1"}, NodeName: ptr.To("worker")}, {Addresses: []string{"10.0.0.2"}, NodeName: ptr.To("milan")},
	}}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	for _, c := range change {
		c(s)
	}
	return s
}

func webService(annotations ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: in("web"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Port: 80}}}}
	for _, a := range annotations {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, a, "true")
	}
	return s
}

// namedService is webService as an ExternalName.
func namedService() *corev1.Service {
	s := webService()
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}
	return s
}

func everything() []runtime.Object {
	return []runtime.Object{
		&corev1.ConfigMap{ObjectMeta: in("app"), Data: map[string]string{"a": "1"}},
		&corev1.ConfigMap{ObjectMeta: in("kube-root-ca.crt"), Data: map[string]string{"ca.crt": "x"}},
		&corev1.Secret{ObjectMeta: in("app"), Data: map[string][]byte{"a": []byte("1")}},
		&corev1.Secret{ObjectMeta: in("token"), Type: corev1.SecretTypeServiceAccountToken},
		webService(), webSlice(),
		&networkingv1.Ingress{ObjectMeta: in("web"), Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("mine")}},
	}
}

// TestSharedKinds creates objects of every kind, restarts the engine without writes, and
// deletes them.
func TestSharedKinds(t *testing.T) {
	s := newShared(everything()...)
	stop := s.start(t)
	s.requireWritten(t, "create configmaps", "create configmaps", "create secrets", "create services", "create ingresses", "create shadowendpointslices")
	ctx := t.Context()
	kubetest.Get(t, s.remote.CoreV1().ConfigMaps("shop-rome"), "kube-root-ca.crt.rome")
	shadow := kubetest.Get(t, s.remoteLiqod.OffloadingV1beta1().ShadowEndpointSlices("shop-rome"), "web-x")
	require.Len(t, shadow.Spec.Template.Endpoints, 1, "the provider knows its own")
	stop()
	s.forget()
	s.start(t)
	s.silent(t)

	core, shop := s.home.CoreV1(), "shop"
	require.NoError(t, core.ConfigMaps(shop).Delete(ctx, "app", metav1.DeleteOptions{}))
	require.NoError(t, core.ConfigMaps(shop).Delete(ctx, "kube-root-ca.crt", metav1.DeleteOptions{}))
	require.NoError(t, core.Secrets(shop).Delete(ctx, "app", metav1.DeleteOptions{}))
	require.NoError(t, core.Services(shop).Delete(ctx, "web", metav1.DeleteOptions{})) // the slices follow it
	require.NoError(t, s.home.NetworkingV1().Ingresses(shop).Delete(ctx, "web", metav1.DeleteOptions{}))
	s.requireWritten(t, "delete configmaps", "delete configmaps", "delete secrets", "delete services", "delete ingresses", "delete shadowendpointslices")
}

// TestEndpointSlicesFollowTheirService requires that an EndpointSlice without annotations
// of its own is reflected together with its Service.
func TestEndpointSlicesFollowTheirService(t *testing.T) {
	annotated := func(key string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, "true") }
	}
	const skip, allow = offloadingv1beta1.SkipReflectionAnnotation, offloadingv1beta1.AllowReflectionAnnotation
	for name, tc := range map[string]struct {
		service *corev1.Service
		slice   *discoveryv1.EndpointSlice
		policy  forge.Policy
		off     bool
		want    bool
	}{
		"reflected":                       {service: webService(), slice: webSlice(), want: true},
		"without Service":                 {slice: webSlice()},
		"Service skipped, itself allowed": {service: webService(skip), slice: webSlice(annotated(allow)), want: true},
		"Service allowed":                 {service: webService(allow), slice: webSlice(), policy: forge.AllowList, want: true},
		"Services off":                    {service: webService(), slice: webSlice(), off: true},
		"Services off, itself allowed":    {service: webService(), slice: webSlice(annotated(allow)), off: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []runtime.Object{tc.slice}
			if tc.service != nil {
				objects = append(objects, tc.service)
			}
			s := newShared(objects...)
			if tc.policy != "" {
				s.services.Policy = tc.policy
			}
			if tc.off {
				s.services.Workers = 0
			}
			s.start(t)
			shadows := func() []string {
				return slices.DeleteFunc(s.written(), func(w string) bool { return w != "create shadowendpointslices" })
			}
			if tc.want {
				eventually(t, func() bool { return len(shadows()) == 1 }, "reflected")
				return
			}
			require.Never(t, func() bool { return len(shadows()) > 0 }, 300*time.Millisecond, 20*time.Millisecond)
		})
	}
}

// TestSlicesSurviveACacheWithoutTheirService requires that the endpoints of a Service
// stay if only the cache lacks the Service.
func TestSlicesSurviveACacheWithoutTheirService(t *testing.T) {
	s := newShared(webService(), webSlice())
	stop := s.start(t)
	s.requireWritten(t, "create services", "create shadowendpointslices")
	stop()
	s.forget()
	s.home.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.ServiceList{}, nil
	})
	s.home.PrependWatchReactor("services", func(clienttesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
	s.start(t)
	s.silent(t)
}

// TestTheRootCAsNameIsItsOwn creates a ConfigMap with the name that the root CA has in
// the provider. It must not replace the root CA.
func TestTheRootCAsNameIsItsOwn(t *testing.T) {
	s := newShared(&corev1.ConfigMap{ObjectMeta: in("kube-root-ca.crt"), Data: map[string]string{"ca.crt": "x"}})
	s.start(t)
	s.requireWritten(t, "create configmaps")
	same := &corev1.ConfigMap{ObjectMeta: in("kube-root-ca.crt.rome")}
	require.NoError(t, s.home.Tracker().Add(same))
	s.silent(t)
	require.NoError(t, s.home.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "shop", same.Name))
	s.silent(t)
}

// TestARefusedNameEndsTheFormerService: the provider takes no Services of type ExternalName. The
// former one, and the endpoints that Kubernetes leaves at home, are gone there.
func TestARefusedNameEndsTheFormerService(t *testing.T) {
	s := newShared(webService(), webSlice())
	s.refuse(offloadingv1beta1.ServiceTypeField, `"ExternalName"`)
	s.start(t)
	s.requireWritten(t, "create services", "create shadowendpointslices")
	kubetest.Update(t, s.home.CoreV1().Services("shop"), namedService())
	eventually(t, func() bool {
		have, err := s.remote.CoreV1().Services("shop-rome").Get(t.Context(), "web", metav1.GetOptions{})
		require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
		return err == nil && have.Spec.ClusterIP == corev1.ClusterIPNone && have.Spec.Selector["app"] == "" && slices.Contains(s.written(), "delete shadowendpointslices")
	}, "nothing leads to the former endpoints")
}

// refuse has the provider refuse Services in whose JSON text is, for one field.
func (s *shared) refuse(field, text string) {
	refusal := apierrors.NewForbidden(corev1.Resource("services"), "web", errors.New("no"))
	refusal.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: field}}
	s.remote.PrependReactor("*", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		var sent []byte
		switch a := a.(type) {
		case clienttesting.CreateAction:
			sent, _ = json.Marshal(a.GetObject())
		case clienttesting.PatchAction:
			sent = a.GetPatch()
		}
		return strings.Contains(string(sent), text), nil, refusal
	})
}

// TestARefusedPartDoesNotRemoveTheWhole: a Service is there without the type or the node port that the
// provider refuses, its other changes arrive, and somebody is told.
func TestARefusedPartDoesNotRemoveTheWhole(t *testing.T) {
	forced := webService(offloadingv1beta1.ForceRemoteNodePortAnnotation)
	forced.Spec.Type, forced.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30777
	for name, c := range map[string]struct {
		local       *corev1.Service
		field, text string
		rest        func(*corev1.Service) bool
	}{
		"name": {namedService(), offloadingv1beta1.ServiceTypeField, `"ExternalName"`, func(s *corev1.Service) bool {
			return s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ClusterIP == corev1.ClusterIPNone && s.Spec.ExternalName == ""
		}},
		"node port": {forced, offloadingv1beta1.NodePortsField, "30777", func(s *corev1.Service) bool {
			return s.Spec.Type == corev1.ServiceTypeNodePort && s.Spec.Ports[0].NodePort == 0
		}},
		"node port in use": {forced, "spec.ports[0].nodePort", "30777", func(s *corev1.Service) bool { return s.Spec.Ports[0].NodePort == 0 }},
		"type":             {forced, offloadingv1beta1.ServiceTypeField, `"NodePort"`, func(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeClusterIP }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShared(c.local.DeepCopy())
			s.refuse(c.field, c.text)
			s.start(t)
			there := func(labels string) func() bool {
				return func() bool {
					have, err := s.remote.CoreV1().Services("shop-rome").Get(t.Context(), "web", metav1.GetOptions{})
					return err == nil && c.rest(have) && have.Labels["round"] == labels
				}
			}
			eventually(t, there(""), "the rest is there")
			eventually(t, func() bool {
				return strings.Contains(offloadingv1beta1.RefusedText(s.engine.Refused()), "has the rest")
			}, "it is told")
			changed := c.local.DeepCopy()
			changed.Labels = map[string]string{"round": "2"}
			_, err := s.home.CoreV1().Services("shop").Update(t.Context(), changed, metav1.UpdateOptions{})
			require.NoError(t, err)
			eventually(t, there("2"), "a change arrives")
			require.NotContains(t, s.written(), "delete services")
		})
	}
}

// TestExternalEndpoints: endpoints that are no pods have the address that the provider reaches.
func TestExternalEndpoints(t *testing.T) {
	s := newShared(webService(), webSlice())
	s.external = func(namespace, address string) string {
		return map[string]string{"shop 10.0.0.1": "10.70.0.17"}[namespace+" "+address]
	}
	s.start(t)
	s.requireWritten(t, "create services", "create shadowendpointslices")
	shadow, err := s.remoteLiqod.OffloadingV1beta1().ShadowEndpointSlices("shop-rome").Get(t.Context(), "web-x", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"10.70.0.17"}, shadow.Spec.Template.Endpoints[0].Addresses)
}
