package scenarios

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// controllerRights shows that the controller's identity, the most powerful of ours, does
// not reach beyond what liqod made.
func controllerRights(t *testing.T, w *world) {
	c, _ := clients(t, holder{in: w.rome, namespace: "liqod", account: "liqod-controller"}.config(t))
	kubetest.Create(t, w.rome.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "victim"}})
	none := metav1.CreateOptions{}
	ref := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	cluster := func(name, role string) attempt {
		return lab.Creates(c.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref(role)})
	}
	allRefused(t, volumesOfOthers(t, w, c))
	eventsOfRoles(t, w)
	allRefused(t, map[string]attempt{
		"cluster-admin":                   cluster("liqod-evil", "cluster-admin"),
		"a role that it does not ship":    cluster("liqod-evil", "view"),
		"a binding of another's name":     cluster("evil", "liqod-peer-cluster"),
		"another's ClusterRoleBinding":    lab.Deletes(c.RbacV1().ClusterRoleBindings(), "system:basic-user"),
		"a user's namespace's deletion":   lab.Deletes(c.CoreV1().Namespaces(), "victim"),
		"a real Node's deletion":          lab.Deletes(c.CoreV1().Nodes(), w.rome.SimulatedNodeName(1)),
		"a RoleBinding of another's name": lab.Creates(c.RbacV1().RoleBindings("victim"), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, RoleRef: ref("liqod-peer-twin")}),
		"a NetworkPolicy of a user's namespace": lab.Creates(c.NetworkingV1().NetworkPolicies("victim"), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
			Name: "liqod-twin", Labels: map[string]string{"liqo.io/managed-by": "namespacemap"}}}, none),
		"a ResourceQuota of a user's namespace": lab.Creates(c.CoreV1().ResourceQuotas("victim"), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{
			Name: "liqod-twin", Labels: map[string]string{"liqo.io/managed-by": "namespacemap"}}}, none),
		"a token": func(ctx context.Context) error {
			return second(c.CoreV1().ServiceAccounts(tenantOfMilan).CreateToken(ctx, "vk-milan", &authenticationv1.TokenRequest{}, none))
		},
		"a client certificate's approval": func(ctx context.Context) error {
			csr, err := w.rome.Client().CertificatesV1().CertificateSigningRequests().Get(ctx, "evil-client", metav1.GetOptions{})
			if err != nil {
				return err
			}
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Evil"}}
			return second(c.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}))
		},
	})
}

// volumesOfOthers tries to write volumes and claims that liqod has not made.
func volumesOfOthers(t *testing.T, w *world, c kubernetes.Interface) map[string]attempt {
	claim := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	claim.Name, claim.Spec.StorageClassName = "data", ptr.To("disk")
	kubetest.Create(t, w.rome.Client().CoreV1().PersistentVolumeClaims("victim"), &claim)
	volume := func(name string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
		}}
	}
	kubetest.Create(t, w.rome.Client().CoreV1().PersistentVolumes(), volume("others"))
	merge := func(patch string, sub ...string) attempt {
		return lab.Patches(c.CoreV1().PersistentVolumeClaims("victim"), "data", types.MergePatchType, []byte(patch), sub...)
	}
	csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example", VolumeHandle: "of-another-claim"}}
	theirs := volume("theirs")
	theirs.Spec.PersistentVolumeSource = csi
	kubetest.Create(t, w.rome.Client().CoreV1().PersistentVolumes(), theirs)
	kubetest.Create(t, w.rome.Client().StorageV1().StorageClasses(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Provisioner: "disks.example"})
	// likeOurs is a volume as liqod makes them for a claim, but for its class and source.
	const uid = "0b3c0d5e-5f5e-4d0c-9a57-2f4f4b4d6a11"
	of := func(uid, class string, source corev1.PersistentVolumeSource) attempt {
		return lab.Creates(c.CoreV1().PersistentVolumes(), volumeOfLiqod(volume, uid, class, source), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	likeOurs := func(class string, source corev1.PersistentVolumeSource) attempt { return of(uid, class, source) }
	hostPath := func(path string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}
	}
	const folder = "/opt/local-path-provisioner/"
	own := csi.DeepCopy()
	own.CSI.VolumeHandle = "new"
	notMade := csi.DeepCopy()
	notMade.CSI.VolumeHandle = "of-no-claim"
	const second, third = "0b3c0d5e-5f5e-4d0c-9a57-2f4f4b4d6a12", "0b3c0d5e-5f5e-4d0c-9a57-2f4f4b4d6a13"
	for uid, source := range map[string]corev1.PersistentVolumeSource{
		uid: *own, second: hostPath(folder + "pvc-1_liqo-storage_" + second), third: hostPath("/var/openebs/local/pvc-1"),
	} {
		madeFor(t, w, claim.Spec, volume("made-"+uid), uid, source)
		require.NoError(t, of(uid, "liqo", source)(t.Context()))
	}
	return map[string]attempt{
		"a volume of a node's files":              lab.Creates(c.CoreV1().PersistentVolumes(), volume("evil")),
		"the root of a node":                      likeOurs("liqo", hostPath("/")),
		"the root of a node, of type local":       likeOurs("liqo", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/"}}),
		"all folders of the provisioner":          likeOurs("liqo", hostPath(folder)),
		"another claim's folder":                  likeOurs("liqo", hostPath(folder+"pvc-1_liqo-storage_0b3c0d5e")),
		"what another has made in its folder":     likeOurs("liqo", hostPath(folder+"pvc-1/"+uid)),
		"a folder of a pod with the claim's name": likeOurs("liqo", hostPath("/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/x/"+uid)),
		"another claim's disk":                    likeOurs("liqo", csi),
		"a disk for a claim of another class":     likeOurs("disk", *own),
		"a disk for a claim without a class":      likeOurs("", *own),
		"a disk that was not made for it":         likeOurs("liqo", *notMade),
		"a network file system":                   likeOurs("liqo", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}}),
		"a disk of another kind":                  likeOurs("liqo", corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2026-11.example:a"}}),
		"a claim with a volume of its choice": func(ctx context.Context) error {
			spec := claim.Spec
			spec.VolumeName = "theirs"
			_, err := c.CoreV1().PersistentVolumeClaims("liqo-storage").Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Name: uid, Labels: map[string]string{"offloading.liqo.io/local-claim-uid": uid}}, Spec: spec}, metav1.CreateOptions{})
			return err
		},
		"another's volume's deletion": lab.Deletes(c.CoreV1().PersistentVolumes(), "others"),
		"a claim of no claim":         lab.Creates(c.CoreV1().PersistentVolumeClaims("liqo-storage"), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, Spec: claim.Spec}),
		"the node of another's claim": merge(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"evil"}}}`),
		"the size of another's claim": merge(`{"status":{"capacity":{"storage":"1Ti"}}}`, "status"),
	}
}

// volumeOfLiqod returns a volume as liqod makes them for claim victim/data with this UID.
func volumeOfLiqod(like func(name string) *corev1.PersistentVolume, uid, class string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
	v := like("pvc-" + uid)
	v.Labels, v.Annotations = map[string]string{"offloading.liqo.io/local-claim-uid": uid}, map[string]string{"pv.kubernetes.io/provisioned-by": "liqo.io/storage"}
	v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "victim", Name: "data", UID: types.UID(uid)}
	v.Spec.StorageClassName, v.Spec.PersistentVolumeSource = class, source
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-node"}}},
	}}}}
	return v
}

// madeFor makes the claim that liqod makes for a claim with this UID, and volume as a provisioner does.
func madeFor(t *testing.T, w *world, spec corev1.PersistentVolumeClaimSpec, volume *corev1.PersistentVolume, uid string, source corev1.PersistentVolumeSource) {
	t.Helper()
	core := w.rome.Client().CoreV1()
	spec.VolumeName = volume.Name
	claim := kubetest.Create(t, core.PersistentVolumeClaims("liqo-storage"), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: uid}, Spec: spec})
	volume.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	volume.Spec.StorageClassName, volume.Spec.PersistentVolumeSource = *spec.StorageClassName, source
	kubetest.Create(t, core.PersistentVolumes(), volume)
}

const rolesOfTheNetwork = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: liqod-route, namespace: liqod}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: liqod-gateway, namespace: liqod}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: roles-of-the-network}
rules: [{apiGroups: [""], resources: [events], verbs: [create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: roles-of-the-network}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: roles-of-the-network}
subjects: [{kind: ServiceAccount, name: liqod-route, namespace: liqod}, {kind: ServiceAccount, name: liqod-gateway, namespace: liqod}]
`

// eventsOfRoles shows that roles with the right to write events in all namespaces write their own only.
// Those of the network have the right here that the chart gives them with networking.enabled.
func eventsOfRoles(t *testing.T, w *world) {
	require.NoError(t, w.rome.Apply(t.Context(), []byte(rolesOfTheNetwork)))
	events := func(role string) corev1client.EventsGetter {
		c, _ := clients(t, holder{in: w.rome, namespace: "liqod", account: "liqod-" + role}.config(t))
		return c.CoreV1()
	}
	write := func(role, namespace, component, kind, version string) attempt {
		return lab.Creates(events(role).Events(namespace), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}, Source: corev1.EventSource{Component: component}, Reason: "X",
			InvolvedObject: corev1.ObjectReference{Kind: kind, APIVersion: version, Namespace: namespace, Name: "x"},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	const liqo = "networking.liqo.io/v1beta1"
	for role, ok := range map[string]attempt{
		"controller": write("controller", "victim", "liqod-controller", "ShadowPod", "offloading.liqo.io/v1beta1"),
		"a claim":    write("controller", "victim", "liqod-controller", "PersistentVolumeClaim", "v1"),
		"route":      write("route", tenantOfMilan, "liqod-route", "Connection", liqo),
		"gateway":    write("gateway", tenantOfMilan, "liqod-gateway", "Connection", liqo),
	} {
		require.NoError(t, ok(t.Context()), role)
	}
	theirs := kubetest.Create(t, w.rome.Client().CoreV1().Events("victim"), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Source: corev1.EventSource{Component: "kubelet"}, Reason: "Killing",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "victim", Name: "x"},
	})
	allRefused(t, map[string]attempt{
		"the kubelet's, by route":          write("route", "kube-system", "kubelet", "Pod", "v1"),
		"about a pod, by route":            write("route", "kube-system", "liqod-route", "Pod", "v1"),
		"in another namespace, by gateway": write("gateway", "kube-system", "liqod-gateway", "Connection", liqo),
		"the controller's, by gateway":     write("gateway", tenantOfMilan, "liqod-controller", "Connection", liqo),
		"the kubelet's, by the controller": write("controller", "victim", "kubelet", "Pod", "v1"),
		"about a Node, by the controller":  write("controller", "default", "liqod-controller", "Node", "v1"),
		"over another's event":             lab.Patches(events("controller").Events("victim"), theirs.Name, types.MergePatchType, []byte(`{"message":"all is well","source":{"component":"liqod-controller"}}`)),
	})
}
