package kinds

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Limits of the bytes that the statuses of a provider's pods make this cluster write to its
// etcd, which stores the whole pod with each write. They are counted for a virtual node. The
// parts for each pod are there because more pods change more often.
const (
	// podBytes is free for each pod: enough for its start and its end.
	podBytes = 64 << 10
	// After that the pods share these bytes each minute, and these at once.
	nodeBytesPerMinute, nodeBytesPerMinuteAndPod = 128 << 10, 256
	nodeBytesBurst, nodeBytesBurstOfPod          = 1 << 20, 64 << 10
	// endpointCost is added for a change of the readiness or the address of a pod, which the
	// EndpointSlices of this cluster follow.
	endpointCost = 8 << 10
)

// urgency says how long a write of a status may wait for others.
type urgency int

const (
	// noise may use half of the budget.
	noise urgency = iota
	// urgent is a change of the phase, of the readiness or the address. The half that noise
	// leaves is for these.
	urgent
	// atOnce is the end of a pod, or of its readiness. Later writes wait for the bytes.
	atOnce
)

func urgencyOf(local *corev1.Pod, want *corev1.PodStatus) urgency {
	switch {
	case offloadingv1beta1.Ended(want.Phase), isReady(&local.Status) && !isReady(want):
		return atOnce
	case local.Status.Phase != want.Phase, movesEndpoints(local, want):
		return urgent
	}
	return noise
}

func movesEndpoints(local *corev1.Pod, want *corev1.PodStatus) bool {
	return isReady(&local.Status) != isReady(want) || local.Status.PodIP != want.PodIP
}

// statusCost returns about how many bytes etcd stores for a write of the status.
func statusCost(local *corev1.Pod, want *corev1.PodStatus) int {
	cost := local.ObjectMeta.Size() + local.Spec.Size() + want.Size()
	if movesEndpoints(local, want) {
		cost += endpointCost
	}
	return cost
}

// spent is the bytes that count against a budget and have not been forgotten yet. It is not
// a rate.Limiter, because that one has no more to give when its burst grows with the pods.
type spent struct {
	bytes float64
	at    time.Time
}

// forget takes off what perMinute allows since the last call.
func (s *spent) forget(now time.Time, perMinute int) {
	s.bytes = max(0, s.bytes-max(0, now.Sub(s.at).Minutes())*float64(perMinute))
	s.at = now
}

// spend takes the bytes of a write from what is free for its pod, or from the budget of the
// node. It returns how long the write has to wait instead; 0 means that it is counted. The
// caller holds mu.
func (p *Pods) spend(b *bucket, now time.Time, cost int, u urgency) time.Duration {
	if b.free >= cost {
		b.free -= cost
		return 0
	}
	pods := len(p.buckets)
	perMinute, burst := nodeBytesPerMinute+nodeBytesPerMinuteAndPod*pods, nodeBytesBurst+nodeBytesBurstOfPod*pods
	p.spent.forget(now, perMinute)
	soonest := time.Second
	if u == noise {
		soonest, burst = statusInterval, burst/2
	}
	cost = min(cost, burst) // a pod that is larger than all waits until nothing else counts
	if beyond := p.spent.bytes + float64(cost) - float64(burst); beyond > 0 && u != atOnce {
		return max(soonest, time.Duration(beyond/float64(perMinute)*float64(time.Minute)))
	}
	p.spent.bytes += float64(cost)
	return 0
}
