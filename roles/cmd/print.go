package cmd

import (
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
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
