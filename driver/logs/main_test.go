package logs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"
)

// TestMain makes the test binary run as a keeper if its first argument requests that.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "keeper" {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		grace, err := time.ParseDuration(os.Getenv("KEEPER_GRACE"))
		if err != nil {
			grace = time.Minute
		}
		if err := Keep(context.Background(), KeepConfig{Dir: os.Args[2], Log: log, Grace: grace}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "foreign" {
		fmt.Fprintln(os.Stderr, foreignKeeper(os.Args[2]))
		os.Exit(1)
	}
	// The race detector pauses when the program exits, which would look like a pause of the
	// keeper.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
