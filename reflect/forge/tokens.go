package forge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

const (
	// defaultAccount is the service account of pods that do not name one.
	defaultAccount = "default"
	// usualSeconds is the lifetime of a token whose pod does not specify one.
	usualSeconds = 3600
	// injectedSeconds is the lifetime that API servers set in the volumes that they
	// inject. For a pod-bound token with exactly this lifetime the API server issues a
	// token that is valid for a year (flag --service-account-extend-token-expiration), so
	// it is replaced by usualSeconds.
	injectedSeconds = 3607
	// accountInName is the maximum length of a service account's name within the name of a
	// Secret.
	accountInName = 63
	// apiServerName is a name that the certificate of every API server is valid for.
	apiServerName = "kubernetes.default"
)

// APIAccess configures how offloaded pods reach the API server of this cluster.
type APIAccess struct {
	// Enabled is false if offloaded pods get no tokens of this cluster.
	Enabled bool
	// Host (an IP address or a DNS name) and Port are the address of the API server for
	// pods in the provider. If Host is empty, the pods' environment is not changed.
	Host, Port string
	// Service says that Host is the address of this cluster's Service kubernetes, for pods with services Home.
	Service bool
	// PodBound binds each token to its pod instead of to a Secret that several pods share.
	PodBound bool
}

// Token is a token of a service account of this cluster for use by offloaded pods.
type Token struct {
	// Name is the name of two Secrets: the one with the token in the twin namespace, and
	// the one in this cluster that the token is bound to.
	Name string
	// ServiceAccount is the name of the service account, in the pod's namespace.
	ServiceAccount string
	// Audience is empty for the API server's own audience.
	Audience string
	// Seconds is the requested lifetime.
	Seconds int64
	// PodName and PodUID identify the pod that the token is bound to; empty if it is bound
	// to a Secret.
	PodName string
	PodUID  types.UID
}

// Tokens returns the distinct tokens that a pod needs in the provider. The result is
// empty if the pod's tokens are not carried, or if supported refuses the pod.
func Tokens(local *corev1.Pod, o PodOptions) []Token {
	if !o.carriesTokens(local) || supported(local) != nil {
		return nil
	}
	var out []Token
	eachSource(&local.Spec, func(_, _ string, from any) {
		if p, ok := from.(*corev1.VolumeProjection); ok && isToken(*p) {
			if t := o.token(local, p.ServiceAccountToken); !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	})
	return out
}

// MountsSecret reports whether a projected volume of the spec contains the Secret.
func MountsSecret(spec *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return projects(&v, func(p corev1.VolumeProjection) bool { return p.Secret != nil && p.Secret.Name == name })
	})
}

func (o PodOptions) carriesTokens(local *corev1.Pod) bool {
	return o.API.Enabled && local.Annotations[offloadingv1beta1.APIServerSupportAnnotation] != offloadingv1beta1.APIServerSupportDisabled
}

// knownSupport refuses unknown values of the API server support annotation, and a service
// account of the provider: its rights are the provider's to give, and not the pod's to choose.
func knownSupport(local *corev1.Pod) error {
	if name, given := local.Annotations[offloadingv1beta1.RemoteServiceAccountAnnotation]; given {
		return &Refused{reasons.APIServerSupportInvalid, fmt.Sprintf("annotation %s: %q is not accepted: pods run with no service account of the provider; remove the annotation, and the pod has the tokens of its own account (spec.serviceAccountName)",
			offloadingv1beta1.RemoteServiceAccountAnnotation, name)}
	}
	switch value := local.Annotations[offloadingv1beta1.APIServerSupportAnnotation]; value {
	case "", offloadingv1beta1.APIServerSupportEnabled, offloadingv1beta1.APIServerSupportDisabled:
		return nil
	default:
		return &Refused{reasons.APIServerSupportInvalid, fmt.Sprintf("annotation %s: %q is not accepted: %s keeps the pod's tokens at home, %s (or no annotation) gives them to it",
			offloadingv1beta1.APIServerSupportAnnotation, value, offloadingv1beta1.APIServerSupportDisabled, offloadingv1beta1.APIServerSupportEnabled)}
	}
}

func (o PodOptions) token(local *corev1.Pod, p *corev1.ServiceAccountTokenProjection) Token {
	t := Token{ServiceAccount: cmp.Or(local.Spec.ServiceAccountName, defaultAccount), Audience: p.Audience, Seconds: usualSeconds}
	if p.ExpirationSeconds != nil && *p.ExpirationSeconds != injectedSeconds {
		t.Seconds = *p.ExpirationSeconds
	}
	if o.API.PodBound {
		t.PodName, t.PodUID = local.Name, local.UID
	}
	t.Name = tokenName(o.OriginClusterID, o.NodeName, t)
	return t
}

// tokenName returns the same name for equal tokens. Names differ between clusters, which
// may share a namespace, and between virtual nodes.
func tokenName(consumer, node string, t Token) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d %q", consumer, node, t.ServiceAccount, t.Audience, t.Seconds, t.PodUID))
	shown := strings.TrimRight(t.ServiceAccount[:min(len(t.ServiceAccount), accountInName)], "-.")
	return "token-" + shown + "-" + hex.EncodeToString(sum[:6])
}

// carryTokens replaces token sources by Secrets in the twin namespace. These contain what
// a kubelet of this cluster would mount: the token, the CA of this cluster's API server,
// and the local name of the pod's namespace.
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

// carriedSources returns the sources of a projected volume that contains a token.
func (o PodOptions) carriedSources(local *corev1.Pod, sources []corev1.VolumeProjection) []corev1.VolumeProjection {
	first := o.token(local, sources[slices.IndexFunc(sources, isToken)].ServiceAccountToken).Name
	var out []corev1.VolumeProjection
	for _, s := range carriedCAs(first, sources) {
		switch {
		case s.ServiceAccountToken != nil:
			name := o.token(local, s.ServiceAccountToken).Name
			out = append(out, fromSecret(name, corev1.KeyToPath{Key: corev1.ServiceAccountTokenKey, Path: s.ServiceAccountToken.Path, Mode: tokenMode(&local.Spec)}))
		case s.DownwardAPI != nil:
			out = append(out, carriedNamespace(first, s.DownwardAPI)...)
		default:
			out = append(out, s)
		}
	}
	return out
}

// tokenMode returns the mode of the file of a token; nil: that of its volume. If all containers run
// as one user, a kubelet gives a token to that user, who alone reads it. Files of Secrets are root's, so that
// everybody in the pod, which is that user, may read the file. Kubelets let a group of the pod read
// files of both kinds.
// https://github.com/kubernetes/enhancements/blob/master/keps/sig-storage/2451-service-account-token-volumes/README.md
func tokenMode(spec *corev1.PodSpec) *int32 {
	var pods *int64
	if c := spec.SecurityContext; c != nil {
		pods = c.RunAsUser
		if c.FSGroup != nil {
			return nil
		}
	}
	users := map[int64]bool{}
	for _, c := range containersOf(spec) {
		user := pods
		if c.SecurityContext != nil {
			user = cmp.Or(c.SecurityContext.RunAsUser, pods)
		}
		users[ptr.Deref(user, -1)] = true
	}
	switch {
	case len(users) != 1 || users[-1]:
		return nil
	case users[0]:
		return ptr.To[int32](0o600)
	}
	return ptr.To[int32](0o644)
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

// caItems returns the files of a volume with the CA: the given ones, or all of them if
// none are given.
func caItems(items []corev1.KeyToPath) []corev1.KeyToPath {
	if len(items) > 0 {
		return items
	}
	return []corev1.KeyToPath{{Key: corev1.ServiceAccountRootCAKey, Path: corev1.ServiceAccountRootCAKey}}
}

// carriedNamespace replaces the files that contain the pod's namespace. In the provider
// they would contain the twin namespace, which does not exist for this cluster's API
// server.
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

// leadHome configures the environment of the containers so that Kubernetes clients in the
// pod connect to this cluster's API server.
func (o PodOptions) leadHome(spec *corev1.PodSpec, local *corev1.Pod) {
	if !o.leadsHome(local) {
		return
	}
	for _, c := range containersOf(spec) {
		o.adaptEnv(c)
	}
	if addr, ok := o.API.translated(); ok {
		spec.HostAliases = withAPIServer(spec.HostAliases, addr.String())
	}
}

// adaptEnv sets the environment variables with which clients find the API server, unless
// the pod sets them itself. They precede the pod's variables, which may refer to them.
func (o PodOptions) adaptEnv(c *corev1.Container) {
	host := o.API.Host
	if _, ok := o.API.translated(); ok {
		host = apiServerName // a host alias resolves this name; certificates are issued for names and not for translated addresses
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

// translated returns Host if it is an address that certificates of the API server are not valid for.
func (a APIAccess) translated() (addr netip.Addr, ok bool) {
	addr, err := netip.ParseAddr(a.Host)
	return addr, err == nil && !a.Service
}

// withAPIServer adds the names of the API server to the aliases that lack them.
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
		if aliases[i].IP == addr { // one entry per address
			aliases[i].Hostnames = append(aliases[i].Hostnames, names...)
			return aliases
		}
	}
	return append(aliases, corev1.HostAlias{IP: addr, Hostnames: names})
}
