package forge

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// More rules for fields, for objects that are merged into an existing object.
const (
	// defaulted is kept, and a value that the provider fills in stays if the local field
	// is empty.
	defaulted = "kept or defaulted"
	// apart has a table or a test of its own.
	apart = "see its own test"
)

func objectOptions() ObjectOptions {
	return ObjectOptions{OriginClusterID: "rome", DestinationClusterID: "milan", RemoteNamespace: "shop-rome"}
}

// kind has the functions of one kind, and accessors for the struct that a table is about.
type kind[L, R any] struct {
	local func() *L // the least that the API server would accept
	forge func(*L) (*R, error)
	merge func(have, want *R) *R
	// pointers to the same struct, in the local and the remote object; nil: the objects
	here   func(*L) any
	remote func(*R) any
}

// requireRules requires a rule for every field of the struct, and that the forge and
// merge functions follow it.
func requireRules[L, R any](t *testing.T, rules map[string]rule, k kind[L, R]) {
	t.Helper()
	if k.here == nil {
		k.here, k.remote = func(l *L) any { return l }, func(r *R) any { return r }
	}
	typ := reflect.TypeOf(k.here(k.local())).Elem()
	require.Len(t, rules, typ.NumField(), "fields of %s", typ)
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		rule, ok := rules[name]
		require.Truef(t, ok, "%s.%s has no line in the table: decide what happens to it", typ, name)
		if rule.fate == apart || rule.fate == partly || rule.fate == forced {
			continue
		}
		t.Run(name, func(t *testing.T) {
			k.requireRule(t, i, rule.fate)
		})
	}
}

func (k kind[L, R]) requireRule(t *testing.T, field int, fate string) {
	plain, full := k.local(), k.local()
	set := reflect.ValueOf(k.here(full)).Elem().Field(field)
	fill(set, 0)
	require.False(t, set.IsZero(), "the test must set the field")
	without, err := k.forge(plain)
	require.NoError(t, err)
	with, err := k.forge(full)
	if fate == refused {
		require.ErrorAs(t, err, new(*Refused))
		return
	}
	require.NoError(t, err)
	of := func(r *R) any { return reflect.ValueOf(k.remote(r)).Elem().Field(field).Interface() }
	zero := reflect.Zero(set.Type()).Interface()

	if fate == removed {
		require.Equal(t, zero, of(with), "forged")
		reflect.ValueOf(k.remote(with)).Elem().Field(field).Set(set)
		require.Equal(t, set.Interface(), of(k.merge(with, without)), "what others set stays")
		return
	}
	require.Equal(t, set.Interface(), of(with), "forged")
	require.Equal(t, set.Interface(), of(k.merge(without, with)), "set later")
	if fate == defaulted {
		require.Equal(t, of(with), of(k.merge(with, without)), "what the provider fills in stays")
		return
	}
	require.True(t, equality.Semantic.DeepEqual(of(without), of(k.merge(with, without))), "unset later")
}

// metaFields has a rule for each field of the metadata of a reflected object.
var metaFields = map[string]rule{
	"Name":                       {apart, "kept, but that of the root CA"},
	"GenerateName":               {removed, "the name is known"},
	"Namespace":                  {forced, "the twin"},
	"SelfLink":                   {removed, "of this cluster's object"},
	"UID":                        {removed, "of this cluster's object"},
	"ResourceVersion":            {removed, "of this cluster's object"},
	"Generation":                 {removed, "of this cluster's object"},
	"CreationTimestamp":          {removed, "of this cluster's object"},
	"DeletionTimestamp":          {removed, "of this cluster's object"},
	"DeletionGracePeriodSeconds": {removed, "of this cluster's object"},
	"Labels":                     {apart, "without those that stay here, with ours"},
	"Annotations":                {apart, "without those that stay here, with the record of ours"},
	"OwnerReferences":            {removed, "names objects of this cluster"},
	"Finalizers":                 {removed, "nobody in the provider would remove them"},
	"ManagedFields":              {removed, "of this cluster's object"},
}

func TestEveryFieldOfTheMetadataHasARule(t *testing.T) {
	requireRules(t, metaFields, kind[metav1.ObjectMeta, metav1.ObjectMeta]{
		local: func() *metav1.ObjectMeta { return &metav1.ObjectMeta{Name: "c", Namespace: "shop"} },
		forge: func(m *metav1.ObjectMeta) (*metav1.ObjectMeta, error) {
			out := objectOptions().meta(m)
			return &out, nil
		},
		merge: func(have, want *metav1.ObjectMeta) *metav1.ObjectMeta {
			out := have.DeepCopy()
			mergeMeta(out, want)
			return out
		},
	})
}

func TestMetadata(t *testing.T) {
	for name, tc := range map[string]struct {
		local       metav1.ObjectMeta
		opts        func(*ObjectOptions)
		labels      map[string]string // beside origin and destination
		annotations map[string]string // beside the record
		record      string
	}{
		"skipped": {
			local: metav1.ObjectMeta{Labels: map[string]string{"site": "1", "rack": "2", "a": "3"}, Annotations: map[string]string{"cloud": "x", "mesh": "y"}},
			opts: func(o *ObjectOptions) {
				o.SkipLabels, o.SkipAnnotations = []string{"site"}, []string{"cloud"}
				o.Patch = &offloadingv1beta1.OffloadingPatch{LabelsNotReflected: []string{"rack"}, AnnotationsNotReflected: []string{"mesh"}}
			},
			labels: map[string]string{"a": "3"},
			record: `{"labels":["a","offloading.liqo.io/destination","offloading.liqo.io/origin"]}`,
		},
		"ours cannot be skipped or overridden": {
			local:  metav1.ObjectMeta{Labels: map[string]string{offloadingv1beta1.OriginLabel: "x"}, Annotations: map[string]string{offloadingv1beta1.ReflectedAnnotation: "x"}},
			opts:   func(o *ObjectOptions) { o.SkipLabels = []string{offloadingv1beta1.DestinationLabel} },
			record: `{"labels":["offloading.liqo.io/destination","offloading.liqo.io/origin"]}`,
		},
		"annotations that speak to this cluster": {
			local: metav1.ObjectMeta{Annotations: map[string]string{
				corev1.LastAppliedConfigAnnotation: "{}", offloadingv1beta1.SkipReflectionAnnotation: "false",
				offloadingv1beta1.AllowReflectionAnnotation: "true"}},
			record: `{"labels":["offloading.liqo.io/destination","offloading.liqo.io/origin"]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := objectOptions()
			if tc.opts != nil {
				tc.opts(&o)
			}
			before := tc.local.DeepCopy()
			got := o.meta(&tc.local)
			require.Equal(t, before, &tc.local, "the argument is not changed")
			labels, annotations := without(tc.labels, nil), without(tc.annotations, nil)
			labels["offloading.liqo.io/origin"], labels["offloading.liqo.io/destination"] = "rome", "milan"
			annotations["offloading.liqo.io/reflected"] = tc.record
			require.Equal(t, metav1.ObjectMeta{Namespace: "shop-rome", Labels: labels, Annotations: annotations}, got)
		})
	}
}

func TestMergeMetadata(t *testing.T) {
	forge := func(labels, annotations map[string]string) *metav1.ObjectMeta {
		m := objectOptions().meta(&metav1.ObjectMeta{Labels: labels, Annotations: annotations})
		return &m
	}
	type m = map[string]string
	for name, tc := range map[string]struct {
		have   *metav1.ObjectMeta
		change func(*metav1.ObjectMeta) // by others
		want   *metav1.ObjectMeta
		labels m // beside origin and destination
		notes  m // beside the record
	}{
		"added here":     {have: forge(nil, nil), want: forge(m{"a": "1"}, m{"n": "1"}), labels: m{"a": "1"}, notes: m{"n": "1"}},
		"removed here":   {have: forge(m{"a": "1", "b": "1"}, m{"n": "1"}), want: forge(m{"b": "1"}, nil), labels: m{"b": "1"}, notes: m{}},
		"added there":    {have: forge(m{"a": "1"}, nil), change: func(o *metav1.ObjectMeta) { o.Labels["x"], o.Annotations["y"] = "1", "1" }, want: forge(nil, nil), labels: m{"x": "1"}, notes: m{"y": "1"}},
		"changed there":  {have: forge(m{"a": "1"}, m{"n": "1"}), change: func(o *metav1.ObjectMeta) { o.Labels["a"], o.Annotations["n"] = "x", "x" }, want: forge(m{"a": "1"}, m{"n": "1"}), labels: m{"a": "1"}, notes: m{"n": "1"}},
		"removed there":  {have: forge(m{"a": "1"}, m{"n": "1"}), change: func(o *metav1.ObjectMeta) { delete(o.Labels, "a"); delete(o.Annotations, "n") }, want: forge(m{"a": "1"}, m{"n": "1"}), labels: m{"a": "1"}, notes: m{"n": "1"}},
		"kept meanwhile": {have: forge(nil, m{"n": "1"}), change: func(o *metav1.ObjectMeta) { o.Annotations[offloadingv1beta1.KeptAnnotation] = "2026-01-01T00:00:00Z" }, want: forge(nil, m{"n": "1"}), labels: m{}, notes: m{"n": "1"}},
		"the record is spoilt": {have: forge(m{"a": "1"}, m{"n": "1"}), change: func(o *metav1.ObjectMeta) { o.Annotations[offloadingv1beta1.ReflectedAnnotation] = "{" }, want: forge(m{"b": "1"}, nil),
			labels: m{"a": "1", "b": "1"}, notes: m{"n": "1"}},
		"the record is gone": {have: forge(m{"a": "1"}, nil), change: func(o *metav1.ObjectMeta) { o.Annotations = nil }, want: forge(m{"b": "1"}, nil), labels: m{"a": "1", "b": "1"}, notes: m{}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(tc.have)
			}
			got := tc.have.DeepCopy()
			mergeMeta(got, tc.want)
			want := tc.want.DeepCopy()
			want.Labels, want.Annotations = tc.labels, tc.notes
			want.Labels["offloading.liqo.io/origin"], want.Labels["offloading.liqo.io/destination"] = "rome", "milan"
			want.Annotations["offloading.liqo.io/reflected"] = tc.want.Annotations["offloading.liqo.io/reflected"]
			require.Equal(t, want, got)
			again := got.DeepCopy()
			mergeMeta(again, tc.want)
			require.Equal(t, got, again, "a second time changes nothing")
		})
	}
}

func TestForeign(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"made here":             {nil, false},
		"of another cluster":    {map[string]string{offloadingv1beta1.OriginLabel: "paris"}, true},
		"of nobody":             {map[string]string{offloadingv1beta1.OriginLabel: ""}, true},
		"labelled as made here": {map[string]string{offloadingv1beta1.OriginLabel: "rome"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, Foreign(&metav1.ObjectMeta{Labels: tc.labels}, "rome"))
		})
	}
	paris := metav1.ObjectMeta{Name: "x", Namespace: "shop", Labels: map[string]string{offloadingv1beta1.OriginLabel: "paris"}}
	got, err := PersistentVolumeClaim(&corev1.PersistentVolumeClaim{ObjectMeta: paris}, objectOptions(), nil)
	require.NoError(t, err)
	require.Nil(t, got)
}

func TestLeftOut(t *testing.T) {
	want := &metav1.ObjectMeta{Annotations: map[string]string{"b": "1", "a": "1", "same": "1", "changed": "1", offloadingv1beta1.ReflectedAnnotation: "x"}}
	have := &metav1.ObjectMeta{Annotations: map[string]string{"same": "1", "changed": "2", "theirs": "1"}}
	want.Labels, have.Labels = map[string]string{"app": "x", "sidecar.istio.io/inject": "true"}, map[string]string{"app": "x"}
	require.Equal(t, []string{"a", "b", "changed", "label sidecar.istio.io/inject"}, LeftOut(want, have))
	require.Empty(t, LeftOut(have, have))
	require.Empty(t, LeftOut(&metav1.ObjectMeta{}, have))

	template := func(annotations map[string]string) []corev1.Volume {
		return []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}},
		}}}}
	}
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: *want}
	shadow.Spec.Pod.Volumes = template(map[string]string{"volume.kubernetes.io/selected-node": "worker-1"})
	pod := &corev1.Pod{ObjectMeta: *have, Spec: corev1.PodSpec{Volumes: template(nil)}}
	require.Equal(t, []string{"a", "b", "changed", "label sidecar.istio.io/inject", "volume.kubernetes.io/selected-node of volume data"}, LeftOutOfPod(shadow, pod))
	require.Less(t, len(LeftOutMessage("milan", strings.Repeat("x", 1<<20))), 1024, "a provider may name any")
}

const (
	skipKey  = offloadingv1beta1.SkipReflectionAnnotation
	allowKey = offloadingv1beta1.AllowReflectionAnnotation
)

func TestReflects(t *testing.T) {
	type m = map[string]string
	for name, tc := range map[string]struct {
		annotations              m
		denied, allowed, clashes bool // reflected under DenyList, under AllowList; contradiction
	}{
		"none":               {nil, true, false, false},
		"skip, no value":     {m{skipKey: ""}, false, false, false},
		"skip, any value":    {m{skipKey: "0"}, false, false, false},
		"skip taken back":    {m{skipKey: "false"}, true, false, false},
		"allow":              {m{allowKey: "true"}, true, true, false},
		"allow, no value":    {m{allowKey: ""}, true, true, false},
		"allow taken back":   {m{allowKey: "false"}, true, false, false},
		"both":               {m{skipKey: "true", allowKey: "true"}, false, false, true},
		"both, one is false": {m{skipKey: "false", allowKey: "true"}, true, true, false},
		"both, other false":  {m{skipKey: "true", allowKey: "false"}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			reflects, conflict := Reflects(DenyList, tc.annotations)
			require.Equal(t, []bool{tc.denied, tc.clashes}, []bool{reflects, conflict}, "DenyList")
			reflects, conflict = Reflects(AllowList, tc.annotations)
			require.Equal(t, []bool{tc.allowed, tc.clashes}, []bool{reflects, conflict}, "AllowList")
		})
	}
}

func TestReflectsSlice(t *testing.T) {
	type m = map[string]string
	service := func(annotations m) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	external := func(annotations m) *corev1.Service {
		s := service(annotations)
		s.Spec.Type = corev1.ServiceTypeExternalName
		return s
	}
	for name, tc := range map[string]struct {
		annotations              m
		service                  *corev1.Service
		denied, allowed, clashes bool
	}{
		"as its Service":                 {nil, service(nil), true, false, false},
		"as its Service, skipped":        {nil, service(m{skipKey: "true"}), false, false, false},
		"as its Service, which has both": {nil, service(m{skipKey: "true", allowKey: "true"}), false, false, false},
		"no Service":                     {nil, nil, false, false, false},
		"itself, without a Service":      {m{allowKey: "true"}, nil, true, true, false},
		"itself, its Service not":        {m{allowKey: "true"}, service(m{skipKey: "true"}), true, true, false},
		"not itself, its Service":        {m{skipKey: "true"}, service(m{allowKey: "true"}), false, false, false},
		"not itself taken back":          {m{skipKey: "false"}, service(m{allowKey: "true"}), true, true, false},
		"both":                           {m{skipKey: "true", allowKey: "true"}, service(nil), false, false, true},
		"of a former selector":           {nil, external(m{allowKey: "true"}), false, false, false},
		"of a name, itself allowed":      {m{allowKey: "true"}, external(nil), false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			reflects, conflict := ReflectsSlice(DenyList, tc.annotations, tc.service)
			require.Equal(t, []bool{tc.denied, tc.clashes}, []bool{reflects, conflict}, "DenyList")
			reflects, conflict = ReflectsSlice(AllowList, tc.annotations, tc.service)
			require.Equal(t, []bool{tc.allowed, tc.clashes}, []bool{reflects, conflict}, "AllowList")
		})
	}
}
