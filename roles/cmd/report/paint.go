package report

import "strings"

// Colours of a terminal.
const (
	plain  = "\x1b[0m"
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
)

// painted are the marks and words that have a colour.
var painted = []struct{ text, colour string }{
	{"  " + "✔" + " ", green}, {"  " + "‼" + " ", yellow}, {"  " + "✘" + " ", red}, {"  " + "?" + " ", cyan},
}

// Paint colours a text of this package for a terminal: its headings, its marks, and the health of
// peers.
func Paint(text string) string {
	lines := strings.Split(text, "\n")
	inTable := false
	for i, line := range lines {
		switch {
		case line == "":
			inTable = false
		case i == 0 || lines[i-1] == "":
			inTable = strings.HasPrefix(line, "PEER ") || strings.HasPrefix(line, "VIRTUAL NODE ")
			lines[i] = bold + line + plain
		case inTable:
			lines[i] = strings.NewReplacer(" Unhealthy ", red+" Unhealthy "+plain, " Healthy ", green+" Healthy "+plain,
				" Unknown ", cyan+" Unknown "+plain, " Being removed ", yellow+" Being removed "+plain).Replace(line)
		default:
			lines[i] = mark(line)
		}
	}
	return strings.Join(lines, "\n")
}

func mark(line string) string {
	for _, p := range painted {
		if rest, found := strings.CutPrefix(line, p.text); found {
			return p.colour + p.text + plain + rest
		}
	}
	return line
}
