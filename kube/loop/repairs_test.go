package loop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRepairDelay(t *testing.T) {
	var delay time.Duration
	for _, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		delay = RepairDelay(delay, delay)
		require.Equal(t, time.Duration(seconds)*time.Second, delay)
	}
	require.Equal(t, LastRepair, RepairDelay(delay, 2*LastRepair))
	require.Zero(t, RepairDelay(delay, 2*LastRepair+1), "peace for long begins anew")
}
