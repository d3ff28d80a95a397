package scenarios

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

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
		"a Node": lab.Patches(c.CoreV1().Nodes(), other, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`)),
		"a Node that is called virtual": func(ctx context.Context) error {
			patch := []byte(`{"metadata":{"labels":{"liqo.io/type":"virtual-node"}}}`)
			return second(c.CoreV1().Nodes().Patch(ctx, other, types.MergePatchType, patch, metav1.PatchOptions{}))
		},
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
	return func(ctx context.Context) error {
		_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "evil-milan", Labels: labels, Annotations: map[string]string{"liqo.io/managed-by-namespace-map": tenantOfMilan + "/rome"}}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}
