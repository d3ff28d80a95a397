package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	networksPath = "e2e/networks" // one file for each network, which its test writes
	networksPage = "docs/platforms.md"
	networksHead = "<!-- Generated from e2e/networks: go run ./hack networks -->\n"
	networksEnd  = "<!-- end of the generated table -->\n"
)

// runNetworks writes the table of the networks that were run. It returns the exit code.
func runNetworks(_ context.Context, args []string) int {
	fs := flag.NewFlagSet("networks", flag.ContinueOnError)
	err := fs.Parse(args)
	if err == nil {
		err = writeNetworks(".")
	}
	return exitCode("networks", err)
}

func writeNetworks(root string) error {
	page, err := networksOf(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, networksPage), page, 0o644)
}

// networksOf returns the page with the table of the files of networksPath.
func networksOf(root string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(root, networksPath, "*.json"))
	if err != nil {
		return nil, err
	}
	var rows []string
	for _, file := range files {
		row, err := networkRow(file)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	slices.Sort(rows)
	path := filepath.Join(root, networksPage)
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	before, rest, found := bytes.Cut(page, []byte(networksHead))
	_, after, ended := bytes.Cut(rest, []byte(networksEnd))
	if !found || !ended {
		return nil, fmt.Errorf("%s has no place for the table, which begins with %q and ends with %q", path, networksHead, networksEnd)
	}
	table := "\n| plugin | kube-proxy | addresses of pods | Kubernetes | result |\n|---|---|---|---|---|\n" + strings.Join(rows, "") + "\n"
	return slices.Concat(before, []byte(networksHead+table+networksEnd), after), nil
}

func networkRow(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading a result: %w", err)
	}
	var run struct {
		Kubernetes, Plugin, Proxy, Families, With string
		Passed                                    bool
	}
	if err := json.Unmarshal(data, &run); err != nil {
		return "", fmt.Errorf("parsing %s: %w", file, err)
	}
	result := "passed"
	if !run.Passed {
		result = "**failed**"
	}
	if run.With != "" {
		run.Plugin += ", " + run.With
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", run.Plugin, run.Proxy, run.Families, run.Kubernetes, result), nil
}
