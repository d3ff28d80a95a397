package timed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	denyList, allowList = "DenyList", "AllowList"
	// leastBetween is granted between two jolts: a vkubelet that starts waits for the Lease
	// of the one that was killed.
	leastBetween      = 8 * time.Second
	longestStandstill = 15 * time.Second
	stopGrace         = 40 * time.Second
)

// settings are what decides, beside the objects, what is reflected.
type settings struct {
	// policies of the kinds, by name.
	policies map[string]string
	// skipped are keys of labels that stay at home.
	skipped []string
}

// jolts does worse things than changing objects, one after the other, until the time is
// over; what was set last is in settings.
type jolts struct {
	w     *shaken
	kinds []kind
	set   settings
	r     *rand.Rand
	// told counts what was done.
	told map[string]int
}

func newJolts(w *shaken, all []kind) *jolts {
	j := &jolts{w: w, kinds: all, r: rand.New(rand.NewPCG(*seed, 3)), told: map[string]int{}, set: settings{policies: map[string]string{}}}
	for _, k := range all {
		j.set.policies[k.name] = denyList
	}
	return j
}

// jolt is one of the things that are done.
type jolt struct {
	name string
	do   func(*jolts, *testing.T)
}

// plan is what is done with so much time: pauses of both API servers, twice that of the
// provider, and the rest in turns.
func plan(d time.Duration) []jolt {
	turns := []jolt{
		{"vkubelet killed", (*jolts).killVKubelet},
		{"labels that stay", (*jolts).skipLabels},
		{"other policies", (*jolts).policies},
		{"provider's controller killed", func(j *jolts, t *testing.T) { require.NoError(t, j.w.sites.Restart(&j.w.milan.Controller)) }},
		{"vkubelet killed", (*jolts).killVKubelet},
	}
	n := max(6, int(d/max(leastBetween, d/40)))
	out := make([]jolt, n)
	for i := range out {
		out[i] = turns[i%len(turns)]
	}
	out[n/4] = jolt{"provider paused", func(j *jolts, t *testing.T) { j.pause(t, j.w.milan, d) }}
	out[n/2] = jolt{"consumer paused", func(j *jolts, t *testing.T) { j.pause(t, j.w.rome, d) }}
	out[3*n/4] = out[n/4]
	return out
}

// run spreads the plan over the time.
func (j *jolts) run(t *testing.T, d time.Duration) {
	t.Helper()
	all, begin := plan(d), time.Now()
	for i, next := range all {
		waitUntil(t, begin.Add(d*time.Duration(i+1)/time.Duration(len(all)+1)))
		t.Logf("%s: %s", time.Since(begin).Round(time.Second), next.name)
		next.do(j, t)
		j.told[next.name]++
	}
	waitUntil(t, begin.Add(d))
}

func waitUntil(t *testing.T, at time.Time) {
	t.Helper()
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		require.NoError(t, t.Context().Err())
	}
}

func (j *jolts) killVKubelet(t *testing.T) {
	require.NoError(t, j.w.sites.Restart(j.w.rome.VKubelet(provider)))
}

// policies starts the vkubelet again, as a rollout does, with other policies.
func (j *jolts) policies(t *testing.T) {
	for _, k := range j.kinds {
		if k.policy {
			j.set.policies[k.name] = one(j.r, denyList, denyList, allowList)
		}
	}
	p := j.w.rome.VKubelet(provider)
	require.NoError(t, (*p).Stop(t.Context(), stopGrace))
	again := (*p).Options
	again.Args = slices.DeleteFunc(slices.Clone(again.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--reflection.") && strings.Contains(arg, ".type=")
	})
	for _, k := range j.kinds {
		if k.policy {
			again.Args = append(again.Args, fmt.Sprintf("--reflection.%s.type=%s", k.name, j.set.policies[k.name]))
		}
	}
	started, err := j.w.sites.Lab.Process(again)
	require.NoError(t, err)
	*p = started
}

// skipLabels has a label stay at home, or carried again.
func (j *jolts) skipLabels(t *testing.T) {
	body := `{"spec":{"offloadingPatch":null}}`
	if len(j.set.skipped) == 0 {
		j.set.skipped = []string{soft + "stays"}
		body = fmt.Sprintf(`{"spec":{"offloadingPatch":{"labelsNotReflected":[%q]}}}`, j.set.skipped[0])
	} else {
		j.set.skipped = nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, lab.Eventually(ctx, func(ctx context.Context) error {
		_, err := j.w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenant).Patch(ctx, provider, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: user})
		return err
	}))
}

// pause has an API server stand still for a while.
func (j *jolts) pause(t *testing.T, s *site.Site, d time.Duration) {
	s.PauseAPIServer()
	waitUntil(t, time.Now().Add(min(longestStandstill, d/8)))
	s.ResumeAPIServer()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.WaitReady(ctx))
}
