package rules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDefaultStorageClass(t *testing.T) {
	class := func(name string, age time.Duration, keys ...string) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)), Annotations: map[string]string{}}}
		for _, key := range keys {
			c.Annotations[key] = "true"
		}
		return c
	}
	for name, tc := range map[string]struct {
		classes []*storagev1.StorageClass
		want    string
	}{
		"none":                  {},
		"none is the default":   {classes: []*storagev1.StorageClass{class("a", 0)}},
		"one":                   {classes: []*storagev1.StorageClass{class("a", 0), class("b", 0, defaultClassAnnotation)}, want: "b"},
		"by the former key":     {classes: []*storagev1.StorageClass{class("a", 0, betaDefaultClassAnnotation)}, want: "a"},
		"the newest of several": {classes: []*storagev1.StorageClass{class("a", time.Hour, defaultClassAnnotation), class("b", 0, defaultClassAnnotation)}, want: "b"},
		"the first of equals":   {classes: []*storagev1.StorageClass{class("b", 0, defaultClassAnnotation), class("a", 0, defaultClassAnnotation)}, want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, DefaultStorageClass(tc.classes))
		})
	}
}
