package rules

import storagev1 "k8s.io/api/storage/v1"

const (
	defaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// noProvisioner is the provisioner of a class whose volumes people make.
const noProvisioner = "kubernetes.io/no-provisioner"

// Provisioned reports whether the volumes of a class are made for its claims. A claim of a
// class without a provisioner, or of a name that no class has, gets a volume that is there
// already.
func Provisioned(c *storagev1.StorageClass) bool {
	return c.Provisioner != "" && c.Provisioner != noProvisioner
}

// DefaultStorageClass is the name of the class that the API server gives a claim that names
// none: of several the newest, of those the first by name. It is empty where there is none.
func DefaultStorageClass(all []*storagev1.StorageClass) string {
	var first *storagev1.StorageClass
	for _, c := range all {
		if c.Annotations[defaultClassAnnotation] != "true" && c.Annotations[betaDefaultClassAnnotation] != "true" {
			continue
		}
		if first == nil || first.CreationTimestamp.Before(&c.CreationTimestamp) ||
			first.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < first.Name {
			first = c
		}
	}
	if first == nil {
		return ""
	}
	return first.Name
}
