package move

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/helper"
	"github.com/liqod/liqod/roles/cmd/transfer"
)

const (
	fieldManager = offloadingv1beta1.MoveFieldManager
	// moveLabel has the UID of the claim, on the pods and Secrets of its move.
	moveLabel = "offloading.liqo.io/move"
	// addressAnnotation has the addresses that the pod in this cluster connects to.
	addressAnnotation = "offloading.liqo.io/move-address"
	port              = "5473"
	// Folders in the pods.
	dataFolder, keyFolder = "/data", "/key"
	certificate, key      = "tls.crt", "tls.key"
)

// name returns the name of the objects of the move.
func (m *mover) name(suffix string) string { return "liqod-move-" + string(m.claim.UID) + suffix }

// relays reports whether the data moves between two providers. A pod in this cluster then passes on
// what the two others send: a provider need not reach the other one.
func (m *mover) relays() bool { return m.from.cluster != "" && m.to.cluster != "" && m.from != m.to }

// end is a pod that listens in a provider.
type end struct {
	*corev1.Pod
	cluster string
}

// there returns the pods in providers. Their claim has the name of the user's there, too.
func (m *mover) there() (out []end) {
	listen := []string{"--listen", net.JoinHostPort("", port)}
	if m.from.cluster != "" {
		out = append(out, end{m.forge(m.Namespace, "-there", m.from.node, m.Claim, true, listen...), m.from.cluster})
	}
	suffix := "-there"
	if m.relays() {
		suffix = "-target"
	}
	if m.to.cluster != "" {
		out = append(out, end{m.forge(m.Namespace, suffix, m.to.node, m.Claim, false, listen...), m.to.cluster})
	}
	return out
}

// here returns the pod in this cluster, which connects to those in providers. It uses the user's claim
// if the data is here, and the real one if the data moves here.
func (m *mover) here(addresses ...string) *corev1.Pod {
	var dial []string
	for _, a := range addresses {
		dial = append(dial, "--connect", net.JoinHostPort(a, port))
	}
	var pod *corev1.Pod
	switch {
	case m.relays():
		pod = m.forge(m.Namespace, "-here", m.relay, "", false, dial...)
		c := &pod.Spec.Containers[0]
		c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return a == "--write" || a == dataFolder })
		c.VolumeMounts, pod.Spec.Volumes = c.VolumeMounts[1:], pod.Spec.Volumes[1:]
	case m.from.cluster == "":
		pod = m.forge(m.Namespace, "-here", m.from.node, m.Claim, true, dial...)
	default:
		pod = m.forge(m.StorageNamespace, "-here", m.to.node, string(m.claim.UID), false, dial...)
	}
	pod.Annotations = map[string]string{addressAnnotation: strings.Join(addresses, ",")}
	return pod
}

// source returns the volume of a claim.
func (m *mover) source(claim string, readOnly bool) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly}}
}

// forge returns a pod that copies. It is root, to read and make files of all owners, with the
// capabilities that the pod security level baseline allows.
func (m *mover) forge(namespace, suffix, node, claim string, sends bool, args ...string) *corev1.Pod {
	direction := "--write"
	if sends {
		direction = "--read"
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: m.name(suffix), Labels: map[string]string{moveLabel: string(m.claim.UID)}}
	pod := helper.New(meta, node, m.Image, append([]string{"storage", "copy", direction, dataFolder, "--key", keyFolder}, args...)...)
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: m.source(claim, false)},
		{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: m.name("")}}},
	}
	c := &pod.Spec.Containers[0]
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup, c.SecurityContext.RunAsNonRoot = ptr.To[int64](0), ptr.To[int64](0), ptr.To(false)
	c.SecurityContext.Capabilities.Add = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP"}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: dataFolder, ReadOnly: sends}, {Name: "key", MountPath: keyFolder, ReadOnly: true}}
	return pod
}

// keys makes the key of the move, the same for all pods.
func (m *mover) keys(ctx context.Context) error {
	var data map[string][]byte
	for _, namespace := range []string{m.Namespace, m.here().Namespace} {
		secrets := m.Kube.CoreV1().Secrets(namespace)
		have, err := secrets.Get(ctx, m.name(""), metav1.GetOptions{})
		switch {
		case err == nil && data != nil && string(have.Data[certificate]) != string(data[certificate]):
			return fmt.Errorf("the Secret %s/%s is not of this move: delete it, and run the command again", namespace, have.Name)
		case err == nil:
			data = have.Data
			continue
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading the key of the move: %w", err)
		}
		if data == nil {
			c, k, err := transfer.NewKey(m.Now())
			if err != nil {
				return err
			}
			data = map[string][]byte{certificate: c, key: k}
		}
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: m.name(""), Labels: map[string]string{moveLabel: string(m.claim.UID)},
				Annotations: map[string]string{offloadingv1beta1.AllowReflectionAnnotation: "true"},
			},
			Data: data,
		}, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil {
			return fmt.Errorf("creating the key of the move: %w", err)
		}
	}
	return nil
}

// begun returns the time since which new pods are refused, at the latest.
func (m *mover) begun(ctx context.Context) (time.Time, error) {
	secret, err := m.Kube.CoreV1().Secrets(m.Namespace).Get(ctx, m.name(""), metav1.GetOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the key of the move: %w", err)
	}
	if m.locked.After(secret.CreationTimestamp.Time) {
		return m.locked, nil
	}
	return secret.CreationTimestamp.Time, nil
}

// pod returns the pod with the name of another one, or nil.
func (m *mover) pod(ctx context.Context, like *corev1.Pod) (*corev1.Pod, error) {
	pod, err := m.Kube.CoreV1().Pods(like.Namespace).Get(ctx, like.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a pod of the move: %w", err)
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
	err := m.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting a pod of the move: %w", err)
	}
	return nil
}
