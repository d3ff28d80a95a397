package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/liqod/liqod/roles/cmd/report"
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
	for _, obj := range list {
		obj.GetObjectKind().SetGroupVersionKind(kind) // clients leave it out
	}
	return printData(out, format, map[string]any{"apiVersion": "v1", "kind": "List", "items": list})
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

// asWide is the text format with more columns.
const asWide = "wide"

// watchEvery is the time between two looks of --watch, as a multiple of commands.every.
const watchEvery = 4

// clearScreen empties a terminal, and moves the cursor to its first line.
const clearScreen = "\x1b[H\x1b[2J"

// watchStatus prints the status again and again until ctx ends: on a terminal in place, else each
// time that it has changed. In a text format, an error of a later look is printed, and the next look may succeed.
func (c *commands) watchStatus(ctx context.Context, in *inquiry, peers []string, out io.Writer) error {
	data := in.output == asJSON || in.output == asYAML
	for last := ""; ; {
		var b bytes.Buffer
		key := ""
		status, err := c.summary(ctx, in, peers)
		switch {
		case ctx.Err() != nil:
			return nil // a person has ended it
		case err == nil:
			key, err = status.Key(), in.print(&b, status, len(peers) > 0)
		case last != "" && !data:
			key, err = fmt.Sprintf("The state is unknown: %v\n", err), nil
			b.WriteString(key)
		}
		if err != nil {
			return err
		}
		text := b.String()
		if !data {
			text = time.Now().Format(time.DateTime) + "\n" + text
		}
		switch {
		case onTerminal(out) && !data:
			if _, err = io.WriteString(out, clearScreen); err == nil {
				err = printText(out, text)
			}
		case key != last:
			err = printText(out, separator(in.output, last == "")+text)
		}
		if err != nil {
			return err
		}
		last = key
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery * c.every):
		}
	}
}

// separator is printed between two states.
func separator(format string, first bool) string {
	switch {
	case format == asYAML:
		return "---\n"
	case first || format == asJSON:
		return ""
	}
	return "\n"
}

// printText prints a text for people, in colours on a terminal.
func printText(out io.Writer, text string) error {
	text = report.Printable(text)
	if onTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		text = report.Paint(text)
	}
	_, err := io.WriteString(out, text)
	return err
}

func onTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
