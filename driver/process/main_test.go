package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
)

// TestMain makes the test binary act as the programs under test: depending on its first argument,
// it is a supervisor, a daemon to be killed, or a machine's program.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "supervisor" {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		if err := Supervise(context.Background(), SupervisorConfig{Dir: os.Args[2], Log: log}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 3 && os.Args[1] == "daemon" {
		fmt.Fprintln(os.Stderr, crashDaemon(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	// The race detector pauses when the program exits, which would look like a pause of the driver.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
