package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// rootCA is in every namespace; in the provider it has another name.
const rootCA = "kube-root-ca.crt"

// both are the objects of a kind in a namespace and in its twin, by name at home.
type both struct{ home, away map[string]metav1.Object }

// checker compares the clusters by rules of its own: it shares no code with what it checks.
type checker struct {
	w     *world
	kinds []kind
	kept  *kept
	set   settings
}

// differences are all that is not as it has to be.
func (c *checker) differences(ctx context.Context) ([]string, error) {
	var out []string
	for _, ns := range c.w.namespaces {
		services := map[string]metav1.Object{}
		for _, k := range c.kinds {
			b, err := c.look(ctx, k, ns)
			if err != nil {
				return nil, err
			}
			if k.name == "service" {
				services = b.home
			}
			out = append(out, c.compare(k, ns, b, services)...)
			if k.name == "endpointslice" {
				shadows, err := c.shadows(ctx, k, ns, b, services)
				if err != nil {
					return nil, err
				}
				out = append(out, shadows...)
			}
		}
	}
	return out, nil
}

func (c *checker) look(ctx context.Context, k kind, namespace string) (both, error) {
	b := both{map[string]metav1.Object{}, map[string]metav1.Object{}}
	home, err := k.at(c.w.home, namespace).list(ctx)
	if err != nil {
		return b, fmt.Errorf("listing %s in %s: %w", k.name, namespace, err)
	}
	away, err := k.at(c.w.away, twinOf(namespace)).list(ctx)
	if err != nil {
		return b, fmt.Errorf("listing %s in %s: %w", k.name, twinOf(namespace), err)
	}
	for _, o := range home {
		b.home[o.GetName()] = o
	}
	for _, o := range away {
		name := o.GetName()
		if name == rootCA {
			continue // the provider's own, which stands beside ours
		}
		b.away[strings.TrimSuffix(name, "."+consumer)] = o
	}
	return b, nil
}

// wanted tells whether an object at home has to be in the provider.
func (c *checker) wanted(k kind, local metav1.Object, services map[string]metav1.Object) bool {
	if local.GetName() == rootCA {
		return true
	}
	if k.empty != nil && k.empty(local) {
		return false
	}
	policy, decides := c.set.policies[k.name], local
	if !k.policy { // an EndpointSlice
		policy = c.set.policies["service"]
		if !says(local, offloadingv1beta1.SkipReflectionAnnotation) && !says(local, offloadingv1beta1.AllowReflectionAnnotation) {
			decides = services[local.GetLabels()[discoveryv1.LabelServiceName]]
		} else {
			policy = denyList // it speaks for itself
		}
	}
	if decides == nil || says(decides, offloadingv1beta1.SkipReflectionAnnotation) {
		return false
	}
	return policy == denyList || says(decides, offloadingv1beta1.AllowReflectionAnnotation)
}

func says(obj metav1.Object, annotation string) bool {
	value, set := obj.GetAnnotations()[annotation]
	return set && value != "false"
}

func (c *checker) compare(k kind, namespace string, b both, services map[string]metav1.Object) []string {
	var out []string
	tell := func(name, format string, args ...any) {
		out = append(out, key(k, namespace, name)+": "+fmt.Sprintf(format, args...))
	}
	for name, local := range b.home {
		for _, m := range managers(local) {
			if strings.HasPrefix(m, "liqod") {
				tell(name, "was written by %s at home", m)
			}
		}
		if c.kept.foreign[key(k, namespace, name)] != "" || !c.wanted(k, local, services) {
			continue
		}
		remote := b.away[name]
		if remote == nil {
			tell(name, "is not in the provider")
			continue
		}
		for _, d := range c.pair(k, local, remote) {
			tell(name, "%s", d)
		}
	}
	for name, remote := range b.away {
		version, foreign := c.kept.foreign[key(k, namespace, name)]
		switch {
		case foreign && remote.GetResourceVersion() != version:
			tell(name, "is the provider's own, and was written: %v", managers(remote))
		case foreign:
		case !reflected(remote):
			for _, m := range managers(remote) {
				if strings.HasPrefix(m, "liqod") {
					tell(name, "is the provider's own, and was written by %s", m)
				}
			}
		case b.home[name] == nil || !c.wanted(k, b.home[name], services):
			tell(name, "is left in the provider")
		}
	}
	for of := range c.kept.foreign {
		if name, ok := strings.CutPrefix(of, key(k, namespace, "")); ok && b.away[name] == nil {
			tell(name, "was the provider's own, and is gone")
		}
	}
	slices.Sort(out)
	return out
}

// pair compares an object with what stands for it.
func (c *checker) pair(k kind, local, remote metav1.Object) []string {
	var out []string
	if h, a := k.content(local), k.content(remote); !equality.Semantic.DeepEqual(h, a) {
		out = append(out, fmt.Sprintf("content differs: at home %s, in the provider %s", asJSON(h), asJSON(a)))
	}
	for what, m := range map[string][2]map[string]string{
		"label":      {local.GetLabels(), remote.GetLabels()},
		"annotation": {local.GetAnnotations(), remote.GetAnnotations()},
	} {
		out = append(out, c.metadata(what, m[0], m[1])...)
	}
	if remote.GetLabels()[offloadingv1beta1.OriginLabel] != consumer {
		out = append(out, "lacks the label that says where it is from")
	}
	if _, copied := remote.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; copied {
		out = append(out, "carries what kubectl applied")
	}
	if added := c.kept.labels[remote.GetUID()]; added != "" && remote.GetLabels()[theirs+"added"] != added {
		out = append(out, "lost the label that was added in the provider")
	}
	return append(out, writers(k, remote)...)
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// metadata compares the keys that a user has set at home.
func (c *checker) metadata(what string, home, away map[string]string) []string {
	var out []string
	for name, value := range home {
		if !strings.HasPrefix(name, soft) || what == "label" && slices.Contains(c.set.skipped, name) {
			continue
		}
		if away[name] != value {
			out = append(out, fmt.Sprintf("%s %s is %q, not %q", what, name, away[name], value))
		}
	}
	for name := range away {
		_, here := home[name]
		if strings.HasPrefix(name, soft) && (!here || what == "label" && slices.Contains(c.set.skipped, name)) {
			out = append(out, fmt.Sprintf("%s %s has to stay at home", what, name))
		}
	}
	return out
}

func managers(obj metav1.Object) []string {
	var out []string
	for _, m := range obj.GetManagedFields() {
		out = append(out, m.Manager)
	}
	return out
}

// writers says who has written the content of a reflected object, but for who should.
func writers(k kind, remote metav1.Object) []string {
	var out []string
	for _, m := range remote.GetManagedFields() {
		switch m.Manager {
		case k.manager:
			continue
		case stranger:
		default:
			out = append(out, "was written by "+m.Manager)
		}
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields); err != nil {
			out = append(out, err.Error())
		}
		for _, f := range k.owned {
			if text, ok := fields[f]; ok {
				out = append(out, fmt.Sprintf("%s owns %s: %s", m.Manager, f, text))
			}
		}
	}
	return out
}

// shadows compares the ShadowEndpointSlices with the slices that they stand for.
func (c *checker) shadows(ctx context.Context, k kind, namespace string, b both, services map[string]metav1.Object) ([]string, error) {
	list, err := c.w.milan.Liqod().OffloadingV1beta1().ShadowEndpointSlices(twinOf(namespace)).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []string
	have := map[string]bool{}
	for i := range list.Items {
		name := list.Items[i].Name
		have[name] = true
		if local := b.home[name]; local == nil || !c.wanted(k, local, services) {
			out = append(out, fmt.Sprintf("shadow of %s is left in the provider", key(k, namespace, name)))
		}
	}
	for name, local := range b.home {
		if c.wanted(k, local, services) && !have[name] {
			out = append(out, fmt.Sprintf("shadow of %s is not in the provider", key(k, namespace, name)))
		}
	}
	return out, nil
}

func TestWanted(t *testing.T) {
	service := func(annotations map[string]string) map[string]metav1.Object {
		return map[string]metav1.Object{"web": &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}}
	}
	skip := map[string]string{offloadingv1beta1.SkipReflectionAnnotation: "true"}
	allow := map[string]string{offloadingv1beta1.AllowReflectionAnnotation: ""}
	never := map[string]string{offloadingv1beta1.AllowReflectionAnnotation: "true", offloadingv1beta1.SkipReflectionAnnotation: "true"}
	taken := map[string]string{offloadingv1beta1.SkipReflectionAnnotation: "false"}
	slice := func(annotations map[string]string, service string) metav1.Object {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Annotations: annotations, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		}
	}
	for name, test := range map[string]struct {
		kind     kind
		local    metav1.Object
		policy   string
		services map[string]metav1.Object
		want     bool
	}{
		"usual":                      {configMaps(), &corev1.ConfigMap{}, denyList, nil, true},
		"skipped":                    {configMaps(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: skip}}, denyList, nil, false},
		"not skipped after all":      {configMaps(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: taken}}, denyList, nil, true},
		"not allowed":                {configMaps(), &corev1.ConfigMap{}, allowList, nil, false},
		"allowed":                    {configMaps(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: allow}}, allowList, nil, true},
		"both":                       {configMaps(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: never}}, allowList, nil, false},
		"root CA":                    {configMaps(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: rootCA}}, allowList, nil, true},
		"slice of a Service":         {endpointSlices(), slice(nil, "web"), denyList, service(nil), true},
		"slice of none":              {endpointSlices(), slice(nil, "db"), denyList, service(nil), false},
		"slice of a skipped Service": {endpointSlices(), slice(nil, "web"), denyList, service(skip), false},
		"allowed slice of none":      {endpointSlices(), slice(allow, "db"), allowList, service(nil), true},
		"skipped slice":              {endpointSlices(), slice(skip, "web"), denyList, service(nil), false},
		"empty slice":                {endpointSlices(), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Annotations: allow}}, denyList, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := checker{set: settings{policies: map[string]string{"configmap": test.policy, "service": test.policy}}}
			require.Equal(t, test.want, c.wanted(test.kind, test.local, test.services))
		})
	}
}
