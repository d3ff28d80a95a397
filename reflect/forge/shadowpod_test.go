package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
	for name, tc := range map[string]struct {
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
		"a toleration of everything is kept": {pod: func(p *corev1.Pod) { p.Spec.Tolerations = always }, look: tolerations, want: always},
	} {
		t.Run(name, func(t *testing.T) {
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
	for name, tc := range map[string]struct {
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
	} {
		t.Run(name, func(t *testing.T) {
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
	own := &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "rack"}}}
	term := func(labels map[string]string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: "kubernetes.io/hostname"}
	}
	hard := func(labels map[string]string) *corev1.PodAntiAffinity {
		return &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(labels)}}
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		skip        []string
		want        *corev1.PodAntiAffinity
	}{
		"propagate": {annotations: map[string]string{"liqo.io/anti-affinity-preset": "propagate"}, want: own},
		"soft": {annotations: map[string]string{"liqo.io/anti-affinity-preset": "soft"},
			want: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 1, PodAffinityTerm: term(map[string]string{"app": "web", "tier": "front"})}}}},
		"hard, labels chosen": {annotations: map[string]string{"liqo.io/anti-affinity-preset": "hard", "liqo.io/anti-affinity-labels": "tier"},
			want: hard(map[string]string{"tier": "front"})},
		"hard, a label that stays here": {annotations: map[string]string{"liqo.io/anti-affinity-preset": "hard"}, skip: []string{"tier"},
			want: hard(map[string]string{"app": "web"})},
	} {
		t.Run(name, func(t *testing.T) {
			pod, opts := localPod(), options()
			pod.Annotations, opts.SkipLabels = tc.annotations, tc.skip
			pod.Labels["tier"] = "front"
			pod.Labels["statefulset.kubernetes.io/pod-name"] = "web-1"
			pod.Labels["apps.kubernetes.io/pod-index"] = "1"
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: own, NodeAffinity: &corev1.NodeAffinity{}}
			got, err := ShadowPod(pod, opts)
			require.NoError(t, err)
			require.Equal(t, &corev1.Affinity{PodAntiAffinity: tc.want}, got.Spec.Pod.Affinity)
		})
	}
}

// TestPodsThatLiveAtHome: a pod whose namespace has services Home has the DNS of this cluster, as a kubelet of
// this cluster gives it, and the name of its namespace here. A pod with another DNS keeps it.
func TestPodsThatLiveAtHome(t *testing.T) {
	o := options()
	o.Home, o.DNS = true, DNS{Servers: []string{"10.96.0.10"}, Domain: "cluster.local"}
	own := &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.1", "10.96.0.10", "192.0.2.2", "192.0.2.3"}, Searches: []string{"corp.example"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}},
	}
	namespace := localPod().Namespace
	searches := []string{namespace + ".svc.cluster.local", "svc.cluster.local", "cluster.local"}
	ndots := []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}}
	for name, tc := range map[string]struct {
		policy  corev1.DNSPolicy
		host    bool
		config  *corev1.PodDNSConfig
		is      corev1.DNSPolicy
		becomes *corev1.PodDNSConfig
	}{
		"the cluster's":                 {corev1.DNSClusterFirst, false, nil, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.10"}, Searches: searches, Options: ndots}},
		"and its own":                   {corev1.DNSClusterFirst, false, own, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.10", "192.0.2.1", "192.0.2.2"}, Searches: append(searches[:3:3], "corp.example"), Options: own.Options}},
		"the cluster's in host network": {corev1.DNSClusterFirstWithHostNet, true, nil, corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.10"}, Searches: searches, Options: ndots}},
		"the node's in host network":    {corev1.DNSClusterFirst, true, nil, corev1.DNSClusterFirst, nil},
		"the node's":                    {corev1.DNSDefault, false, nil, corev1.DNSDefault, nil},
		"its own alone":                 {corev1.DNSNone, false, own, corev1.DNSNone, own},
	} {
		local := localPod()
		local.Spec.DNSPolicy, local.Spec.HostNetwork, local.Spec.DNSConfig = tc.policy, tc.host, tc.config
		local.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: refersTo("metadata.namespace")}}}
		before := local.DeepCopy()
		shadow, err := ShadowPod(local, o)
		require.NoError(t, err, name)
		require.Equal(t, before, local, "the argument is not changed")
		require.Equal(t, tc.is, shadow.Spec.Pod.DNSPolicy, name)
		require.Equal(t, tc.becomes, shadow.Spec.Pod.DNSConfig, name)
		require.Equal(t, "metadata.annotations['"+homeNamespace+"']", shadow.Spec.Pod.Containers[0].Env[0].ValueFrom.FieldRef.FieldPath)
		require.Equal(t, namespace, shadow.Annotations[homeNamespace])
		_, changed := UpdateShadowPod(shadow, local, o)
		require.False(t, changed, name)
	}
}

// TestOnLoss: what is given to a pod is taken back to the letter, however often, and none of
// it reaches the provider.
func TestOnLoss(t *testing.T) {
	const keep, evict = offloadingv1beta1.OnProviderLossKeep, offloadingv1beta1.OnProviderLossEvict
	within := func(seconds int64, taints ...string) (out []corev1.Toleration) {
		for _, taint := range taints {
			out = append(out, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
		}
		return out
	}
	join := func(parts ...[]corev1.Toleration) (out []corev1.Toleration) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	both := []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}
	given := offloadingv1beta1.LossTolerations()
	for name, tc := range map[string]struct {
		own         []corev1.Toleration
		taken       []corev1.Toleration // the given ones that were taken back
		keepsItsOwn bool
	}{
		"the usual ones":          {own: within(300, both...), taken: within(300, both...)},
		"none":                    {taken: within(0, both...)},
		"another time for each":   {own: join(within(1, both[0]), within(9, both[1])), taken: join(within(1, both[0]), within(9, both[1]))},
		"kept by its own":         {own: given, keepsItsOwn: true},
		"tolerates all":           {own: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, keepsItsOwn: true},
		"one of the two for ever": {own: join(given[:1], within(300, both[1])), taken: join(given[:1], within(300, both[1]))},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: tc.own}}
			become := func(keep bool, tolerations []corev1.Toleration, mark string) {
				t.Helper()
				before := pod.DeepCopy()
				for range 2 {
					gotTolerations, gotMark := OnLoss(pod, keep)
					require.Equal(t, before, pod, "the argument is changed")
					require.Equal(t, tolerations, gotTolerations)
					require.Equal(t, mark, gotMark)
					pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: corev1.PodSpec{Tolerations: gotTolerations}}
					if mark != "" {
						pod.Annotations[offloadingv1beta1.OnProviderLossAnnotation] = gotMark
					}
					before = pod.DeepCopy()
				}
				require.Equal(t, tc.own, forgeTolerations(pod, nil), "in the provider")
			}
			become(false, tc.own, "")
			if tc.keepsItsOwn {
				become(true, tc.own, "")
				return
			}
			for range 2 {
				become(true, join(given, tc.own), keep)
				become(false, join(tc.taken, tc.own), evict)
			}
		})
	}
}

func TestUpdateShadowPod(t *testing.T) {
	cpu := func(s string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(s)}}
	}
	n := func(i int64) *int64 { return &i }
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   func(*offloadingv1beta1.ShadowPod) // nil: no update
	}{
		"something immutable":  {change: func(p *corev1.Pod) { p.Spec.Hostname = "other" }},
		"a quantity respelled": {change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = cpu("1000m") }},
		"a preset, too late":   {change: func(p *corev1.Pod) { p.Annotations["liqo.io/anti-affinity-preset"] = "hard" }, want: func(s *offloadingv1beta1.ShadowPod) { s.Annotations["liqo.io/anti-affinity-preset"] = "hard" }},
		"a label":              {change: func(p *corev1.Pod) { p.Labels["a"] = "b" }, want: func(s *offloadingv1beta1.ShadowPod) { s.Labels["a"] = "b" }},
		"no annotation left":   {change: func(p *corev1.Pod) { p.Annotations = nil }, want: func(s *offloadingv1beta1.ShadowPod) { s.Annotations = nil }},
		"an image": {
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:2"; p.Generation = 4 },
			want: func(s *offloadingv1beta1.ShadowPod) {
				s.Spec.Pod.Containers[0].Image = "web:2"
				s.Spec.LocalGeneration = 4
			},
		},
		"a sidecar's image": {
			change: func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "mesh:2" },
			want:   func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.InitContainers[0].Image = "mesh:2" },
		},
		"a resize": {
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = cpu("2") },
			want:   func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.Containers[0].Resources = cpu("2") },
		},
		"a resize of the pod": {
			change: func(p *corev1.Pod) { r := cpu("3"); p.Spec.Resources = &r },
			want:   func(s *offloadingv1beta1.ShadowPod) { r := cpu("3"); s.Spec.Pod.Resources = &r },
		},
		"a toleration added": {
			change: func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "k"}) },
			want: func(s *offloadingv1beta1.ShadowPod) {
				s.Spec.Pod.Tolerations = append(s.Spec.Pod.Tolerations, corev1.Toleration{Key: "k"})
			},
		},
		"a toleration removed, which the provider would refuse": {change: func(p *corev1.Pod) { p.Spec.Tolerations = nil }},
		"deadlines": {
			change: func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds, p.Spec.TerminationGracePeriodSeconds = n(5), n(6) },
			want: func(s *offloadingv1beta1.ShadowPod) {
				s.Spec.Pod.ActiveDeadlineSeconds, s.Spec.Pod.TerminationGracePeriodSeconds = n(5), n(6)
			},
		},
		"one debug container that has begun, one that waits, one of which nothing is known": {
			change: func(p *corev1.Pod) {
				p.Spec.EphemeralContainers = debugContainers("begun", "waits", "new")
				p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{running("begun", 0), {
					Name: "waits", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
			},
			want: func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.EphemeralContainers = debugContainers("waits", "new") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := localPod()
			pod.Spec.Containers[0].Resources = cpu("1")
			have, err := ShadowPod(pod, options())
			require.NoError(t, err)
			have.ResourceVersion, have.Status.Phase = "9", corev1.PodFailed
			before := have.DeepCopy()
			tc.change(pod)
			got, changed := UpdateShadowPod(have, pod, options())
			require.Equal(t, before, have, "the argument is not changed")
			if tc.want == nil {
				require.False(t, changed)
				return
			}
			want := have.DeepCopy()
			tc.want(want)
			require.True(t, changed)
			require.Equal(t, want, got)
		})
	}
}
