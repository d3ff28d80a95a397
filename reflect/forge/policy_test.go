package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	skipKey  = offloadingv1beta1.SkipReflectionAnnotation
	allowKey = offloadingv1beta1.AllowReflectionAnnotation
)

func TestReflects(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	cases := map[string]struct {
		annotations              m
		denied, allowed, clashes bool // reflected under DenyList, under AllowList; contradiction
	}{
		"none":               {nil, true, false, false},
		"others":             {m{"note": "true"}, true, false, false},
		"skip":               {m{skipKey: "true"}, false, false, false},
		"skip, no value":     {m{skipKey: ""}, false, false, false},
		"skip, any value":    {m{skipKey: "0"}, false, false, false},
		"skip taken back":    {m{skipKey: "false"}, true, false, false},
		"allow":              {m{allowKey: "true"}, true, true, false},
		"allow, no value":    {m{allowKey: ""}, true, true, false},
		"allow taken back":   {m{allowKey: "false"}, true, false, false},
		"both":               {m{skipKey: "true", allowKey: "true"}, false, false, true},
		"both, one is false": {m{skipKey: "false", allowKey: "true"}, true, true, false},
		"both, other false":  {m{skipKey: "true", allowKey: "false"}, false, false, false},
		"both taken back":    {m{skipKey: "false", allowKey: "false"}, true, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reflects, conflict := Reflects(DenyList, tc.annotations)
			require.Equal(t, []bool{tc.denied, tc.clashes}, []bool{reflects, conflict}, "DenyList")
			reflects, conflict = Reflects(AllowList, tc.annotations)
			require.Equal(t, []bool{tc.allowed, tc.clashes}, []bool{reflects, conflict}, "AllowList")
		})
	}
}

func TestReflectsSlice(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	service := func(annotations m) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	external := func(annotations m) *corev1.Service {
		s := service(annotations)
		s.Spec.Type = corev1.ServiceTypeExternalName
		return s
	}
	cases := map[string]struct {
		annotations              m
		service                  *corev1.Service
		denied, allowed, clashes bool
	}{
		"as its Service":                 {nil, service(nil), true, false, false},
		"as its Service, skipped":        {nil, service(m{skipKey: "true"}), false, false, false},
		"as its Service, allowed":        {nil, service(m{allowKey: "true"}), true, true, false},
		"as its Service, which has both": {nil, service(m{skipKey: "true", allowKey: "true"}), false, false, false},
		"no Service":                     {nil, nil, false, false, false},
		"itself, without a Service":      {m{allowKey: "true"}, nil, true, true, false},
		"itself, its Service not":        {m{allowKey: "true"}, service(m{skipKey: "true"}), true, true, false},
		"not itself, its Service":        {m{skipKey: "true"}, service(m{allowKey: "true"}), false, false, false},
		"itself taken back":              {m{allowKey: "false"}, service(m{skipKey: "true"}), false, false, false},
		"not itself taken back":          {m{skipKey: "false"}, service(m{allowKey: "true"}), true, true, false},
		"both":                           {m{skipKey: "true", allowKey: "true"}, service(nil), false, false, true},
		"of a former selector":           {nil, external(m{allowKey: "true"}), false, false, false},
		"of a name, itself allowed":      {m{allowKey: "true"}, external(nil), false, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reflects, conflict := ReflectsSlice(DenyList, tc.annotations, tc.service)
			require.Equal(t, []bool{tc.denied, tc.clashes}, []bool{reflects, conflict}, "DenyList")
			reflects, conflict = ReflectsSlice(AllowList, tc.annotations, tc.service)
			require.Equal(t, []bool{tc.allowed, tc.clashes}, []bool{reflects, conflict}, "AllowList")
		})
	}
}
