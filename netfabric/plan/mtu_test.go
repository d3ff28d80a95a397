package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMTU(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		underlay, peer        int
		family                Family
		overlay, tunnel, path int
	}{
		"Ethernet":                    {underlay: 1500, family: V4, overlay: 1450, tunnel: 1420, path: 1420},
		"over IPv6":                   {underlay: 1500, family: V6, overlay: 1430, tunnel: 1420, path: 1420},
		"jumbo frames":                {underlay: 9001, family: V4, overlay: 8951, tunnel: 8921, path: 8921},
		"a gateway pod in an overlay": {underlay: 1450, family: V4, overlay: 1400, tunnel: 1370, path: 1370},
		"Google's network":            {underlay: 1460, family: V4, overlay: 1410, tunnel: 1380, path: 1380},
		"a peer with less":            {underlay: 1500, peer: 1370, family: V4, overlay: 1450, tunnel: 1420, path: 1370},
		"a peer with more":            {underlay: 1500, peer: 8921, family: V4, overlay: 1450, tunnel: 1420, path: 1420},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.overlay, OverlayMTU(tc.underlay, tc.family))
			require.Equal(t, tc.tunnel, TunnelMTU(tc.underlay))
			require.Equal(t, tc.path, PathMTU(tc.underlay, tc.family, tc.peer))
		})
	}
}
