package forge

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// apiVolume returns the token volume that an API server injects.
func apiVolume() corev1.Volume {
	return corev1.Volume{Name: "kube-api-access-x7k2p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o644)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		},
	}}}
}

func tokenOf(audience string, seconds *int64, path string) corev1.VolumeProjection {
	return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, ExpirationSeconds: seconds, Path: path}}
}

func podWithTokens(volumes ...corev1.Volume) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}, Spec: corev1.PodSpec{
		ServiceAccountName: "cashier", DeprecatedServiceAccount: "cashier", Volumes: volumes,
		Containers: []corev1.Container{{Name: "c"}}, InitContainers: []corev1.Container{{Name: "i"}},
	}}
	for _, v := range volumes {
		mount := corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name}
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, mount)
		pod.Spec.InitContainers[0].VolumeMounts = append(pod.Spec.InitContainers[0].VolumeMounts, mount)
	}
	return pod
}

func withAPI() PodOptions {
	return PodOptions{ObjectOptions: objectOptions(), NodeName: "milan", API: APIAccess{Enabled: true}}
}

// nameless clears the names of tokens, which have a test of their own.
func nameless(tokens []Token) []Token {
	for i := range tokens {
		tokens[i].Name = ""
	}
	return tokens
}

func TestTokens(t *testing.T) {
	support := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{"liqo.io/api-server-support": value} }
	}
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		change func(*corev1.Pod)
		opts   func(*PodOptions)
		want   []Token
	}{
		"the default account": {
			pod:    podWithTokens(apiVolume()),
			change: func(p *corev1.Pod) { p.Spec.ServiceAccountName = "" },
			want:   []Token{{ServiceAccount: "default", Seconds: 3600}},
		},
		"of other audience and lifetime": {
			pod:  podWithTokens(apiVolume(), projected("p", tokenOf("vault", new(int64(600)), "a"), tokenOf("vault", nil, "b"))),
			want: []Token{{ServiceAccount: "cashier", Seconds: 3600}, {ServiceAccount: "cashier", Audience: "vault", Seconds: 600}, {ServiceAccount: "cashier", Audience: "vault", Seconds: 3600}},
		},
		"the same twice": {
			pod:  podWithTokens(projected("p", tokenOf("", nil, "a"), tokenOf("", new(int64(3600)), "b")), apiVolume()),
			want: []Token{{ServiceAccount: "cashier", Seconds: 3600}},
		},
		"bound to the pod": {
			pod:  podWithTokens(apiVolume()),
			opts: func(o *PodOptions) { o.API.PodBound = true },
			want: []Token{{ServiceAccount: "cashier", Seconds: 3600, PodName: "web", PodUID: "u1"}},
		},
		"switched off":                    {pod: podWithTokens(apiVolume()), opts: func(o *PodOptions) { o.API.Enabled = false }},
		"disabled by annotation":          {pod: podWithTokens(apiVolume()), change: support("disabled")},
		"enabled by annotation":           {pod: podWithTokens(apiVolume()), change: support("enabled"), want: []Token{{ServiceAccount: "cashier", Seconds: 3600}}},
		"an annotation that is not known": {pod: podWithTokens(apiVolume()), change: support("remote")},
		"a pod that is refused": {pod: podWithTokens(apiVolume()), change: func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := withAPI()
			if tc.change != nil {
				tc.change(tc.pod)
			}
			if tc.opts != nil {
				tc.opts(&o)
			}
			require.Equal(t, tc.want, nameless(Tokens(tc.pod, o)))
		})
	}
}

func TestTokenNames(t *testing.T) {
	long := strings.Repeat("a", 62) + "." + strings.Repeat("b", 100)
	seen := map[string]string{}
	for name, token := range map[string]Token{
		"plain":        {ServiceAccount: "cashier", Seconds: 3600},
		"account":      {ServiceAccount: "guard", Seconds: 3600},
		"audience":     {ServiceAccount: "cashier", Audience: "vault", Seconds: 3600},
		"lifetime":     {ServiceAccount: "cashier", Seconds: 600},
		"pod":          {ServiceAccount: "cashier", Seconds: 3600, PodName: "web", PodUID: "u1"},
		"long account": {ServiceAccount: long, Seconds: 3600},
	} {
		for _, of := range [][2]string{{"rome", "milan"}, {"rome", "milan-gpu"}, {"milan", "milan"}} {
			consumer, node := of[0], of[1]
			got := tokenName(consumer, node, token)
			require.Empty(t, validation.IsDNS1123Subdomain(got), got)
			require.LessOrEqual(t, len(got), 90)
			require.Empty(t, seen[got], "%s of %s on %s has the name of %s", name, consumer, node, seen[got])
			require.Equal(t, got, tokenName(consumer, node, token))
			seen[got] = name
		}
	}
}

func TestCarriedVolumes(t *testing.T) {
	pod := podWithTokens(
		apiVolume(),
		projected("mixed",
			tokenOf("vault", new(int64(600)), "vault-token"),
			corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
			corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				{Path: "ns", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}, Mode: new(int32(0o400))}}}}),
		projected("ca", corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Optional: new(true)}}),
		corev1.Volume{Name: "plain-ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, DefaultMode: new(int32(0o440)), Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "home.pem"}}}}},
	)
	before := pod.DeepCopy()
	o := withAPI()
	tokens := Tokens(pod, o)
	require.Len(t, tokens, 2)
	api, vault := tokens[0].Name, tokens[1].Name
	secret := func(name, key, path string) corev1.VolumeProjection {
		return fromSecret(name, corev1.KeyToPath{Key: key, Path: path})
	}
	shadow, err := ShadowPod(pod, o)
	require.NoError(t, err)
	require.Equal(t, before, pod, "the argument is not changed")
	v := shadow.Spec.Pod.Volumes
	labels := before.Spec.Volumes[1].Projected.Sources[2].DownwardAPI.Items[0]
	labels.FieldRef = &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['offloading.liqo.io/all-labels']"}
	require.Equal(t, "kube-api-access-x7k2p", v[0].Name)
	require.Equal(t, int32(0o644), *v[0].Projected.DefaultMode)
	require.Equal(t, []corev1.VolumeProjection{secret(api, "token", "token"), secret(api, "ca.crt", "ca.crt"), secret(api, "namespace", "namespace")}, v[0].Projected.Sources)
	require.Equal(t, []corev1.VolumeProjection{
		secret(vault, "token", "vault-token"),
		before.Spec.Volumes[1].Projected.Sources[1],
		fromSecret(vault, corev1.KeyToPath{Key: "namespace", Path: "ns", Mode: new(int32(0o400))}),
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{labels}}},
	}, v[1].Projected.Sources)
	optional := secret(api, "ca.crt", "ca.crt")
	optional.Secret.Optional = new(true)
	require.Equal(t, []corev1.VolumeProjection{optional}, v[2].Projected.Sources)
	require.Equal(t, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: api, DefaultMode: new(int32(0o440)), Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "home.pem"}}}}, v[3].VolumeSource)
	require.Equal(t, pod.Spec.Containers[0].VolumeMounts, shadow.Spec.Pod.Containers[0].VolumeMounts)
	require.Equal(t, pod.Spec.InitContainers[0].VolumeMounts, shadow.Spec.Pod.InitContainers[0].VolumeMounts)
	require.Empty(t, shadow.Spec.Pod.ServiceAccountName)
	require.False(t, *shadow.Spec.Pod.AutomountServiceAccountToken)
	for _, token := range tokens {
		require.True(t, MountsSecret(&shadow.Spec.Pod, token.Name))
	}
	require.False(t, MountsSecret(&shadow.Spec.Pod, "another"))

	again, differs := UpdateShadowPod(shadow, pod, o)
	require.False(t, differs, "%v", again)
}

func TestTokensThatStayAtHome(t *testing.T) {
	pod, o := podWithTokens(apiVolume(), projected("p", tokenOf("vault", nil, "t"))), withAPI()
	pod.Annotations = map[string]string{"liqo.io/api-server-support": "disabled"}
	o.API.Host, o.API.Port = "192.0.2.1", "6443"
	shadow, err := ShadowPod(pod, o)
	require.NoError(t, err)
	require.Len(t, shadow.Spec.Pod.Volumes, 1)
	require.Empty(t, shadow.Spec.Pod.Volumes[0].Projected.Sources)
	require.Len(t, shadow.Spec.Pod.Containers[0].VolumeMounts, 1)
	require.Empty(t, shadow.Spec.Pod.Containers[0].Env)
	require.Empty(t, shadow.Spec.Pod.HostAliases)
}

func TestAPIServerEnvironment(t *testing.T) {
	env := func(pairs ...string) (out []corev1.EnvVar) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, corev1.EnvVar{Name: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	leads := func(host, port string) []corev1.EnvVar {
		return env("KUBERNETES_SERVICE_HOST", host, "KUBERNETES_SERVICE_PORT", port, "KUBERNETES_SERVICE_PORT_HTTPS", port)
	}
	names := []string{"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	for name, tc := range map[string]struct {
		host, port string
		service    bool
		change     func(*corev1.Pod)
		env        []corev1.EnvVar
		aliases    []corev1.HostAlias
	}{
		"not known":       {},
		"of the Service":  {host: "10.96.0.1", port: "443", service: true, env: leads("10.96.0.1", "443")},
		"an IPv6 address": {host: "2001:db8::1", port: "443", env: leads("kubernetes.default", "443"), aliases: []corev1.HostAlias{{IP: "2001:db8::1", Hostnames: names}}},
		"variables of the pod's own": {
			host: "192.0.2.1", port: "6443",
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].Env = env("A", "$(KUBERNETES_SERVICE_PORT)", "KUBERNETES_SERVICE_HOST", "mine")
				p.Spec.InitContainers[0].Env = p.Spec.Containers[0].Env
			},
			env:     env("KUBERNETES_SERVICE_PORT", "6443", "KUBERNETES_SERVICE_PORT_HTTPS", "6443", "A", "$(KUBERNETES_SERVICE_PORT)", "KUBERNETES_SERVICE_HOST", "mine"),
			aliases: []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: names}},
		},
		"aliases of the pod's own": {
			host: "api.rome.example", port: "443",
			change: func(p *corev1.Pod) {
				p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"db"}}}
			},
			env:     leads("api.rome.example", "443"),
			aliases: []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"db"}}},
		},
		"aliases of the same address and name": {
			host: "192.0.2.1", port: "443",
			change: func(p *corev1.Pod) {
				p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"db"}}, {IP: "192.0.2.2", Hostnames: []string{"kubernetes.default.svc"}}}
			},
			env: leads("kubernetes.default", "443"),
			aliases: []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"db", "kubernetes.default", "kubernetes.default.svc.cluster.local"}},
				{IP: "192.0.2.2", Hostnames: []string{"kubernetes.default.svc"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, o := podWithTokens(apiVolume()), withAPI()
			o.API.Host, o.API.Port, o.API.Service = tc.host, tc.port, tc.service
			if tc.change != nil {
				tc.change(pod)
			}
			shadow, err := ShadowPod(pod, o)
			require.NoError(t, err)
			require.Equal(t, tc.env, shadow.Spec.Pod.Containers[0].Env)
			require.Equal(t, tc.env, shadow.Spec.Pod.InitContainers[0].Env)
			require.Equal(t, tc.aliases, shadow.Spec.Pod.HostAliases)
		})
	}
}

func TestDebugContainersReachTheAPIServer(t *testing.T) {
	debug := func() *corev1.Pod {
		pod := podWithTokens(apiVolume())
		pod.Spec.EphemeralContainers = debugContainers("debug")
		pod.Spec.EphemeralContainers[0].VolumeMounts = pod.Spec.Containers[0].VolumeMounts
		return pod
	}
	o := withAPI()
	o.API.Host, o.API.Port = "192.0.2.1", "6443"
	shadow, err := ShadowPod(podWithTokens(apiVolume()), o)
	require.NoError(t, err)
	shadow, differs := UpdateShadowPod(shadow, debug(), o)
	require.True(t, differs)
	require.Equal(t, shadow.Spec.Pod.Containers[0].Env, shadow.Spec.Pod.EphemeralContainers[0].Env)
	require.Equal(t, shadow.Spec.Pod.Containers[0].VolumeMounts, shadow.Spec.Pod.EphemeralContainers[0].VolumeMounts)
	_, differs = UpdateShadowPod(shadow, debug(), o)
	require.False(t, differs)

	bare, err := ShadowPod(podWithTokens(apiVolume()), PodOptions{})
	require.NoError(t, err)
	bare, _ = UpdateShadowPod(bare, debug(), o)
	require.Empty(t, bare.Spec.Pod.EphemeralContainers[0].VolumeMounts, "the pod was made without that volume")
}

func issuedToken() IssuedToken {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	return IssuedToken{
		Token: Token{Name: "token-cashier-1", ServiceAccount: "cashier", Seconds: 3600}, Value: "secret", CA: "pem", Namespace: "shop",
		ServiceAccountUID: "sa", BoundTo: "b", Issued: at, Expires: at.Add(time.Hour),
	}
}

func TestTokenSecret(t *testing.T) {
	s := TokenSecret(issuedToken(), withAPI())
	require.Equal(t, "shop-rome", s.Namespace)
	require.Equal(t, corev1.SecretTypeOpaque, s.Type)
	require.Equal(t, map[string][]byte{"token": []byte("secret"), "ca.crt": []byte("pem"), "namespace": []byte("shop")}, s.Data)
	require.Equal(t, map[string]string{offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.NodeNameLabel: "milan", "liqo.io/managed-by": "serviceaccount-token", "offloading.liqo.io/service-account-name": "cashier"}, s.Labels)
	require.NotContains(t, s.Annotations[offloadingv1beta1.TokenAnnotation], "secret")

	owner := metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding", Name: "r", UID: "1"}
	b := BindingSecret(issuedToken().Token, "shop", "milan", owner)
	require.Equal(t, s.Name, b.Name)
	require.Empty(t, b.Data)
	require.Subset(t, b.Labels, TokenLabels("milan"))
	require.Equal(t, "cashier", b.Labels[offloadingv1beta1.ServiceAccountNameLabel])
	require.Equal(t, "true", b.Annotations[offloadingv1beta1.SkipReflectionAnnotation])
	require.Equal(t, []metav1.OwnerReference{owner}, b.OwnerReferences)
}

func TestTokenDue(t *testing.T) {
	issued := issuedToken().Issued
	for name, tc := range map[string]struct {
		token          func(*IssuedToken)
		change         func(*corev1.Secret)
		account, bound string
		from, to       time.Duration // after it was issued; 0: at once
	}{
		"an hour":           {from: 45 * time.Minute, to: 48 * time.Minute},
		"the shortest":      {token: func(t *IssuedToken) { t.Expires = t.Issued.Add(10 * time.Minute) }, from: 450 * time.Second, to: 480 * time.Second},
		"a year":            {token: func(t *IssuedToken) { t.Expires = t.Issued.Add(365 * 24 * time.Hour) }, from: 24 * time.Hour, to: 24 * time.Hour},
		"clocks disagree":   {token: func(t *IssuedToken) { t.Expires = t.Issued.Add(-time.Minute) }, from: time.Minute, to: time.Minute},
		"what others added": {change: func(s *corev1.Secret) { s.Data["x"] = []byte("y"); s.Labels["z"] = "1" }, from: 45 * time.Minute, to: 48 * time.Minute},
		"another account":   {account: "sa2"},
		"another binding":   {bound: "b2"},
		"spoilt record":     {change: func(s *corev1.Secret) { s.Annotations[offloadingv1beta1.TokenAnnotation] = "{" }},
		"no record":         {change: func(s *corev1.Secret) { s.Annotations = nil }},
		"spoilt content":    {change: func(s *corev1.Secret) { s.Data["token"] = []byte("x") }},
		"no content":        {change: func(s *corev1.Secret) { s.Data = nil }},
		"another type":      {change: func(s *corev1.Secret) { s.Type = "x" }},
	} {
		t.Run(name, func(t *testing.T) {
			token := issuedToken()
			if tc.token != nil {
				tc.token(&token)
			}
			s := TokenSecret(token, withAPI())
			if tc.change != nil {
				tc.change(s)
			}
			account, bound := token.ServiceAccountUID, token.BoundTo
			if tc.account != "" {
				account = "sa2"
			}
			if tc.bound != "" {
				bound = "b2"
			}
			due := TokenDue(s, account, bound)
			if tc.to == 0 {
				require.True(t, due.IsZero())
				return
			}
			require.GreaterOrEqual(t, due.Sub(issued), tc.from)
			require.LessOrEqual(t, due.Sub(issued), tc.to)
			require.Equal(t, due, TokenDue(s, account, bound), "always the same")
		})
	}
	require.True(t, TokenDue(nil, "sa", "b").IsZero())
}

// TestModesOfTokens: a file of a token has what its user can read at home. One of a Secret is root's.
func TestModesOfTokens(t *testing.T) {
	as := func(user int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: &user} }
	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		want   *int32
	}{
		"no user":  {func(*corev1.PodSpec) {}, nil},
		"one user": {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000))} }, new(int32(0o644))},
		"root":     {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))} }, new(int32(0o600))},
		"of containers": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext, s.InitContainers[0].SecurityContext = as(7), as(7)
		}, new(int32(0o644))},
		"two users": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext, s.InitContainers[0].SecurityContext = as(7), as(8)
		}, nil},
		"a group as well": {func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(7)), FSGroup: new(int64(9))}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			volume := projected("p", tokenOf("a", nil, "tok"))
			volume.Projected.DefaultMode = new(int32(0o440))
			pod := podWithTokens(volume)
			pod.Spec.InitContainers = []corev1.Container{{Name: "first"}}
			tc.change(&pod.Spec)
			shadow, err := ShadowPod(pod, withAPI())
			require.NoError(t, err)
			got := shadow.Spec.Pod.Volumes[0].Projected
			require.Equal(t, new(int32(0o440)), got.DefaultMode)
			require.Equal(t, tc.want, got.Sources[0].Secret.Items[0].Mode)
		})
	}
}
