package timed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// servicePort is the port of the pods of a test on real nodes, and of their Service.
const servicePort = 8080

// chartDefaults undo the settings of tests: empty sections have the defaults of the chart.
func chartDefaults() map[string]any {
	return map[string]any{"lease": map[string]any{}, "vkubelet": map[string]any{}}
}

// machinesOf are the machines of a cluster: its gateway and its nodes.
func machinesOf(sites *site.Sites, s *site.Site) []*lab.Machine {
	out := []*lab.Machine{s.Fabric.Machine}
	for _, n := range sites.Full.Nodes(s.Cluster) {
		out = append(out, n.Machine)
	}
	return out
}

// addressesOf are the addresses of machines as a set of nft.
func addressesOf(machines []*lab.Machine) string {
	var out []string
	for _, m := range machines {
		out = append(out, m.Address)
	}
	return "{ " + strings.Join(out, ", ") + " }"
}

// deployAll offloads a namespace at home, and creates Deployments and a Service of all of their pods.
func deployAll(ctx context.Context, s *site.Site, namespace string, deployments ...*appsv1.Deployment) error {
	err := s.Offload(ctx, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	if err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "all"}, Ports: []corev1.ServicePort{{Port: servicePort, TargetPort: intstr.FromInt32(servicePort)}},
	}}
	if _, err := s.Client().CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a Service in %s: %w", s.Name, err)
	}
	for _, d := range deployments {
		if _, err := s.Client().AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating Deployment %s: %w", d.Name, err)
		}
	}
	return nil
}

// testDeployment is one of the test image. Its pods run in the provider if remote is not empty,
// else at home.
func testDeployment(name string, replicas int32, remote string, args ...string) *appsv1.Deployment {
	labels := map[string]string{"app": "all", "part": name}
	spec := corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{{
		Name: "c", Image: lab.TestImage, ImagePullPolicy: corev1.PullNever, Args: args,
	}}}
	place := corev1.NodeSelectorRequirement{Key: offloadingv1beta1.TypeLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{offloadingv1beta1.TypeVirtualNode}}
	if remote != "" {
		spec.RuntimeClassName = ptr.To("liqo")
		place = corev1.NodeSelectorRequirement{Key: corev1beta1.RemoteClusterIDLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{remote}}
	}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{place}}},
	}}}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
}

// statusesReady requires that each ForeignCluster, Node and Deployment of a cluster is Ready.
func statusesReady(ctx context.Context, s *site.Site) error {
	err := lab.Together(lab.All(s.Liqod().CoreV1beta1().ForeignClusters(), metav1.ListOptions{}, func(fc *corev1beta1.ForeignCluster) bool {
		return meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionReady)
	}), lab.All(s.Client().CoreV1().Nodes(), metav1.ListOptions{}, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	}), lab.All(s.Client().AppsV1().Deployments(metav1.NamespaceAll), metav1.ListOptions{}, func(d *appsv1.Deployment) bool {
		want, st := ptr.Deref(d.Spec.Replicas, 1), d.Status
		return st.ObservedGeneration == d.Generation && st.AvailableReplicas == want && st.UpdatedReplicas == want && st.Replicas == want
	}))(ctx)
	if err != nil {
		return fmt.Errorf("in %s: %w", s.Name, err)
	}
	return nil
}
