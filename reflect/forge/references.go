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
	for _, c := range containersOf(spec) {
		container(c.Name, c.EnvFrom, c.Env)
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

// containersOf returns the init containers of spec, and then the other ones without the ephemeral containers.
func containersOf(spec *corev1.PodSpec) (all []*corev1.Container) {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
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
			out.put("ConfigMap", value(s.ConfigMapRef).Name, value(s.ConfigMapRef).Optional)
			out.put("Secret", value(s.SecretRef).Name, value(s.SecretRef).Optional)
		case *corev1.EnvVarSource:
			out.put("ConfigMap", value(s.ConfigMapKeyRef).Name, value(s.ConfigMapKeyRef).Optional)
			out.put("Secret", value(s.SecretKeyRef).Name, value(s.SecretKeyRef).Optional)
		case *corev1.VolumeProjection:
			out.put("ConfigMap", value(s.ConfigMap).Name, value(s.ConfigMap).Optional)
			out.put("Secret", value(s.Secret).Name, value(s.Secret).Optional)
		case *corev1.VolumeSource:
			out.ofVolume(s)
		}
	})
	return out
}

type namedObjects []Named

// put adds an object; without a name there is none.
func (n *namedObjects) put(kind, name string, optional *bool) {
	i := slices.IndexFunc(*n, func(have Named) bool { return have.Kind == kind && have.Name == name })
	switch {
	case name == "":
	case i < 0:
		*n = append(*n, Named{kind, name, value(optional)})
	default:
		(*n)[i].Optional = (*n)[i].Optional || value(optional)
	}
}

func (n *namedObjects) ofVolume(v *corev1.VolumeSource) {
	n.put("ConfigMap", value(v.ConfigMap).Name, value(v.ConfigMap).Optional)
	n.put("Secret", value(v.Secret).SecretName, value(v.Secret).Optional)
	n.put("Secret", value(v.AzureFile).SecretName, nil)
	for _, secret := range []*corev1.LocalObjectReference{
		value(v.CSI).NodePublishSecretRef, value(v.CephFS).SecretRef, value(v.Cinder).SecretRef, value(v.FlexVolume).SecretRef,
		value(v.ISCSI).SecretRef, value(v.RBD).SecretRef, value(v.ScaleIO).SecretRef, value(v.StorageOS).SecretRef,
	} {
		n.put("Secret", value(secret).Name, nil)
	}
}
