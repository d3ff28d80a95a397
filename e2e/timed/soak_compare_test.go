package timed

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
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// rootCA is a ConfigMap in every namespace. The reflected one has another name.
const rootCA = "kube-root-ca.crt"

// both are the objects of a kind in a namespace and in its twin, by name at home.
type both struct{ home, remote map[string]metav1.Object }

// comparison compares the clusters by rules of its own: it shares no code with liqod.
type comparison struct {
	w         *soakWorld
	kinds     []kind
	preserved *preserved
	set       settings
}

// differences are those between the clusters that no rule allows.
func (c *comparison) differences(ctx context.Context) ([]string, error) {
	var out []string
	for _, ns := range c.w.namespaces {
		services := map[string]metav1.Object{}
		for _, k := range c.kinds {
			b, err := c.list(ctx, k, ns)
			if err != nil {
				return nil, err
			}
			if k.name == "service" {
				services = b.home
			}
			out = append(out, c.compare(k, ns, b, services)...)
			more, err := c.related(ctx, k, ns, b, services)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
	}
	return out, nil
}

// related compares the objects that belong to those of a kind.
func (c *comparison) related(ctx context.Context, k kind, namespace string, b both, services map[string]metav1.Object) ([]string, error) {
	switch k.name {
	case "endpointslice":
		return c.shadows(ctx, k, namespace, b, services)
	case "persistentvolumeclaim":
		return c.volumes(ctx, k, namespace, b)
	}
	return nil, nil
}

func (c *comparison) list(ctx context.Context, k kind, namespace string) (both, error) {
	b := both{map[string]metav1.Object{}, map[string]metav1.Object{}}
	home, err := k.at(c.w.home, namespace).list(ctx)
	if err != nil {
		return b, fmt.Errorf("listing %s in %s: %w", k.name, namespace, err)
	}
	remote, err := k.at(c.w.remote, twinOf(namespace)).list(ctx)
	if err != nil {
		return b, fmt.Errorf("listing %s in %s: %w", k.name, twinOf(namespace), err)
	}
	for _, o := range home {
		b.home[o.GetName()] = o
	}
	for _, o := range remote {
		name := o.GetName()
		if name == rootCA {
			continue // the provider's own; the reflected one has another name
		}
		b.remote[strings.TrimSuffix(name, "."+consumer)] = o
	}
	return b, nil
}

// wanted reports whether an object at home has to be in the provider.
func (c *comparison) wanted(k kind, local metav1.Object, services map[string]metav1.Object) bool {
	if k.always || local.GetName() == rootCA {
		return true
	}
	if k.empty != nil && k.empty(local) {
		return false
	}
	policy, decides := c.set.policies[k.name], local
	if !k.policy { // an EndpointSlice
		policy = c.set.policies["service"]
		service := services[local.GetLabels()[discoveryv1.LabelServiceName]]
		if s, ok := service.(*corev1.Service); ok && s.Spec.Type == corev1.ServiceTypeExternalName {
			return false // Kubernetes leaves the slices of its former selector as they were
		}
		if !annotated(local, offloadingv1beta1.SkipReflectionAnnotation) && !annotated(local, offloadingv1beta1.AllowReflectionAnnotation) {
			decides = service
		} else {
			policy = denyList // its own annotation decides
		}
	}
	if decides == nil || annotated(decides, offloadingv1beta1.SkipReflectionAnnotation) {
		return false
	}
	return policy == denyList || annotated(decides, offloadingv1beta1.AllowReflectionAnnotation)
}

func annotated(obj metav1.Object, annotation string) bool {
	value, set := obj.GetAnnotations()[annotation]
	return set && value != "false"
}

func (c *comparison) compare(k kind, namespace string, b both, services map[string]metav1.Object) []string {
	var out []string
	add := func(name, format string, args ...any) {
		out = append(out, key(k, namespace, name)+": "+fmt.Sprintf(format, args...))
	}
	for name, local := range b.home {
		for _, m := range managers(local) {
			if strings.HasPrefix(m, "liqod") {
				add(name, "was written by %s at home", m)
			}
		}
		if c.preserved.own[key(k, namespace, name)] != "" || !c.wanted(k, local, services) {
			continue
		}
		remote := b.remote[name]
		if remote == nil {
			add(name, "is not in the provider")
			continue
		}
		for _, d := range c.pair(k, local, remote) {
			add(name, "%s", d)
		}
	}
	for name, remote := range b.remote {
		version, own := c.preserved.own[key(k, namespace, name)]
		switch {
		case own && remote.GetResourceVersion() != version:
			add(name, "is the provider's own, and was written: %v", managers(remote))
		case own:
		case !reflected(remote):
			for _, m := range managers(remote) {
				if strings.HasPrefix(m, "liqod") {
					add(name, "is the provider's own, and was written by %s", m)
				}
			}
		case b.home[name] == nil || !c.wanted(k, b.home[name], services):
			add(name, "is left in the provider")
		}
	}
	for of := range c.preserved.own {
		if name, ok := strings.CutPrefix(of, key(k, namespace, "")); ok && b.remote[name] == nil {
			add(name, "was the provider's own, and is gone")
		}
	}
	slices.Sort(out)
	return out
}

// pair compares an object with its reflected object.
func (c *comparison) pair(k kind, local, remote metav1.Object) []string {
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
		out = append(out, "lacks the label of its origin")
	}
	if _, copied := remote.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; copied {
		out = append(out, "has the annotation of kubectl apply")
	}
	if added := c.preserved.labels[remote.GetUID()]; added != "" && remote.GetLabels()[remotePrefix+"added"] != added {
		out = append(out, "lost the label that was added in the provider")
	}
	return append(out, otherWriters(k, remote)...)
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// metadata compares the keys that a user has set at home.
func (c *comparison) metadata(what string, home, remote map[string]string) []string {
	var out []string
	for name, value := range home {
		if !strings.HasPrefix(name, homePrefix) || what == "label" && slices.Contains(c.set.skipped, name) {
			continue
		}
		if remote[name] != value {
			out = append(out, fmt.Sprintf("%s %s is %q, not %q", what, name, remote[name], value))
		}
	}
	for name := range remote {
		_, here := home[name]
		if strings.HasPrefix(name, homePrefix) && (!here || what == "label" && slices.Contains(c.set.skipped, name)) {
			out = append(out, fmt.Sprintf("%s %s must not be reflected", what, name))
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

// otherWriters are the field managers that must not write the content of a reflected object.
func otherWriters(k kind, remote metav1.Object) []string {
	var out []string
	for _, m := range remote.GetManagedFields() {
		switch m.Manager {
		case k.manager:
			continue
		case providerUser:
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

// shadows compares the ShadowEndpointSlices with the EndpointSlices at home.
func (c *comparison) shadows(ctx context.Context, k kind, namespace string, b both, services map[string]metav1.Object) ([]string, error) {
	list, err := c.w.Milan.Liqod().OffloadingV1beta1().ShadowEndpointSlices(twinOf(namespace)).List(ctx, metav1.ListOptions{})
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

// volumes compares the claims at home with their PersistentVolumes at home.
func (c *comparison) volumes(ctx context.Context, k kind, namespace string, b both) ([]string, error) {
	list, err := c.w.home.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: corev1beta1.RemoteClusterIDLabel + "=" + provider})
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range list.Items {
		v := &list.Items[i]
		if of := v.Spec.ClaimRef; of.Namespace == namespace && (b.home[of.Name] == nil || b.home[of.Name].GetUID() != of.UID) {
			out = append(out, fmt.Sprintf("volume %s of %s is left at home", v.Name, key(k, namespace, of.Name)))
		}
	}
	for name, local := range b.home {
		claim := local.(*corev1.PersistentVolumeClaim)
		if _, own := c.preserved.own[key(k, namespace, name)]; !own && claim.Status.Phase != corev1.ClaimBound {
			out = append(out, fmt.Sprintf("%s is %s", key(k, namespace, name), claim.Status.Phase))
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
	name := map[string]metav1.Object{"web": &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}}
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
		"slice of a name":            {endpointSlices(), slice(nil, "web"), denyList, name, false},
		"allowed slice of a name":    {endpointSlices(), slice(allow, "web"), denyList, name, false},
		"allowed slice of none":      {endpointSlices(), slice(allow, "db"), allowList, service(nil), true},
		"skipped slice":              {endpointSlices(), slice(skip, "web"), denyList, service(nil), false},
		"claim":                      {claims(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: skip}}, allowList, nil, true},
		"empty slice":                {endpointSlices(), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Annotations: allow}}, denyList, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := comparison{set: settings{policies: map[string]string{"configmap": test.policy, "service": test.policy}}}
			require.Equal(t, test.want, c.wanted(test.kind, test.local, test.services))
		})
	}
}

// TestCompare shows that the checker finds each thing that may go wrong.
func TestCompare(t *testing.T) {
	local := func(change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{homePrefix + "a": "1"}}, Data: map[string]string{"k": "v"}}
		for _, c := range change {
			c(cm)
		}
		return cm
	}
	remote := func(change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
		cm := local(func(cm *corev1.ConfigMap) {
			cm.Labels[offloadingv1beta1.OriginLabel], cm.UID, cm.ResourceVersion = consumer, "1", "7"
		})
		for _, c := range change {
			c(cm)
		}
		return cm
	}
	writtenBy := func(manager, fields string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) {
			cm.ManagedFields = append(cm.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)})
		}
	}
	own := func(cm *corev1.ConfigMap) { delete(cm.Labels, offloadingv1beta1.OriginLabel) }
	for name, test := range map[string]struct {
		home, away *corev1.ConfigMap
		foreign    string
		added      string
		want       string
	}{
		"equal":   {home: local(), away: remote(writtenBy(reflectionManager, `{"f:data":{}}`), writtenBy(providerUser, `{"f:metadata":{}}`))},
		"missing": {home: local(), want: "is not in the provider"},
		"left":    {away: remote(), want: "is left in the provider"},
		"skipped but there": {home: local(func(cm *corev1.ConfigMap) {
			cm.Annotations = map[string]string{offloadingv1beta1.SkipReflectionAnnotation: ""}
		}), away: remote(), want: "is left"},
		"content":                  {home: local(), away: remote(func(cm *corev1.ConfigMap) { cm.Data["k"] = "w" }), want: "content differs"},
		"label lost":               {home: local(), away: remote(func(cm *corev1.ConfigMap) { delete(cm.Labels, homePrefix+"a") }), want: `is "", not "1"`},
		"label left":               {home: local(), away: remote(func(cm *corev1.ConfigMap) { cm.Labels[homePrefix+"b"] = "1" }), want: "must not be reflected"},
		"their label lost":         {home: local(), away: remote(), added: "x", want: "lost the label"},
		"their content":            {home: local(), away: remote(writtenBy(providerUser, `{"f:data":{"f:k":{}}}`)), want: providerUser + " owns f:data"},
		"somebody else's writing":  {home: local(), away: remote(writtenBy("other", `{}`)), want: "was written by other"},
		"written at home":          {home: local(writtenBy(reflectionManager, `{}`)), away: remote(), want: "was written by liqod-vkubelet at home"},
		"provider's own":           {home: local(), away: remote(own), foreign: "7"},
		"provider's own written":   {away: remote(own), foreign: "6", want: "is the provider's own, and was written"},
		"provider's own gone":      {home: local(), foreign: "7", want: "and is gone"},
		"provider's other written": {away: remote(own, writtenBy(reflectionManager, `{}`)), want: "was written by liqod-vkubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			k := configMaps()
			c := comparison{set: settings{policies: map[string]string{k.name: denyList}}, preserved: &preserved{own: map[string]string{}, labels: map[types.UID]string{"1": test.added}}}
			if test.foreign != "" {
				c.preserved.own[key(k, "ns", "a")] = test.foreign
			}
			b := both{map[string]metav1.Object{}, map[string]metav1.Object{}}
			if test.home != nil {
				b.home["a"] = test.home
			}
			if test.away != nil {
				b.remote["a"] = test.away
			}
			found := c.compare(k, "ns", b, nil)
			if test.want == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0], test.want)
		})
	}
}
