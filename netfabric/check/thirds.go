package check

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
)

// MaxSharedNamespaces is how many namespaces a Configuration names for a third cluster.
const MaxSharedNamespaces = 64

const longestClusterID = 51

// checkThirds adds the mistakes in the third clusters of a Configuration to out. Their ranges stand
// for those of transit.
func checkThirds(field string, thirds []networkingv1beta1.Third, transit []networkingv1beta1.CIDR, out *Problems) {
	if len(thirds) > MaxThirds {
		out.Add("%s has %d clusters: %d are accepted", field, len(thirds), MaxThirds)
		return
	}
	for i, t := range thirds {
		bad := func(format string, args ...any) {
			out.Add("%s: cluster %.64q: "+format, append([]any{field, t.ClusterID}, args...)...)
		}
		if len(t.ClusterID) > longestClusterID || len(validation.IsDNS1123Label(t.ClusterID)) > 0 {
			bad("the id of a cluster is accepted")
		}
		if slices.ContainsFunc(thirds[:i], func(o networkingv1beta1.Third) bool { return o.ClusterID == t.ClusterID }) {
			bad("it is there twice")
		}
		if n := len(t.Namespaces); n == 0 || n > MaxSharedNamespaces {
			bad("%d namespaces: 1 to %d are accepted", n, MaxSharedNamespaces)
		} else if j := slices.IndexFunc(t.Namespaces, func(n string) bool { return len(validation.IsDNS1123Label(n)) > 0 }); j >= 0 {
			bad("%.64q is not the name of a namespace", t.Namespaces[j])
		}
		if len(t.Ranges) > MaxPodRanges {
			bad("it has %d ranges: %d are accepted", len(t.Ranges), MaxPodRanges)
			continue
		}
		for _, m := range t.Ranges {
			if _, err := ReadMapping(field, m); err != nil || !slices.Contains(transit, m.View) {
				bad("%.64q as %.64q: a range, and one of its size in transit, are accepted", m.Own, m.View)
			}
		}
	}
}
