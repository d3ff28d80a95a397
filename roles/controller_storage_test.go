package roles

import (
	"testing"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/roles/config"
)

// TestRealClass: volumes on nodes of this cluster are of the class that is set, else of the
// default one, and never of a class of liqod itself.
func TestRealClass(t *testing.T) {
	t.Parallel()
	class := func(name, provisioner, isDefault string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": isDefault}}, Provisioner: provisioner}
	}
	for name, row := range map[string]struct {
		set     string
		classes []*storagev1.StorageClass
		want    string
		problem string
	}{
		"set":              {"fast", []*storagev1.StorageClass{class("fast", "example.com/disk", ""), class("slow", "example.com/disk", "true")}, "fast", ""},
		"default":          {"", []*storagev1.StorageClass{class("fast", "example.com/disk", ""), class("slow", "example.com/disk", "true")}, "slow", ""},
		"no default":       {"", []*storagev1.StorageClass{class("fast", "example.com/disk", "")}, "", "no default storage class"},
		"missing":          {"gone", nil, "", "StorageClass gone (storage.realStorageClassName) does not exist"},
		"liqod's":          {"liqo", []*storagev1.StorageClass{class("liqo", "liqo.io/storage", "")}, "", "StorageClass liqo is of liqod itself"},
		"liqod's, default": {"", []*storagev1.StorageClass{class("liqo", "liqo.io/storage", "true")}, "", "StorageClass liqo is of liqod itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			classes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			for _, c := range row.classes {
				require.NoError(t, classes.Add(c))
			}
			have, problem := realClass(config.Storage{RealStorageClassName: row.set}, storagelisters.NewStorageClassLister(classes))()
			require.Equal(t, row.want, have)
			if row.problem == "" {
				require.Empty(t, problem)
			} else {
				require.Contains(t, problem, row.problem)
			}
		})
	}
}
