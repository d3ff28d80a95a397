package scenarios

import (
	"context"
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// reflectedAttempts are attempts with the kinds that a peer reflects, on objects that are
// not its own or in forms that it may not give them.
func reflectedAttempts(t *testing.T, p attacker) map[string]attempt {
	t.Helper()
	theirs := metav1.ObjectMeta{Name: "theirs"}
	own := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.DestinationLabel: "elsewhere"}}
	}
	admin := p.milan.Client()
	kubetest.Create(t, admin.CoreV1().ConfigMaps(twinOfRome), &corev1.ConfigMap{ObjectMeta: theirs})
	kubetest.Create(t, admin.CoreV1().Secrets(twinOfRome), &corev1.Secret{ObjectMeta: theirs})
	claimSpec := claimOf("").Spec
	kubetest.Create(t, admin.CoreV1().PersistentVolumeClaims(twinOfRome), &corev1.PersistentVolumeClaim{ObjectMeta: theirs, Spec: claimSpec})
	// Its own it may write: what is forbidden below is not so for want of rights.
	configs, secrets, services := p.core.CoreV1().ConfigMaps(twinOfRome), p.core.CoreV1().Secrets(twinOfRome), p.core.CoreV1().Services(twinOfRome)
	claims := p.core.CoreV1().PersistentVolumeClaims(twinOfRome)
	kubetest.Create(t, configs, &corev1.ConfigMap{ObjectMeta: own("own")})
	kubetest.Create(t, services, &corev1.Service{ObjectMeta: own("own"), Spec: service("own").Spec})
	kubetest.Patch(t, configs, "own", types.MergePatchType, []byte(`{"data":{"a":"1"}}`))
	kubetest.Create(t, configs, &corev1.ConfigMap{ObjectMeta: own("gone")})
	require.NoError(t, configs.Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	kubetest.Create(t, claims, &corev1.PersistentVolumeClaim{ObjectMeta: own("gone"), Spec: claimSpec})
	require.NoError(t, claims.Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	// An address that the provider's own people gave it is no wish of the peer.
	kubetest.Create(t, services, &corev1.Service{ObjectMeta: own("exposed"), Spec: service("exposed").Spec})
	kubetest.Patch(t, admin.CoreV1().Services(twinOfRome), "exposed", types.MergePatchType, []byte(`{"spec":{"externalIPs":["192.0.2.9"]}}`))
	kubetest.Patch(t, services, "exposed", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"1"}}}`))

	classedObjects(t, p, own)
	annotatedObjects(t, p, own)
	markedObjects(t, p, own, claimSpec)

	patch := func(name, body string) attempt {
		return lab.Patches(configs, name, types.MergePatchType, []byte(body))
	}
	claim := func(change func(*corev1.PersistentVolumeClaimSpec)) attempt {
		it := &corev1.PersistentVolumeClaim{ObjectMeta: own("evil"), Spec: *claimSpec.DeepCopy()}
		change(&it.Spec)
		return lab.Creates(claims, it)
	}
	attempts := map[string]attempt{
		"ConfigMap without origin": lab.Creates(configs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}),
		"ConfigMap of another origin": func(ctx context.Context) error {
			m := own("evil")
			m.Labels[offloadingv1beta1.OriginLabel] = "paris"
			return second(configs.Create(ctx, &corev1.ConfigMap{ObjectMeta: m}, metav1.CreateOptions{}))
		},
		"Ingress without origin": lab.Creates(p.core.NetworkingV1().Ingresses(twinOfRome), &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "evil"},
			Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}),
		"the provider's root CA":               patch("kube-root-ca.crt", `{"data":{"ca.crt":"evil"}}`),
		"the provider's ConfigMap":             patch("theirs", `{"data":{"a":"evil"}}`),
		"the provider's ConfigMap, taken over": patch("theirs", `{"metadata":{"labels":{"offloading.liqo.io/origin":"rome"}}}`),
		"the origin of its own":                patch("own", `{"metadata":{"labels":{"offloading.liqo.io/origin":null}}}`),
		"finalizer on its own":                 patch("own", `{"metadata":{"finalizers":["example.com/evil"]}}`),
		"owner on its own":                     patch("own", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"1"}]}}`),
		"deletion of the provider's root CA":   lab.Deletes(configs, "kube-root-ca.crt"),
		"deletion of the provider's Secret":    func(ctx context.Context) error { return secrets.Delete(ctx, "theirs", metav1.DeleteOptions{}) },
		"token of a service account, of its own origin": func(ctx context.Context) error {
			s := &corev1.Secret{ObjectMeta: own("evil"), Type: corev1.SecretTypeServiceAccountToken}
			s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
			return second(secrets.Create(ctx, s, metav1.CreateOptions{}))
		},
		"claim without origin":                    lab.Creates(claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, Spec: claimSpec}),
		"claim without class":                     claim(func(s *corev1.PersistentVolumeClaimSpec) { s.StorageClassName = nil }),
		"claim of a volume that is there already": claim(func(s *corev1.PersistentVolumeClaimSpec) { s.StorageClassName = ptr.To("") }),
		"claim of a volume of others":             claim(func(s *corev1.PersistentVolumeClaimSpec) { s.VolumeName = "pv-of-others" }),
		"claim that selects among volumes":        claim(func(s *corev1.PersistentVolumeClaimSpec) { s.Selector = &metav1.LabelSelector{} }),
		"deletion of the provider's claim":        func(ctx context.Context) error { return claims.Delete(ctx, "theirs", metav1.DeleteOptions{}) },
		"the provider's claim":                    lab.Patches(claims, "theirs", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"evil"}}}`)),
		"another address on what has one":         lab.Patches(services, "exposed", types.MergePatchType, []byte(`{"spec":{"externalIPs":["192.0.2.9","192.0.2.10"]}}`)),
		"external address on its own":             lab.Patches(services, "own", types.MergePatchType, []byte(`{"spec":{"externalIPs":["192.0.2.1"]}}`)),
	}
	maps.Copy(attempts, classAttempts(p, own, claimSpec))
	maps.Copy(attempts, serviceAttempts(p, own))
	maps.Copy(attempts, hostAttempts(t, p, own))
	maps.Copy(attempts, goingAttempts(t, p, own))
	return attempts
}

// classedObjects are what a peer may do with classes: those that are shared, and those that
// the provider's own people gave what is there.
func classedObjects(t *testing.T, p attacker, own func(string) metav1.ObjectMeta) {
	t.Helper()
	services, ingresses := p.core.CoreV1().Services(twinOfRome), p.core.NetworkingV1().Ingresses(twinOfRome)
	balancer := func(class string) corev1.ServiceSpec {
		return service("x", func(s *corev1.ServiceSpec) { s.Type, s.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &class }).Spec
	}
	kubetest.Create(t, services, &corev1.Service{ObjectMeta: own("shared"), Spec: balancer("milans")})
	kubetest.Create(t, ingresses, &networkingv1.Ingress{ObjectMeta: own("shared"), Spec: ingressOf("shared", "milans").Spec})
	kubetest.Create(t, p.milan.Client().CoreV1().Services(twinOfRome), &corev1.Service{ObjectMeta: own("given"), Spec: balancer("inner")})
	kubetest.Create(t, p.milan.Client().NetworkingV1().Ingresses(twinOfRome), &networkingv1.Ingress{ObjectMeta: own("given"), Spec: ingressOf("given", "inner").Spec})
	kubetest.Patch(t, services, "given", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"1"}}}`))
	kubetest.Patch(t, ingresses, "given", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"1"}}}`))
}

// annotatedObjects are what a peer writes with annotations that command the provider's
// controllers: they are left out, at once and when they come later. Those of ordinary
// applications, and those of the provider's own people, stay.
func annotatedObjects(t *testing.T, p attacker, own func(string) metav1.ObjectMeta) {
	t.Helper()
	services, ingresses := p.core.CoreV1().Services(twinOfRome), p.core.NetworkingV1().Ingresses(twinOfRome)
	usual := map[string]string{
		"note": "a", "checksum/config": "b", "meta.helm.sh/release-name": "shop", "service.kubernetes.io/topology-mode": "Auto",
		"nginx.ingress.kubernetes.io/rewrite-target": "/$1", "nginx.ingress.kubernetes.io/proxy-body-size": "8m",
	}
	commands := map[string]string{
		"cert-manager.io/cluster-issuer": "ca", "external-dns.alpha.kubernetes.io/hostname": "www.bank.example", "metallb.universe.tf/allow-shared-ip": "bank",
		"nginx.ingress.kubernetes.io/server-snippet": "x", "nginx.ingress.kubernetes.io/auth-url": "http://10.0.0.1", "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
		"nginx.ingress.kubernetes.io/proxy-send-timeout": "1; }",
	}
	given := maps.Clone(usual)
	maps.Copy(given, commands)
	annotated := func(name string) metav1.ObjectMeta {
		m := own(name)
		m.Annotations = maps.Clone(given)
		return m
	}
	later := must(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": given}}))(t)
	byAdmin := []byte(`{"metadata":{"annotations":{"cert-manager.io/cluster-issuer":"milans"}}}`)

	s := kubetest.Create(t, services, &corev1.Service{ObjectMeta: annotated("annotated"), Spec: service("annotated").Spec})
	require.Equal(t, usual, s.Annotations)
	s = kubetest.Patch(t, services, "annotated", types.MergePatchType, later)
	require.Equal(t, usual, s.Annotations)
	i := kubetest.Create(t, ingresses, &networkingv1.Ingress{ObjectMeta: annotated("annotated"), Spec: ingressOf("annotated", "milans").Spec})
	require.Equal(t, usual, i.Annotations)
	kubetest.Patch(t, p.milan.Client().NetworkingV1().Ingresses(twinOfRome), "annotated", types.MergePatchType, byAdmin)
	i = kubetest.Patch(t, ingresses, "annotated", types.MergePatchType, later)
	want := maps.Clone(usual)
	want["cert-manager.io/cluster-issuer"] = "milans"
	require.Equal(t, want, i.Annotations)
}

// classAttempts are attempts to use classes that the provider does not share.
func classAttempts(p attacker, own func(string) metav1.ObjectMeta, claimSpec corev1.PersistentVolumeClaimSpec) map[string]attempt {
	services, ingresses := p.core.CoreV1().Services(twinOfRome), p.core.NetworkingV1().Ingresses(twinOfRome)
	claim := func(class string, notes map[string]string) attempt {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: own("evil"), Spec: *claimSpec.DeepCopy()}
		c.Spec.StorageClassName, c.Annotations = &class, notes
		return lab.Creates(p.core.CoreV1().PersistentVolumeClaims(twinOfRome), c)
	}
	ingress := func(class string, notes map[string]string) attempt {
		i := &networkingv1.Ingress{ObjectMeta: own("evil"), Spec: ingressOf("evil", class).Spec}
		i.Annotations = notes
		return lab.Creates(ingresses, i)
	}
	return map[string]attempt{
		"claim of a class that is not shared":                              claim("inner", nil),
		"claim of a class that an annotation names":                        claim("disk", map[string]string{corev1.BetaStorageClassAnnotation: "inner"}),
		"claim of a volume that is there already, by an annotation":        claim("disk", map[string]string{corev1.BetaStorageClassAnnotation: ""}),
		"Ingress of a class that is not shared":                            ingress("inner", nil),
		"Ingress of a class that is not shared, which an annotation names": ingress("", map[string]string{"kubernetes.io/ingress.class": "inner"}),
		"Ingress that gets a class that is not shared":                     lab.Patches(ingresses, "shared", types.MergePatchType, []byte(`{"spec":{"ingressClassName":"inner"}}`)),
		"load balancer of a class that is not shared": func(ctx context.Context) error {
			s := service("evil", func(s *corev1.ServiceSpec) {
				s.Type, s.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, ptr.To("inner")
			})
			return second(services.Create(ctx, &corev1.Service{ObjectMeta: own("evil"), Spec: s.Spec}, metav1.CreateOptions{}))
		},
		"load balancer that becomes one of a class that is not shared": lab.Patches(services, "own", types.MergePatchType, []byte(`{"spec":{"type":"LoadBalancer","loadBalancerClass":"inner"}}`)),
	}
}

// serviceAttempts are attempts to choose what the provider allocates, and to name hosts of it.
func serviceAttempts(p attacker, own func(string) metav1.ObjectMeta) map[string]attempt {
	services := p.core.CoreV1().Services(twinOfRome)
	out := map[string]attempt{}
	for what, change := range map[string]func(*corev1.ServiceSpec){
		"cluster IP":              func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.77" },
		"node port":               func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30777 },
		"load balancer's address": func(s *corev1.ServiceSpec) { s.Type, s.LoadBalancerIP = corev1.ServiceTypeLoadBalancer, "192.0.2.9" },
		"name of another host": func(s *corev1.ServiceSpec) {
			s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "vault.vault.svc.cluster.local"
		},
	} {
		s := &corev1.Service{ObjectMeta: own("chosen"), Spec: service("chosen").Spec}
		change(&s.Spec)
		out["a Service's "+what] = lab.Creates(services, s)
	}
	for what, body := range map[string]string{
		"cluster IP": `{"spec":{"clusterIP":"10.96.0.77"}}`, "node port": `{"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30777}]}}`,
		"name": `{"spec":{"type":"ExternalName","externalName":"vault.vault.svc.cluster.local"}}`,
	} {
		out["a Service's "+what+" afterwards"] = lab.Patches(services, "own", types.MergePatchType, []byte(body))
	}
	return out
}

// hostAttempts are attempts to get the requests for hosts that the provider's own Ingresses
// serve. A free host the peer may have.
func hostAttempts(t *testing.T, p attacker, own func(string) metav1.ObjectMeta) map[string]attempt {
	t.Helper()
	at := func(m metav1.ObjectMeta, hosts ...string) *networkingv1.Ingress {
		ing := ingressOf(m.Name, "")
		ing.ObjectMeta, ing.Spec.DefaultBackend = m, nil
		for _, host := range hosts {
			ing.Spec.Rules = append(ing.Spec.Rules, networkingv1.IngressRule{Host: host})
		}
		return ing
	}
	kubetest.Create(t, p.milan.Client().NetworkingV1().Ingresses("default"), at(metav1.ObjectMeta{Name: "bank"}, "bank.example.com"))
	ingresses := p.core.NetworkingV1().Ingresses(twinOfRome)
	kubetest.Create(t, ingresses, at(own("store"), "store.example.com"))
	within(t, soon, "the webhook knows of the bank", func(ctx context.Context) error {
		_, err := ingresses.Create(ctx, at(own("evil"), "bank.example.com"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return lab.Wrong(nil, !apierrors.IsForbidden(err), "answer is %v", err)
	})
	directive := ingressOf("evil", "")
	directive.ObjectMeta, directive.Spec.Rules = own("evil"), []networkingv1.IngressRule{{Host: "free.example.com", IngressRuleValue: networkingv1.IngressRuleValue{
		HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
			Path: "/;\n}", PathType: ptr.To(networkingv1.PathTypeImplementationSpecific), Backend: *directive.Spec.DefaultBackend,
		}}},
	}}}
	out := map[string]attempt{"path of an Ingress that ends a directive": lab.Creates(ingresses, directive), "host of the bank, afterwards": lab.Patches(ingresses, "store", types.MergePatchType, []byte(`{"spec":{"rules":[{"host":"bank.example.com"}]}}`))}
	for _, host := range []string{"bank.example.com", "*.example.com"} {
		out["an Ingress for "+host] = lab.Creates(ingresses, at(own("evil"), "free.example.com", host))
	}
	return out
}

// takenHost: an Ingress with a host that the provider's own Ingress serves is there without that host.
func takenHost(t *testing.T, p attacker) {
	theirs := ingressOf("taken", "")
	theirs.Spec.DefaultBackend, theirs.Spec.Rules = nil, []networkingv1.IngressRule{{Host: "taken.example.com"}}
	here, there := p.rome.Client().NetworkingV1().Ingresses("shop"), p.milan.Client().NetworkingV1()
	kubetest.Create(t, there.Ingresses("default"), theirs)
	ing := theirs.DeepCopy()
	within(t, soon, "the webhook knows of the host", func(ctx context.Context) error {
		_, err := p.core.NetworkingV1().Ingresses(twinOfRome).Create(ctx, ing, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return lab.Wrong(nil, !apierrors.IsForbidden(err), "answer is %v", err)
	})
	ing.Spec.Rules = append(ing.Spec.Rules, networkingv1.IngressRule{Host: "free.example.com"})
	local := kubetest.Create(t, here, ing)
	hosts := func(n int) func(*networkingv1.Ingress) bool {
		return func(have *networkingv1.Ingress) bool { return len(have.Spec.Rules) == n }
	}
	within(t, soon, "the Ingress is there without the host", lab.Is(there.Ingresses(twinOfRome), ing.Name, hosts(1)))
	p.eventAbout(t, local, "FailedReflection", "host taken.example.com is used by another Ingress")
	require.NoError(t, there.Ingresses("default").Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}))
	within(t, longest, "the Ingress has the host that is free now", lab.Is(there.Ingresses(twinOfRome), ing.Name, hosts(2)))
	require.NoError(t, here.Delete(t.Context(), local.Name, metav1.DeleteOptions{}))
}

// laterHost: an Ingress that the webhook has not compared with an earlier one of the same host has
// an event in the provider, which comes home.
func laterHost(t *testing.T, w *world) {
	unruled(t, w.milan)
	create := func(s *site.Site, namespace string) *networkingv1.Ingress {
		ing := ingressOf("later", "")
		ing.Spec.DefaultBackend, ing.Spec.Rules = nil, []networkingv1.IngressRule{{Host: "later.example.com"}}
		return kubetest.Create(t, s.Client().NetworkingV1().Ingresses(namespace), ing)
	}
	create(w.milan, "default")
	local := create(w.rome, "shop")
	w.eventAbout(t, local, "HostTaken", "host later.example.com is used by another Ingress")
	require.NoError(t, w.rome.Client().NetworkingV1().Ingresses("shop").Delete(t.Context(), local.Name, metav1.DeleteOptions{}))
}
