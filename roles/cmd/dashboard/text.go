package dashboard

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/liqod/liqod/roles/cmd/report"
)

// longest is how many characters of a text the page gets.
const longest = 1000

// printable returns the JSON of a view. Its texts may come from a cluster, also from a peer: the page gets each
// as one printable line of bounded length. Each list is one, also if it is empty.
func printable(v *View) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	return json.Marshal(cleaned(tree))
}

// cleaned makes all texts in a JSON value printable. A view has no null but that of a slice.
func cleaned(value any) any {
	switch v := value.(type) {
	case nil:
		return []any{}
	case string:
		return line(v)
	case []any:
		for i := range v {
			v[i] = cleaned(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = cleaned(v[key])
		}
	}
	return value
}

func line(text string) string {
	runes := []rune(report.Line(strings.ToValidUTF8(text, "\uFFFD")))
	if len(runes) > longest {
		runes = append(runes[:longest], '…')
	}
	return string(runes)
}

// Step is a line of a fix: a command, or a line for people.
type Step struct {
	Text    string `json:"text"`
	Command bool   `json:"command"`
}

// steps are the lines of a fix. A command that would be cut is no command.
func steps(fix, program string) (out []Step) {
	for text := range strings.Lines(fix) {
		text = strings.TrimSuffix(text, "\n")
		command := slices.ContainsFunc([]string{"kubectl", "helm", "curl", program}, func(begin string) bool { return strings.HasPrefix(text, begin+" ") })
		out = append(out, Step{Text: text, Command: command && len(text) <= longest})
	}
	return out
}
