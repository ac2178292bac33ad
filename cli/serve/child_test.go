package serve

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/cli"
)

// exitsAtOnce is an environment variable that makes this program exit as soon as a
// child starts it. The exit status is 0, or 1 if the environment would allow the
// process to notify systemd.
const exitsAtOnce = "BOURSE_TEST_EXIT"

func TestMain(m *testing.M) {
	if os.Getenv(runsServer) != "" && len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(serverMain())
	}
	if os.Getenv(exitsAtOnce) != "" {
		if os.Getenv(notifySocket) != "" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A process that exits with status 0 before it is ready counts as failed. It cannot
// notify systemd, because only the child's owner does that.
func TestChildThatExitsEarly(t *testing.T) {
	t.Setenv(exitsAtOnce, "1")
	t.Setenv(notifySocket, "/nonexistent")
	c := child{name: "broker", args: func() []string { return nil }, failed: func(error) bool { return true }, announced: func(Ready) { t.Error("it is ready") }}
	c.init(&cli.Shell{Env: cli.Env{Err: cli.Stream{ReadWriter: struct {
		io.Reader
		io.Writer
	}{nil, io.Discard}}, Now: time.Now}})
	ended := make(chan error, 1)
	go func() { ended <- c.run() }()
	if err := <-ended; !errors.Is(err, errEndedEarly) {
		t.Errorf("got %v, want %v", err, errEndedEarly)
	}
}
