package forge

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Reasons of the Ready condition of a local pod.
const (
	// ReasonNodeNotReady says that the virtual node is not ready.
	ReasonNodeNotReady = "NodeNotReady"
	// ReasonRemotePodTerminating says that the provider is removing the pod.
	ReasonRemotePodTerminating = "RemotePodTerminating"
	// ReasonRemotePodMissing says that the pod is not, or not yet again, in the provider.
	ReasonRemotePodMissing = "RemotePodMissing"
	// ReasonReadinessGates says that a readiness gate of the pod is not true here.
	ReasonReadinessGates = "ReadinessGatesNotReady"
)

// Remapper translates the provider's addresses of pods into those under which they
// are reached from here.
type Remapper interface {
	// Remap returns the address here, and false if there is none.
	Remap(netip.Addr) (netip.Addr, bool)
}

// Identity is the Remapper of a peer whose addresses are used as they are.
type Identity struct{}

// Remap returns addr.
func (Identity) Remap(addr netip.Addr) (netip.Addr, bool) { return addr, true }

// StatusInput is what a local pod's status follows from.
type StatusInput struct {
	// Local is the pod; never nil.
	Local *corev1.Pod
	// Shadow is its ShadowPod, and Remote its pod in the provider; nil if absent. What
	// belongs to another pod of the same name (label local-pod-uid) counts as absent.
	Shadow *offloadingv1beta1.ShadowPod
	Remote *corev1.Pod
	// NodeReady is what the virtual node's Ready condition says.
	NodeReady bool
	// HostIPs are the addresses of the vkubelet, the first of each family counts. Empty
	// keeps those that the pod has.
	HostIPs []netip.Addr
	// Remapper translates the pod's addresses; those that it has no answer for are left out.
	Remapper Remapper
	// Now is the time of the transitions that the provider's pod does not tell.
	Now metav1.Time
}

// Status returns the status that the local pod should have. It is the local one,
// unchanged, when the pod has ended here, or nothing has been heard from the provider.
//
//   - qosClass, nominatedNodeName, PodScheduled and the conditions that no kubelet
//     owns stay the local ones. So readiness gates are judged here: they are not sent
//     to the provider, and Ready is the remote Ready and all of them.
//   - An end is taken from ShadowPod.status, or from a remote pod that ended without
//     being deleted. One that is being deleted ends for certain only when the pod is
//     deleted here too: otherwise the provider may make it again.
//   - Restart counts never fall, and no container leaves a terminated state that its
//     restart policy ends in: the API server would refuse the whole status.
//   - Ready is False at once when the remote pod is being removed or is missing, and
//     while the node is not ready.
//
// Status is idempotent: applied to a pod that has its result it returns the same.
func Status(in StatusInput) corev1.PodStatus {
	in.dropForeign()
	if ended(in.Local.Status.Phase) {
		return *in.Local.Status.DeepCopy()
	}
	in.Now = in.Now.Rfc3339Copy()
	source, final := in.source()
	switch {
	case source == nil:
		return in.missing()
	case !final && !reported(source) && !readyKnown(in.Local):
		return *in.Local.Status.DeepCopy()
	}
	return in.translate(source, final)
}

// dropForeign forgets what belongs to another pod of the same name.
func (in *StatusInput) dropForeign() {
	uid := string(in.Local.UID)
	if in.Remote != nil && in.Remote.Labels[offloadingv1beta1.LocalPodUIDLabel] != uid {
		in.Remote = nil
	}
	if in.Shadow != nil && in.Shadow.Labels[offloadingv1beta1.LocalPodUIDLabel] != uid {
		in.Shadow = nil
	}
}

// source returns the provider's status to translate, nil for none, and whether it is
// the pod's end.
func (in *StatusInput) source() (*corev1.PodStatus, bool) {
	if in.Shadow != nil && ended(in.Shadow.Status.Phase) {
		out := &corev1.PodStatus{}
		if in.Shadow.Status.PodStatus != nil {
			out = in.Shadow.Status.PodStatus.DeepCopy()
		}
		out.Phase = in.Shadow.Status.Phase
		return out, true
	}
	if in.Remote == nil {
		return nil, false
	}
	return &in.Remote.Status, ended(in.Remote.Status.Phase) && !in.losing()
}

// losing tells whether the remote pod is being removed while it is wanted here. What
// the provider's pod collector has marked as failed is about to be removed by it: its
// node is gone, and nobody saw the pod end.
func (in *StatusInput) losing() bool {
	if in.Remote == nil || in.Local.DeletionTimestamp != nil {
		return false
	}
	target := findCondition(in.Remote.Status.Conditions, corev1.DisruptionTarget)
	return in.Remote.DeletionTimestamp != nil ||
		(target != nil && target.Status == corev1.ConditionTrue && target.Reason == "DeletionByPodGC")
}

// translate turns the provider's status into the local one.
func (in *StatusInput) translate(source *corev1.PodStatus, final bool) corev1.PodStatus {
	old := &in.Local.Status
	out := *source.DeepCopy()

	out.QOSClass = old.QOSClass
	out.NominatedNodeName = old.NominatedNodeName
	out.ResourceClaimStatuses = old.DeepCopy().ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = old.ExtendedResourceClaimStatus.DeepCopy()
	out.NodeAllocatableResourceClaimStatuses = old.DeepCopy().NodeAllocatableResourceClaimStatuses
	out.ObservedGeneration = in.observedGeneration()
	if ended(out.Phase) && !final {
		out.Phase, out.Reason, out.Message = old.Phase, old.Reason, old.Message
	}
	if out.StartTime == nil {
		out.StartTime = old.StartTime.DeepCopy()
	}
	in.containerStatuses(&out)
	in.addresses(&out)
	out.Conditions = in.conditions(source, final, out.ObservedGeneration)
	return out
}

// addresses sets the pod's and its host's addresses.
func (in *StatusInput) addresses(out *corev1.PodStatus) {
	out.HostIP, out.HostIPs = in.hostIPs()
	var addrs []netip.Addr
	for _, ip := range out.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			continue
		}
		if addr, ok := in.Remapper.Remap(addr); ok {
			addrs = append(addrs, addr)
		}
	}
	out.PodIP, out.PodIPs = "", nil
	for _, addr := range onePerFamily(addrs) {
		out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: addr.String()})
	}
	if len(out.PodIPs) > 0 {
		out.PodIP = out.PodIPs[0].IP
	}
}

func (in *StatusInput) hostIPs() (string, []corev1.HostIP) {
	if len(in.HostIPs) == 0 {
		return in.Local.Status.HostIP, in.Local.Status.DeepCopy().HostIPs
	}
	var out []corev1.HostIP
	for _, addr := range onePerFamily(in.HostIPs) {
		out = append(out, corev1.HostIP{IP: addr.String()})
	}
	return out[0].IP, out
}

// onePerFamily returns the first address of each family: the API server accepts no more.
func onePerFamily(addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, addr := range addrs {
		addr = addr.Unmap()
		if len(out) == 0 || (len(out) == 1 && out[0].Is4() != addr.Is4()) {
			out = append(out, addr)
		}
	}
	return out
}

// observedGeneration returns the local generation that the provider's kubelet has
// acted on: the ShadowPod's once the remote pod has its images and resources and has
// been seen with them. It never falls.
func (in *StatusInput) observedGeneration() int64 {
	have := in.Local.Status.ObservedGeneration
	if in.Shadow == nil || in.Shadow.Spec.LocalGeneration <= have {
		return have
	}
	caughtUp := in.Remote == nil || (seen(in.Remote) && (have == 0 || sameMutable(&in.Shadow.Spec.Pod, &in.Remote.Spec)))
	if !caughtUp {
		return have
	}
	return in.Shadow.Spec.LocalGeneration
}

// seen tells whether the kubelet has observed the remote pod as it is now. Those that
// do not say it are taken to have.
func seen(remote *corev1.Pod) bool {
	return remote.Status.ObservedGeneration == 0 || remote.Status.ObservedGeneration >= remote.Generation
}

func sameMutable(shadow, remote *corev1.PodSpec) bool {
	return sameImages(shadow.Containers, remote.Containers) && sameImages(shadow.InitContainers, remote.InitContainers) &&
		sameResources(shadow, remote)
}

func sameImages(shadow, remote []corev1.Container) bool {
	return sameContainers(shadow, remote, func(s, r *corev1.Container) bool { return s.Image == r.Image })
}

// sameResources compares only the resources that the shadow names: a LimitRange of
// the provider may have added others.
func sameResources(shadow, remote *corev1.PodSpec) bool {
	same := func(s, r *corev1.Container) bool { return sameRequirements(&s.Resources, &r.Resources) }
	if !sameContainers(shadow.Containers, remote.Containers, same) || !sameContainers(shadow.InitContainers, remote.InitContainers, same) {
		return false
	}
	if shadow.Resources == nil || remote.Resources == nil {
		return shadow.Resources == nil
	}
	return sameRequirements(shadow.Resources, remote.Resources)
}

func sameRequirements(shadow, remote *corev1.ResourceRequirements) bool {
	return contains(remote.Limits, shadow.Limits) && contains(remote.Requests, shadow.Requests)
}

// sameContainers tells whether each of the shadow's containers is there and the same.
func sameContainers(shadow, remote []corev1.Container, same func(s, r *corev1.Container) bool) bool {
	byName := make(map[string]*corev1.Container, len(remote))
	for i := range remote {
		byName[remote[i].Name] = &remote[i]
	}
	for i := range shadow {
		if r := byName[shadow[i].Name]; r == nil || !same(&shadow[i], r) {
			return false
		}
	}
	return true
}

func contains(all, some corev1.ResourceList) bool {
	for name, want := range some {
		if have, ok := all[name]; !ok || have.Cmp(want) != 0 {
			return false
		}
	}
	return true
}

func ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// reported tells whether there is news in the status: a kubelet has taken the pod up,
// or the scheduler cannot place it.
func reported(status *corev1.PodStatus) bool {
	return status.StartTime != nil || status.Reason != "" || len(status.ContainerStatuses) > 0 || unplaced(status) != nil
}

// readyKnown tells whether a status has been written for the pod before.
func readyKnown(local *corev1.Pod) bool {
	return findCondition(local.Status.Conditions, corev1.PodReady) != nil
}
