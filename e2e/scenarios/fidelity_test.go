package scenarios

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// sandboxed is a runtime class that milan lets peers ask for.
const sandboxed = "sandboxed"

// testCarried: a pod that sets every field that is carried reaches the provider with
// each of them as it is.
func testCarried(t *testing.T, w *world) {
	c := w.fixture(t, "carried")
	c.create(t, carriedPod())
	second := bare("override", corev1.RestartPolicyNever)
	second.Spec.HostnameOverride, second.Spec.HostUsers = ptr.To("host.example.org"), ptr.To(false)
	second.Spec.AutomountServiceAccountToken = ptr.To(false)
	second.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
	second.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	c.create(t, second)
	set := map[string]bool{}
	for _, name := range []string{"all", "override"} {
		local := c.untilLocal(t, 30*time.Second, name, "runs", podRunning)
		remote := c.remote(t, name)
		have, want := reflect.ValueOf(remote.Spec), reflect.ValueOf(local.Spec)
		for i := range want.NumField() {
			field := want.Type().Field(i).Name
			if slices.Contains(notVerbatim(), field) {
				continue
			}
			set[field] = set[field] || !want.Field(i).IsZero()
			require.Equal(t, want.Field(i).Interface(), have.Field(i).Interface(), "spec.%s of pod %s", field, name)
		}
	}
	for i := range reflect.TypeFor[corev1.PodSpec]().NumField() {
		field := reflect.TypeFor[corev1.PodSpec]().Field(i).Name
		require.True(t, set[field] || slices.Contains(notVerbatim(), field), "no pod sets spec.%s", field)
	}
	requireAllSet(t, "containers[]", c.remote(t, "all").Spec.Containers[0], c.remote(t, "override").Spec.Containers[0])
	c.deleteAll(t)
}

// requireAllSet checks that each field of a container is set in one of some; block
// devices need a claim, and testClaims is about them.
func requireAllSet(t *testing.T, where string, containers ...corev1.Container) {
	t.Helper()
	for i := range reflect.TypeFor[corev1.Container]().NumField() {
		set := func(c corev1.Container) bool { return !reflect.ValueOf(c).Field(i).IsZero() }
		if reflect.TypeFor[corev1.Container]().Field(i).Name == "VolumeDevices" {
			continue
		}
		require.True(t, slices.ContainsFunc(containers, set), "no pod sets %s.%s", where, reflect.TypeFor[corev1.Container]().Field(i).Name)
	}
}

// notVerbatim are the fields that other tests are about.
func notVerbatim() []string {
	return []string{
		"NodeName", "NodeSelector", "Affinity", "TopologySpreadConstraints", "SchedulerName", "SchedulingGates", "SchedulingGroup",
		"Priority", "PriorityClassName", "PreemptionPolicy", "Overhead", "RuntimeClassName", "Tolerations", "ReadinessGates",
		"HostNetwork", "HostPID", "HostIPC", "ServiceAccountName", "DeprecatedServiceAccount", "ResourceClaims", "EphemeralContainers",
	}
}

func carriedPod() *corev1.Pod {
	pod := bare("all", corev1.RestartPolicyAlways)
	s := &pod.Spec
	s.TerminationGracePeriodSeconds, s.ActiveDeadlineSeconds = ptr.To[int64](7), ptr.To[int64](9000)
	s.AutomountServiceAccountToken = ptr.To(false)
	s.DNSPolicy = corev1.DNSNone
	s.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.org"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}}}
	s.HostAliases = []corev1.HostAlias{{IP: "192.0.2.10", Hostnames: []string{"db.example.org"}}}
	s.Hostname, s.Subdomain, s.SetHostnameAsFQDN = "first", "apps", ptr.To(true)
	s.EnableServiceLinks, s.ShareProcessNamespace = ptr.To(false), ptr.To(true)
	s.OS = &corev1.PodOS{Name: corev1.Linux}
	s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	s.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: ptr.To[int64](1000), RunAsGroup: ptr.To[int64](1000), RunAsNonRoot: ptr.To(true), FSGroup: ptr.To[int64](2000),
		FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch), SupplementalGroups: []int64{3000},
		SupplementalGroupsPolicy: ptr.To(corev1.SupplementalGroupsPolicyStrict),
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		Sysctls:                  []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "80"}},
	}
	s.Resources = &corev1.ResourceRequirements{Requests: amounts("300m", "128Mi"), Limits: amounts("1", "256Mi")}
	s.Volumes = carriedVolumes()
	s.InitContainers = []corev1.Container{
		{Name: "prepare", Image: "sim/init:1"},
		{Name: "proxy", Image: "sim/proxy:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), StartupProbe: probe()},
	}
	s.Containers = []corev1.Container{carriedContainer()}
	return pod
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func probe() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}},
		InitialDelaySeconds: 1, TimeoutSeconds: 2, PeriodSeconds: 3, SuccessThreshold: 1, FailureThreshold: 5,
	}
}

func carriedContainer() corev1.Container {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	return corev1.Container{
		Name: "c", Image: "sim/web:1", ImagePullPolicy: corev1.PullAlways, Command: []string{"serve"}, Args: []string{"$(NAME)"}, WorkingDir: "/data",
		Ports:   []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		EnvFrom: []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Optional: ptr.To(true)}}},
		Env: []corev1.EnvVar{
			{Name: "PLAIN", Value: "x"},
			{Name: "NAME", ValueFrom: field("metadata.name")}, {Name: "HOST", ValueFrom: field("status.hostIP")},
			{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1m")}}},
			{Name: "FROM_MAP", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "k", Optional: ptr.To(true)}}},
			{Name: "FROM_SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "k", Optional: ptr.To(true)}}},
			{Name: "FROM_FILE", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "scratch", Path: "env", Key: "k", Optional: ptr.To(true)}}},
		},
		Resources: corev1.ResourceRequirements{Requests: amounts("100m", "64Mi"), Limits: amounts("500m", "128Mi")},
		ResizePolicy: []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired}, {ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "scratch", MountPath: "/data", SubPathExpr: "$(NAME)"},
			{Name: "projected", MountPath: "/projected", ReadOnly: true, RecursiveReadOnly: ptr.To(corev1.RecursiveReadOnlyIfPossible), MountPropagation: ptr.To(corev1.MountPropagationNone)},
		},
		LivenessProbe: probe(), ReadinessProbe: probe(), StartupProbe: probe(),
		Lifecycle: &corev1.Lifecycle{
			PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"echo"}}},
			PreStop:   &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 2}},
		},
		TerminationMessagePath: "/data/end", TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
		},
		Stdin: true, StdinOnce: true, TTY: true,
	}
}

// carriedVolumes has every kind of volume that milan allows, and a scheduler without
// storage lets pass.
func carriedVolumes() []corev1.Volume {
	optional := ptr.To(true)
	name := corev1.LocalObjectReference{Name: "settings"}
	mode := ptr.To[int32](0o440)
	ownName := corev1.DownwardAPIVolumeFile{Path: "name", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}
	sources := map[string]corev1.VolumeSource{
		"scratch":   {EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("16Mi"))}},
		"map":       {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: name, Items: []corev1.KeyToPath{{Key: "k", Path: "p", Mode: mode}}, DefaultMode: mode, Optional: optional}},
		"secret":    {Secret: &corev1.SecretVolumeSource{SecretName: "secret", DefaultMode: mode, Optional: optional}},
		"downward":  {DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{ownName}, DefaultMode: mode}},
		"image":     {Image: &corev1.ImageVolumeSource{Reference: "sim/data:1", PullPolicy: corev1.PullIfNotPresent}},
		"nfs":       {NFS: &corev1.NFSVolumeSource{Server: "192.0.2.20", Path: "/export"}},
		"inlinecsi": {CSI: &corev1.CSIVolumeSource{Driver: "inline.example.org", VolumeAttributes: map[string]string{"a": "b"}}},
		"projected": {Projected: &corev1.ProjectedVolumeSource{DefaultMode: mode, Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name, Optional: optional}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Optional: optional}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{ownName}}},
		}}},
	}
	var out []corev1.Volume
	for name, source := range sources {
		out = append(out, corev1.Volume{Name: name, VolumeSource: source})
	}
	slices.SortFunc(out, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// testStaysHome: what speaks of this cluster's nodes, classes and schedulers has its
// effect here, and is not in the provider.
func testStaysHome(t *testing.T, w *world) {
	c := w.fixture(t, "stays")
	kubetest.Create(t, w.rome.Client().SchedulingV1().PriorityClasses(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "stays"}, Value: 5000, PreemptionPolicy: ptr.To(corev1.PreemptNever),
	})
	pod := bare("web", corev1.RestartPolicyAlways, "note", "kept", "karpenter.sh/do-not-disrupt", "true", "cloud.google.com/neg", "x")
	pod.Labels = map[string]string{"app": "web", "statefulset.kubernetes.io/pod-name": "web"}
	pod.Finalizers = []string{"example.org/hold"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "Thing", Name: "x", UID: "u"}}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "milan"}
	pod.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: onNode("milan").NodeAffinity,
		PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		}}},
	}
	pod.Spec.PriorityClassName = "stays"
	pod.Spec.Tolerations = []corev1.Toleration{
		{Key: "team", Operator: corev1.TolerationOpEqual, Value: "x"},
		{Key: "team", Operator: corev1.TolerationOpEqual, Value: "y"},
		{Key: "dedicated", Operator: corev1.TolerationOpExists},
		{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists},
	}
	c.create(t, pod)
	local := c.untilLocal(t, 20*time.Second, "web", "runs", podRunning)
	require.EqualValues(t, 5000, *local.Spec.Priority)
	remote := c.remote(t, "web")
	require.Empty(t, remote.Spec.NodeSelector)
	require.Nil(t, remote.Spec.Affinity)
	require.Empty(t, remote.Spec.PriorityClassName)
	require.Zero(t, *remote.Spec.Priority, "the provider's default class")
	require.Equal(t, corev1.PreemptLowerPriority, *remote.Spec.PreemptionPolicy)
	require.NotEqual(t, local.Spec.NodeName, remote.Spec.NodeName)
	require.Equal(t, "default", remote.Spec.ServiceAccountName)
	keys := map[string]bool{}
	for _, toleration := range remote.Spec.Tolerations {
		keys[toleration.Key] = true
	}
	require.Equal(t, map[string]bool{"team": true, corev1.TaintNodeNotReady: true, corev1.TaintNodeUnreachable: true}, keys)
	require.Contains(t, remote.Spec.Tolerations, corev1.Toleration{Key: "team", Operator: corev1.TolerationOpEqual, Value: "x"})
	require.Contains(t, remote.Spec.Tolerations, corev1.Toleration{Key: "team", Operator: corev1.TolerationOpEqual, Value: "y", Effect: corev1.TaintEffectNoSchedule})

	require.Equal(t, "web", remote.Labels["statefulset.kubernetes.io/pod-name"])
	require.Equal(t, "kept", remote.Annotations["note"])
	require.NotContains(t, remote.Annotations, "karpenter.sh/do-not-disrupt", "the provider's nodes are the provider's")
	require.NotContains(t, remote.Annotations, "cloud.google.com/neg", "reflection.skipAnnotations")
	require.Empty(t, remote.Finalizers)
	require.Len(t, remote.OwnerReferences, 1)
	require.Equal(t, "Namespace", remote.OwnerReferences[0].Kind)

	// What this cluster's own finalizer holds is released here alone.
	require.NoError(t, w.rome.Client().CoreV1().Pods(c.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.absent(t, w.milan, 10*time.Second, c.twin, "web")
	c.untilLocal(t, 10*time.Second, "web", "has ended, and is held", endedPod)
	w.patchPod(t, w.rome, c.namespace, "web", `{"metadata":{"finalizers":null}}`)
	w.absent(t, w.rome, 10*time.Second, c.namespace, "web")
	c.deleteAll(t)
}

// testRefusedFeatures: what cannot be had across the border is said on the pod.
func testRefusedFeatures(t *testing.T, w *world) {
	c := w.fixture(t, "cannot")
	privileged := func(change func(*corev1.SecurityContext)) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{}
			change(s.Containers[0].SecurityContext)
		}
	}
	cases := map[string]struct {
		change          func(*corev1.PodSpec)
		reason, message string
	}{
		"claims": {func(s *corev1.PodSpec) {
			s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
		}, "ResourceClaimsNotSupported", "spec.resourceClaims"},
		"host-path": {func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, offloadingv1beta1.ReasonPodRefused, `spec.volumes "host" is a volume of type hostPath: cluster milan accepts from peers: configMap, `},
		"rbd": {func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{CephMonitors: []string{"192.0.2.1"}, RBDImage: "x"}}}}
		}, offloadingv1beta1.ReasonPodRefused, "its administrators can allow more by the setting controller.volumeTypes"},
		"host-port": {func(s *corev1.PodSpec) {
			s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, offloadingv1beta1.ReasonPodRefused, "hostPort"},
		"probe-host": {func(s *corev1.PodSpec) {
			s.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "192.0.2.1", Port: intstr.FromInt32(80)}}}
		}, offloadingv1beta1.ReasonPodRefused, `livenessProbe.httpGet.host is "192.0.2.1": cluster milan accepts no host from peers`},
		"capability": {privileged(func(s *corev1.SecurityContext) {
			s.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}
		}), offloadingv1beta1.ReasonPodRefused, "capabilities"},
		"privileged": {privileged(func(s *corev1.SecurityContext) { s.Privileged = ptr.To(true) }), offloadingv1beta1.ReasonPodRefused, "privileged"},
		"class": {func(s *corev1.PodSpec) { s.RuntimeClassName = ptr.To("only-here") }, offloadingv1beta1.ReasonPodRefused,
			`spec.runtimeClassName "only-here": cluster milan accepts from peers: ` + sandboxed},
	}
	kubetest.Create(t, w.rome.Client().NodeV1().RuntimeClasses(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "only-here"}, Handler: "x"})
	for name, tc := range cases {
		pod := bare(name, corev1.RestartPolicyAlways)
		// The scheduler would wait for the claims: it is passed by.
		pod.Spec.NodeName, pod.Spec.Tolerations = "milan", anyTaint()
		tc.change(&pod.Spec)
		c.create(t, pod)
	}
	for name, tc := range cases {
		pod := c.untilLocal(t, 10*time.Second, name, "says why it cannot run", func(p *corev1.Pod) bool { return p.Status.Reason == tc.reason })
		require.Equal(t, corev1.PodPending, pod.Status.Phase)
		require.Contains(t, pod.Status.Message, tc.message)
		c.hasEvent(t, pod, tc.reason)
	}
	// The host's namespaces are not refused: the pod runs without them.
	host := bare("host", corev1.RestartPolicyAlways)
	host.Spec.HostNetwork, host.Spec.HostPID, host.Spec.HostIPC = true, true, true
	host.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
	c.create(t, host)
	c.hasEvent(t, c.untilLocal(t, 20*time.Second, "host", "runs", podRunning), "HostNamespacesLeftOut")
	remote := c.remote(t, "host")
	require.False(t, remote.Spec.HostNetwork || remote.Spec.HostPID || remote.Spec.HostIPC)
	require.Zero(t, remote.Spec.Containers[0].Ports[0].HostPort)
	again := host.DeepCopy()
	again.Name = "host-again"
	c.create(t, again)
	c.untilLocal(t, 20*time.Second, "host-again", "has no host with that port", func(p *corev1.Pod) bool {
		return strings.Contains(podCondition(p, corev1.PodScheduled).Message, "free ports")
	})
	c.deleteAll(t, "host-again") // that one never had a node
}

// testRuntimeClass: the class of a pod in the provider is its annotation's, else its own.
func testRuntimeClass(t *testing.T, w *world) {
	c := w.fixture(t, "classes")
	for _, s := range []*site.Site{w.rome, w.milan} {
		kubetest.Create(t, s.Client().NodeV1().RuntimeClasses(), &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: sandboxed}, Handler: "x",
			Overhead: &nodev1.Overhead{PodFixed: amounts(map[string]string{"rome": "7m", "milan": "9m"}[s.Name], "1Mi")},
		})
	}
	for name, class := range map[string]string{"liqo": "liqo", "annotated": "liqo", "own": sandboxed} {
		pod := bare(name, corev1.RestartPolicyAlways)
		pod.Spec.RuntimeClassName = &class
		if name == "annotated" {
			pod.Annotations[offloadingv1beta1.RemoteRuntimeClassAnnotation] = sandboxed
		}
		c.create(t, pod)
	}
	for name, want := range map[string]string{"liqo": "", "annotated": sandboxed, "own": sandboxed} {
		c.untilLocal(t, 20*time.Second, name, "runs", podRunning)
		remote := c.remote(t, name)
		require.Equal(t, want, ptr.Deref(remote.Spec.RuntimeClassName, ""), name)
		overhead := map[string]string{"": "0", sandboxed: "9m"}[want]
		require.Equal(t, overhead, remote.Spec.Overhead.Cpu().String(), "the overhead of %s is the provider's", name)
	}
	require.Equal(t, "7m", c.local(t, "own").Spec.Overhead.Cpu().String())
	c.deleteAll(t)
}

// patchPod patches a pod of a cluster, strategically.
func (w *world) patchPod(t *testing.T, s *site.Site, namespace, name, patch string, subresources ...string) *corev1.Pod {
	t.Helper()
	return kubetest.Patch(t, s.Client().CoreV1().Pods(namespace), name, types.StrategicMergePatchType, []byte(patch), subresources...)
}
