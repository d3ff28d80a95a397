package loop

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefusals(t *testing.T) {
	var r Refusals
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	require.Zero(t, r.NotBefore("a", 1))
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		require.Equal(t, want*time.Second, r.Refused("a", 1, now))
		require.Equal(t, now.Add(want*time.Second), r.NotBefore("a", 1))
	}
	require.Zero(t, r.NotBefore("a", 2), "a new generation is due at once")
	require.Equal(t, time.Second, r.Refused("a", 2, now), "and begins anew")
	require.Equal(t, time.Second, r.Refused("b", 2, now), "each object apart")
	require.Equal(t, 2, r.Len())
	r.Forget("a")
	require.Zero(t, r.NotBefore("a", 2))
	require.Equal(t, 1, r.Len())
}

func TestIsRefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no error":             {nil, false},
		"no answer":            {errors.New("connection refused"), false},
		"forbidden":            {apierrors.NewForbidden(pods, "a", errors.New("exceeded quota")), true},
		"invalid":              {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), true},
		"wrapped":              {fmt.Errorf("creating: %w", apierrors.NewBadRequest("no")), true},
		"not found":            {apierrors.NewNotFound(pods, "a"), false},
		"conflict":             {apierrors.NewConflict(pods, "a", errors.New("changed")), false},
		"unauthorized":         {apierrors.NewUnauthorized("who"), false},
		"too many requests":    {apierrors.NewTooManyRequests("later", 1), false},
		"a webhook that fails": {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"unavailable":          {apierrors.NewServiceUnavailable("starting"), false},
	} {
		require.Equal(t, c.want, IsRefusal(c.err), name)
	}
}

func TestPace(t *testing.T) {
	var p Pace
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	require.Zero(t, p.Take("a", 2, time.Minute, now))
	wait, back := p.Reserve("a", 2, time.Minute, now)
	require.Zero(t, wait)
	require.Equal(t, time.Minute, p.Take("a", 2, time.Minute, now))
	require.Equal(t, time.Minute, p.Take("a", 2, time.Minute, now), "waiting costs nothing")
	require.Zero(t, p.Take("b", 2, time.Minute, now), "each client apart")
	back()
	require.Zero(t, p.Take("a", 2, time.Minute, now))
	require.Equal(t, time.Minute, p.Take("a", 2, time.Minute, now))
	for i := range mostPaced + 20 {
		require.Zero(t, p.Take(fmt.Sprint(i), 2, time.Minute, now))
		require.LessOrEqual(t, len(p.clients), mostPaced)
	}
}

func TestRepairDelay(t *testing.T) {
	var delay time.Duration
	for _, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		delay = RepairDelay(delay, delay)
		require.Equal(t, time.Duration(seconds)*time.Second, delay)
	}
	require.Equal(t, LastRepair, RepairDelay(delay, 2*LastRepair))
	require.Zero(t, RepairDelay(delay, 2*LastRepair+1), "peace for long begins anew")
}
