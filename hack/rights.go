package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/liqod/liqod/hack/rights"
)

// runRights writes the page about the rights of the roles. It reads the manifests of the chart
// from the standard input, and returns the exit code.
func runRights(_ context.Context, args []string) int {
	fs := flag.NewFlagSet("rights", flag.ContinueOnError)
	to := fs.String("to", "docs/rights.md", "file to write")
	err := fs.Parse(args)
	if err == nil {
		err = writeRights(os.Stdin, *to)
	}
	return exitCode("rights", err)
}

func writeRights(manifests io.Reader, to string) error {
	text, err := io.ReadAll(manifests)
	if err != nil {
		return fmt.Errorf("reading the manifests: %w", err)
	}
	page, err := rights.Page(text)
	if err != nil {
		return err
	}
	return os.WriteFile(to, page, 0o644)
}
