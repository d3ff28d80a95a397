// Command hack is what the Makefile runs of the project's own tools: image writes the
// container image, release the files of a release, test runs the tests, fuzz the fuzz
// targets, vulns looks for known vulnerabilities, values describes the values of the chart,
// rights the rights of its roles, runs the tables of what was run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: go run ./hack image [flags]   build liqod and write its container image
       go run ./hack release [flags] write a release: binaries, images, chart, SBOMs, checksums
       go run ./hack test [flags]    run the tests and print a table of them
       go run ./hack fuzz [flags]    run each fuzz target for a while
       go run ./hack vulns [flags]   look for known vulnerabilities in the program
       go run ./hack values [flags]  write the chart's values into its schema and docs/values.md
       go run ./hack rights [flags]  write docs/rights.md from the manifests of the chart
       go run ./hack runs            write the results in e2e/networks and e2e/versions into docs/platforms.md and docs/install.md
--help after a command lists its flags.
`

func main() {
	// SIGINT ends the tests, which remove what they made.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// exitCode returns the exit code of a command, after it has printed the error. A request for
// help is none.
func exitCode(command string, err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", command, err)
	return 1
}

// run runs one command and returns the exit code.
func run(ctx context.Context, args []string) int {
	commands := map[string]func(context.Context, []string) int{"image": runImage, "release": runRelease, "test": runTest, "fuzz": runFuzz, "vulns": runVulns, "values": runValues, "rights": runRights, "runs": runRuns}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	return commands[args[0]](ctx, args[1:])
}
