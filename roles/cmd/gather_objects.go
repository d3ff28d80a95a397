package cmd

import (
	"context"

	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/trust"
)

// mostObjects limits the objects of a file.
const mostObjects = 20000

// lister reads the objects of a kind.
type lister struct {
	// file is the name in the archive.
	file string
	list func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error)
}

// listed adapts a List method. labels selects objects; empty selects all.
func listed[T runtime.Object](list func(context.Context, metav1.ListOptions) (T, error), labels string) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		page.LabelSelector = labels
		return list(ctx, page)
	}
}

// clusterWide are the objects that are read once. Of most kinds of others, those of the chart
// are read only.
func (to *clients) clusterWide() []lister {
	const all, ours = "", installed
	core, admission := to.kube.CoreV1(), to.kube.AdmissionregistrationV1()
	return []lister{
		{"foreignclusters", listed(to.liqo.CoreV1beta1().ForeignClusters().List, all)},
		{"virtualnodes", listed(to.liqo.OffloadingV1beta1().VirtualNodes("").List, all)},
		{"namespaceoffloadings", listed(to.liqo.OffloadingV1beta1().NamespaceOffloadings("").List, all)},
		{"namespacemaps", listed(to.liqo.OffloadingV1beta1().NamespaceMaps("").List, all)},
		{"shadowpods", listed(to.liqo.OffloadingV1beta1().ShadowPods("").List, all)},
		{"shadowendpointslices", listed(to.liqo.OffloadingV1beta1().ShadowEndpointSlices("").List, all)},
		{"quotas", listed(to.liqo.OffloadingV1beta1().Quotas("").List, all)},
		{"resourcerequests", listed(to.liqo.SharingV1alpha1().ResourceRequests("").List, all)},
		{"resourceoffers", listed(to.liqo.SharingV1alpha1().ResourceOffers("").List, all)},
		{"configurations", listed(to.liqo.NetworkingV1beta1().Configurations("").List, all)},
		{"connections", listed(to.liqo.NetworkingV1beta1().Connections("").List, all)},
		{"networks", listed(to.liqo.IPAMV1alpha1().Networks("").List, all)},
		{"ips", listed(to.liqo.IPAMV1alpha1().IPs("").List, all)},
		{"addresspools", listed(to.liqo.IPAMV1alpha1().AddressPools().List, all)},
		{"nodes", listed(core.Nodes().List, all)},
		{"namespaces", listed(core.Namespaces().List, all)},
		{"storageclasses", listed(to.kube.StorageV1().StorageClasses().List, all)},
		{"mutatingwebhookconfigurations", listed(admission.MutatingWebhookConfigurations().List, ours)},
		{"validatingwebhookconfigurations", listed(admission.ValidatingWebhookConfigurations().List, ours)},
		{"validatingadmissionpolicies", listed(admission.ValidatingAdmissionPolicies().List, ours)},
		{"clusterroles", listed(to.kube.RbacV1().ClusterRoles().List, ours)},
		{"clusterrolebindings", listed(to.kube.RbacV1().ClusterRoleBindings().List, ours)},
		{"runtimeclasses", listed(to.kube.NodeV1().RuntimeClasses().List, ours)},
		{"flowschemas", listed(to.kube.FlowcontrolV1().FlowSchemas().List, ours)},
	}
}

// ownKinds are the objects of the namespaces of liqod itself and of its peers.
func (to *clients) ownKinds(ns string) []lister {
	return []lister{
		{"configmaps", listed(to.kube.CoreV1().ConfigMaps(ns).List, "")},
		{"serviceaccounts", listed(to.kube.CoreV1().ServiceAccounts(ns).List, "")},
		{"deployments", listed(to.kube.AppsV1().Deployments(ns).List, "")},
		{"daemonsets", listed(to.kube.AppsV1().DaemonSets(ns).List, "")},
		{"leases", listed(to.kube.CoordinationV1().Leases(ns).List, "")},
		{"poddisruptionbudgets", listed(to.kube.PolicyV1().PodDisruptionBudgets(ns).List, "")},
		{"networkpolicies", listed(to.kube.NetworkingV1().NetworkPolicies(ns).List, "")},
		{"rolebindings", listed(to.kube.RbacV1().RoleBindings(ns).List, "")},
	}
}

// sharedKinds are the objects of all namespaces that liqod has to do with, also those of
// users and peers.
func (to *clients) sharedKinds(ns string) []lister {
	return []lister{
		{"pods", listed(to.kube.CoreV1().Pods(ns).List, "")},
		{"services", listed(to.kube.CoreV1().Services(ns).List, "")},
		{"endpointslices", listed(to.kube.DiscoveryV1().EndpointSlices(ns).List, "")},
		{"resourcequotas", listed(to.kube.CoreV1().ResourceQuotas(ns).List, "")},
		{"events", listed(to.kube.CoreV1().Events(ns).List, "")},
	}
}

// prune removes the fields of an object that are of no use or may be secret: at any depth, the records of field
// managers and the copies of kubectl; and unless own is set, what containers are given, in pods and in templates of
// pods.
func prune(value any, own bool) {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			prune(e, own)
		}
	case map[string]any:
		delete(v, "managedFields")
		if annotations, ok := v["annotations"].(map[string]any); ok {
			delete(annotations, corev1.LastAppliedConfigAnnotation)
		}
		if _, container := v["image"]; container && !own {
			for _, field := range []string{"env", "args", "command", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} {
				if _, has := v[field]; has {
					v[field] = removedOfUser
				}
			}
		}
		for _, e := range v {
			prune(e, own)
		}
	}
}

const removedOfUser = "(removed)"

// secretView is what the archive has of a Secret.
type secretView struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Type      corev1.SecretType `json:"type,omitempty"`
	Created   metav1.Time       `json:"created"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Bytes has the sizes of the values.
	Bytes map[string]int `json:"bytes,omitempty"`
}

func viewOfSecret(s *corev1.Secret) secretView {
	out := secretView{Namespace: s.Namespace, Name: s.Name, Type: s.Type, Created: s.CreationTimestamp, Labels: s.Labels, Bytes: map[string]int{}}
	for key, value := range s.Data {
		out.Bytes[key] = len(value)
	}
	return out
}

const (
	// shortestSecret is the length in bytes from which values are removed from all files.
	// Shorter ones would remove words.
	shortestSecret = 8
	// shortestPart is the length of a part of a value, such as a key in a kubeconfig, from
	// which it is removed, too.
	shortestPart = 16

	removed = "(removed: from a Secret)"
)

// openKeys are keys of Secrets whose values are not secret: names, ranges, times, and
// certificates of authorities. They are not removed from other files.
var openKeys = []string{
	corev1.ServiceAccountNamespaceKey, corev1.ServiceAccountRootCAKey, corev1beta1.AddressRangesSecretKey,
	trust.ClusterIDKey, trust.ExpirationKey, trust.UsesKey,
}

// keyLike finds shortestPart letters and digits in a row: keys in hexadecimal and passwords in lower case have them,
// names have dashes and dots.
var keyLike = regexp.MustCompile(`[\p{L}\p{Nd}]{16}`)

// redactor removes values of Secrets from texts.
type redactor struct{ values map[string]bool }

func newRedactor() *redactor { return &redactor{values: map[string]bool{}} }

// learn adds the values of a Secret, the long words in them, and how JSON, YAML and base64
// write them.
func (r *redactor) learn(s *corev1.Secret) {
	for key, value := range s.Data {
		if slices.Contains(openKeys, key) {
			continue
		}
		r.add(string(value))
		if key == corev1.TLSCertKey {
			continue // each line is public
		}
		for _, part := range strings.FieldsFunc(string(value), func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(`"',;{}[]`, c) }) {
			r.addPart(part)
		}
	}
}

func (r *redactor) add(value string) {
	value = strings.TrimSpace(value)
	if len(value) < shortestSecret {
		return
	}
	r.values[value] = true
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		r.values[encoding.EncodeToString([]byte(value))] = true
		r.values[encoding.EncodeToString([]byte(value+"\n"))] = true
	}
	if quoted, err := json.Marshal(value); err == nil {
		r.values[strings.Trim(string(quoted), `"`)] = true
	}
}

// addPart adds a word of a value if it may be a key or a token: names and URLs stay readable.
func (r *redactor) addPart(part string) {
	part = strings.TrimPrefix(part, "Bearer")
	if len(part) < shortestPart || strings.Contains(part, "://") {
		return
	}
	mixed := strings.ContainsFunc(part, unicode.IsLower) && strings.ContainsFunc(part, unicode.IsUpper) && strings.ContainsFunc(part, unicode.IsDigit)
	if !mixed && !keyLike.MatchString(part) {
		return
	}
	r.add(part)
	// Kubeconfigs have keys as base64.
	if decoded, err := base64.StdEncoding.DecodeString(part); err == nil {
		r.add(string(decoded))
		for line := range strings.Lines(string(decoded)) {
			if line = strings.TrimSpace(line); len(line) >= shortestPart && !strings.HasPrefix(line, "-----") {
				r.values[line] = true
			}
		}
	}
}

// clean removes the values from all texts.
func (r *redactor) clean(files map[string]string) {
	// The longest first, so that no end of a value stays.
	values := slices.SortedFunc(maps.Keys(r.values), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	var pairs []string
	for _, v := range values {
		pairs = append(pairs, v, removed)
	}
	replacer := strings.NewReplacer(pairs...)
	for name, text := range files {
		files[name] = replacer.Replace(text)
	}
}
