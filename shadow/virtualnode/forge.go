package virtualnode

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	containerName = "vkubelet"
	// An emptyDir lives as long as the pod. A restarted container keeps the pod's address,
	// so it can reuse the certificate.
	certificatesVolume = "certificates"
	certificatesPath   = "/var/lib/liqod/pki"
	healthPort         = 8080
	kubeletPort        = 10250
	// unprivilegedID is the user and group id of the container. No file of the image
	// belongs to it.
	unprivilegedID = 65532
	// gracePeriod is in seconds. It exceeds the shutdown timeout of a vkubelet
	// (30 s): a vkubelet that is killed earlier does not release its
	// Lease, and the next one waits for the Lease to expire.
	gracePeriod = 40
)

func forgeServiceAccount(vn *offloadingv1beta1.VirtualNode) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: vn.Namespace, Name: VirtualKubeletName(vn.Name), Labels: ownLabels(vn),
	}}
}

// forgeRoleBindings returns the bindings that every vkubelet needs, and one for each
// offloaded namespace.
func forgeRoleBindings(vn *offloadingv1beta1.VirtualNode, namespaces []string) []*rbacv1.RoleBinding {
	bindings := []*rbacv1.RoleBinding{
		roleBinding(vn, vn.Namespace, tenantClusterRole+":"+vn.Name, "ClusterRole", tenantClusterRole),
		roleBinding(vn, metav1.NamespaceSystem, "liqod-vkubelet-authentication-reader:"+vn.Namespace+":"+vn.Name, "Role", authReaderRole),
	}
	for _, namespace := range namespaces {
		bindings = append(bindings, roleBinding(vn, namespace, NamespaceBindingName(vn.Namespace, vn.Name), "ClusterRole", namespaceClusterRole))
	}
	return bindings
}

func roleBinding(vn *offloadingv1beta1.VirtualNode, namespace, name, kind, role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: ownLabels(vn)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   subjects(vn),
	}
}

func forgeClusterRoleBinding(vn *offloadingv1beta1.VirtualNode) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: clusterClusterRole + ":" + vn.Namespace + ":" + vn.Name, Labels: ownLabels(vn)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterClusterRole},
		Subjects:   subjects(vn),
	}
}

func subjects(vn *offloadingv1beta1.VirtualNode) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: vn.Namespace, Name: VirtualKubeletName(vn.Name)}}
}

// forgeDeployment returns the Deployment of vn's vkubelet. It is deterministic.
func forgeDeployment(vn *offloadingv1beta1.VirtualNode, defaults VirtualKubeletDefaults) (*appsv1.Deployment, error) {
	replicas := replicasOf(vn, defaults)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: vn.Namespace, Name: VirtualKubeletName(vn.Name), Labels: ownLabels(vn)},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{offloadingv1beta1.VirtualNodeLabel: vn.Name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: ownLabels(vn)},
				Spec:       podSpec(vn, defaults),
			},
		},
	}
	raw, err := json.Marshal(d.Spec)
	if err != nil {
		return nil, fmt.Errorf("encoding the Deployment of VirtualNode %s: %w", vn.Name, err)
	}
	sum := sha256.Sum256(raw)
	d.Annotations = map[string]string{hashAnnotation: hex.EncodeToString(sum[:8])}
	return d, nil
}

func replicasOf(vn *offloadingv1beta1.VirtualNode, defaults VirtualKubeletDefaults) int32 {
	return ptr.Deref(vn.Spec.VirtualKubelet.Replicas, defaults.Replicas)
}

// forgeBudget returns the PodDisruptionBudget of vn's vkubelet, or nil: a budget for one
// replica would only block the drain of its node.
func forgeBudget(vn *offloadingv1beta1.VirtualNode, defaults VirtualKubeletDefaults) *policyv1.PodDisruptionBudget {
	if replicasOf(vn, defaults) < 2 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: vn.Namespace, Name: VirtualKubeletName(vn.Name), Labels: ownLabels(vn)},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(1)),
			// A replica that is not ready serves nobody and need not stay.
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
			Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{offloadingv1beta1.VirtualNodeLabel: vn.Name}},
		},
	}
}

func podSpec(vn *offloadingv1beta1.VirtualNode, defaults VirtualKubeletDefaults) corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: VirtualKubeletName(vn.Name),
		ImagePullSecrets:   defaults.ImagePullSecrets,
		// A Service named liqod-* would add variables LIQOD_*, which liqod would reject as
		// unknown settings.
		EnableServiceLinks: ptr.To(false),
		Containers:         []corev1.Container{container(vn, defaults)},
		PriorityClassName:  defaults.PriorityClassName,
		Affinity:           affinity(),
		NodeSelector:       defaults.NodeSelector,
		Tolerations:        append(lostNode(), defaults.Tolerations...),

		TopologySpreadConstraints: spread(vn, defaults.Spread),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](unprivilegedID),
			RunAsGroup:     ptr.To[int64](unprivilegedID),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TerminationGracePeriodSeconds: ptr.To[int64](gracePeriod),
		Volumes:                       []corev1.Volume{inMemory("tmp"), inMemory(certificatesVolume)},
	}
}

// lostNode returns the tolerations by which a pod on a node that does not answer is replaced 5 s
// after Kubernetes' verdict, and not after its usual 300 s.
func lostNode() (out []corev1.Toleration) {
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		out = append(out, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](5)})
	}
	return out
}

// spread returns the constraints that put the replicas onto different nodes, zones and the
// like. Replicas of another revision do not count: else a rolling update may end with both
// replicas on one node.
func spread(vn *offloadingv1beta1.VirtualNode, keys []string) (out []corev1.TopologySpreadConstraint) {
	for _, key := range keys {
		out = append(out, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{offloadingv1beta1.VirtualNodeLabel: vn.Name}},
			MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
		})
	}
	return out
}

func inMemory(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}
}

func container(vn *offloadingv1beta1.VirtualNode, defaults VirtualKubeletDefaults) corev1.Container {
	spec := vn.Spec.VirtualKubelet
	args := []string{"--role=vkubelet", "--vkubelet.virtualNode=" + vn.Namespace + "/" + vn.Name, "--vkubelet.certificateDirectory=" + certificatesPath}
	args = append(args, defaults.Args...)
	if spec.NodeAddress != "" {
		args = append(args, "--vkubelet.nodeAddress="+spec.NodeAddress) // the last value of a flag counts
	}
	args = append(args, spec.ExtraArgs...)
	return corev1.Container{
		Name:            containerName,
		Image:           cmp.Or(spec.Image, defaults.Image),
		ImagePullPolicy: defaults.ImagePullPolicy,
		Args:            args,
		Env: []corev1.EnvVar{
			fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace"), fieldEnv("POD_IP", "status.podIP"),
		},
		Ports: []corev1.ContainerPort{
			{Name: "kubelet", ContainerPort: kubeletPort, Protocol: corev1.ProtocolTCP},
			{Name: "health", ContainerPort: healthPort, Protocol: corev1.ProtocolTCP},
		},
		LivenessProbe:  probe("/livez", 10, 6),
		ReadinessProbe: probe("/readyz", 2, 15),
		Resources:      ptr.Deref(spec.Resources, defaults.Resources),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			ReadOnlyRootFilesystem:   ptr.To(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}, {Name: certificatesVolume, MountPath: certificatesPath}},
	}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// probe returns a probe that fails after failures in a row, one each period of seconds.
func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("health"), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds:    period,
		TimeoutSeconds:   5,
		SuccessThreshold: 1,
		FailureThreshold: failures,
	}
}

// affinity keeps vkubelets off virtual nodes, because a vkubelet in another cluster could
// keep its own Node alive there.
func affinity() *corev1.Affinity {
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: offloadingv1beta1.TypeLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{offloadingv1beta1.TypeVirtualNode},
			}}}},
		}},
	}
}
