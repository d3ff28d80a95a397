package kinds

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// mostTemplates is the number of templates of pods that a sharing remembers.
const mostTemplates = 1000

// sharing lets the equal parts of pods in a cache use the same memory. Pods of one template
// differ in little, and a client decodes each of them into memory of its own. It is safe for
// concurrent use.
type sharing struct {
	mu sync.Mutex
	// last has the last pod of each template.
	last map[template]parts
}

// template is the same for pods that are probably equal in most parts.
type template struct{ namespace, image string }

// parts are the parts of a pod that can be shared. They are never changed.
type parts struct {
	meta   metav1.ObjectMeta
	spec   corev1.PodSpec
	status corev1.PodStatus
}

// SharePods returns a transform function for an informer of pods. After next, the equal parts of
// the pods use the same memory.
func SharePods(next cache.TransformFunc) cache.TransformFunc {
	return (&sharing{}).after(next)
}

// after returns a transform function for an informer of pods or ShadowPods.
func (s *sharing) after(next cache.TransformFunc) cache.TransformFunc {
	return func(obj any) (any, error) {
		obj, err := next(obj)
		switch o := obj.(type) {
		case *corev1.Pod:
			s.of(&o.ObjectMeta, &o.Spec, &o.Status)
		case *offloadingv1beta1.ShadowPod:
			s.of(&o.ObjectMeta, &o.Spec.Pod, &corev1.PodStatus{})
		}
		return obj, err
	}
}

func (s *sharing) of(meta *metav1.ObjectMeta, spec *corev1.PodSpec, status *corev1.PodStatus) {
	if len(spec.Containers) == 0 {
		return
	}
	from := template{meta.Namespace, spec.Containers[0].Image}
	s.mu.Lock()
	last, known := s.last[from]
	s.mu.Unlock()
	if known {
		shareMeta(meta, &last.meta)
		shareSpec(spec, &last.spec)
		shareStatus(status, &last.status)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || len(s.last) > mostTemplates {
		s.last = map[template]parts{}
	}
	s.last[from] = parts{*meta, *spec, *status}
}

// share makes have use the memory of like if both are equal. Quantities and lists are equal if
// they mean the same.
func share[T any](have, like *T) {
	if equality.Semantic.DeepEqual(have, like) {
		*have = *like
	}
}

func shareText[S ~string](have *S, like S) {
	if *have == like {
		*have = like
	}
}

// shareEach shares what each element has in common with the one at its place.
func shareEach[T any](have, like []T, one func(have, like *T)) {
	if len(have) > 0 && len(like) > 0 && &have[0] == &like[0] {
		return // the whole list is shared
	}
	for i := range min(len(have), len(like)) {
		one(&have[i], &like[i])
	}
}

func shareMeta(have, like *metav1.ObjectMeta) {
	shareText(&have.Namespace, like.Namespace)
	shareText(&have.GenerateName, like.GenerateName)
	share(&have.Labels, &like.Labels)
	share(&have.Annotations, &like.Annotations)
	share(&have.OwnerReferences, &like.OwnerReferences)
}

func shareSpec(have, like *corev1.PodSpec) {
	shareText(&have.NodeName, like.NodeName)
	shareText(&have.ServiceAccountName, like.ServiceAccountName)
	shareText(&have.DeprecatedServiceAccount, like.DeprecatedServiceAccount)
	shareText(&have.SchedulerName, like.SchedulerName)
	shareText(&have.PriorityClassName, like.PriorityClassName)
	share(&have.Affinity, &like.Affinity)
	share(&have.Tolerations, &like.Tolerations)
	share(&have.NodeSelector, &like.NodeSelector)
	share(&have.TopologySpreadConstraints, &like.TopologySpreadConstraints)
	share(&have.SecurityContext, &like.SecurityContext)
	share(&have.ImagePullSecrets, &like.ImagePullSecrets)
	share(&have.HostAliases, &like.HostAliases)
	share(&have.DNSConfig, &like.DNSConfig)
	share(&have.Resources, &like.Resources)
	share(&have.Containers, &like.Containers)
	shareEach(have.Containers, like.Containers, shareContainer)
	shareEach(have.InitContainers, like.InitContainers, shareContainer)
	shareEach(have.Volumes, like.Volumes, func(h, l *corev1.Volume) { share(&h.VolumeSource, &l.VolumeSource) })
}

func shareContainer(have, like *corev1.Container) {
	shareText(&have.Name, like.Name)
	shareText(&have.Image, like.Image)
	share(&have.Command, &like.Command)
	share(&have.Args, &like.Args)
	share(&have.Ports, &like.Ports)
	share(&have.Env, &like.Env)
	share(&have.EnvFrom, &like.EnvFrom)
	share(&have.Resources, &like.Resources)
	shareEach(have.VolumeMounts, like.VolumeMounts, func(h, l *corev1.VolumeMount) { shareText(&h.MountPath, l.MountPath) })
	share(&have.LivenessProbe, &like.LivenessProbe)
	share(&have.ReadinessProbe, &like.ReadinessProbe)
	share(&have.StartupProbe, &like.StartupProbe)
	share(&have.Lifecycle, &like.Lifecycle)
	share(&have.SecurityContext, &like.SecurityContext)
	shareText(&have.TerminationMessagePath, like.TerminationMessagePath)
}

func shareStatus(have, like *corev1.PodStatus) {
	shareText(&have.HostIP, like.HostIP)
	share(&have.HostIPs, &like.HostIPs)
	share(&have.StartTime, &like.StartTime)
	shareEach(have.Conditions, like.Conditions, func(h, l *corev1.PodCondition) {
		shareText(&h.Type, l.Type)
		shareText(&h.Status, l.Status)
		shareText(&h.Reason, l.Reason)
		shareText(&h.Message, l.Message)
	})
	shareEach(have.ContainerStatuses, like.ContainerStatuses, shareContainerStatus)
	shareEach(have.InitContainerStatuses, like.InitContainerStatuses, shareContainerStatus)
}

func shareContainerStatus(have, like *corev1.ContainerStatus) {
	shareText(&have.Name, like.Name)
	shareText(&have.Image, like.Image)
	shareText(&have.ImageID, like.ImageID)
	share(&have.Resources, &like.Resources)
	share(&have.AllocatedResources, &like.AllocatedResources)
	share(&have.State, &like.State)
	shareEach(have.VolumeMounts, like.VolumeMounts, func(h, l *corev1.VolumeMountStatus) { shareText(&h.MountPath, l.MountPath) })
}
