package dashboard

import (
	"encoding/json"
	"slices"
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

// Step is a line of a fix: a command, or a line for people.
type Step struct {
	Text    Text `json:"text"`
	Command bool `json:"command"`
}

// steps are the lines of a fix. A command that would be cut is no command.
func steps(fix, program string) (out []Step) {
	for line := range strings.Lines(fix) {
		line = strings.TrimSuffix(line, "\n")
		command := slices.ContainsFunc([]string{"kubectl", "helm", "curl", program}, func(begin string) bool { return strings.HasPrefix(line, begin+" ") })
		out = append(out, Step{Text: Text(line), Command: command && len(line) <= longest})
	}
	return out
}
