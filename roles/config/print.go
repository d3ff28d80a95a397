package config

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Print writes the configuration as YAML in the order of config.yaml. A comment beside each
// value names its source. --config accepts the output. It contains no secret, because no
// setting is one.
func (e *Effective) Print(w io.Writer) error {
	var open []string
	for _, s := range e.settings {
		path := strings.Split(s.Key, ".")
		sections, name := path[:len(path)-1], path[len(path)-1]
		same := 0
		for same < len(open) && same < len(sections) && open[same] == sections[same] {
			same++
		}
		for depth := same; depth < len(sections); depth++ {
			if _, err := fmt.Fprintf(w, "%s%s:\n", indent(depth), sections[depth]); err != nil {
				return err
			}
		}
		open = sections
		if err := e.printValue(w, len(sections), name, s.Key); err != nil {
			return err
		}
	}
	return nil
}

func indent(depth int) string { return strings.Repeat("  ", depth) }

func (e *Effective) printValue(w io.Writer, depth int, name, key string) error {
	origin := strings.ReplaceAll(e.origin[key], "\n", " ")
	value := e.value(key)
	elements, isList := value.([]string)
	if !isList || len(elements) == 0 {
		_, err := fmt.Fprintf(w, "%s%s: %s # %s\n", indent(depth), name, scalar(value), origin)
		return err
	}
	lines := []string{fmt.Sprintf("%s%s: # %s", indent(depth), name, origin)}
	for _, one := range elements {
		lines = append(lines, indent(depth+1)+"- "+scalar(one))
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func scalar(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return short(v)
	case string:
		return fmt.Sprintf("%q", v)
	default:
		return fmt.Sprint(v)
	}
}
