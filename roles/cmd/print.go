package cmd

import (
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Formats that objects and reports are printed in, beside text.
const (
	asJSON = "json"
	asYAML = "yaml"
)

func say(out io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(out, format+"\n", args...)
	return err
}

// printList prints objects that exist as kubectl prints them: a List of objects with their kinds.
func printList[T runtime.Object](out io.Writer, format string, kind schema.GroupVersionKind, list []T) error {
	items := []map[string]any{}
	for _, obj := range list {
		obj.GetObjectKind().SetGroupVersionKind(kind) // clients leave it out
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return fmt.Errorf("encoding: %w", err)
		}
		items = append(items, content)
	}
	return printData(out, format, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

// printObject prints an object that does not exist yet, as it could be applied.
func printObject(out io.Writer, format string, obj runtime.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return printData(out, format, content)
}

// show prints something in one of the formats, or as text if none is wanted.
func show(out io.Writer, format string, data any, text func() string) error {
	if format == "" {
		return printText(out, text())
	}
	return printData(out, format, data)
}

// printData prints something in one of the formats.
func printData(out io.Writer, format string, data any) error {
	if format == asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(data)
	}
	text, err := yaml.Marshal(data)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	_, err = out.Write(text)
	return err
}
