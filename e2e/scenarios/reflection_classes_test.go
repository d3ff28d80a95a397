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
