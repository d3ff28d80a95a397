package scenarios

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

var all = flag.Bool("all", false, "long outages, all cases, and limits of time are kept: for a quiet machine")

// TestMain keeps what client-go says of streams that tests cut by the hundred out of the
// output, where it hides what failed.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	if text := os.Getenv(triesVariable); text != "" {
		if err := tryAll(text, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
