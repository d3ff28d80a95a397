// Package pod keeps the pods of ShadowPods running in a provider, with or without a
// connection to the consumer. It creates each pod, keeps its mutable part equal to the
// ShadowPod, decides whether a lost pod is replaced, and records the final status of a pod
// in its ShadowPod. It writes nothing while a pod merely runs, and it never contacts the
// consumer.
//
// A label or annotation of the ShadowPod is restored when it changes on the pod, and
// removed when it disappears from the ShadowPod. Other labels and annotations of the pod
// stay. The mutable part of the spec is patched only when the ShadowPod's generation
// changes, so that liqod does not fight a provider whose admission rewrites images or
// resources. AppliedAnnotation on the pod records the generation and the keys.
package pod
