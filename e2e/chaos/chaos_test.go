package chaos

import "testing"

func TestChaos(t *testing.T) {
	w := newWorld(t)
	t.Run("every write", func(t *testing.T) { testEveryWrite(t, w, lives()) })
}
