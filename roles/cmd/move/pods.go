package move

import (
	"context"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/roles/cmd/helper"
)

const (
	fieldManager = offloadingv1beta1.MoveFieldManager
	moveLabel    = offloadingv1beta1.MoveLabel
	port         = "5473"
	// Folders in the pods.
	dataFolder, keyFolder = "/data", "/key"
)

// name returns the name of the objects of the move.
func (m *mover) name(suffix string) string { return "liqod-move-" + string(m.claim.UID) + suffix }

// relays reports whether the data moves between two providers. A pod in this cluster then passes on
// what the two others send: a provider need not reach the other one.
func (m *mover) relays() bool { return m.from.cluster != "" && m.to.cluster != "" && m.from != m.to }

// endPod is the pod of one end of a move.
type endPod struct {
	*corev1.Pod
	// cluster is the provider in which the pod listens. It is empty for this cluster, where it connects.
	cluster string
	parts   []string
}

// there returns the ends in providers, the sender first. Their claim has the name of the user's there, too.
func (m *mover) there() (out []endPod) {
	listen := []string{"--listen", net.JoinHostPort("", port)}
	if m.from.cluster != "" {
		out = append(out, m.forge(m.Namespace, "-there", m.from, m.Claim, Sender, listen...))
	}
	suffix := "-there"
	if m.relays() {
		suffix = "-target"
	}
	if m.to.cluster != "" {
		out = append(out, m.forge(m.Namespace, suffix, m.to, m.Claim, Receiver, listen...))
	}
	return out
}

// here returns the end in this cluster, which connects to those in providers. It uses the user's claim
// if the data is here, and the real one if the data moves here.
func (m *mover) here(addresses ...string) endPod {
	var dial []string
	for _, a := range addresses {
		dial = append(dial, "--connect", net.JoinHostPort(a, port))
	}
	switch {
	case m.relays():
		out := m.forge(m.Namespace, "-here", place{node: m.relay}, "", "", dial...)
		out.parts = []string{Sender, Receiver}
		return out
	case m.from.cluster == "":
		return m.forge(m.Namespace, "-here", m.from, m.Claim, Sender, dial...)
	}
	return m.forge(m.StorageNamespace, "-here", m.to, string(m.claim.UID), Receiver, dial...)
}

// source returns the volume of a claim.
func (m *mover) source(claim string, readOnly bool) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly}}
}

// forge returns an end. It is root, to read and make files of all owners, with the capabilities that the pod
// security level baseline allows. Without a part it only passes on.
func (m *mover) forge(namespace, suffix string, at place, claim, part string, args ...string) endPod {
	args = append([]string{"storage", "copy", "--key", keyFolder}, args...)
	switch part {
	case Sender:
		args = append(args, "--read", dataFolder)
	case Receiver:
		args = append(args, "--write", dataFolder)
	}
	if m.to.cluster == "" && !m.KeepSetuid {
		args = append(args, "--plain")
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: m.name(suffix), Labels: map[string]string{moveLabel: string(m.claim.UID)}}
	if secret := m.secrets[meta.Name]; secret != nil {
		meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID}}
	}
	pod := helper.New(meta, at.node, m.Image, args...)
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	c := &pod.Spec.Containers[0]
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup, c.SecurityContext.RunAsNonRoot = ptr.To[int64](0), ptr.To[int64](0), ptr.To(false)
	c.SecurityContext.Capabilities.Add = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP"}
	pod.Spec.Volumes = []corev1.Volume{{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: meta.Name}}}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "key", MountPath: keyFolder, ReadOnly: true}}
	if part != "" {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: m.source(claim, false)})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: dataFolder, ReadOnly: part == Sender})
	}
	return endPod{pod, at.cluster, []string{part}}
}

// keys reads the keys of the ends, or makes all of them: each has its own, in the Secret with the name of its pod,
// and the certificates of those that it meets. A key leaves this cluster only for the provider of its end.
func (m *mover) keys(ctx context.Context) error {
	here := m.here()
	all := append([]endPod{here}, m.there()...)
	found := map[string]*corev1.Secret{}
	for _, e := range all {
		secret, err := store.Live(ctx, "Secret", m.Kube.CoreV1().Secrets(e.Namespace), e.Name)
		if err != nil {
			return err
		}
		if secret != nil && secret.Labels[moveLabel] == string(m.claim.UID) {
			found[e.Name] = secret
		}
	}
	if len(found) == len(all) {
		m.secrets = found
		return nil
	}
	if err := m.clearKeys(ctx); err != nil { // of those that lack their others
		return err
	}
	data := make([]map[string][]byte, len(all))
	for i, e := range all {
		c, k, err := NewKey(m.Now(), e.parts...)
		if err != nil {
			return err
		}
		data[i] = map[string][]byte{corev1.TLSCertKey: c, corev1.TLSPrivateKeyKey: k}
	}
	for i, e := range all[1:] {
		data[0][e.parts[0]+".crt"] = data[i+1][corev1.TLSCertKey]
		mine := Sender
		if e.parts[0] == Sender {
			mine = Receiver
		}
		data[i+1][mine+".crt"] = data[0][corev1.TLSCertKey]
	}
	found = map[string]*corev1.Secret{}
	for i, e := range all {
		annotations := map[string]string{offloadingv1beta1.SkipReflectionAnnotation: "true"}
		if e.cluster != "" {
			annotations = map[string]string{offloadingv1beta1.AllowReflectionAnnotation: "true", offloadingv1beta1.ReflectOnlyToAnnotation: e.cluster}
		}
		secret, err := m.Kube.CoreV1().Secrets(e.Namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, Labels: e.Labels, Annotations: annotations}, Data: data[i],
		}, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil {
			return fmt.Errorf("creating the key of the move: %w", err)
		}
		found[e.Name] = secret
	}
	m.secrets = found
	return nil
}

// begun returns the time since which new pods are refused, at the latest.
func (m *mover) begun() time.Time {
	begun := m.locked
	for _, secret := range m.secrets {
		if secret.CreationTimestamp.After(begun) && m.locked.IsZero() {
			begun = secret.CreationTimestamp.Time
		}
	}
	return begun
}

// pod returns the pod of an end, or nil. One that is not owned by the key of the end, or that was made for other
// addresses, is removed if it is of an earlier call, and else refused.
func (m *mover) pod(ctx context.Context, e endPod) (*corev1.Pod, error) {
	pod, err := store.Live(ctx, "pod", m.Kube.CoreV1().Pods(e.Namespace), e.Name)
	if pod == nil {
		return nil, err
	}
	if pod.Labels[moveLabel] != string(m.claim.UID) {
		return nil, fmt.Errorf("pod %s/%s is not of this move: delete it, and run the command again", pod.Namespace, pod.Name)
	}
	if len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].UID != m.secrets[e.Name].UID {
		return nil, m.remove(ctx, pod)
	}
	return pod, nil
}

func (m *mover) create(ctx context.Context, pod *corev1.Pod) error {
	_, err := m.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating a pod of the move: %w", err)
	}
	return nil
}

func (m *mover) remove(ctx context.Context, pod *corev1.Pod) error {
	return store.Delete(ctx, "pod", m.Kube.CoreV1().Pods(pod.Namespace), pod)
}
