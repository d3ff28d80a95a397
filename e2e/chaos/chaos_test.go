package chaos

import "testing"

func TestChaos(t *testing.T) {
	w := newWorld(t)
	kills := 20
	if *all {
		kills = 200
	}
	t.Run("every write", func(t *testing.T) { testEveryWrite(t, w, lives()) })
	t.Run("random kills", func(t *testing.T) { testRandomKills(t, w, 100, kills) })
	t.Run("nobody else deletes", func(t *testing.T) { requireDeleters(t, w) })
}
