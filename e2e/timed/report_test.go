package timed

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func containsWord(text, word string) bool { return strings.Contains(text+" ", word) }

// column is a mode in the table.
type column struct {
	mode  mode
	title string
}

// report prints the table, and adds it to the file that was asked for.
func (t *table) report(test *testing.T, columns ...column) {
	test.Helper()
	t.points() // sorts
	text := t.markdown(columns)
	if testing.Verbose() {
		test.Log("\n" + text)
	}
	if *tableFile == "" {
		return
	}
	file, err := os.OpenFile(*tableFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(test, err)
	_, err = file.WriteString(text + "\n")
	require.NoError(test, errors.Join(err, file.Close()))
}

func (t *table) markdown(columns []column) string {
	var b strings.Builder
	b.WriteString("| life | role | write | n |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.title)
	}
	b.WriteString("\n|---|---|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %d |", r.life, r.role, r.what, r.n)
		for _, c := range columns {
			outcome := r.outcomes[c.mode]
			if outcome == "" {
				outcome = "–"
			}
			fmt.Fprintf(&b, " %s |", outcome)
		}
		b.WriteString("\n")
	}
	return b.String()
}
