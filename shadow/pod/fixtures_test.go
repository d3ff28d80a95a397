package pod

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

const (
	testNamespace = "shop-rome"
	testName      = "web"
	origin        = "rome"
)

func testTime() time.Time { return time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) metav1.Time { return metav1.NewTime(testTime().Add(-d)) }

func noHarden(*corev1.PodSpec) error { return nil }

func noMetadata(string) rules.Metadata { return rules.Metadata{} }

func noHostNetwork(s *corev1.PodSpec) error {
	if s.HostNetwork {
		return errors.New("host network is not accepted")
	}
	s.ServiceAccountName = ""
	return nil
}

func twin(mods ...func(*corev1.Namespace)) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        testNamespace,
		Labels:      map[string]string{corev1beta1.RemoteClusterIDLabel: origin},
		Annotations: map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/rome"},
	}}
	for _, mod := range mods {
		mod(ns)
	}
	return ns
}

type shadowMod = func(*offloadingv1beta1.ShadowPod)

func newShadow(policy corev1.RestartPolicy, mods ...shadowMod) *offloadingv1beta1.ShadowPod {
	s := &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Name: testName, Namespace: testNamespace, UID: "shadow-1", Generation: 1, CreationTimestamp: ago(time.Second),
			Labels: map[string]string{
				"app": "web", offloadingv1beta1.OriginLabel: origin, offloadingv1beta1.DestinationLabel: "milan",
				offloadingv1beta1.NodeNameLabel: "milan", offloadingv1beta1.LocalPodUIDLabel: "local-1",
			},
			Annotations: map[string]string{"note": "a"},
		},
		Spec: offloadingv1beta1.ShadowPodSpec{Pod: corev1.PodSpec{
			RestartPolicy: policy,
			Containers:    []corev1.Container{{Name: "main", Image: "img:1"}},
		}},
	}
	for _, mod := range mods {
		mod(s)
	}
	return s
}

func old(s *offloadingv1beta1.ShadowPod) { s.CreationTimestamp = ago(time.Hour) }

func replaced(uid types.UID) shadowMod {
	return func(s *offloadingv1beta1.ShadowPod) { s.Status.Replaced = uid }
}

func ended(phase corev1.PodPhase) shadowMod {
	return func(s *offloadingv1beta1.ShadowPod) { s.Status.Phase = phase }
}

func denied(reason string) shadowMod {
	return func(s *offloadingv1beta1.ShadowPod) {
		s.Status.Conditions = []metav1.Condition{{Type: offloadingv1beta1.ShadowPodEnforced, Status: metav1.ConditionFalse, Reason: reason}}
	}
}

type podMod = func(*corev1.Pod)

// podOf returns the running pod of shadow as the API server has it.
func podOf(s *offloadingv1beta1.ShadowPod, mods ...podMod) *corev1.Pod {
	pod, err := forge(s, twin(), rules.Metadata{}, noHarden)
	if err != nil {
		panic(err)
	}
	pod.UID, pod.ResourceVersion, pod.Generation = "pod-1", "1", 1
	pod.Spec.NodeName = "node-1"
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ObservedGeneration: 1}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", ContainerID: "c://1", RestartCount: 2,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Hour)}},
	}}
	for _, mod := range mods {
		mod(pod)
	}
	return pod
}

// deleting marks a pod as deleted 10 s ago with a grace period of 30 s.
func deleting(p *corev1.Pod) {
	at := metav1.NewTime(testTime().Add(20 * time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, new(int64(30))
	p.Generation++
}

// forced marks a pod as deleted with a grace period of 0.
func forced(p *corev1.Pod) {
	at := ago(0)
	if p.DeletionTimestamp == nil {
		p.Generation++
	}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, new(int64(0))
}

// exited sets the status that a kubelet reports when all containers terminated with code,
// the given time before now.
func exited(code int32, before time.Duration) podMod {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		p.Status.ObservedGeneration = p.Generation
		for i := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, StartedAt: ago(time.Hour), FinishedAt: ago(before), ContainerID: "c://1",
			}}
		}
	}
}

// neverRan sets the status that a kubelet reports for a stopped pod none of whose
// containers was started.
func neverRan(p *corev1.Pod) {
	p.Status.Phase, p.Status.ObservedGeneration = corev1.PodFailed, p.Generation
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: reasons.ContainerStatusUnknown, ExitCode: unknownExitCode},
	}}}
}

func pending(p *corev1.Pod) {
	p.Status.Phase = corev1.PodPending
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"},
	}}}
}

func unscheduled(p *corev1.Pod) {
	p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
}

func reason(r string) podMod { return func(p *corev1.Pod) { p.Status.Reason = r } }

func garbageCollected(p *corev1.Pod) {
	p.Status.Phase = corev1.PodFailed
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC",
	})
}

func released(p *corev1.Pod) { p.Finalizers = nil }

func oldKubelet(p *corev1.Pod) { p.Status.ObservedGeneration = 0 }

func uidOf(uid types.UID) podMod {
	return func(p *corev1.Pod) { p.UID = uid }
}

func ownedBy(uid types.UID) podMod {
	return func(p *corev1.Pod) { p.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation] = string(uid) }
}

func foreign(p *corev1.Pod) {
	orphaned(p)
	delete(p.Annotations, offloadingv1beta1.ShadowPodUIDAnnotation)
}

// orphaned takes the owner reference away, as any editor of the pod may.
func orphaned(p *corev1.Pod) { p.OwnerReferences = nil }

// adopted is what a ReplicaSet with a fitting selector does then.
func adopted(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs-1", Controller: new(true)}}
}
