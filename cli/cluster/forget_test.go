package cluster

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestForget(t *testing.T) {
	down := machinesapi.Worker{ID: "gru-2", Region: "gru", Status: machinesapi.WorkerDown, Since: clitest.Now.Add(-time.Hour), Machines: 3, Volumes: 1}
	got := line.Against(t, clitest.Replies(http.StatusOK, down), "worker", "forget", "gru-2")
	if got.Code != 2 || !strings.Contains(got.Err, "forget worker gru-2, DOWN since 11:00, with 3 machines and 1 volume?") {
		t.Errorf("without an answer: exit status %d, %q", got.Code, got.Err)
	}
	got = line.Against(t, clitest.Replies(http.StatusOK, down), "worker", "forget", "--yes", "gru-2")
	if got.Code != 0 || got.Out != "gru-2  forgotten, with 3 machines and 1 volume\n" {
		t.Errorf("exit status %d, %q %q", got.Code, got.Out, got.Err)
	}
}
