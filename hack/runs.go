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

// ranTable is a table of a page, with a row for each file of a folder. A test writes a file with each run.
type ranTable struct {
	folder, page string
	head         []string
	cells        func(ran) []string // all but the result
}

// ran is a file of such a folder.
type ran struct {
	Kubernetes, Plugin, Proxy, Families, With string // of a network
	Consumer, Provider                        string // of two versions of Kubernetes
	Passed                                    bool
}

func ranTables() []ranTable {
	return []ranTable{
		{"e2e/networks", "docs/platforms.md", []string{"plugin", "kube-proxy", "addresses of pods", "Kubernetes", "result"}, func(r ran) []string {
			if r.With != "" {
				r.Plugin += ", " + r.With
			}
			return []string{r.Plugin, r.Proxy, r.Families, r.Kubernetes}
		}},
		{"e2e/versions", "docs/install.md", []string{"consumer", "provider", "result"}, func(r ran) []string {
			return []string{r.Consumer, r.Provider}
		}},
	}
}

// begin returns the line before the table.
func (r ranTable) begin() string {
	return "<!-- Generated from " + r.folder + ": go run ./hack runs -->\n"
}

// ranEnd is the line after each table.
const ranEnd = "<!-- end of the generated table -->\n"

// runRuns writes the tables of what was run. It returns the exit code.
func runRuns(_ context.Context, args []string) int {
	fs := flag.NewFlagSet("runs", flag.ContinueOnError)
	err := fs.Parse(args)
	for _, table := range ranTables() {
		if err == nil {
			err = table.write(".")
		}
	}
	return exitCode("runs", err)
}

func (r ranTable) write(root string) error {
	page, err := r.of(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, r.page), page, 0o644)
}

// of returns the page with the table of the files of the folder.
func (r ranTable) of(root string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(root, r.folder, "*.json"))
	if err != nil {
		return nil, err
	}
	var rows []string
	for _, file := range files {
		row, err := r.row(file)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	slices.Sort(rows)
	path := filepath.Join(root, r.page)
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	before, rest, found := bytes.Cut(page, []byte(r.begin()))
	_, after, ended := bytes.Cut(rest, []byte(ranEnd))
	if !found || !ended {
		return nil, fmt.Errorf("%s has no place for the table, which begins with %q and ends with %q", path, r.begin(), ranEnd)
	}
	table := "\n" + line(r.head) + "|" + strings.Repeat("---|", len(r.head)) + "\n" + strings.Join(rows, "") + "\n"
	return slices.Concat(before, []byte(r.begin()+table+ranEnd), after), nil
}

func (r ranTable) row(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading a result: %w", err)
	}
	var run ran
	if err := json.Unmarshal(data, &run); err != nil {
		return "", fmt.Errorf("parsing %s: %w", file, err)
	}
	result := "passed"
	if !run.Passed {
		result = "**failed**"
	}
	return line(append(r.cells(run), result)), nil
}

// line returns a line of a table.
func line(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
