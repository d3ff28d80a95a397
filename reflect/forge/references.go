package forge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// eachSource calls visit with each part of spec from which a container gets values or files: a
// pointer to an EnvFromSource, EnvVarSource, VolumeSource or VolumeProjection. owner names the
// container or volume, and item the variable. Tests compare the places with the types of the API.
func eachSource(spec *corev1.PodSpec, visit func(owner, item string, from any)) {
	container := func(name string, all []corev1.EnvFromSource, env []corev1.EnvVar) {
		for i := range all {
			visit(name, "", &all[i])
		}
		for i := range env {
			if env[i].ValueFrom != nil {
				visit(name, env[i].Name, env[i].ValueFrom)
			}
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			container(containers[i].Name, containers[i].EnvFrom, containers[i].Env)
		}
	}
	for i := range spec.EphemeralContainers {
		c := &spec.EphemeralContainers[i]
		container(c.Name, c.EnvFrom, c.Env)
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		visit(v.Name, "", &v.VolumeSource)
		if v.Projected != nil {
			for j := range v.Projected.Sources {
				visit(v.Name, "", &v.Projected.Sources[j])
			}
		}
	}
}

// Named is an object of the namespace of a pod.
type Named struct {
	Kind, Name string
	// Optional is true if the pod may start without the object.
	Optional bool
}

// NamedBy returns the ConfigMaps and Secrets that spec names, each once.
func NamedBy(spec *corev1.PodSpec) []Named {
	var out namedObjects
	for i := range spec.ImagePullSecrets {
		out.put("Secret", spec.ImagePullSecrets[i].Name, nil)
	}
	eachSource(spec, func(_, _ string, from any) {
		switch s := from.(type) {
		case *corev1.EnvFromSource:
			configMap, secret := value(s.ConfigMapRef), value(s.SecretRef)
			out.put("ConfigMap", configMap.Name, configMap.Optional)
			out.put("Secret", secret.Name, secret.Optional)
		case *corev1.EnvVarSource:
			configMap, secret := value(s.ConfigMapKeyRef), value(s.SecretKeyRef)
			out.put("ConfigMap", configMap.Name, configMap.Optional)
			out.put("Secret", secret.Name, secret.Optional)
		case *corev1.VolumeProjection:
			configMap, secret := value(s.ConfigMap), value(s.Secret)
			out.put("ConfigMap", configMap.Name, configMap.Optional)
			out.put("Secret", secret.Name, secret.Optional)
		case *corev1.VolumeSource:
			out.ofVolume(s)
		}
	})
	return out
}

type namedObjects []Named

// put adds an object; without a name there is none.
func (n *namedObjects) put(kind, name string, optional *bool) {
	mayLack := optional != nil && *optional
	i := slices.IndexFunc(*n, func(have Named) bool { return have.Kind == kind && have.Name == name })
	switch {
	case name == "":
	case i < 0:
		*n = append(*n, Named{kind, name, mayLack})
	default:
		(*n)[i].Optional = (*n)[i].Optional || mayLack
	}
}

func (n *namedObjects) ofVolume(v *corev1.VolumeSource) {
	var secret *corev1.LocalObjectReference
	switch {
	case v.ConfigMap != nil:
		n.put("ConfigMap", v.ConfigMap.Name, v.ConfigMap.Optional)
	case v.Secret != nil:
		n.put("Secret", v.Secret.SecretName, v.Secret.Optional)
	case v.AzureFile != nil:
		n.put("Secret", v.AzureFile.SecretName, nil)
	case v.CSI != nil:
		secret = v.CSI.NodePublishSecretRef
	case v.CephFS != nil:
		secret = v.CephFS.SecretRef
	case v.Cinder != nil:
		secret = v.Cinder.SecretRef
	case v.FlexVolume != nil:
		secret = v.FlexVolume.SecretRef
	case v.ISCSI != nil:
		secret = v.ISCSI.SecretRef
	case v.RBD != nil:
		secret = v.RBD.SecretRef
	case v.ScaleIO != nil:
		secret = v.ScaleIO.SecretRef
	case v.StorageOS != nil:
		secret = v.StorageOS.SecretRef
	}
	if secret != nil {
		n.put("Secret", secret.Name, nil)
	}
}
