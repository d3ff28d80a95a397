package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/liqod/liqod/roles/config"
)

const (
	valuesPath    = "charts/liqod/values.yaml"
	schemaPath    = "charts/liqod/values.schema.json"
	valuesDocPath = "docs/values.md"
	settingsPath  = "config.yaml"
)

// runValues writes the descriptions of the chart's values, and the settings of config.yaml, into its schema, and their page. It
// returns the exit code.
func runValues(_ context.Context, args []string) int {
	fs := flag.NewFlagSet("values", flag.ContinueOnError)
	root := fs.String("root", ".", "folder of the repository")
	err := fs.Parse(args)
	if err == nil {
		err = writeDescriptions(*root)
	}
	return exitCode("values", err)
}

func writeDescriptions(root string) error {
	schema, page, err := describeValues(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, schemaPath), schema, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, valuesDocPath), page, 0o644)
}

// describeValues returns the schema with the comments of values.yaml as descriptions, and the
// page about all values.
func describeValues(root string) (schema, page []byte, err error) {
	values, err := readTree(filepath.Join(root, valuesPath))
	if err != nil {
		return nil, nil, err
	}
	tree, err := readTree(filepath.Join(root, schemaPath))
	if err != nil {
		return nil, nil, err
	}
	if schema := member(member(tree, "properties"), "config"); schema != nil {
		if err := describeSettings(filepath.Join(root, settingsPath), schema); err != nil {
			return nil, nil, err
		}
	}
	d := describer{definitions: member(tree, "definitions")}
	if err := d.describe("", tree, values); err != nil {
		return nil, nil, err
	}
	if err := d.complete("definitions", d.definitions); err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	writeSchema(&out, tree, 0)
	out.WriteByte('\n')
	return out.Bytes(), d.page(tree, values), nil
}

// describeSettings gives the value config the settings of config.yaml, with what each accepts.
func describeSettings(path string, schema *yaml.Node) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	settings, err := config.Schema(text)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(settingsSchema(settings))
	if err != nil {
		return fmt.Errorf("encoding the schema of %s: %w", path, err)
	}
	var generated yaml.Node
	if err := yaml.Unmarshal(encoded, &generated); err != nil {
		return fmt.Errorf("parsing the schema of %s: %w", path, err)
	}
	*schema = *generated.Content[0]
	return nil
}

// settingsSchema describes the settings as a JSON Schema, for the values of the chart. Durations,
// quantities and addresses are checked by their form at most; the roles check the rest.
func settingsSchema(settings []config.Setting) map[string]any {
	root := schemaSection("")
	for _, s := range settings {
		at, path := root, strings.Split(s.Key, ".")
		for _, name := range path[:len(path)-1] {
			properties := at["properties"].(map[string]any)
			if properties[name] == nil {
				properties[name] = schemaSection("section " + name + " of config.yaml")
			}
			at = properties[name].(map[string]any)
		}
		words, leaf := s.Accepts()
		leaf["description"] = cmp.Or(s.Help, words)
		at["properties"].(map[string]any)[path[len(path)-1]] = leaf
	}
	return root
}

func schemaSection(description string) map[string]any {
	return map[string]any{"description": description, "type": "object", "additionalProperties": false, "properties": map[string]any{}}
}

// readTree reads a YAML file, or a JSON file, whose order matters.
func readTree(path string) (*yaml.Node, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", path, err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s is not an object", path)
	}
	return document.Content[0], nil
}

// member returns the value of a key, or nil.
func member(object *yaml.Node, key string) *yaml.Node {
	_, value := entry(object, key)
	return value
}

func entry(object *yaml.Node, name string) (key, value *yaml.Node) {
	if object == nil || object.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(object.Content); i += 2 {
		if object.Content[i].Value == name {
			return object.Content[i], object.Content[i+1]
		}
	}
	return nil, nil
}

// describer adds descriptions to a schema.
type describer struct{ definitions *yaml.Node }

// resolve returns the properties of a schema, also behind a $ref. here is true if they stand in
// the schema itself.
func (d describer) resolve(schema *yaml.Node) (properties *yaml.Node, here bool) {
	if p := member(schema, "properties"); p != nil {
		return p, true
	}
	if ref := member(schema, "$ref"); ref != nil {
		return member(member(d.definitions, strings.TrimPrefix(ref.Value, "#/definitions/")), "properties"), false
	}
	return nil, false
}

// describe sets the descriptions of the properties of schema from the comments of values. A
// property that values.yaml does not have, as an earlier name, keeps the one that it has.
func (d describer) describe(path string, schema, values *yaml.Node) error {
	properties, here := d.resolve(schema)
	if properties == nil {
		return nil
	}
	for i := 0; i+1 < len(values.Content); i += 2 {
		if name := values.Content[i].Value; member(properties, name) == nil {
			return fmt.Errorf("%s has no %s%s, which %s has", schemaPath, path, name, valuesPath)
		}
	}
	for i := 0; i+1 < len(properties.Content); i += 2 {
		name, property := properties.Content[i].Value, properties.Content[i+1]
		key, value := entry(values, name)
		if here && key != nil && comment(key, value) != "" {
			setDescription(property, comment(key, value))
		}
		if here && member(property, "description") == nil {
			return fmt.Errorf("%s%s has no comment in %s, and no description in %s", path, name, valuesPath, schemaPath)
		}
		if value != nil && value.Kind == yaml.MappingNode {
			if err := d.describe(path+name+".", property, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// complete returns an error unless each property of the definitions has a description. People
// write these into the schema.
func (d describer) complete(path string, definitions *yaml.Node) error {
	for i := 0; i+1 < len(definitions.Content); i += 2 {
		properties, here := d.resolve(definitions.Content[i+1])
		if !here {
			continue
		}
		for j := 0; j+1 < len(properties.Content); j += 2 {
			name := path + "." + definitions.Content[i].Value + "." + properties.Content[j].Value
			if member(properties.Content[j+1], "description") == nil {
				return fmt.Errorf("%s: %s has no description", schemaPath, name)
			}
			if _, nested := d.resolve(properties.Content[j+1]); nested {
				if err := d.complete(name, &yaml.Node{Kind: yaml.MappingNode, Content: properties.Content[j : j+2]}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// comment returns the comment of a value as one line: the one behind it, or else the last
// paragraph above.
func comment(key, value *yaml.Node) string {
	above := key.HeadComment[strings.LastIndex(key.HeadComment, "\n\n")+1:]
	for _, text := range []string{key.LineComment, value.LineComment, above} {
		var words []string
		for line := range strings.Lines(text) {
			words = append(words, strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "#"))...)
		}
		if len(words) > 0 {
			return strings.Join(words, " ")
		}
	}
	return ""
}

func setDescription(schema *yaml.Node, text string) {
	if have := member(schema, "description"); have != nil {
		have.Value = text
		return
	}
	node := func(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value} }
	schema.Content = append([]*yaml.Node{node("description"), node(text)}, schema.Content...)
}

// writeSchema writes a schema as JSON. What has properties takes several lines, any other
// member one.
func writeSchema(out *bytes.Buffer, object *yaml.Node, depth int) {
	indent := strings.Repeat("  ", depth)
	out.WriteString("{\n")
	for i := 0; i+1 < len(object.Content); i += 2 {
		key, value := object.Content[i], object.Content[i+1]
		fmt.Fprintf(out, "%s  %s: ", indent, quote(key.Value))
		switch {
		case value.Kind == yaml.MappingNode && hasProperties(value):
			writeSchema(out, value, depth+1)
		default:
			writeInline(out, value)
		}
		if i+2 < len(object.Content) {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
	}
	out.WriteString(indent + "}")
}

// hasProperties reports whether an object is a schema with properties, or a map of schemas.
func hasProperties(object *yaml.Node) bool {
	if member(object, "properties") != nil {
		return true
	}
	for i := 1; i < len(object.Content); i += 2 {
		if object.Content[i].Kind != yaml.MappingNode {
			return false
		}
	}
	return len(object.Content) > 0
}

func writeInline(out *bytes.Buffer, node *yaml.Node) {
	list := func(open, end byte, step int, each func(i int)) {
		out.WriteByte(open)
		for i := 0; i < len(node.Content); i += step {
			if i > 0 {
				out.WriteString(", ")
			}
			each(i)
		}
		out.WriteByte(end)
	}
	switch {
	case node.Kind == yaml.MappingNode:
		list('{', '}', 2, func(i int) {
			out.WriteString(quote(node.Content[i].Value) + ": ")
			writeInline(out, node.Content[i+1])
		})
	case node.Kind == yaml.SequenceNode:
		list('[', ']', 1, func(i int) { writeInline(out, node.Content[i]) })
	case node.Tag == "!!str":
		out.WriteString(quote(node.Value))
	default:
		out.WriteString(node.Value)
	}
}

// quote encodes a string as JSON, without escapes for HTML.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return `""` // a string is always encoded
	}
	return strings.TrimSpace(b.String())
}
