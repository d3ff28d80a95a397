package config

import (
	"slices"

	podrules "github.com/liqod/liqod/shadow/rules"
)

// Values of Sharing.Trust.
const (
	TrustStrict       = "Strict"
	TrustOrganisation = "Organisation"
)

// ofOrganisation returns the defaults of settings if sharing.trust is TrustOrganisation. A
// setting that is not listed keeps its default of config.yaml.
func ofOrganisation() map[string]any {
	return map[string]any{
		"controller.twinNames":   []string{"*"},
		"controller.volumeTypes": volumesOfOrganisation(),
		"controller.tolerations": []string{podrules.AllKeys},
		"sharing.selectorLabels": []string{podrules.AllKeys},
		"sharing.serviceTypes":   []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"},
		"sharing.serviceFields":  []string{podrules.FieldNodePort},
		"sharing.annotations":    []string{podrules.AllKeys},
		"sharing.labelsLeftOut":  []string{},
	}
}

// volumesOfOrganisation returns all types of volumes but those by which a pod gets files of a
// node, or runs programs on it.
func volumesOfOrganisation() []string {
	return slices.DeleteFunc(podrules.VolumeTypes(), func(name string) bool {
		return slices.Contains([]string{"hostPath", "flexVolume", "gitRepo"}, name)
	})
}

// trust replaces the defaults of settings as sharing.trust says. A setting that any source
// gives keeps its value.
func (e *Effective) trust() {
	if e.value("sharing.trust") != TrustOrganisation {
		return
	}
	for key, value := range ofOrganisation() {
		if e.origin[key] == "default" {
			e.set(key, value, "sharing.trust "+TrustOrganisation)
		}
	}
}
