package scenarios

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// deployments are attempts to run something else than vkubelets. Each changes the Deployment of
// a vkubelet, which passes as it is.
func deployments(t *testing.T, w *world, c kubernetes.Interface) map[string]attempt {
	t.Helper()
	good := kubetest.Get(t, w.rome.Client().AppsV1().Deployments(tenantOfMilan), "vk-milan")
	const another = "vk-another"
	create := func(change func(*appsv1.Deployment)) attempt {
		d := good.DeepCopy()
		d.ObjectMeta = metav1.ObjectMeta{Namespace: tenantOfMilan, Name: another, Labels: good.Labels}
		d.Spec.Template.Spec.ServiceAccountName, d.Spec.Template.Spec.DeprecatedServiceAccount = another, another
		if change != nil {
			change(d)
		}
		return lab.Creates(c.AppsV1().Deployments(d.Namespace), d, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	pod := func(change func(*corev1.PodSpec)) attempt {
		return create(func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec) })
	}
	container := func(change func(*corev1.Container)) attempt {
		return pod(func(s *corev1.PodSpec) { change(&s.Containers[0]) })
	}
	require.NoError(t, create(nil)(t.Context()), "the Deployment of a vkubelet passes")
	secret := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "of-people"}, Key: "x"}
	return map[string]attempt{
		"a Deployment of another name":      create(func(d *appsv1.Deployment) { d.Name = "evil" }),
		"a Deployment with another account": pod(func(s *corev1.PodSpec) { s.ServiceAccountName, s.DeprecatedServiceAccount = "default", "default" }),
		"a vkubelet as another vkubelet":    pod(func(s *corev1.PodSpec) { s.ServiceAccountName, s.DeprecatedServiceAccount = "vk-milan", "vk-milan" }),
		"a Deployment of another image":     container(func(c *corev1.Container) { c.Image = "evil" }),
		"a vkubelet with a command":         container(func(c *corev1.Container) { c.Command = []string{"sh"} }),
		"a vkubelet with a second container": pod(func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "evil", Image: s.Containers[0].Image})
		}),
		"a vkubelet with an init container": pod(func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "evil", Image: s.Containers[0].Image}}
		}),
		"the host network":     pod(func(s *corev1.PodSpec) { s.HostNetwork = true }),
		"the host's processes": pod(func(s *corev1.PodSpec) { s.HostPID = true }),
		"a port of the host": container(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}),
		"a privileged vkubelet": container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}),
		"a hostPath": pod(func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}),
		"a volume of a Secret": pod(func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "of-people"}}})
		}),
		"a token for another audience": pod(func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "x"}}}}}})
		}),
		"a variable from a Secret": container(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "X", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: secret}})
		}),
		"variables from a Secret": container(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret.LocalObjectReference}}}
		}),
		"a change of the image": func(ctx context.Context) error {
			d := good.DeepCopy()
			d.Spec.Template.Spec.Containers[0].Image = "evil"
			return second(c.AppsV1().Deployments(d.Namespace).Update(ctx, d, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}))
		},
		"the deletion of a Deployment of people": lab.Deletes(c.AppsV1().Deployments(tenantOfMilan), "of-people"),
	}
}

// ofPeople is a Deployment that people run in a tenant namespace.
func ofPeople(t *testing.T, w *world) {
	t.Helper()
	labels := map[string]string{"app": "of-people"}
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(tenantOfMilan), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "of-people"},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("sim/web:1")}},
	})
}

// offloadedOnly are attempts to give a vkubelet rights in a namespace that nobody has offloaded.
// In one that is offloaded, the same binding passes.
func offloadedOnly(t *testing.T, c kubernetes.Interface, plain string) map[string]attempt {
	t.Helper()
	in := func(namespace string) attempt {
		return lab.Creates(c.RbacV1().RoleBindings(namespace), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "liqod-vkubelet-namespace:evil"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqod-vkubelet-namespace"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenantOfMilan, Name: "vk-milan"}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	require.NoError(t, in("shop")(t.Context()), "shop is offloaded")
	return map[string]attempt{"a vkubelet in a namespace that is not offloaded": in(plain)}
}
