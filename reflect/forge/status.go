package forge

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Remapper translates pod addresses of the provider into the addresses that reach them
// from this cluster.
type Remapper interface {
	// Remap returns the translated address. It returns false if there is none yet. refused is
	// not empty if the provider's pods cannot have the address, and has the reason.
	Remap(netip.Addr) (here netip.Addr, refused string, ok bool)
}

// StatusInput has everything from which the status of a local pod is computed.
type StatusInput struct {
	// Local is the local pod; never nil.
	Local *corev1.Pod
	// Shadow is its ShadowPod and Remote its remote pod; nil if absent. An object whose
	// label local-pod-uid names another pod of the same name is ignored.
	Shadow *offloadingv1beta1.ShadowPod
	Remote *corev1.Pod
	// NodeReady reports whether the virtual node is ready.
	NodeReady bool
	// NetworkUnavailable reports whether the network to the provider does not work. The pod
	// runs, and nothing in this cluster reaches it.
	NetworkUnavailable bool
	// Silent says that the provider's controller does not run; "": it runs, or nothing is known
	// of it. A pod that only the controller can create waits with this message.
	Silent string
	// HostIPs are the addresses of the vkubelet. Only the first address of each family is
	// used. If it is empty, the current host addresses of the pod are kept.
	HostIPs []netip.Addr
	// Remapper translates the pod's addresses. Addresses without a translation are left
	// out.
	Remapper Remapper
	// Refused is called for each part of the provider's status that is cut or left out, with
	// a reason for metrics and a message; it may be nil.
	Refused func(reason, message string)
	// Now is the transition time of conditions for which the remote pod has none.
	Now metav1.Time
}

// Status returns the status that the local pod should have. It returns the current local
// status if the pod has ended, or if nothing is known from the provider yet.
//
//   - qosClass, nominatedNodeName, PodScheduled and the conditions that no kubelet sets
//     stay the local ones. Readiness gates are therefore evaluated in this cluster: they
//     are not sent to the provider, and Ready is True only if the remote Ready and all
//     gates are.
//   - An end is taken from ShadowPod.status, or from a remote pod that ended without being
//     deleted. The end of a remote pod that is being deleted counts only if the local pod
//     is being deleted too: otherwise the provider may create it again.
//   - Restart counts never decrease, and no container leaves a terminated state that is
//     final under its restart policy: the API server would reject the whole status.
//   - What the provider wrote has limits: 4 KiB for a text, and 32 KiB for all texts of a
//     pod. Only resources that the local pod asks for are reported.
//   - Ready becomes False as soon as the remote pod is being removed or is missing, and
//     while the virtual node is not ready or the network to the provider does not work.
//   - A container that the remote pod does not have yet, or that ended because the provider
//     removes the pod, is Waiting with the reason of Ready, if it is always started again.
//
// Status is idempotent: for a pod that has its result it returns the same result.
func Status(in StatusInput) corev1.PodStatus {
	in.dropForeign()
	if offloadingv1beta1.Ended(in.Local.Status.Phase) {
		return *in.Local.Status.DeepCopy()
	}
	in.Now = in.Now.Rfc3339Copy()
	source, final := in.source()
	if source == nil {
		return in.missing()
	}
	source = in.bounded(source)
	if !final && !reported(source) && !readyKnown(in.Local) {
		return *in.Local.Status.DeepCopy()
	}
	return in.translate(source, final)
}

// dropForeign ignores a ShadowPod and a remote pod that belong to another pod of the same
// name.
func (in *StatusInput) dropForeign() {
	uid := string(in.Local.UID)
	if in.Remote != nil && in.Remote.Labels[offloadingv1beta1.LocalPodUIDLabel] != uid {
		in.Remote = nil
	}
	if in.Shadow != nil && in.Shadow.Labels[offloadingv1beta1.LocalPodUIDLabel] != uid {
		in.Shadow = nil
	}
}

// source returns the provider's status to translate (nil for none), and whether it is the
// pod's end.
func (in *StatusInput) source() (*corev1.PodStatus, bool) {
	if in.Shadow != nil && offloadingv1beta1.Ended(in.Shadow.Status.Phase) {
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
	return &in.Remote.Status, offloadingv1beta1.Ended(in.Remote.Status.Phase) && !in.losing()
}

// losing reports whether the remote pod is being removed although the local pod is not.
// It also returns true for a pod that the provider's pod garbage collector has marked as
// failed: its node is gone, the end of the pod was not observed, and the collector is
// about to delete it.
func (in *StatusInput) losing() bool {
	if in.Remote == nil || in.Local.DeletionTimestamp != nil {
		return false
	}
	return in.Remote.DeletionTimestamp != nil || offloadingv1beta1.Collected(in.Remote)
}

// translate turns the provider's status, a copy of which bounded has made, into the local
// one.
func (in *StatusInput) translate(source *corev1.PodStatus, final bool) corev1.PodStatus {
	old := &in.Local.Status
	out := *source

	out.QOSClass = old.QOSClass
	out.NominatedNodeName = old.NominatedNodeName
	out.ResourceClaimStatuses = old.DeepCopy().ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = old.ExtendedResourceClaimStatus.DeepCopy()
	out.NodeAllocatableResourceClaimStatuses = old.DeepCopy().NodeAllocatableResourceClaimStatuses
	out.ObservedGeneration = in.observedGeneration()
	if offloadingv1beta1.Ended(out.Phase) && !final {
		out.Phase, out.Reason, out.Message = old.Phase, old.Reason, old.Message
	}
	if out.StartTime == nil {
		out.StartTime = old.StartTime.DeepCopy()
	}
	in.containerStatuses(&out)
	out.Conditions = in.conditions(source, final, out.ObservedGeneration)
	if !final {
		in.await(&out, source.ContainerStatuses)
	}
	in.pastTimes(&out)
	in.addresses(&out)
	return out
}

// addresses sets the addresses of the pod and its host.
func (in *StatusInput) addresses(out *corev1.PodStatus) {
	out.HostIP, out.HostIPs = in.hostIPs()
	var addrs []netip.Addr
	for _, ip := range out.PodIPs[:min(len(out.PodIPs), mostAddresses)] {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil || addr.Zone() != "" {
			continue
		}
		addr, refused, ok := in.Remapper.Remap(addr.Unmap())
		if refused != "" {
			in.refuse(RefusedAddress, "an address that the provider reports for the pod is left out: "+refused)
		}
		if ok && refused == "" {
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

// onePerFamily returns the first address of each family. The API server accepts no more.
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

// observedGeneration returns the local generation on which the provider's kubelet has
// acted. It becomes that of the ShadowPod once the remote pod has the same images and
// resources and its kubelet has observed them. It never decreases.
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

// seen reports whether the kubelet has observed the current spec of the remote pod. It
// returns true for kubelets that do not report observedGeneration.
func seen(remote *corev1.Pod) bool {
	return remote.Status.ObservedGeneration == 0 || remote.Status.ObservedGeneration >= remote.Generation
}

func sameMutable(shadow, remote *corev1.PodSpec) bool {
	return sameContainers(shadow, remote, func(s, r *corev1.Container) bool { return s.Image == r.Image }) && sameResources(shadow, remote)
}

// sameResources compares only the resources that the ShadowPod names, because a
// LimitRange of the provider may have added others.
func sameResources(shadow, remote *corev1.PodSpec) bool {
	if !sameContainers(shadow, remote, func(s, r *corev1.Container) bool { return sameRequirements(&s.Resources, &r.Resources) }) {
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

// sameContainers reports whether remote has each container of shadow and both are the
// same.
func sameContainers(shadow, remote *corev1.PodSpec, same func(s, r *corev1.Container) bool) bool {
	there := containersOf(remote)
	return !slices.ContainsFunc(containersOf(shadow), func(s *corev1.Container) bool {
		i := slices.IndexFunc(there, func(r *corev1.Container) bool { return r.Name == s.Name })
		return i < 0 || !same(s, there[i])
	})
}

func contains(all, some corev1.ResourceList) bool {
	for name, want := range some {
		if have, ok := all[name]; !ok || have.Cmp(want) != 0 {
			return false
		}
	}
	return true
}

// reported reports whether the status has any content: a kubelet has accepted the pod, or
// the scheduler cannot place it.
func reported(status *corev1.PodStatus) bool {
	return status.StartTime != nil || status.Reason != "" || len(status.ContainerStatuses) > 0 || unplaced(status) != nil
}

// readyKnown reports whether a status was written to the local pod before.
func readyKnown(local *corev1.Pod) bool {
	return findCondition(local.Status.Conditions, corev1.PodReady) != nil
}

// containerStatuses translates the container statuses. The result has only the containers
// of the local pod, in the order of its spec.
func (in *StatusInput) containerStatuses(out *corev1.PodStatus) {
	spec, old := &in.Local.Spec, &in.Local.Status
	out.ContainerStatuses = in.statuses(out.ContainerStatuses, old.ContainerStatuses, spec.Containers)
	out.InitContainerStatuses = in.statuses(out.InitContainerStatuses, old.InitContainerStatuses, spec.InitContainers)
	out.EphemeralContainerStatuses = in.ephemeralStatuses(out.EphemeralContainerStatuses)
}

func (in *StatusInput) statuses(remote, old []corev1.ContainerStatus, containers []corev1.Container) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range containers {
		name := containers[i].Name
		r, o := findStatus(remote, name), findStatus(old, name)
		switch {
		case r == nil && o == nil:
		case r == nil:
			kept := *o.DeepCopy()
			kept.Ready = false
			out = append(out, kept)
		default:
			out = append(out, in.status(r, o, &containers[i]))
		}
	}
	return out
}

// status returns the status of one container. old may be nil.
func (in *StatusInput) status(remote, old *corev1.ContainerStatus, c *corev1.Container) corev1.ContainerStatus {
	out := *remote.DeepCopy()
	in.boundContainer(&out, old, c)
	out.RestartCount = sumRestarts(out.RestartCount, in.earlierRestarts(c.Name))
	if old == nil {
		return out
	}
	count := max(out.RestartCount, old.RestartCount)
	switch {
	case stuck(&in.Local.Spec, c, old) && out.State.Terminated == nil:
		out = *old.DeepCopy()
	case in.losing() && old.State.Terminated == nil && stuck(&in.Local.Spec, c, &out):
		// The provider may restart the container, but the API server would not accept a
		// status that leaves this terminated state.
		out = *old.DeepCopy()
		out.Ready = false
	}
	out.RestartCount = count
	return out
}

// earlierRestarts returns the restarts in the pods that the provider ran for this pod
// before the current one.
func (in *StatusInput) earlierRestarts(name string) (sum int32) {
	if in.Shadow == nil {
		return 0
	}
	for _, r := range slices.Concat(in.Shadow.Spec.EarlierRestarts, in.Shadow.Status.Restarts) {
		if r.Name == name {
			sum = sumRestarts(sum, r.Count)
		}
	}
	return sum
}

// EarlierRestarts returns the restart counts that the next ShadowPod of a pod starts from: those of
// the local status, and one for the loss of the ShadowPod before.
func EarlierRestarts(local *corev1.Pod) (all []offloadingv1beta1.ContainerRestarts) {
	for _, s := range slices.Concat(local.Status.InitContainerStatuses, local.Status.ContainerStatuses) {
		all = append(all, offloadingv1beta1.ContainerRestarts{Name: s.Name, Count: sumRestarts(s.RestartCount, 1)})
	}
	return all
}

// stuck reports whether the API server rejects a status in which the container leaves its
// terminated state.
func stuck(spec *corev1.PodSpec, c *corev1.Container, status *corev1.ContainerStatus) bool {
	if status.State.Terminated == nil || mayRestartAll(spec) {
		return false
	}
	return !offloadingv1beta1.RestartsContainer(spec, c, status.State.Terminated.ExitCode)
}

// mayRestartAll reports whether the exit of a container may restart all containers of the
// pod.
func mayRestartAll(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(containersOf(spec), func(c *corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

func findStatus(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// EqualStatus reports whether two statuses are equal. The order of conditions is ignored.
// With ignoreHostIPs the host addresses are ignored too: if only they have changed, a
// write to every pod is not worth its cost.
func EqualStatus(a, b *corev1.PodStatus, ignoreHostIPs bool) bool {
	return equality.Semantic.DeepEqual(normalized(a, ignoreHostIPs), normalized(b, ignoreHostIPs))
}

func normalized(s *corev1.PodStatus, ignoreHostIPs bool) *corev1.PodStatus {
	out := *s
	out.Conditions = slices.SortedFunc(slices.Values(s.Conditions), func(a, b corev1.PodCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	if ignoreHostIPs {
		out.HostIP, out.HostIPs = "", nil
	}
	return &out
}
