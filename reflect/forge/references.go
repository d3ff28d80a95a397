package forge

import corev1 "k8s.io/api/core/v1"

// eachSource calls visit with each part of spec from which a container gets values or files: a
// pointer to an EnvFromSource, EnvVarSource, VolumeSource or VolumeProjection. owner names the
// container or volume, and item the variable. Tests compare the places with the types of the API.
func eachSource(spec *corev1.PodSpec, visit func(owner, item string, source any)) {
	container := func(name string, from []corev1.EnvFromSource, env []corev1.EnvVar) {
		for i := range from {
			visit(name, "", &from[i])
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
