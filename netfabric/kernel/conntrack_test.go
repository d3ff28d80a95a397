package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

func TestWhatIsForgotten(t *testing.T) {
	t.Parallel()
	own, view, theirs := prefix("10.244.0.0/16"), prefix("10.70.0.0/16"), prefix("10.71.0.0/16")
	snat := plan.Element{Set: "snat4", A: theirs, B: own, Value: view}
	same := plan.Element{Set: "snat4", A: theirs, B: own, Value: own}
	other := plan.Element{Set: "snat4", A: theirs, B: own, Value: prefix("10.72.0.0/16")}
	inSet := plan.Element{Set: "pairs4", A: theirs, B: view}
	six := plan.Element{Set: "dnat6", A: prefix("fd71::/48"), B: prefix("fd70::/48"), Value: prefix("fd00::/48")}
	for name, tc := range map[string]struct {
		want, gone []plan.Element
		forgotten  map[int]translations
	}{
		"nothing":                          {want: []plan.Element{snat}, forgotten: map[int]translations{}},
		"a translation goes":               {gone: []plan.Element{snat}, forgotten: map[int]translations{unix.AF_INET: {snat}}},
		"it changes":                       {want: []plan.Element{other}, gone: []plan.Element{snat}, forgotten: map[int]translations{unix.AF_INET: {snat}}},
		"to itself, and goes":              {gone: []plan.Element{same}, forgotten: map[int]translations{}},
		"to itself, and then to something": {want: []plan.Element{snat}, gone: []plan.Element{same}, forgotten: map[int]translations{unix.AF_INET: {same}}},
		"no translation":                   {gone: []plan.Element{inSet}, forgotten: map[int]translations{}},
		"IPv6":                             {gone: []plan.Element{six, snat}, forgotten: map[int]translations{unix.AF_INET: {snat}, unix.AF_INET6: {six}}},
	} {
		require.Equal(t, tc.forgotten, changed(tc.want, tc.gone), name)
	}
}

func TestFlowsOfTranslations(t *testing.T) {
	t.Parallel()
	ts := translations{
		{Set: "snat4", A: prefix("10.71.0.0/16"), B: prefix("10.244.0.0/16"), Value: prefix("10.70.0.0/16")},
		{Set: "hosts4", A: prefix("10.73.0.9/32"), Value: prefix("192.168.0.9/32")},
	}
	for name, tc := range map[string]struct {
		src, dst, from, to string
		want               bool
	}{
		"out, translated":            {"10.244.1.1", "10.71.1.1", "10.71.1.1", "10.70.1.1", true},
		"in, by the same ranges":     {"10.71.1.1", "10.244.1.1", "10.70.1.1", "10.71.1.1", true},
		"out, not translated":        {"10.244.1.1", "10.71.1.1", "10.71.1.1", "10.244.1.1", false},
		"translated for another":     {"10.244.1.1", "10.72.1.1", "10.72.1.1", "10.70.1.1", false},
		"to a host":                  {"10.244.1.1", "10.73.0.9", "192.168.0.9", "10.244.1.1", true},
		"to the host by its address": {"10.244.1.1", "192.168.0.9", "192.168.0.9", "10.244.1.1", false},
		"to the internet":            {"10.244.1.1", "1.1.1.1", "1.1.1.1", "192.168.0.1", false},
	} {
		flow := &netlink.ConntrackFlow{}
		flow.Forward.SrcIP, flow.Forward.DstIP = addr(tc.src).AsSlice(), addr(tc.dst).AsSlice()
		flow.Reverse.SrcIP, flow.Reverse.DstIP = addr(tc.from).AsSlice(), addr(tc.to).AsSlice()
		require.Equal(t, tc.want, ts.MatchConntrackFlow(flow), name)
	}
}
