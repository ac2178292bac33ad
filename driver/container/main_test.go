package container

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/driver/logs"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// TestMain makes the test binary act as the programs under test: depending on its first argument,
// it is a keeper, runc, or a daemon to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "keeper" {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		if err := logs.Keep(context.Background(), logs.KeepConfig{Dir: os.Args[2], Log: log, Grace: time.Minute}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 3 && os.Args[1] == "runc" {
		fmt.Fprintln(os.Stderr, ExecRunc(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) > 5 && os.Args[1] == "daemon" {
		fmt.Fprintln(os.Stderr, crashDaemon(os.Args[2], os.Args[3], os.Args[4], os.Args[5]))
		os.Exit(1)
	}
	// The race detector pauses when the program exits, which would look like a pause of the
	// keeper.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(containerdtest.Main(m))
}
