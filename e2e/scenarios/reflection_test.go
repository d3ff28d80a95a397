package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// classed are an Ingress and a load balancer of one name.
type classed struct {
	ingress  *networkingv1.Ingress
	balancer *corev1.Service
}

// offers has virtual node milan offer classes of both sorts; * marks the default one.
func (w *world) offers(t *testing.T, names ...string) {
	t.Helper()
	ingress, balancer := []offloadingv1beta1.ClassOffer{}, []offloadingv1beta1.ClassOffer{}
	for _, name := range names {
		name, isDefault := strings.CutSuffix(name, "*")
		ingress = append(ingress, offloadingv1beta1.ClassOffer{IngressClassName: name, Default: isDefault})
		balancer = append(balancer, offloadingv1beta1.ClassOffer{LoadBalancerClassName: name, Default: isDefault})
	}
	body := must(json.Marshal(map[string]any{"spec": map[string]any{"ingressClasses": ingress, "loadBalancerClasses": balancer}}))(t)
	kubetest.Patch(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan", types.MergePatchType, body)
}

func ingressOf(name, class string) *networkingv1.Ingress {
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
		Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}}}}}
	if class != "" {
		i.Spec.IngressClassName = &class
	}
	return i
}

// classed makes an Ingress and a load balancer that are of a class at home; empty: of none.
func (w *world) classed(t *testing.T, name, class string) {
	t.Helper()
	kubetest.Create(t, w.rome.Client().NetworkingV1().Ingresses("classes"), ingressOf(name, class))
	balancer := service(name, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	if class != "" {
		balancer.Spec.LoadBalancerClass = &class
	}
	kubetest.Create(t, w.rome.Client().CoreV1().Services("classes"), balancer)
}

// untilClassed waits until both are of a class in the provider.
func (w *world) untilClassed(t *testing.T, name, class string) classed {
	t.Helper()
	return classed{
		there(t, name+" is of class "+class, getter(w.milan.Client().NetworkingV1().Ingresses("classes-rome"), name), func(i *networkingv1.Ingress) bool {
			return ptr.Deref(i.Spec.IngressClassName, "") == class && i.Annotations["kubernetes.io/ingress.class"] == ""
		}),
		there(t, name+" is of class "+class, getter(w.milan.Client().CoreV1().Services("classes-rome"), name), func(s *corev1.Service) bool {
			return ptr.Deref(s.Spec.LoadBalancerClass, "") == class
		}),
	}
}

// testClasses: Ingresses and load balancers get a class that the provider offers: that of
// their own name, else the default one, else what the provider itself chooses.
func testClasses(t *testing.T, w *world) {
	w.offload(t, "classes", offloadingv1beta1.NamespaceOffloadingSpec{})
	w.offers(t, "gold", "silver*")
	before := map[string]classed{}
	for name, want := range map[string]string{"gold": "gold", "bronze": "silver", "": "silver"} {
		w.classed(t, "of-"+name+"x", name)
		before[name] = w.untilClassed(t, "of-"+name+"x", want)
	}
	w.offers(t, "bronze", "gold*")
	for name, want := range map[string]string{"gold": "gold", "bronze": "bronze", "": "gold"} {
		now := w.untilClassed(t, "of-"+name+"x", want)
		require.Equal(t, before[name].ingress.UID, now.ingress.UID, "changed in place")
		require.Equal(t, name == "gold", before[name].balancer.UID == now.balancer.UID, "made anew, where the class is another: it never changes")
	}
	remote := w.milan.Client().NetworkingV1().Ingresses("classes-rome")
	for body, want := range map[string]string{
		`{"spec":{"ingressClassName":"bronze"}}`: "bronze",
		`{"spec":{"ingressClassName":null},"metadata":{"annotations":{"kubernetes.io/ingress.class":"bronze"}}}`: "bronze",
		`{"spec":{"ingressClassName":"lead"}}`: "gold",
	} {
		kubetest.Patch(t, w.rome.Client().NetworkingV1().Ingresses("classes"), "of-x", types.MergePatchType, []byte(body))
		there(t, body, getter(remote, "of-x"), func(i *networkingv1.Ingress) bool { return ptr.Deref(i.Spec.IngressClassName, "") == want })
	}
	testNoClasses(t, w)
}

// testNoClasses: nothing is offered any more.
func testNoClasses(t *testing.T, w *world) {
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "milans"}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/milans"}}
	class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	kubetest.Create(t, w.milan.Client().NetworkingV1().IngressClasses(), class)
	defer func() {
		require.NoError(t, w.milan.Client().NetworkingV1().IngressClasses().Delete(t.Context(), class.Name, metav1.DeleteOptions{}))
	}()
	within(t, quickly, "milan has a default class of its own", func(ctx context.Context) error {
		i, err := w.milan.Client().NetworkingV1().Ingresses("default").Create(ctx, ingressOf("probe", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return lab.Wrong(err, ptr.Deref(i.Spec.IngressClassName, "") != class.Name, "the class is %v", i.Spec.IngressClassName)
	})
	w.offers(t)
	w.untilNoneOffered(t, class.Name)
	w.classed(t, "of-lead", "lead")
	there(t, "milan's own class", getter(w.milan.Client().NetworkingV1().Ingresses("classes-rome"), "of-lead"), func(i *networkingv1.Ingress) bool {
		return ptr.Deref(i.Spec.IngressClassName, "") == class.Name
	})
	there(t, "milan's own load balancers", getter(w.milan.Client().CoreV1().Services("classes-rome"), "of-lead"), func(s *corev1.Service) bool {
		return s.Spec.LoadBalancerClass == nil
	})
	begin := time.Now()
	w.noWrites(t, begin, begin.Add(3*time.Second), "what the provider chose stays, and what was offered earlier")
	w.untilClassed(t, "of-goldx", "gold")
}

// untilNoneOffered waits until the vkubelet knows that no class is offered: a new Ingress
// gets the provider's own then. What was reflected before keeps its class.
func (w *world) untilNoneOffered(t *testing.T, own string) {
	t.Helper()
	tries := 0
	within(t, soon, "no class is offered", func(ctx context.Context) error {
		tries++
		i, err := w.rome.Client().NetworkingV1().Ingresses("classes").Create(ctx, ingressOf(fmt.Sprintf("try-%d", tries), "lead"), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		remote := there(t, i.Name+" is reflected", getter(w.milan.Client().NetworkingV1().Ingresses("classes-rome"), i.Name), func(*networkingv1.Ingress) bool { return true })
		class := ptr.Deref(remote.Spec.IngressClassName, "")
		return lab.Wrong(nil, class != own, "%s is of class %q", i.Name, class)
	})
}

// quickly is granted for a reflected change; on a quiet machine it takes milliseconds.
const quickly = 10 * time.Second

// TestReflection has every kind of object live and end, in turn. Package engine tests what becomes of single fields.
func TestReflection(t *testing.T) {
	w := newAdjustedWorld(t, dualStack, anyService())
	t.Run("Together", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *world){
			"RootCA": testRootCA, "Secret": testSecret,
			"Service": testService, "Ingress": testIngress, "Endpoints": testReflectedEndpoints, "Leader": testLeader, "Rows": testRows, "RowsTaken": testRowsTaken,
			"PullSecrets": testPullSecrets, "ServiceRows": testServiceRows,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, w)
			})
		}
	})
	inTurn(t, w, []part[*world]{
		{"Classes", testClasses}, {"Idle", testReflectionIdle}, {"Restart", testReflectionRestart}, {"ProviderAway", testReflectionAway},
		{"SkipLists", testSkipLists}, {"HandOver", testHandOver}, {"TwoWays", testTwoWays}, {"Policy", testPolicyChange},
	})
}

// anyService are the settings of a provider that lets peers choose what Services have.
func anyService() map[string]any {
	return map[string]any{"sharing": map[string]any{
		"serviceTypes": []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}, "serviceFields": []string{"nodePort"},
	}}
}

// there waits until an object in the provider is as wanted, and returns it.
func there[T metav1.Object](t *testing.T, what string, get func(context.Context) (T, error), as func(T) bool) T {
	t.Helper()
	return await(t, quickly, what, func(ctx context.Context) (T, error) {
		obj, err := get(ctx)
		if err == nil && !as(obj) {
			err = fmt.Errorf("%s is not as wanted: %+v", obj.GetName(), obj)
		}
		return obj, err
	})
}

// away waits until an object is not in the provider.
func away[T metav1.Object](t *testing.T, what string, get func(context.Context) (T, error)) {
	t.Helper()
	within(t, quickly, what, func(ctx context.Context) error { return absent(get(ctx)) })
}

// getter reads one object with one client again and again.
func getter[T any](c interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
}, name string) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) { return c.Get(ctx, name, metav1.GetOptions{}) }
}

func anyState[T any](T) bool { return true }

func configMapOf(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{}}
	for i := 0; i+1 < len(data); i += 2 {
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

// testRootCA: the home's root CA has a name of its own beside the provider's.
func testRootCA(t *testing.T, w *world) {
	w.offload(t, "cm", offloadingv1beta1.NamespaceOffloadingSpec{})
	remote := w.milan.Client().CoreV1().ConfigMaps("cm-rome")
	rootCA := there(t, "the home's root CA", getter(remote, "kube-root-ca.crt.rome"), anyState[*corev1.ConfigMap])
	own := kubetest.Get(t, w.rome.Client().CoreV1().ConfigMaps("cm"), "kube-root-ca.crt")
	require.Equal(t, own.Data, rootCA.Data)
	require.NoError(t, remote.Delete(t.Context(), "kube-root-ca.crt.rome", metav1.DeleteOptions{}))
	there(t, "what somebody deletes in the provider comes back", getter(remote, "kube-root-ca.crt.rome"), func(cm *corev1.ConfigMap) bool { return cm.UID != rootCA.UID })
}

// testSecret: Secrets of any type are reflected, but not the tokens of service accounts.
func testSecret(t *testing.T, w *world) {
	w.offload(t, "secrets", offloadingv1beta1.NamespaceOffloadingSpec{})
	home, remote := w.rome.Client().CoreV1().Secrets("secrets"), w.milan.Client().CoreV1().Secrets("secrets-rome")
	for _, s := range []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, StringData: map[string]string{"a": "1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson, StringData: map[string]string{".dockerconfigjson": `{"auths":{}}`}},
		{ObjectMeta: metav1.ObjectMeta{Name: "basic"}, Type: corev1.SecretTypeBasicAuth, StringData: map[string]string{"username": "u", "password": "p"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Type: "example.com/own", StringData: map[string]string{"x": "y"}},
	} {
		kubetest.Create(t, home, s)
		have := there(t, s.Name, getter(remote, s.Name), anyState[*corev1.Secret])
		want := kubetest.Get(t, home, s.Name)
		require.Equal(t, want.Data, have.Data)
		require.Equal(t, want.Type, have.Type)
	}
	token := kubetest.Create(t, home, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken,
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}})
	w.eventAbout(t, token, "ReflectionDisabled", "tokens of service accounts stay")
	_, err := remote.Get(t.Context(), "token", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))

	before := kubetest.Get(t, remote, "own")
	require.NoError(t, home.Delete(t.Context(), "own", metav1.DeleteOptions{}))
	kubetest.Create(t, home, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Type: "example.com/other"})
	there(t, "another type", getter(remote, "own"), func(s *corev1.Secret) bool { return s.Type == "example.com/other" && s.UID != before.UID })
}

// eventAbout waits for a Warning event about an object at home.
func (w *world) eventAbout(t *testing.T, obj metav1.Object, reason, says string) {
	t.Helper()
	within(t, quickly, "told: "+reason, lab.Some(w.rome.Client().CoreV1().Events(obj.GetNamespace()), metav1.ListOptions{
		FieldSelector: "type=Warning,reason=" + reason + ",involvedObject.uid=" + string(obj.GetUID())}, func(e *corev1.Event) bool { return strings.Contains(e.Message, says) }))
}
