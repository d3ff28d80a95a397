// Package workload keeps in a provider the pods that ShadowPods ask for, whether the
// consumer is there or not: it creates them, keeps their mutable part equal, decides what
// the loss of one means, and records what must outlive it. It writes nothing while a pod
// merely runs, and it never looks at the consumer.
//
// What is asked for follows the ShadowPod, not the pod: labels and annotations that the
// ShadowPod has are put back when they change, those that it no longer has are removed, and
// whatever else the provider put on the pod stays. The mutable part of the spec is sent when
// the ShadowPod's generation moves, so that a provider that rewrites images or resources at
// admission is not fought. AppliedAnnotation on the pod remembers both.
package workload
