package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

const (
	uid      = "11111111-2222-3333-4444-555555555555"
	tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"
)

func options() PodOptions {
	return PodOptions{ObjectOptions: objectOptions(), NodeName: "milan-gpu"}
}

// localPod returns a pod with the defaults and the token volume that an API server adds.
func localPod() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	mounts := []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "kube-api-access-x7", MountPath: tokenDir, ReadOnly: true}}
	seconds := int64(300)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "shop", UID: uid, Generation: 3, ResourceVersion: "7",
			Labels:          map[string]string{"app": "web", "pod-template-hash": "55c"},
			Annotations:     map[string]string{"note": "x"},
			Finalizers:      []string{"example.org/keep"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "milan-gpu", SchedulerName: "default-scheduler", RestartPolicy: corev1.RestartPolicyAlways,
			ServiceAccountName: "web", DeprecatedServiceAccount: "web",
			NodeSelector: map[string]string{"zone": "a"},
			Tolerations: []corev1.Toleration{
				{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists},
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
			},
			Containers:     []corev1.Container{{Name: "web", Image: "web:1", VolumeMounts: append([]corev1.VolumeMount(nil), mounts...)}},
			InitContainers: []corev1.Container{{Name: "mesh", Image: "mesh:1", RestartPolicy: &always, VolumeMounts: append([]corev1.VolumeMount(nil), mounts...)}},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				projected("kube-api-access-x7", tokenSource(), configSource()),
			},
		},
	}
}

func tokenSource() corev1.VolumeProjection {
	return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
}

func configSource() corev1.VolumeProjection {
	return corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}
}

func projected(name string, sources ...corev1.VolumeProjection) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}}
}

func TestShadowPod(t *testing.T) {
	t.Parallel()
	local := localPod()
	before := local.DeepCopy()
	got, err := ShadowPod(local, options())
	require.NoError(t, err)
	require.Equal(t, before, local, "the argument is not changed")

	always := corev1.ContainerRestartPolicyAlways
	mounts := []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	want := &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "shop-rome",
			Labels: map[string]string{
				"app": "web", "pod-template-hash": "55c",
				"offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan",
				"offloading.liqo.io/nodename": "milan-gpu", "offloading.liqo.io/local-pod-uid": uid,
			},
			Annotations: map[string]string{"note": "x"},
		},
		Spec: offloadingv1beta1.ShadowPodSpec{
			LocalGeneration: 3, LocalResourceVersion: "7",
			Pod: corev1.PodSpec{
				RestartPolicy:                corev1.RestartPolicyAlways,
				AutomountServiceAccountToken: new(bool),
				Tolerations:                  local.Spec.Tolerations[1:],
				Containers:                   []corev1.Container{{Name: "web", Image: "web:1", VolumeMounts: mounts}},
				InitContainers:               []corev1.Container{{Name: "mesh", Image: "mesh:1", RestartPolicy: &always, VolumeMounts: mounts}},
				Volumes:                      local.Spec.Volumes[:1],
			},
		},
	}
	require.Equal(t, want, got)
}

func ephemeralVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}},
	}}
}

func TestShadowPodVariants(t *testing.T) {
	t.Parallel()
	type shadow = offloadingv1beta1.ShadowPod
	always := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	given := offloadingv1beta1.LossTolerations
	own := map[string]string{"note": "x"}
	class := func(name *string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.RuntimeClassName = name }
	}
	patched := func(p offloadingv1beta1.OffloadingPatch) func(*PodOptions) {
		return func(o *PodOptions) { o.Patch = &p }
	}
	// What a row looks at.
	annotations := func(s *shadow) any { return s.Annotations }
	tolerations := func(s *shadow) any { return s.Spec.Pod.Tolerations }
	runtimeClass := func(s *shadow) any { return s.Spec.Pod.RuntimeClassName }
	volumes := func(s *shadow) any { return s.Spec.Pod.Volumes }
	ports := func(s *shadow) any { return s.Spec.Pod.Containers[0].Ports }
	kata := offloadingv1beta1.OffloadingPatch{RuntimeClassName: new("kata")}
	cases := map[string]struct {
		pod  func(*corev1.Pod)
		opts func(*PodOptions)
		look func(*shadow) any
		want any
	}{
		"skipped keys": {
			pod: func(p *corev1.Pod) { p.Annotations["cloud"] = "y"; p.Annotations["mesh"] = "z"; p.Labels["site"] = "s" },
			opts: func(o *PodOptions) {
				o.SkipAnnotations = []string{"cloud"}
				o.Patch = &offloadingv1beta1.OffloadingPatch{AnnotationsNotReflected: []string{"mesh", "note"}, LabelsNotReflected: []string{"site"}}
			},
			look: func(s *shadow) any { return []any{len(s.Annotations), s.Labels["site"]} }, want: []any{0, ""},
		},
		"annotations that speak to this cluster": {
			pod: func(p *corev1.Pod) {
				for _, key := range homeAnnotations {
					p.Annotations[key] = "true"
				}
			},
			look: annotations, want: own,
		},
		"an ephemeral volume whose claim is carried": {
			pod: func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{ephemeralVolume("data"), ephemeralVolume("scratch")}
			},
			opts: func(o *PodOptions) { o.ClaimedVolumes = []string{"data"} },
			look: volumes, want: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-1-data"},
			}}, ephemeralVolume("scratch")},
		},
		"the service account keeps its name in variables": {
			pod: func(p *corev1.Pod) {
				env := []corev1.EnvVar{
					{Name: "ACCOUNT", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("spec.serviceAccountName")}},
					{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("spec.nodeName")}},
				}
				p.Spec.Containers[0].Env, p.Spec.InitContainers[0].Env = env, env[:1:1]
			},
			look: func(s *shadow) any {
				return [][]corev1.EnvVar{s.Spec.Pod.Containers[0].Env, s.Spec.Pod.InitContainers[0].Env}
			},
			want: [][]corev1.EnvVar{
				{{Name: "ACCOUNT", Value: "web"}, {Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("metadata.labels['offloading.liqo.io/nodename']")}}},
				{{Name: "ACCOUNT", Value: "web"}},
			},
		},
		"keys by which GitOps tools know their objects stay": {
			pod: func(p *corev1.Pod) {
				p.Labels["argocd.argoproj.io/instance"], p.Labels["app.kubernetes.io/instance"] = "shop", "shop"
				p.Annotations["argocd.argoproj.io/tracking-id"], p.Annotations["kustomize.toolkit.fluxcd.io/prune"] = "shop:/Pod:shop/web", "disabled"
			},
			look: func(s *shadow) any { // selectors need the second
				return []any{s.Labels["argocd.argoproj.io/instance"], s.Labels["app.kubernetes.io/instance"], s.Annotations}
			},
			want: []any{"", "shop", own},
		},
		"our labels cannot be skipped or overridden": {
			pod:  func(p *corev1.Pod) { p.Labels[offloadingv1beta1.OriginLabel] = "other" },
			opts: func(o *PodOptions) { o.SkipLabels = []string{offloadingv1beta1.LocalPodUIDLabel} },
			look: func(s *shadow) any {
				return s.Labels[offloadingv1beta1.OriginLabel] + s.Labels[offloadingv1beta1.LocalPodUIDLabel]
			}, want: "rome" + uid,
		},
		"patch": {
			opts: patched(offloadingv1beta1.OffloadingPatch{
				NodeSelector: map[string]string{"pool": "peers"}, Affinity: &offloadingv1beta1.OffloadingAffinity{NodeAffinity: &corev1.NodeAffinity{}}, RuntimeClassName: new("gvisor"),
			}),
			look: func(s *shadow) any {
				return corev1.PodSpec{NodeSelector: s.Spec.Pod.NodeSelector, Affinity: s.Spec.Pod.Affinity, RuntimeClassName: s.Spec.Pod.RuntimeClassName}
			},
			want: corev1.PodSpec{NodeSelector: map[string]string{"pool": "peers"}, Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}, RuntimeClassName: new("gvisor")},
		},
		"a toleration of the patch that is there is not added again": {
			opts: patched(offloadingv1beta1.OffloadingPatch{Tolerations: []corev1.Toleration{
				{Key: "peers", Operator: corev1.TolerationOpExists}, {Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			}}),
			look: tolerations, want: append(localPod().Spec.Tolerations[1:], corev1.Toleration{Key: "peers", Operator: corev1.TolerationOpExists}),
		},
		"runtime class: liqo is only a way here":          {pod: class(new("liqo")), look: runtimeClass, want: (*string)(nil)},
		"runtime class: liqo, then the patch's":           {pod: class(new("liqo")), opts: patched(kata), look: runtimeClass, want: new("kata")},
		"runtime class: the pod's own before the patch's": {pod: class(new("gvisor")), opts: patched(kata), look: runtimeClass, want: new("gvisor")},
		"runtime class: the annotation before all": {
			pod: func(p *corev1.Pod) {
				class(new("gvisor"))(p)
				p.Annotations["liqo.io/remote-runtime-class-name"] = "nvidia"
			},
			look: runtimeClass, want: new("nvidia"),
		},
		"a token volume of the author's keeps its other sources and its mounts": {
			pod: func(p *corev1.Pod) {
				p.Spec.Volumes[1] = projected("vault", tokenSource(), configSource())
				p.Spec.Containers[0].VolumeMounts[1].Name = "vault"
				p.Spec.InitContainers[0].VolumeMounts = nil
			},
			look: func(s *shadow) any { return []any{s.Spec.Pod.Volumes[1], len(s.Spec.Pod.Containers[0].VolumeMounts)} },
			want: []any{projected("vault", configSource()), 2},
		},
		"a token volume with no other source stays, empty": {
			pod:  func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{projected("vault", tokenSource())} },
			look: volumes, want: []corev1.Volume{projected("vault", []corev1.VolumeProjection{}...)},
		},
		"host network": {
			pod: func(p *corev1.Pod) {
				p.Spec.HostNetwork, p.Spec.Containers[0].Ports = true, []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
			},
			look: ports, want: []corev1.ContainerPort{{ContainerPort: 80}},
		},
		"a host port that was asked for is kept": {
			pod: func(p *corev1.Pod) {
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
			},
			look: ports, want: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}},
		},
		"what keeps the pod at home while the provider is lost stays at home": {
			pod: func(p *corev1.Pod) {
				p.Annotations[offloadingv1beta1.OnProviderLossAnnotation] = offloadingv1beta1.OnProviderLossKeep
				p.Spec.Tolerations = append(given(), p.Spec.Tolerations...)
			},
			look: func(s *shadow) any { return []any{s.Spec.Pod.Tolerations, s.Annotations} }, want: []any{localPod().Spec.Tolerations[1:], own},
		},
		"the same, of the pod's own, goes along": {
			pod: func(p *corev1.Pod) {
				p.Annotations[offloadingv1beta1.OnProviderLossAnnotation] = offloadingv1beta1.OnProviderLossKeep
				p.Spec.Tolerations = append(given(), given()...)
			},
			look: tolerations, want: given(),
		},
		"and so without the annotation":      {pod: func(p *corev1.Pod) { p.Spec.Tolerations = given() }, look: tolerations, want: given()},
		"a toleration of everything is kept": {pod: func(p *corev1.Pod) { p.Spec.Tolerations = always }, look: tolerations, want: always},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, opts := localPod(), options()
			if tc.pod != nil {
				tc.pod(pod)
			}
			if tc.opts != nil {
				tc.opts(&opts)
			}
			got, err := ShadowPod(pod, opts)
			require.NoError(t, err)
			require.Equal(t, tc.want, tc.look(got))
			require.False(t, got.Spec.Pod.HostNetwork)
			again, changed := UpdateShadowPod(got, pod, opts)
			require.False(t, changed, "what has just been forged is up to date")
			require.Same(t, got, again)
		})
	}
}

func TestShadowPodRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pod     func(*corev1.Pod)
		reason  string
		message string
	}{
		"resource claims": {func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
			reasons.ResourceClaimsNotSupported, `"gpu"`},
		"pod certificate": {func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{projected("id", corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}})}
		}, reasons.PodCertificateNotSupported, `"id"`},
		"a reflected pod": {func(p *corev1.Pod) { p.Labels["liqo.io/managed-by"] = "shadowpod" }, reasons.AlreadyReflected, "reflected pods"},
		"unknown preset": {func(p *corev1.Pod) { p.Annotations["liqo.io/anti-affinity-preset"] = "strict" },
			reasons.AntiAffinityInvalid, `"strict": accepted are propagate, soft and hard`},
		"preset without labels": {func(p *corev1.Pod) {
			p.Labels = nil
			p.Annotations["liqo.io/anti-affinity-preset"] = "soft"
		}, reasons.AntiAffinityInvalid, "no reflected label"},
		"preset by a label that the pod lacks": {func(p *corev1.Pod) {
			p.Annotations["liqo.io/anti-affinity-preset"] = "hard"
			p.Annotations["liqo.io/anti-affinity-labels"] = "app, tier"
		}, reasons.AntiAffinityInvalid, `"tier"`},
		"preset by no label": {func(p *corev1.Pod) {
			p.Annotations["liqo.io/anti-affinity-preset"] = "hard"
			p.Annotations["liqo.io/anti-affinity-labels"] = ""
		}, reasons.AntiAffinityInvalid, `names ""`},
		"unknown access to the API server": {func(p *corev1.Pod) { p.Annotations["liqo.io/api-server-support"] = "remote" },
			reasons.APIServerSupportInvalid, `"remote" is not accepted: disabled keeps`},
		"a service account of the provider": {func(p *corev1.Pod) { p.Annotations["liqo.io/remote-service-account-name"] = "admin" },
			reasons.APIServerSupportInvalid, `liqo.io/remote-service-account-name: "admin" is not accepted: pods run with no service account of the provider; remove the annotation, and the pod has the tokens of its own account (spec.serviceAccountName)`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := localPod()
			tc.pod(pod)
			for _, o := range []PodOptions{options(), withAPI()} {
				_, err := ShadowPod(pod, o)
				var refused *Refused
				require.ErrorAs(t, err, &refused)
				require.Equal(t, tc.reason, refused.Reason)
				require.Contains(t, refused.Message, tc.message)
				require.Equal(t, refused.Reason+": "+refused.Message, err.Error())
			}
		})
	}
}

func TestAntiAffinityPresets(t *testing.T) {
	t.Parallel()
	own := &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "rack"}}}
	term := func(labels map[string]string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: "kubernetes.io/hostname"}
	}
	hard := func(labels map[string]string) *corev1.PodAntiAffinity {
		return &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(labels)}}
	}
	cases := map[string]struct {
		annotations map[string]string
		skip        []string
		want        *corev1.PodAntiAffinity
	}{
		"none":      {want: nil},
		"propagate": {annotations: map[string]string{"liqo.io/anti-affinity-preset": "propagate"}, want: own},
		"soft": {annotations: map[string]string{"liqo.io/anti-affinity-preset": "soft"},
			want: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 1, PodAffinityTerm: term(map[string]string{"app": "web", "tier": "front"})}}}},
		"hard": {annotations: map[string]string{"liqo.io/anti-affinity-preset": "hard"},
			want: hard(map[string]string{"app": "web", "tier": "front"})},
		"hard, labels chosen": {annotations: map[string]string{"liqo.io/anti-affinity-preset": "hard", "liqo.io/anti-affinity-labels": "tier"},
			want: hard(map[string]string{"tier": "front"})},
		"hard, a label that stays here": {annotations: map[string]string{"liqo.io/anti-affinity-preset": "hard"}, skip: []string{"tier"},
			want: hard(map[string]string{"app": "web"})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, opts := localPod(), options()
			pod.Annotations, opts.SkipLabels = tc.annotations, tc.skip
			pod.Labels["tier"] = "front"
			pod.Labels["statefulset.kubernetes.io/pod-name"] = "web-1"
			pod.Labels["apps.kubernetes.io/pod-index"] = "1"
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: own, NodeAffinity: &corev1.NodeAffinity{}}
			got, err := ShadowPod(pod, opts)
			require.NoError(t, err)
			if tc.want == nil {
				require.Nil(t, got.Spec.Pod.Affinity)
				return
			}
			require.Equal(t, &corev1.Affinity{PodAntiAffinity: tc.want}, got.Spec.Pod.Affinity)
		})
	}
}
