package roles

import (
	"fmt"
	"strings"
)

// instead says what does the work of commands of liqoctl that liqod does not have.
// docs/liqo.md has the same table.
var instead = []struct{ theirs, ours string }{
	{"install", "helm upgrade --install (docs/install.md)"},
	{"info", "liqod status, and liqod check"},
	{"force unpeer", "liqod unpeer --force"},
	{"create resourceslice", "liqod peer --cpu --memory, or spec.request of the ForeignCluster"},
	{"move volume", "liqod storage move"},
	{"test network", "liqod network check"},
	{"cordon", "spec.cordoned of the Quota"},
	{"uncordon", "spec.cordoned of the Quota"},
	{"drain tenant", "incomingPeeringEnabled: \"No\" of the ForeignCluster"},
	{"authenticate", "liqod token create in the provider, and liqod peer --token in the consumer"},
}

// ofLiqoctl returns the answer to a command of liqoctl that liqod does not have, or "".
func ofLiqoctl(args []string) string {
	typed := strings.Join(args, " ") + " "
	for _, known := range instead {
		if first, _, _ := strings.Cut(known.theirs, " "); strings.HasPrefix(typed, first+" ") {
			return fmt.Sprintf("%s is a command of liqoctl: here it is %s", known.theirs, known.ours)
		}
	}
	return ""
}
