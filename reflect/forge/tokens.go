package forge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// ReasonAPIServerSupport says that the annotation about the API server has a value that
// is not known.
const ReasonAPIServerSupport = "APIServerSupportInvalid"

const (
	// defaultAccount is the service account of pods that name none.
	defaultAccount = "default"
	// usualSeconds is the life of a token when the pod does not say.
	usualSeconds = 3600
	// injectedSeconds is the life that API servers ask for in the volumes they inject.
	// Bound to a pod, such a token lives for a year (the API server's setting
	// --service-account-extend-token-expiration); one second more or less and it does not.
	injectedSeconds = 3607
	// accountInName bounds how much of a service account's name shows in a Secret's.
	accountInName = 63
	// apiServerName is what the certificate of every API server is for.
	apiServerName = "kubernetes.default"
)

// APIAccess says how offloaded pods reach the API server of this cluster.
type APIAccess struct {
	// Enabled is false where no offloaded pod gets a token of this cluster.
	Enabled bool
	// Host, an IP address or a DNS name, and Port are where pods in the provider reach the
	// API server. Without a Host the pods' environment is left alone.
	Host, Port string
	// PodBound binds each token to its pod, instead of to a Secret that pods share.
	PodBound bool
}

// Token is a token of a service account of this cluster that offloaded pods carry.
type Token struct {
	// Name is that of the Secret with the token in the twin namespace, and of the Secret
	// here that the token is bound to.
	Name string
	// ServiceAccount is in the pod's namespace.
	ServiceAccount string
	// Audience may be empty: the API server's own.
	Audience string
	// Seconds is the life to ask for.
	Seconds int64
	// PodName and PodUID are those of the pod that the token is bound to, if it is.
	PodName string
	PodUID  types.UID
}

// Tokens returns the tokens that a pod carries to the provider, each once: none when its
// tokens stay at home, or it is not offloaded as it is written.
func Tokens(local *corev1.Pod, o PodOptions) []Token {
	if !o.carriesTokens(local) || supported(local) != nil {
		return nil
	}
	var out []Token
	for i := range local.Spec.Volumes {
		if local.Spec.Volumes[i].Projected == nil {
			continue
		}
		for _, source := range local.Spec.Volumes[i].Projected.Sources {
			if source.ServiceAccountToken == nil {
				continue
			}
			if t := o.token(local, source.ServiceAccountToken); !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

// MountsSecret reports whether a pod with that spec has a projected volume with the Secret.
func MountsSecret(spec *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.Secret != nil && p.Secret.Name == name
		})
	})
}

func (o PodOptions) carriesTokens(local *corev1.Pod) bool {
	return o.API.Enabled && local.Annotations[offloadingv1beta1.APIServerSupportAnnotation] != offloadingv1beta1.APIServerSupportDisabled
}

// knownSupport refuses values of the annotation that ask for what is not there.
func knownSupport(local *corev1.Pod) error {
	switch value := local.Annotations[offloadingv1beta1.APIServerSupportAnnotation]; value {
	case "", offloadingv1beta1.APIServerSupportEnabled, offloadingv1beta1.APIServerSupportDisabled:
		return nil
	default:
		return &Refused{ReasonAPIServerSupport, fmt.Sprintf("annotation %s: %q is not accepted: %s keeps the pod's tokens at home, %s (or no annotation) gives them to it",
			offloadingv1beta1.APIServerSupportAnnotation, value, offloadingv1beta1.APIServerSupportDisabled, offloadingv1beta1.APIServerSupportEnabled)}
	}
}

func account(local *corev1.Pod) string {
	if name := local.Spec.ServiceAccountName; name != "" {
		return name
	}
	return defaultAccount
}

func (o PodOptions) token(local *corev1.Pod, p *corev1.ServiceAccountTokenProjection) Token {
	t := Token{ServiceAccount: account(local), Audience: p.Audience, Seconds: usualSeconds}
	if p.ExpirationSeconds != nil && *p.ExpirationSeconds != injectedSeconds {
		t.Seconds = *p.ExpirationSeconds
	}
	if o.API.PodBound {
		t.PodName, t.PodUID = local.Name, local.UID
	}
	t.Name = tokenName(o.OriginClusterID, o.NodeName, t)
	return t
}

// tokenName is equal for equal tokens, and differs between clusters, which may share a
// namespace, and between virtual nodes.
func tokenName(consumer, node string, t Token) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d %q", consumer, node, t.ServiceAccount, t.Audience, t.Seconds, t.PodUID))
	shown := strings.TrimRight(t.ServiceAccount[:min(len(t.ServiceAccount), accountInName)], "-.")
	return "token-" + shown + "-" + hex.EncodeToString(sum[:6])
}

// carryTokens has the pod find in Secrets of the twin namespace what the kubelets here
// would give it: its tokens, and beside them the CA of this cluster's API server and the
// name of its namespace here.
func (o PodOptions) carryTokens(spec *corev1.PodSpec, local *corev1.Pod) {
	tokens := Tokens(local, o)
	if len(tokens) == 0 {
		return
	}
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case hasToken(v):
			v.Projected.Sources = o.carriedSources(local, v.Projected.Sources)
		case v.Projected != nil:
			v.Projected.Sources = carriedCAs(tokens[0].Name, v.Projected.Sources)
		case v.ConfigMap != nil && v.ConfigMap.Name == RootCAConfigMap:
			v.Secret = &corev1.SecretVolumeSource{SecretName: tokens[0].Name, Items: caItems(v.ConfigMap.Items),
				DefaultMode: v.ConfigMap.DefaultMode, Optional: v.ConfigMap.Optional}
			v.ConfigMap = nil
		}
	}
}

// carriedSources returns the sources of a volume with a token.
func (o PodOptions) carriedSources(local *corev1.Pod, sources []corev1.VolumeProjection) []corev1.VolumeProjection {
	first := o.token(local, sources[slices.IndexFunc(sources, isToken)].ServiceAccountToken).Name
	var out []corev1.VolumeProjection
	for _, s := range carriedCAs(first, sources) {
		switch {
		case s.ServiceAccountToken != nil:
			name := o.token(local, s.ServiceAccountToken).Name
			out = append(out, fromSecret(name, corev1.KeyToPath{Key: corev1.ServiceAccountTokenKey, Path: s.ServiceAccountToken.Path}))
		case s.DownwardAPI != nil:
			out = append(out, carriedNamespace(first, s.DownwardAPI)...)
		default:
			out = append(out, s)
		}
	}
	return out
}

func carriedCAs(secret string, sources []corev1.VolumeProjection) []corev1.VolumeProjection {
	out := slices.Clone(sources)
	for i := range out {
		if cm := out[i].ConfigMap; cm != nil && cm.Name == RootCAConfigMap {
			out[i] = fromSecret(secret, caItems(cm.Items)...)
			out[i].Secret.Optional = cm.Optional
		}
	}
	return out
}

// caItems says what a volume with the CA shows: all of it when nothing is said.
func caItems(items []corev1.KeyToPath) []corev1.KeyToPath {
	if len(items) > 0 {
		return items
	}
	return []corev1.KeyToPath{{Key: corev1.ServiceAccountRootCAKey, Path: corev1.ServiceAccountRootCAKey}}
}

// carriedNamespace replaces the files with the pod's namespace: there it would be the
// twin's name, which this cluster's API server does not know.
func carriedNamespace(secret string, d *corev1.DownwardAPIProjection) []corev1.VolumeProjection {
	var rest []corev1.DownwardAPIVolumeFile
	var out []corev1.VolumeProjection
	for _, f := range d.Items {
		if f.FieldRef != nil && f.FieldRef.FieldPath == "metadata.namespace" {
			out = append(out, fromSecret(secret, corev1.KeyToPath{Key: corev1.ServiceAccountNamespaceKey, Path: f.Path, Mode: f.Mode}))
		} else {
			rest = append(rest, f)
		}
	}
	if len(rest) > 0 || len(d.Items) == 0 {
		out = append(out, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: rest}})
	}
	return out
}

func fromSecret(name string, items ...corev1.KeyToPath) corev1.VolumeProjection {
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}}
}

func (o PodOptions) leadsHome(local *corev1.Pod) bool {
	return o.carriesTokens(local) && o.API.Host != ""
}

// leadHome has clients in the pod that look for the API server of their cluster find the
// one of this cluster.
func (o PodOptions) leadHome(spec *corev1.PodSpec, local *corev1.Pod) {
	if !o.leadsHome(local) {
		return
	}
	for i := range spec.Containers {
		o.adaptEnv(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		o.adaptEnv(&spec.InitContainers[i])
	}
	if addr, err := netip.ParseAddr(o.API.Host); err == nil {
		spec.HostAliases = withAPIServer(spec.HostAliases, addr.String())
	}
}

// adaptEnv sets the variables by which clients find the API server, where the pod does
// not set them itself, ahead of the others, which may refer to them.
func (o PodOptions) adaptEnv(c *corev1.Container) {
	host := o.API.Host
	if _, err := netip.ParseAddr(host); err == nil {
		host = apiServerName // an alias leads there: certificates are for names, and not for translated addresses
	}
	var ours []corev1.EnvVar
	for _, e := range []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: host},
		{Name: "KUBERNETES_SERVICE_PORT", Value: o.API.Port},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: o.API.Port},
	} {
		if !slices.ContainsFunc(c.Env, func(have corev1.EnvVar) bool { return have.Name == e.Name }) {
			ours = append(ours, e)
		}
	}
	c.Env = append(ours, c.Env...)
}

// withAPIServer returns aliases with the names of the API server that they do not have.
func withAPIServer(aliases []corev1.HostAlias, addr string) []corev1.HostAlias {
	var names []string
	for _, name := range []string{apiServerName, apiServerName + ".svc", apiServerName + ".svc.cluster.local"} {
		if !slices.ContainsFunc(aliases, func(a corev1.HostAlias) bool { return slices.Contains(a.Hostnames, name) }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return aliases
	}
	for i := range aliases {
		if aliases[i].IP == addr { // one entry for each address
			aliases[i].Hostnames = append(aliases[i].Hostnames, names...)
			return aliases
		}
	}
	return append(aliases, corev1.HostAlias{IP: addr, Hostnames: names})
}
