package dashboard

import (
	"encoding/json"
	"strings"

	"github.com/liqod/liqod/roles/cmd/report"
)

// longest is how many characters of a text the page gets.
const longest = 1000

// Text is a text that may come from a cluster, also from a peer. The page gets it as one
// printable line of bounded length.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	runes := []rune(report.Line(strings.ToValidUTF8(string(t), "\uFFFD")))
	if len(runes) > longest {
		runes = append(runes[:longest], '…')
	}
	return json.Marshal(string(runes))
}

// lines are the lines of a text.
func lines(text string) (out []Text) {
	if text == "" {
		return nil
	}
	for line := range strings.Lines(text) {
		out = append(out, Text(strings.TrimSuffix(line, "\n")))
	}
	return out
}
