package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// notVKubelets are the settings, and sections of settings, that apply to this process or to
// another role only. They would be wrong in a vkubelet.
var notVKubelets = []string{
	"controller", "webhook", "peering", "discovery", "authentication", "sharing", "ipam", "gateway", "route",
	"networking.podCIDRs", "networking.serviceCIDRs", "networking.externalCIDRs", "networking.nodeCIDRs", "networking.reservedSubnets", "networking.reach", "networking.externalEndpoints",
	"health.heartbeat",        // is kept by role controller
	"kubeconfig", "namespace", // a vkubelet runs elsewhere
	"vkubelet.virtualNode", "vkubelet.nodeAddress", // differ from one virtual node to the next
	"vkubelet.certificateDirectory",                       // is a volume of the Deployment
	"reflection.skipLabels", "reflection.skipAnnotations", // the vkubelet reads them from the VirtualNode's status, without a restart
	"reflection.sharedZones", // is for role controller
	"server.address",         // the probes of the Deployment ask the default port
}

// VKubeletArgs returns the flags that give a vkubelet the settings of this process: one
// for each setting that concerns vkubelets and is not the default, in the order of
// config.yaml; for a list one for each element, or one without a value where the list is
// empty and its default is not.
func (e *Effective) VKubeletArgs() []string {
	var args []string
	for _, s := range e.settings {
		if slices.ContainsFunc(notVKubelets, func(k string) bool { return s.Key == k || strings.HasPrefix(s.Key, k+".") }) {
			continue
		}
		have := flagTexts(e.value(s.Key))
		if usual, ok := rules[s.Key].parse(s.Default); ok && slices.Equal(have, flagTexts(usual)) {
			continue
		}
		for _, text := range have {
			args = append(args, "--"+s.Key+"="+text)
		}
	}
	return args
}

// flagTexts returns the texts of a setting's flags for a value of its type.
func flagTexts(value any) []string {
	switch v := value.(type) {
	case []string:
		if len(v) == 0 {
			return []string{""}
		}
		return v
	case time.Duration:
		return []string{short(v)}
	default:
		return []string{fmt.Sprint(v)}
	}
}
