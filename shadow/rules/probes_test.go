package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/reasons"
)

// TestProbesGoToThePod: a kubelet would send them from the node to any host, its own
// loopback address and the cloud's metadata service included.
func TestProbesGoToThePod(t *testing.T) {
	t.Parallel()
	get := func(host string) *corev1.HTTPGetAction { return &corev1.HTTPGetAction{Host: host} }
	socket := func(host string) *corev1.TCPSocketAction { return &corev1.TCPSocketAction{Host: host} }
	probe := func(handler corev1.ProbeHandler) *corev1.Probe { return &corev1.Probe{ProbeHandler: handler} }
	for field, c := range map[string]corev1.Container{
		"livenessProbe.httpGet.host":         {LivenessProbe: probe(corev1.ProbeHandler{HTTPGet: get("169.254.169.254")})},
		"readinessProbe.tcpSocket.host":      {ReadinessProbe: probe(corev1.ProbeHandler{TCPSocket: socket("127.0.0.1")})},
		"startupProbe.httpGet.host":          {StartupProbe: probe(corev1.ProbeHandler{HTTPGet: get("localhost")})},
		"lifecycle.postStart.httpGet.host":   {Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: get("::1")}}},
		"lifecycle.preStop.tcpSocket.host":   {Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{TCPSocket: socket("10.0.0.1")}}},
		"lifecycle.postStart.tcpSocket.host": {Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{TCPSocket: socket("10.0.0.1")}}},
	} {
		c.Name = "c"
		for where, spec := range map[string]corev1.PodSpec{
			"spec.containers":     {Containers: []corev1.Container{{Name: "other"}, c}},
			"spec.initContainers": {InitContainers: []corev1.Container{c}},
		} {
			message := requireRefused(t, spec, Allowed{Cluster: "milan"}, reasons.ProbeHostRefused)
			require.Contains(t, message, where+` "c": `+field+` is "`)
			require.Contains(t, message, "cluster milan accepts no host from peers")
		}
	}
	own := corev1.PodSpec{Containers: []corev1.Container{{
		LivenessProbe: probe(corev1.ProbeHandler{HTTPGet: get("")}), ReadinessProbe: probe(corev1.ProbeHandler{TCPSocket: socket("")}),
		StartupProbe: probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{}}),
		Lifecycle:    &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: get("")}, PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}}},
	}}}
	require.Equal(t, own.DeepCopy().Containers, hardened(t, own, Allowed{}).Containers)
}

// TestAlwaysPull: an image that a node has from another tenant needs its pull secret again.
func TestAlwaysPull(t *testing.T) {
	t.Parallel()
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{ImagePullPolicy: corev1.PullNever}}, Containers: []corev1.Container{{}, {ImagePullPolicy: corev1.PullIfNotPresent}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{PullPolicy: corev1.PullIfNotPresent}}}},
	}
	allowed := Allowed{VolumeTypes: []string{"image"}}
	require.NoError(t, Harden(&spec, allowed))
	require.Equal(t, corev1.PullNever, spec.InitContainers[0].ImagePullPolicy, "without the setting it is the author's")
	allowed.AlwaysPull = true
	require.NoError(t, Harden(&spec, allowed))
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		require.Equal(t, corev1.PullAlways, c.ImagePullPolicy)
	}
	require.Equal(t, corev1.PullAlways, spec.Volumes[0].Image.PullPolicy)
}
