package main

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

const valuesHead = `<!-- Generated from charts/liqod/values.yaml and its schema: go run ./hack values -->

# Values of the chart

Each value with its default. All other settings are in [config.yaml](../config.yaml): put them under ` + "`config`" + `, with the same keys.
Helm refuses a value that is not listed.
`

// pageWidth is the length of the lines of the page, in bytes.
const pageWidth = 140

// page returns the page about the values.
func (d describer) page(schema, values *yaml.Node) []byte {
	var out bytes.Buffer
	out.WriteString(valuesHead)
	properties, _ := d.resolve(schema)
	for i := 0; i+1 < len(values.Content); i += 2 {
		name, value := values.Content[i].Value, values.Content[i+1]
		property := member(properties, name)
		fmt.Fprintf(&out, "\n## `%s`\n\n%s", name, wrap(sentence(member(property, "description").Value), ""))
		if inner, _ := d.resolve(property); inner != nil {
			out.WriteByte('\n')
			d.list(&out, name+".", property, value)
		}
	}
	return out.Bytes()
}

// list writes one entry for each value below a section.
func (d describer) list(out *bytes.Buffer, path string, schema, values *yaml.Node) {
	properties, _ := d.resolve(schema)
	for i := 0; i+1 < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		property := member(properties, key.Value)
		text := comment(key, value)
		if text == "" {
			text = member(property, "description").Value
		}
		if inner, _ := d.resolve(property); inner != nil {
			out.WriteString(wrap(fmt.Sprintf("- `%s`: %s", path+key.Value, text), "  "))
			d.list(out, path+key.Value+".", property, value)
			continue
		}
		out.WriteString(wrap(fmt.Sprintf("- `%s` (%s): %s", path+key.Value, defaultOf(value), text), "  "))
	}
}

// defaultOf returns a default for people.
func defaultOf(value *yaml.Node) string {
	var inline bytes.Buffer
	writeInline(&inline, value)
	if inline.Len() > pageWidth {
		return fmt.Sprintf("%d entries, see values.yaml", len(value.Content))
	}
	return "`" + inline.String() + "`"
}

// sentence begins with a capital letter.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// wrap breaks text into lines; those after the first begin with indent. Words in backticks stay
// together.
func wrap(text, indent string) string {
	var out, line strings.Builder
	for _, word := range words(text) {
		if line.Len() > 0 && line.Len()+1+len(word) > pageWidth {
			out.WriteString(line.String() + "\n")
			line.Reset()
			line.WriteString(indent + word)
			continue
		}
		if line.Len() > 0 {
			line.WriteByte(' ')
		}
		line.WriteString(word)
	}
	return out.String() + line.String() + "\n"
}

func words(text string) (out []string) {
	open := false
	for word := range strings.SplitSeq(text, " ") {
		if open {
			out[len(out)-1] += " " + word
		} else {
			out = append(out, word)
		}
		if strings.Count(word, "`")%2 == 1 {
			open = !open
		}
	}
	return out
}
