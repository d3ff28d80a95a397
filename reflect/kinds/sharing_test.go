package kinds

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/reflect/forge"
)

// decoded returns pod number i of a ReplicaSet as a client decodes it: nothing in it is shared
// with another pod.
func decoded(t testing.TB, i int) *corev1.Pod {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0))
	condition := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at, ObservedGeneration: 1}
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 10}
	volume := fmt.Sprintf("kube-api-access-%05d", i)
	seconds := ptr.To[int64](300)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("web-6d4b75cb6d-%05d", i), UID: types.UID(fmt.Sprintf("5a6b7c8d-0000-4000-8000-%012d", i)), ResourceVersion: fmt.Sprint(100000 + i),
			Generation: 1, CreationTimestamp: at, GenerateName: "web-6d4b75cb6d-",
			Labels:          map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "6d4b75cb6d"},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-6d4b75cb6d", UID: "aaaaaaaa-0000-4000-8000-000000000001", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "milan", RestartPolicy: corev1.RestartPolicyAlways, ServiceAccountName: "default", DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
			Containers: []corev1.Container{{
				Name: "web", Image: "registry.example.com/shop/web:v1.2.3", ReadinessProbe: probe, LivenessProbe: probe,
				Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
				Env:          []corev1.EnvVar{{Name: "DATABASE", Value: "postgres://database.shop.svc:5432"}, {Name: "LEVEL", Value: "info"}},
				Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("64Mi")}},
				VolumeMounts: []corev1.VolumeMount{{Name: volume, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			}},
			Volumes: []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](420), Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](3607), Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
			}}}}},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpIn, Values: []string{"virtual-node"}}}}}}}},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds},
				{Key: "virtual-node.liqo.io/not-allowed", Operator: corev1.TolerationOpEqual, Value: "true", Effect: corev1.TaintEffectNoExecute},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.1.%d.%d", i/250, i%250), HostIP: "10.0.0.7", HostIPs: []corev1.HostIP{{IP: "10.0.0.7"}}, StartTime: &at, QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 1,
			PodIPs:     []corev1.PodIP{{IP: fmt.Sprintf("10.1.%d.%d", i/250, i%250)}},
			Conditions: []corev1.PodCondition{condition(corev1.PodScheduled), condition(corev1.PodInitialized), condition(corev1.ContainersReady), condition(corev1.PodReady), condition(corev1.PodReadyToStartContainers)},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "web", Image: "registry.example.com/shop/web:v1.2.3", ImageID: "registry.example.com/shop/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
				ContainerID: fmt.Sprintf("containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab%04d", i), Ready: true, Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
			}},
		},
	}
	data, err := pod.Marshal()
	require.NoError(t, err)
	out := &corev1.Pod{}
	require.NoError(t, out.Unmarshal(data))
	return out
}

// TestSharedPodsStayAsTheyAre: each pod is as it was decoded, also those that were cached before
// others of their template, and equal parts are the same memory.
func TestSharedPodsStayAsTheyAre(t *testing.T) {
	changes := map[string]func(*corev1.Pod){
		"none":       func(*corev1.Pod) {},
		"a variable": func(p *corev1.Pod) { p.Spec.Containers[0].Env[0].Value = "other" },
		"another variable": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "X"})
		},
		"a sidecar":          func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side"}) },
		"no affinity":        func(p *corev1.Pod) { p.Spec.Affinity = nil },
		"other resources":    func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1") },
		"no containers":      func(p *corev1.Pod) { p.Spec.Containers = nil },
		"a toleration less":  func(p *corev1.Pod) { p.Spec.Tolerations = p.Spec.Tolerations[:2] },
		"not ready":          func(p *corev1.Pod) { p.Status.Conditions[2].Status = corev1.ConditionFalse },
		"another label":      func(p *corev1.Pod) { p.Labels["x"] = "y" },
		"empty, not missing": func(p *corev1.Pod) { p.Spec.Affinity, p.Spec.Tolerations = &corev1.Affinity{}, []corev1.Toleration{} },
		"a later start":      func(p *corev1.Pod) { p.Status.StartTime = ptr.To(metav1.Now()) },
	}
	share := SharePods(client.StripManagedFields)
	var got, want []*corev1.Pod
	var shadows, wantShadows []*offloadingv1beta1.ShadowPod
	shareShadows := SharePods(client.StripManagedFields)
	for range 3 {
		for _, change := range changes {
			pod := decoded(t, len(got))
			change(pod)
			want = append(want, pod.DeepCopy())
			out, err := share(pod)
			require.NoError(t, err)
			got = append(got, out.(*corev1.Pod))
			shadow := shadowOf(t, pod)
			wantShadows = append(wantShadows, shadow.DeepCopy())
			out, err = shareShadows(shadow)
			require.NoError(t, err)
			shadows = append(shadows, out.(*offloadingv1beta1.ShadowPod))
		}
	}
	require.Equal(t, want, got)
	require.Equal(t, wantShadows, shadows)
}

func TestEqualPartsOfPodsAreTheSameMemory(t *testing.T) {
	share := SharePods(client.StripManagedFields)
	pod := func(i int) *corev1.Pod {
		out, err := share(decoded(t, i))
		require.NoError(t, err)
		return out.(*corev1.Pod)
	}
	a, b := pod(1), pod(2)
	require.Same(t, a.Spec.Affinity, b.Spec.Affinity)
	require.Same(t, &a.Spec.Tolerations[0], &b.Spec.Tolerations[0])
	require.Same(t, &a.Spec.Containers[0].Env[0], &b.Spec.Containers[0].Env[0], "although the name of a volume differs")
	require.Same(t, a.Spec.Volumes[0].Projected, b.Spec.Volumes[0].Projected)
	require.Same(t, unsafe.StringData(a.Status.ContainerStatuses[0].ImageID), unsafe.StringData(b.Status.ContainerStatuses[0].ImageID))
	require.NotEqual(t, a.Spec.Volumes[0].Name, b.Spec.Volumes[0].Name)
	s := &sharing{}
	for i := range 3 * mostTemplates {
		_, err := s.after(client.StripManagedFields)(localPod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = fmt.Sprint(i) }))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(s.last), mostTemplates+1)
	out, err := share(cache.DeletedFinalStateUnknown{Key: "a"})
	require.NoError(t, err)
	require.Equal(t, cache.DeletedFinalStateUnknown{Key: "a"}, out)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// shadowOf returns the ShadowPod of a pod as a client decodes it.
func shadowOf(t testing.TB, local *corev1.Pod) *offloadingv1beta1.ShadowPod {
	s, err := forge.ShadowPod(local, forge.PodOptions{OriginClusterID: "rome", DestinationClusterID: "milan", NodeName: "milan", RemoteNamespace: "shop-rome"})
	require.NoError(t, err)
	s.UID, s.ResourceVersion, s.CreationTimestamp = "shadow-"+local.UID, "5", local.CreationTimestamp
	data, err := s.Spec.Pod.Marshal()
	require.NoError(t, err)
	s.Spec.Pod = corev1.PodSpec{}
	require.NoError(t, s.Spec.Pod.Unmarshal(data))
	return s.DeepCopy()
}

// remoteOf returns the provider's pod as a client decodes it.
func remoteOf(t testing.TB, i int) *corev1.Pod {
	pod := decoded(t, i)
	pod.Labels = shadowOf(t, pod).Labels
	pod.OwnerReferences[0].UID = types.UID("shadow-" + string(pod.UID))
	return pod
}

// BenchmarkCached reports the memory that a pod takes in each cache.
func BenchmarkCached(b *testing.B) {
	const pods = 5000
	for name, one := range map[string]func(int) any{
		"local":  func(i int) any { return decoded(b, i) },
		"shadow": func(i int) any { return shadowOf(b, decoded(b, i)) },
		"remote": func(i int) any { return remoteOf(b, i) },
	} {
		for how, transform := range transforms() {
			b.Run(name+"/"+how, func(b *testing.B) {
				for b.Loop() {
					before := heap()
					all := make([]any, 0, pods)
					for i := range pods {
						obj, err := transform(one(i))
						require.NoError(b, err)
						all = append(all, obj)
					}
					b.ReportMetric(float64(heap()-before)/pods, "B/pod")
					runtime.KeepAlive(all)
				}
			})
		}
	}
}

func transforms() map[string]cache.TransformFunc {
	tw := &twins{transform: client.StripManagedFields}
	return map[string]cache.TransformFunc{
		"whole":           func(o any) (any, error) { return o, nil },
		"slim":            tw.slim,
		"shared":          SharePods(client.StripManagedFields),
		"slim and shared": SharePods(tw.slim),
	}
}

// BenchmarkShare reports the time that sharing takes for each event.
func BenchmarkShare(b *testing.B) {
	share := SharePods(client.StripManagedFields)
	var pods []*corev1.Pod
	for i := range 1000 {
		pods = append(pods, decoded(b, i))
	}
	for i := 0; b.Loop(); i++ {
		_, err := share(pods[i%len(pods)])
		require.NoError(b, err)
	}
}
