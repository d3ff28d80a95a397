package scenarios

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	features     = "features"
	featuresTwin = "features-rome"
)

// fullFeatures is what only containers show of docs/pods.md#what-of-a-pod-crosses-the-border. All pods start
// together; the parts look at theirs.
func fullFeatures(t *testing.T, w *fullWorld) {
	w.offload(t, features, offloadingv1beta1.NamespaceOffloadingSpec{})
	// As an administrator of milan would; reflection brings such objects from home.
	kubetest.Create(t, w.milan.Client().CoreV1().ConfigMaps(featuresTwin), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"colour": "blue"}})
	kubetest.Create(t, w.milan.Client().CoreV1().Secrets(featuresTwin), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, StringData: map[string]string{"word": "hush"}})
	for name, spec := range featurePods() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": "gold"}, Annotations: map[string]string{"note": "mine", jobIndex: "3"}}, Spec: spec}
		_, err := w.rome.Client().CoreV1().Pods(features).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err, name)
	}
	kubetest.Create(t, w.rome.Client().BatchV1().Jobs(features), indexJob())
	within(t, time.Minute, "the pods are Ready", lab.Together(w.podReady(features, "facts"), w.podReady(features, "files"), w.podReady(features, "resize")))
	inTurn(t, w, []part[*fullWorld]{
		{"downward API", fullDownwardAPI}, {"names and DNS", fullNames}, {"volumes", fullVolumes}, {"identity of processes", fullProcesses},
		{"order of containers", fullOrder}, {"probes", fullProbes}, {"ends", fullEnds}, {"what is missing", fullMissing}, {"rules for restarts", fullRestartRules},
		{"indexes", fullIndexes}, {"resize", fullResize}, {"hooks", fullHooks},
	})
}

// featurePods are the pods of fullFeatures.
func featurePods() map[string]corev1.PodSpec {
	out := map[string]corev1.PodSpec{"facts": factsPod(), "files": filesPod()}

	resize := testSpec(1, "sleep")
	resize.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts("50m", "32Mi"), Limits: amounts("100m", "64Mi")}
	resize.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired}, {ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
	}
	out["resize"] = resize

	message := testSpec(1, "write", corev1.TerminationMessagePathDefault, "all", "done")
	message.RestartPolicy = corev1.RestartPolicyNever
	out["message"] = message

	noMap := testSpec(1, "sleep")
	noMap.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}}}}
	out["no-map"] = noMap
	noVolume := testSpec(1, "sleep")
	noVolume.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "missing"}}}}
	noVolume.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	out["no-volume"] = noVolume

	initFails := testSpec(1, "sleep")
	initFails.RestartPolicy = corev1.RestartPolicyNever
	initFails.InitContainers = []corev1.Container{testSpec(1, "exit", "9").Containers[0]}
	initFails.InitContainers[0].Name = "prepare"
	out["init-fails"] = initFails

	deadline := testSpec(1, "sleep")
	deadline.RestartPolicy, deadline.ActiveDeadlineSeconds = corev1.RestartPolicyNever, ptr.To[int64](3)
	out["deadline"] = deadline

	alive := testSpec(1, "sleep")
	alive.Containers[0].LivenessProbe = &corev1.Probe{
		PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"exit", "1"}}},
	}
	out["liveness"] = alive

	for name, action := range map[string]corev1.ContainerRestartRuleAction{
		"one-again": corev1.ContainerRestartRuleActionRestart, "all-again": corev1.ContainerRestartRuleActionRestartAllContainers,
	} {
		again := testSpec(1, "exit", "42", "500ms")
		again.RestartPolicy = corev1.RestartPolicyNever
		again.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		again.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
		other := testSpec(1, "sleep").Containers[0]
		other.Name = "other"
		again.Containers = append(again.Containers, other)
		out[name] = again
	}
	return out
}

// factsPod asks for everything that a container can know of its pod.
func factsPod() corev1.PodSpec {
	s := testSpec(1, "serve")
	s.Hostname, s.Subdomain, s.SetHostnameAsFQDN = "first", "apps", ptr.To(true)
	s.ServiceAccountName, s.AutomountServiceAccountToken = "default", ptr.To(false)
	s.HostAliases = []corev1.HostAlias{{IP: "192.0.2.10", Hostnames: []string{"db.example.org"}}}
	s.DNSConfig = &corev1.PodDNSConfig{Searches: []string{"example.org"}, Options: []corev1.PodDNSConfigOption{{Name: "timeout", Value: ptr.To("3")}}}
	s.ShareProcessNamespace = ptr.To(true)
	c := &s.Containers[0]
	for name, path := range map[string]string{
		"NAME": "metadata.name", "NAMESPACE": "metadata.namespace", "UID": "metadata.uid", "TIER": "metadata.labels['tier']", "NOTE": "metadata.annotations['note']", "INDEX": "metadata.annotations['" + jobIndex + "']",
		"NODE": "spec.nodeName", "ACCOUNT": "spec.serviceAccountName", "HOST_IP": "status.hostIP", "POD_IP": "status.podIP",
	} {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}})
	}
	c.Resources.Limits = amounts("250m", "64Mi")
	c.Env = append(c.Env,
		corev1.EnvVar{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: amounts("1m", "1")[corev1.ResourceCPU]}}},
		corev1.EnvVar{Name: "COLOUR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "colour"}}},
		corev1.EnvVar{Name: "WORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}, Key: "word"}}},
	)
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)}}}
	return s
}

// filesPod has an init container, a sidecar and a main container that share files.
func filesPod() corev1.PodSpec {
	s := testSpec(10, "serve")
	s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), RunAsGroup: ptr.To[int64](1001), FSGroup: ptr.To[int64](2000)}
	settings := corev1.LocalObjectReference{Name: "settings"}
	s.Volumes = []corev1.Volume{
		{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "map", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings}}},
		{Name: "projected", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: settings}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
		}}}},
	}
	shared := corev1.VolumeMount{Name: "shared", MountPath: "/shared"}
	c := &s.Containers[0]
	c.VolumeMounts = []corev1.VolumeMount{shared, {Name: "map", MountPath: "/one", SubPath: "colour"}, {Name: "projected", MountPath: "/projected"}}
	c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
	c.Lifecycle = &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"write", "/shared/started", "yes"}}},
		PreStop:   &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"write", corev1.TerminationMessagePathDefault, "stopped"}}},
	}
	prepare := testSpec(1, "write", "/shared/prepared", "yes").Containers[0]
	prepare.Name, prepare.VolumeMounts = "prepare", []corev1.VolumeMount{shared}
	proxy := testSpec(1, "serve", "8081").Containers[0]
	proxy.Name, proxy.RestartPolicy = "proxy", ptr.To(corev1.ContainerRestartPolicyAlways)
	proxy.StartupProbe = &corev1.Probe{InitialDelaySeconds: 2, PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8081)}}}
	s.InitContainers = []corev1.Container{prepare, proxy}
	return s
}

func indexJob() *batchv1.Job {
	spec := testSpec(1, "env", "JOB_COMPLETION_INDEX")
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "index"}, Spec: batchv1.JobSpec{
		Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](2), CompletionMode: ptr.To(batchv1.IndexedCompletion), Template: corev1.PodTemplateSpec{Spec: spec},
	}}
}

// inside is the output of a command in the first container of a pod of fullFeatures.
func (w *fullWorld) inside(t *testing.T, pod string, args ...string) string {
	t.Helper()
	return must(w.rome.Exec(t.Context(), features, pod, args...))(t)
}

// until waits for a state of a pod of fullFeatures at home.
func (w *fullWorld) until(t *testing.T, patience time.Duration, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	return untilPod(t, w.rome, patience, features, name, what, is)
}

// there is a pod of fullFeatures in the provider.
func (w *fullWorld) there(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return kubetest.Get(t, w.milan.Client().CoreV1().Pods(featuresTwin), name)
}

// jobIndex is an annotation that the provider leaves out. Controllers of applications set it, and
// their pods refer to it.
const jobIndex = "jobset.sigs.k8s.io/job-index"

// fullDownwardAPI: containers see the provider's pod, under their own name, UID, virtual node, labels,
// annotations and service account.
func fullDownwardAPI(t *testing.T, w *fullWorld) {
	remote := w.there(t, "facts")
	require.NotContains(t, remote.Annotations, jobIndex)
	local := kubetest.Get(t, w.rome.Client().CoreV1().Pods(features), "facts")
	have := map[string]string{}
	for line := range strings.Lines(w.inside(t, "facts", "env")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		have[name] = value
	}
	want := map[string]string{
		"NAME": "facts", "TIER": "gold", "NOTE": "mine", "INDEX": "3", "ACCOUNT": "default", "CPU": "250", "COLOUR": "blue", "WORD": "hush",
		"NAMESPACE": featuresTwin, "UID": string(local.UID), "NODE": local.Spec.NodeName, "HOST_IP": remote.Status.HostIP, "POD_IP": remote.Status.PodIP,
	}
	maps.DeleteFunc(have, func(name, _ string) bool { _, ok := want[name]; return !ok })
	require.Equal(t, want, have)
}

func fullNames(t *testing.T, w *fullWorld) {
	require.Equal(t, "first.apps."+featuresTwin+".svc.cluster.local\n", w.inside(t, "facts", "hostname"))
	require.Regexp(t, `192\.0\.2\.10\s+db\.example\.org`, w.inside(t, "facts", "cat", "/etc/hosts"))
	dns := w.inside(t, "facts", "cat", "/etc/resolv.conf")
	require.Regexp(t, `search `+featuresTwin+`\.svc\.cluster\.local .*example\.org`, dns)
	require.Contains(t, dns, "timeout:3")
}

func fullVolumes(t *testing.T, w *fullWorld) {
	require.Equal(t, "yes\n", w.inside(t, "files", "cat", "/shared/prepared"), "what the init container wrote")
	require.Equal(t, "blue", w.inside(t, "files", "cat", "/one"), "a sub path")
	require.Equal(t, "blue", w.inside(t, "files", "cat", "/projected/colour"))
	require.Equal(t, "hush", w.inside(t, "files", "cat", "/projected/word"))
	require.Equal(t, `tier="gold"`, w.inside(t, "files", "cat", "/projected/labels"))
	// A change of a label arrives in the file.
	w.patchPod(t, w.rome, features, "files", `{"metadata":{"labels":{"tier":"silver"}}}`)
	within(t, 30*time.Second, "the file follows the label", func(ctx context.Context) error {
		out, err := w.rome.Exec(ctx, features, "files", "cat", "/projected/labels")
		return lab.Wrong(err, !strings.Contains(out, `tier="silver"`), "it has %s", out)
	})
}

func fullProcesses(t *testing.T, w *fullWorld) {
	status := w.inside(t, "files", "cat", "/proc/self/status")
	require.Regexp(t, `Uid:\s+1000\s`, status)
	require.Regexp(t, `Gid:\s+1001\s`, status)
	require.Regexp(t, `Groups:.*2000`, status)
	_, err := w.rome.Exec(t.Context(), features, "files", "write", "/x", "y")
	require.ErrorContains(t, err, "read-only file system")
	require.NotContains(t, w.inside(t, "facts", "cat", "/proc/1/cmdline"), "serve", "the pod's processes are in one namespace: the first is the sandbox's")
}

// fullOrder: init container, sidecar and main container start one after the other.
func fullOrder(t *testing.T, w *fullWorld) {
	s := w.until(t, 10*time.Second, "files", "is Ready", podRunning).Status
	prepare, proxy, main := s.InitContainerStatuses[0].State.Terminated, s.InitContainerStatuses[1].State.Running, s.ContainerStatuses[0].State.Running
	require.NotNil(t, prepare)
	require.NotNil(t, proxy)
	require.False(t, proxy.StartedAt.Before(&prepare.FinishedAt), "the sidecar starts after the init container")
	require.Greater(t, main.StartedAt.Sub(proxy.StartedAt.Time), time.Second, "the main container waits for the sidecar's startup probe")
	require.True(t, *s.InitContainerStatuses[1].Started)
}

func fullProbes(t *testing.T, w *fullWorld) {
	w.inside(t, "facts", "get", "http://127.0.0.1:8080/unready")
	w.until(t, 20*time.Second, "facts", "is not Ready", func(p *corev1.Pod) bool { return !podRunning(p) })
	w.inside(t, "facts", "get", "http://127.0.0.1:8080/ready")
	w.until(t, 20*time.Second, "facts", "is Ready", podRunning)
	w.until(t, 30*time.Second, "liveness", "is started again by its probe", func(p *corev1.Pod) bool { return restarts(p) > 0 })
}

func fullEnds(t *testing.T, w *fullWorld) {
	p := w.until(t, 30*time.Second, "message", "has ended", inPhase(corev1.PodSucceeded))
	require.Equal(t, "all done\n", p.Status.ContainerStatuses[0].State.Terminated.Message)
	p = w.until(t, 30*time.Second, "deadline", "has ended", inPhase(corev1.PodFailed))
	require.Equal(t, "DeadlineExceeded", p.Status.Reason)
	p = w.until(t, 30*time.Second, "init-fails", "has ended", inPhase(corev1.PodFailed))
	require.EqualValues(t, 9, p.Status.InitContainerStatuses[0].State.Terminated.ExitCode)
	require.False(t, *p.Status.ContainerStatuses[0].Started, "its container never ran")
}

// fullMissing: a pod that waits for an object in the provider says so here, as far as its
// status does.
func fullMissing(t *testing.T, w *fullWorld) {
	waits := func(reason string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return p.Status.Phase == corev1.PodPending && len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == reason
		}
	}
	p := w.until(t, 30*time.Second, "no-map", "waits for its ConfigMap", waits("CreateContainerConfigError"))
	require.Contains(t, p.Status.ContainerStatuses[0].State.Waiting.Message, `"missing" not found`)
	c := &fixture{world: &w.world, namespace: features, twin: featuresTwin}
	c.hasEvent(t, p, "RemoteContainerWaiting")
	w.until(t, 30*time.Second, "no-volume", "waits for its Secret", waits("ContainerCreating"))
}

// fullRestartRules: rules of containers start them again in a pod that is never.
func fullRestartRules(t *testing.T, w *fullWorld) {
	p := w.until(t, 40*time.Second, "one-again", "has a container that was started again", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	require.Zero(t, p.Status.ContainerStatuses[1].RestartCount)
	w.until(t, 40*time.Second, "all-again", "has all containers started again", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 1 && s[0].RestartCount > 0 && s[1].RestartCount > 0
	})
}

func fullIndexes(t *testing.T, w *fullWorld) {
	within(t, 30*time.Second, "the Job is done", lab.Is(w.rome.Client().BatchV1().Jobs(features), "index", func(j *batchv1.Job) bool {
		return j.Status.CompletedIndexes == "0,1"
	}))
	pods := kubetest.List(t, w.rome.Client().CoreV1().Pods(features), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=index"})
	require.Len(t, pods.Items, 2)
	for _, pod := range pods.Items {
		out := must(w.rome.Logs(t.Context(), features, pod.Name))(t)
		require.Equal(t, pod.Labels[batchv1.JobCompletionIndexAnnotation]+"\n", out)
	}
}

// fullResize: CPU changes in place, memory as the policy says with a new container, and
// what the node cannot do is said until it is taken back.
func fullResize(t *testing.T, w *fullWorld) {
	before := w.there(t, "resize")
	resize := func(resources string) {
		w.patchPod(t, w.rome, features, "resize", `{"spec":{"containers":[{"name":"c","resources":`+resources+`}]}}`, "resize")
	}
	require.Equal(t, "10000", w.cpuQuota(t))
	resize(`{"limits":{"cpu":"300m"}}`)
	within(t, 30*time.Second, "the container has more CPU", func(context.Context) error {
		have := w.cpuQuota(t)
		return lab.Wrong(nil, have != "30000", "its quota is %s", have)
	})
	p := w.until(t, 20*time.Second, "resize", "shows it", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].Resources.Limits.Cpu().String() == "300m" && p.Status.ObservedGeneration == p.Generation
	})
	require.Zero(t, restarts(p))
	resize(`{"limits":{"memory":"96Mi"}}`)
	w.until(t, 30*time.Second, "resize", "was started again with more memory", func(p *corev1.Pod) bool {
		return restarts(p) == 1 && podRunning(p) && p.Status.ContainerStatuses[0].Resources.Limits.Memory().String() == "96Mi"
	})
	resize(`{"requests":{"cpu":"900"},"limits":{"cpu":"900"}}`)
	w.until(t, 30*time.Second, "resize", "says that its node has not that much", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodResizePending).Reason == corev1.PodReasonDeferred
	})
	resize(`{"requests":{"cpu":"50m"},"limits":{"cpu":"200m"}}`)
	w.until(t, 30*time.Second, "resize", "has what it asks for", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodResizePending).Type == "" && p.Status.ContainerStatuses[0].Resources.Limits.Cpu().String() == "200m"
	})
	require.Equal(t, before.UID, w.there(t, "resize").UID, "the same pod")
}

// cpuQuota is the container's own view of its cgroup, of either version.
func (w *fullWorld) cpuQuota(t *testing.T) string {
	t.Helper()
	out, err := w.rome.Exec(t.Context(), features, "resize", "cat", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
	if err != nil {
		out = w.inside(t, "resize", "cat", "/sys/fs/cgroup/cpu.max")
	}
	return strings.Fields(out)[0]
}

// fullHooks: the hook before the end runs, its message comes home, and the sidecar ends
// after the main container.
func fullHooks(t *testing.T, w *fullWorld) {
	require.Equal(t, "yes\n", w.inside(t, "files", "cat", "/shared/started"), "the hook after the start has run")
	_, last := w.deleteAndWatch(t, features, "files")
	main, proxy := last.Status.ContainerStatuses[0].State.Terminated, last.Status.InitContainerStatuses[1].State.Terminated
	require.NotNil(t, main)
	require.NotNil(t, proxy)
	require.Equal(t, "stopped\n", main.Message)
	require.False(t, proxy.FinishedAt.Before(&main.FinishedAt), "the sidecar outlives the main container")
}
