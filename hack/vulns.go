package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// vulnOptions are the flags of runVulns.
type vulnOptions struct {
	tool, db, packages string
	// required says that it is an error if the database is not reached.
	required bool
}

// vulnDB is the Go vulnerability database.
const vulnDB = "https://vuln.go.dev"

// patience is how long the vulnerability database has for its first answer.
const patience = 15 * time.Second

// runVulns compares the modules of the program with the Go vulnerability database. It
// returns the exit code: that of govulncheck. Without the database there is a warning, and the code 0 unless the answer is
// required.
func runVulns(ctx context.Context, args []string) int {
	var o vulnOptions
	flags := flag.NewFlagSet("vulns", flag.ContinueOnError)
	flags.StringVar(&o.tool, "tool", "bin/tools/govulncheck", "the govulncheck to run")
	flags.StringVar(&o.db, "db", vulnDB, "URL of the vulnerability database")
	flags.BoolVar(&o.required, "required", false, "fail if the database is not reached, as a release does")
	flags.StringVar(&o.packages, "packages", ".", "which packages, separated by spaces")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	return checkVulns(ctx, o, os.Stdout, os.Stderr)
}

func checkVulns(ctx context.Context, o vulnOptions, stdout, stderr io.Writer) int {
	if err := reachDatabase(ctx, o.db); err != nil {
		fmt.Fprintf(stderr, "\nWARNING: VULNERABILITIES WERE NOT CHECKED.\nThe database cannot be reached: %v\nRepeat this where %s can be reached.\n\n", err, o.db)
		if o.required {
			return 1
		}
		return 0
	}
	cmd := exec.CommandContext(ctx, o.tool, append([]string{"-db", o.db}, strings.Fields(o.packages)...)...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(1, exit.ExitCode()) // -1 after a signal
	default:
		fmt.Fprintln(stderr, "vulns: running govulncheck:", err)
		return 1
	}
}

// reachDatabase reads the file that says when the database was changed last.
func reachDatabase(ctx context.Context, db string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(db, "/")+"/index/db.json", nil)
	if err != nil {
		return fmt.Errorf("reading the URL of the database: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("requesting the database: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	return nil
}
