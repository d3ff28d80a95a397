package chaos

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func containsWord(text, word string) bool { return strings.Contains(text+" ", word) }

// report prints the table, and writes it to the file that was asked for.
func (t *table) report(test *testing.T) {
	test.Helper()
	t.points() // sorts
	text := t.markdown()
	if testing.Verbose() {
		test.Log("\n" + text)
	}
	if *tableFile != "" {
		require.NoError(test, os.WriteFile(*tableFile, []byte(text), 0o644))
	}
}

func (t *table) markdown() string {
	var b strings.Builder
	b.WriteString("| life | role | write | n | killed before it | after it | after it, answer lost | paused before it | after it |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %d |", r.life, r.role, r.what, r.n)
		for _, m := range append(kills(), pauses()...) {
			outcome := r.outcomes[m]
			if outcome == "" {
				outcome = "–"
			}
			fmt.Fprintf(&b, " %s |", outcome)
		}
		b.WriteString("\n")
	}
	return b.String()
}
