package deploy

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestImageList(t *testing.T) {
	ref := bourse.ParseImageRef("nginx@sha256:0123456789abcdef")
	ref.Tag = "latest"
	list := machinesapi.ImageList{Images: []machinesapi.WorkerImage{
		{Worker: "gru-1", Region: "gru", Image: bourse.Image{Ref: ref, Bytes: 70 << 20, Disk: 190 << 20, UsedAt: clitest.Now.Add(-time.Minute), InUse: true}},
		{Worker: "gru-2", Region: "gru", Image: bourse.Image{Ref: ref, Bytes: 70 << 20, Pull: &bourse.PullProgress{Status: "pulling", Bytes: 1, Total: 2}}},
	}}
	got := line.Against(t, clitest.Replies(http.StatusOK, list), "image", "list")
	if got.Code != 0 || got.Err != "" {
		t.Fatalf("exit status %d, stderr %q", got.Code, got.Err)
	}
	clitest.Golden(t, "image_list", got.Out)
}

// TestImagePull checks that a pull fails if it fails on any worker, and that the error
// names the worker.
func TestImagePull(t *testing.T) {
	lines := func(list ...machinesapi.PullLine) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, l := range list {
				_ = json.NewEncoder(w).Encode(l)
			}
		})
	}
	pulling := machinesapi.PullLine{Worker: "gru-1", Image: &bourse.Image{Pull: &bourse.PullProgress{Status: "pulling", Bytes: 1, Total: 2}}}
	done := machinesapi.PullLine{Worker: "gru-1", Done: true, Image: &bourse.Image{Bytes: 70 << 20}}
	failed := machinesapi.PullLine{Worker: "gru-2", Error: &machinesapi.ErrorBody{Code: bourse.CodeNotFound, Error: "no such image"}}
	if got := line.Against(t, lines(pulling, done), "image", "pull", "nginx"); got.Code != 0 || got.Err != "gru-1  present, 70.0 MiB\n" {
		t.Errorf("%+v", got)
	}
	if got := line.Against(t, lines(pulling, failed, done), "image", "pull", "nginx"); got.Code == 0 || !strings.Contains(got.Err, "worker gru-2: no such image") {
		t.Errorf("%+v, want a failure that names gru-2", got)
	}
	if got := line.Against(t, lines(), "image", "pull", "nginx"); got.Code == 0 || !strings.Contains(got.Err, "no matching worker can run images") {
		t.Errorf("pull without workers: %+v", got)
	}
}
