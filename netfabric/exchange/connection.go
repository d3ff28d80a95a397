package exchange

import (
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/plan"
)

// answer returns the views that the peer has of this cluster's own ranges, and what is wrong
// with those that are left out.
func (f facts) answer() ([]networkingv1beta1.Mapping, error) {
	if f.mine == nil {
		return nil, nil
	}
	pods, external := f.mine.PodViews(), f.mine.ExternalViews()
	use := map[networkingv1beta1.View]networkingv1beta1.RangeUse{}
	for _, v := range external {
		use[v] = networkingv1beta1.RangeExternal
	}
	good, err := check.Answer(append(pods, external...))
	var out []networkingv1beta1.Mapping
	for _, v := range good {
		m := networkingv1beta1.Mapping{Own: networkingv1beta1.CIDR(v.Own.String()), View: networkingv1beta1.CIDR(v.View.String()), Use: networkingv1beta1.RangePod}
		if u, ok := use[v]; ok {
			m.Use = u
		}
		out = append(out, m)
	}
	return out, err
}

// connectionSpec is the Connection that follows from both directions: local are this
// cluster's own ranges and the peer's views of them, remote the reverse. Nil while either is
// empty.
func connectionSpec(peer string, local, remote []networkingv1beta1.Mapping, mine, theirs *networkingv1beta1.Configuration) *networkingv1beta1.ConnectionSpec {
	if len(local) == 0 || len(remote) == 0 {
		return nil
	}
	return &networkingv1beta1.ConnectionSpec{
		ClusterID: peer, Local: local, Remote: remote,
		Gateways: theirs.DeepCopy().Spec.Gateways, MTU: plan.SmallerMTU(mine.Spec.MTU, theirs.Spec.MTU),
	}
}
