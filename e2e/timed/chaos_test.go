package timed

import "testing"

const (
	fewKills  = 20
	manyKills = 200
	// replicas of the Deployment that is rolled out under random kills.
	replicas = 100
)

// TestChaos attacks one world in every way that leaves its clusters alone, and in the end
// restores one from a backup.
func TestChaos(t *testing.T) {
	w := newWorld(t)
	kills := fewKills
	if *all {
		kills = manyKills
	}
	t.Run("every write", func(t *testing.T) { testEveryWrite(t, w, lives()) })
	t.Run("stale caches", func(t *testing.T) { testStaleCaches(t, w, lives()) })
	t.Run("random kills", func(t *testing.T) { testRandomKills(t, w, replicas, kills) })
	t.Run("nobody else deletes", func(t *testing.T) { requireDeleters(t, w) })
	t.Run("restored consumer", func(t *testing.T) { testRestoredConsumer(t, w) })
}
