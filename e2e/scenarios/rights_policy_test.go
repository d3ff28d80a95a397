package scenarios

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// controllerPolicies shows what the controller's rights would allow, and the chart's
// policies do not.
func controllerPolicies(t *testing.T, w *world) {
	ctx := t.Context()
	const plain = "plain"
	kubetest.Create(t, w.rome.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: plain, Labels: map[string]string{"team": "x"}}})
	other := w.rome.SimulatedNodeName(1)
	for name, tolerations := range map[string][]corev1.Toleration{
		"other": nil, "elsewhere": {{Key: "example.com/other", Operator: corev1.TolerationOpExists}}, "unbound": {{Operator: corev1.TolerationOpExists}},
	} {
		spec := podSpec("sim/web:1")
		spec.Tolerations, spec.NodeName = tolerations, other
		if name == "unbound" {
			spec.NodeName, spec.SchedulerName = "", "nobody"
		}
		kubetest.Create(t, w.rome.Client().CoreV1().Pods(plain), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	kubetest.Create(t, w.rome.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: noTenant}})
	kubetest.Create(t, w.rome.Client().CoreV1().Secrets(tenantOfMilan), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-people"}})
	ofPeople(t, w)
	c, _ := clients(t, holder{in: w.rome, namespace: "liqod", account: "liqod-controller"}.config(t))
	for _, attempts := range []map[string]attempt{bindings(c, plain), namespacesOf(c, plain), deployments(t, w, c), {
		"a Secret of people in a tenant namespace": lab.Deletes(c.CoreV1().Secrets(tenantOfMilan), "of-people"),
		"a Node":                              lab.Patches(c.CoreV1().Nodes(), other, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`)),
		"a Node that is called virtual":       lab.Patches(c.CoreV1().Nodes(), other, types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/type":"virtual-node"}}}`)),
		"a pod":                               lab.Deletes(c.CoreV1().Pods(plain), "other"),
		"a pod that tolerates something else": lab.Deletes(c.CoreV1().Pods(plain), "elsewhere"),
		"a pod on no node":                    lab.Deletes(c.CoreV1().Pods(plain), "unbound"),
	}} {
		for name, try := range attempts {
			t.Run(name, func(t *testing.T) {
				err := try(t.Context())
				require.True(t, apierrors.IsForbidden(err), "must be forbidden: %v", err)
				require.ErrorContains(t, err, "ValidatingAdmissionPolicy 'liqod-controller", "RBAC must not be what forbids it")
			})
		}
	}
	allRefused(t, offloadedOnly(t, c, plain))
	require.NoError(t, twinOfLevel(c, map[string]string{"pod-security.kubernetes.io/enforce": "baseline"})(ctx), "its own setting")
	// It ends peerings.
	require.NoError(t, c.CoreV1().Namespaces().Delete(ctx, tenantOfMilan, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	require.NoError(t, c.CoreV1().Secrets(tenantOfMilan).Delete(ctx, "milan", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
}

// noTenant is named as a tenant namespace, and is none.
const noTenant = "liqo-tenant-nobody"

// bindings are attempts to bind the chart's ClusterRoles where, or to whom, they are not.
func bindings(c kubernetes.Interface, plain string) map[string]attempt {
	ref := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	account := func(namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	user := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
	}
	everybody := rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"}
	wide := func(role string, to rbacv1.Subject) attempt {
		return lab.Creates(c.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role + ":evil"}, RoleRef: ref(role), Subjects: []rbacv1.Subject{to}})
	}
	in := func(namespace, role string, to rbacv1.Subject) attempt {
		return lab.Creates(c.RbacV1().RoleBindings(namespace), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role + ":evil"}, RoleRef: ref(role), Subjects: []rbacv1.Subject{to}})
	}
	own, vkubelet := account("liqod", "liqod-controller"), account(tenantOfMilan, "vk-milan")
	return map[string]attempt{
		"Secrets of the cluster for itself":        wide("liqod-controller-tenant", own),
		"Secrets of the cluster for a vkubelet":    wide("liqod-vkubelet-tenant", vkubelet),
		"the chart's own binding":                  lab.Deletes(c.RbacV1().ClusterRoleBindings(), "liqod-controller"),
		"a vkubelet's rights for everybody":        wide("liqod-vkubelet-cluster", everybody),
		"a vkubelet's rights for another account":  wide("liqod-vkubelet-cluster", account("default", "default")),
		"a peer's rights for everybody":            wide("liqod-peer-cluster", everybody),
		"Secrets of a namespace":                   in(plain, "liqod-controller-tenant", own),
		"Secrets of kube-system":                   in("kube-system", "liqod-controller-tenant", own),
		"pods of a namespace that is no twin":      in(plain, "liqod-controller-twin", own),
		"a peer in a namespace that is no twin":    in(plain, "liqod-peer-twin", user("liqo.io:peer:milan:1")),
		"a vkubelet in kube-system":                in("kube-system", "liqod-vkubelet-namespace", vkubelet),
		"another account in a tenant namespace":    in(tenantOfMilan, "liqod-controller-tenant", account("default", "default")),
		"everybody in a tenant namespace":          in(tenantOfMilan, "liqod-peer-tenant", everybody),
		"another peer in a tenant namespace":       in(tenantOfMilan, "liqod-peer-tenant", user("liqo.io:peer:milano:1")),
		"an administrator as a peer":               in(tenantOfMilan, "liqod-peer-tenant", user("admin")),
		"a vkubelet's rights for a tenant account": in(tenantOfMilan, "liqod-vkubelet-tenant", account(tenantOfMilan, "default")),
	}
}

// namespacesOf are attempts on namespaces that are no peer's.
func namespacesOf(c kubernetes.Interface, plain string) map[string]attempt {
	patch := func(name, data string) attempt {
		return lab.Patches(c.CoreV1().Namespaces(), name, types.MergePatchType, []byte(data))
	}
	return map[string]attempt{
		"a new namespace": lab.Creates(c.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}),
		"the deletion of one that only has a tenant's name": lab.Deletes(c.CoreV1().Namespaces(), noTenant),
		"pod security of a tenant namespace":                patch(tenantOfMilan, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`),
		"the removal of a tenant namespace's":               patch(tenantOfMilan, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`),
		"a tenant namespace without it": lab.Creates(c.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-evil",
			Labels: map[string]string{"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": "evil"}}}),
		"pod security of a namespace": patch("kube-system", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`),
		"a label's removal":           patch(plain, `{"metadata":{"labels":{"team":null}}}`),
		"a namespace given to a peer": patch(plain, `{"metadata":{"labels":{"liqo.io/remote-cluster-id":"milan"}}}`),
		"the deletion of one":         lab.Deletes(c.CoreV1().Namespaces(), plain),
		"its pod security":            patch(plain, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`),
		"a twin with privileged pods": twinOfLevel(c, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}),
		"a twin without a level":      twinOfLevel(c, nil),
		"a namespace made a twin":     patch(plain, `{"metadata":{"annotations":{"liqo.io/managed-by-namespace-map":"liqo-tenant-milan/rome"}}}`),
	}
}

// twinOfLevel is an attempt to make a namespace of a peer with labels for its pods.
func twinOfLevel(c kubernetes.Interface, labels map[string]string) attempt {
	return lab.Creates(c.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "evil-milan", Labels: labels, Annotations: map[string]string{"liqo.io/managed-by-namespace-map": tenantOfMilan + "/rome"}}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

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
