package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Setting is one key of config.yaml, in the order of the file.
type Setting struct {
	// Key is its path, such as log.level.
	Key string
	// Help is the comment on its line.
	Help string
	// Default is its value as the YAML parser reads it; a list is a []any.
	Default any
	// Env is its environment variable, such as LIQOD_LOG_LEVEL.
	Env string
}

// Schema returns the settings that the given config.yaml declares.
func Schema(defaults []byte) ([]Setting, error) {
	root, err := document(defaults)
	if err != nil {
		return nil, fmt.Errorf("reading the embedded config.yaml: %w", err)
	}
	var settings []Setting
	err = leaves(root, "", func(key string, name, value *yaml.Node) error {
		s := Setting{Key: key, Env: envName(key), Help: help(name, value)}
		settings = append(settings, s)
		return value.Decode(&settings[len(settings)-1].Default)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the embedded config.yaml: %w", err)
	}
	return settings, nil
}

// JSONSchema describes the settings as a JSON Schema, for the values of the chart. Durations,
// quantities and addresses are checked by their form at most; the roles check the rest.
func JSONSchema(settings []Setting) map[string]any {
	root := section("")
	for _, s := range settings {
		at, path := root, strings.Split(s.Key, ".")
		for _, name := range path[:len(path)-1] {
			properties := at["properties"].(map[string]any)
			if properties[name] == nil {
				properties[name] = section("section " + name + " of config.yaml")
			}
			at = properties[name].(map[string]any)
		}
		leaf := maps.Clone(rules[s.Key].schema)
		leaf["description"] = cmp.Or(s.Help, rules[s.Key].accepts)
		at["properties"].(map[string]any)[path[len(path)-1]] = leaf
	}
	return root
}

func section(description string) map[string]any {
	return map[string]any{"description": description, "type": "object", "additionalProperties": false, "properties": map[string]any{}}
}

const envPrefix = "LIQOD_"

func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func help(name, value *yaml.Node) string {
	comment := name.LineComment
	if comment == "" {
		comment = value.LineComment
	}
	if comment == "" && len(value.Content) > 0 {
		// The parser gives a comment after "key:" of a list to the list's first line.
		comment = value.HeadComment
	}
	return strings.TrimSpace(strings.TrimLeft(comment, "# "))
}

// document parses one YAML document whose root is a mapping. An empty one gives nil.
func document(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: not a mapping of settings", root.Line)
	}
	return root, nil
}

// leaves calls visit for every key of the mapping whose value is not a mapping with
// keys of its own.
func leaves(mapping *yaml.Node, prefix string, visit func(key string, name, value *yaml.Node) error) error {
	if mapping == nil {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name, value := mapping.Content[i], mapping.Content[i+1]
		key := prefix + name.Value
		var err error
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			err = leaves(value, key+".", visit)
		} else {
			err = visit(key, name, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Nearest returns the word of known that differs least from word, or "" when none is
// similar enough.
func Nearest(word string, known []string) string {
	best, bestDistance := "", max(len(word)/2, 3)
	for _, k := range known {
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if last := k[strings.LastIndex(k, ".")+1:]; strings.EqualFold(word, last) {
			d = min(d, 1) // the section was forgotten
		}
		if d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the least number of letters to add, remove or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = slices.Min([]int{cost, row[j] + 1, row[j-1] + 1})
		}
	}
	return row[len(b)]
}

func didYouMean(word string, known []string) string {
	if k := Nearest(word, known); k != "" {
		return fmt.Sprintf("; did you mean %s?", k)
	}
	return ""
}
