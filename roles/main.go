package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes of the binary.
const (
	exitFailure = 1   // what was asked for was tried, and failed
	exitUsage   = 2   // the command line or the configuration is wrong: nothing was tried
	exitKilled  = 130 // a second signal came before the first had been obeyed
)

var errKilled = errors.New("killed by a second signal")

// usageError says that nothing was tried, because what was asked for makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs the binary with the arguments after its name and returns its exit code: 0,
// 1 for a failure, 2 for a command line or configuration that is not accepted, 130 after
// a second signal. configYAML is the embedded config.yaml.
func Main(args []string, configYAML []byte, stdout, stderr io.Writer) int {
	return run(All(), args, configYAML, stdout, stderr)
}

func run(all []Role, args []string, configYAML []byte, stdout, stderr io.Writer) int {
	// Two: while the first is obeyed a second one must not be lost.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	cmd, err := newCommand(program{roles: all, configYAML: configYAML, env: os.Environ(), signals: signals})
	if err == nil {
		cmd.SetArgs(args)
		cmd.SetOut(stdout)
		cmd.SetErr(stderr)
		err = cmd.ExecuteContext(context.Background())
	}
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "liqod: %v\n", err)
	var usage usageError
	switch {
	case errors.Is(err, errKilled):
		return exitKilled
	case errors.As(err, &usage):
		_, _ = fmt.Fprintln(stderr, "liqod --help says more.")
		return exitUsage
	}
	return exitFailure
}
